package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// conn is one client. The reader goroutine owns what it reads with, the writer what it answers with; they meet at
// the queue.
type conn struct {
	// Set once.
	server *Server
	nc     net.Conn
	ip     string
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	slots  chan struct{} // one token for each request in flight: Config.MaxInFlight

	queue    queue
	wake     chan struct{} // has room for one: the writer has something to look at
	deadline *time.Timer   // wakes the writer for the deadline of the oldest Produce
	held     atomic.Int64  // bytes of requests that wait to be run
	freed    chan struct{} // has room for one: sent when held has fallen

	// Of the reader.
	received   int64 // bytes of all complete frames so far
	produceReq kmsg.ProduceRequest
	quota      *clientQuota // of the client id last named
	absent     absentTopics

	mute muteUntil // while it lasts nothing is read

	// Of the writer.
	produceResp kmsg.ProduceResponse
	refusals    refusals
	timer       *time.Timer
	fetchSize   int          // size of the last fetch answer: the next buffer begins there
	fetchRanges []vtop.Range // memory for the ranges of the next fetch
	fetchCap    int          // most bytes of records in one answer: falls for a client that reads slowly
	failures    int          // answers in a row that were errors throughout
}

const readBuffer = 16 << 10

func newConn(s *Server, nc net.Conn, ip string) *conn {
	c := &conn{server: s, nc: nc, ip: ip, slots: make(chan struct{}, s.cfg.MaxInFlight), wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), fetchCap: s.cfg.FetchBytes}
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
	c.deadline = time.AfterFunc(time.Hour, c.signal)
	c.deadline.Stop()
	return c
}

// serve runs the connection until it ends, and waits for both its goroutines.
func (c *conn) serve() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := c.write(); err != nil {
			c.cancel(gone(err))
			c.nc.Close() // wakes the reader
		}
	}()
	err := c.handshake()
	if err == nil {
		err = c.read()
	}
	c.server.quotas.release(c.quota)
	if !errors.Is(err, errStopped) {
		c.cancel(gone(err)) // a parked fetch of a client that is gone ends now
	}
	c.queue.close()
	c.signal()
	<-written
	c.deadline.Stop()
	for f := c.queue.pop(); f != nil; f = c.queue.pop() { // what the writer left behind
		c.finish(f)
	}
	c.nc.Close()
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	c.cancel(err)
	c.logEnd(err)
}

// gone is how a connection ended, as those learn of it who still work for it: their call is canceled.
func gone(err error) error { return fmt.Errorf("%w: %w", context.Canceled, err) }

func (c *conn) logEnd(err error) {
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, errStopped), errors.Is(err, net.ErrClosed):
	case errors.Is(err, errHandshake):
		c.server.metrics.badHandshakes.Inc()
		c.server.logHandshake(c.nc.RemoteAddr(), err)
	case errors.Is(err, errFrame), errors.Is(err, errMalformed), errors.Is(err, errUnserved):
		c.server.metrics.badFrames.Inc()
		c.server.log.Info("closing a connection", "remote", c.nc.RemoteAddr(), "error", err)
	default:
		c.server.log.Debug("connection ended", "remote", c.nc.RemoteAddr(), "error", err)
	}
}

// read takes requests off the socket until it ends, admits produces, and queues all.
func (c *conn) read() error {
	r := bufio.NewReaderSize(c.nc, readBuffer)
	for {
		if err := c.awaitUnmuted(); err != nil {
			return err
		}
		if err := c.awaitFrame(r); err != nil {
			return err
		}
		if err := c.awaitRoom(); err != nil {
			return err
		}
		f, err := c.readFrame(c.ctx, r)
		if err != nil {
			return err
		}
		c.server.metrics.bytesIn.Add(float64(f.size + 4))
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			f.release()
			return context.Cause(c.ctx)
		}
		if f.api.key == keyProduce {
			if err := c.admitProduce(f); err != nil {
				c.finish(f)
				return err
			}
		}
		c.enqueue(f)
	}
}

// awaitFrame waits for the first bytes of the next request. A client that is owed an answer is not idle.
func (c *conn) awaitFrame(r *bufio.Reader) error {
	for {
		if c.server.isDraining() {
			return errStopped
		}
		if r.Buffered() < 4 {
			c.nc.SetReadDeadline(time.Now().Add(c.server.cfg.IdleTimeout))
			if c.server.isDraining() { // Close may have set its deadline before ours
				return errStopped
			}
		}
		_, err := r.Peek(4)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && (c.server.isDraining() || len(c.slots) > 0):
		default:
			return err
		}
	}
}

// awaitRoom waits while this connection's requests that wait to be run hold more bytes than one client may.
func (c *conn) awaitRoom() error {
	for c.held.Load() > 2*int64(c.server.cfg.MaxFrame) {
		select {
		case <-c.freed:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	return nil
}

// ended is the cause of the connection's end.
func (c *conn) ended() error { return context.Cause(c.ctx) }

func (c *conn) holdBytes(n int) {
	if c.held.Add(int64(n)); n > 0 {
		return
	}
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// extendRead gives the rest of a frame that has begun a fresh deadline.
func (c *conn) extendRead() { c.nc.SetReadDeadline(time.Now().Add(c.server.cfg.FrameTimeout)) }

// write answers requests in their order until the queue is closed. Answers that are ready together leave together.
func (c *conn) write() error {
	out := c.server.pool.get(firstChunk >> 3)
	defer func() { c.server.pool.put(out) }()
	for {
		f, closed := c.queue.head()
		switch {
		case f == nil && closed:
			return c.flush(out)
		case f == nil || !f.ready():
			if err := c.park(f, out); err != nil {
				return err
			}
			continue
		}
		c.queue.pop()
		err := c.answer(f, out)
		if err == nil {
			err = c.pace(f)
		}
		c.finish(f)
		if err != nil {
			return errors.Join(err, c.flush(out))
		}
		if len(out.b) >= firstChunk {
			if err := c.flush(out); err != nil {
				return err
			}
		}
	}
}

// A client that gets nothing but errors and asks again at once, as some do with a leader epoch that is too old, gets
// its answers at a slower pace after the first few.
const (
	patience  = 8
	errorPace = 50 * time.Millisecond
)

// pace holds an answer back that is the last of a long row of errors.
func (c *conn) pace(f *frame) error {
	switch {
	case f.succeeded || !f.failed:
		c.failures = 0
		return nil
	case c.failures < patience:
		c.failures++
		return nil
	}
	c.timer.Reset(errorPace)
	defer c.timer.Stop()
	select {
	case <-c.timer.C:
	case <-c.server.draining:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	return nil
}

// park flushes what is ready and waits until there is something to look at: f, the oldest request, may be nil.
func (c *conn) park(f *frame, out *buffer) error {
	if err := c.flush(out); err != nil {
		return err
	}
	if f != nil {
		c.deadline.Reset(time.Until(f.produce.deadline))
	}
	select {
	case <-c.wake:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// answer appends the answer of one request to out, or, where that may wait or is large, flushes out first.
func (c *conn) answer(f *frame, out *buffer) (err error) {
	switch {
	case f.produce != nil:
		err = c.answerProduce(f, out)
	case f.api.key == keyFetch:
		if err = c.flush(out); err == nil {
			err = c.answerFetch(f)
		}
	default:
		if err = c.flush(out); err == nil {
			err = c.answerOther(f, out)
		}
	}
	c.server.metrics.answered(f)
	return err
}

// answerOther decodes, runs and encodes a request that the table has a function for. What its elements come to is reserved
// meanwhile, for a large request until its answer has left.
func (c *conn) answerOther(f *frame, out *buffer) error {
	if f.unsupported {
		return c.append(out, f, unsupportedApiVersions(c.server.apis), false)
	}
	elements, err := f.api.check(f.version, f.flexible, f.body)
	if err != nil {
		return err
	}
	held, err := c.server.work.acquire(c.ctx, int64(max(0, elements-freeElements))*elementCost)
	if err != nil {
		return err
	}
	defer func() { c.server.work.release(held) }()
	req, err := f.decode()
	if err != nil {
		return err
	}
	if f.api.parks() {
		c.server.work.release(held)
		held = 0
	}
	resp, err := f.api.run(&call{Context: c.ctx, server: c.server, node: c.server.node, frame: f}, req)
	if err != nil {
		return err
	}
	if err := c.append(out, f, resp, f.flexible && f.api.key != keyApiVersions); err != nil || held == 0 {
		return err
	}
	return c.flush(out)
}

// decode reads a body that was checked.
func (f *frame) decode() (kmsg.Request, error) {
	req := f.api.newRequest(f.version)
	if err := req.ReadFrom(f.body); err != nil {
		return nil, errors.Join(errMalformed, err, errors.New(f.api.name))
	}
	return req, nil
}

// append encodes an answer: length, correlation id, an empty tag section in flexible headers, body.
func (c *conn) append(out *buffer, f *frame, resp kmsg.Response, tagged bool) error {
	at := len(out.b)
	out.b = binary.BigEndian.AppendUint32(out.b, 0)
	out.b = binary.BigEndian.AppendUint32(out.b, uint32(f.corr))
	if tagged {
		out.b = append(out.b, 0)
	}
	out.b = resp.AppendTo(out.b)
	binary.BigEndian.PutUint32(out.b[at:], uint32(len(out.b)-at-4))
	return nil
}

// flush writes what out holds.
func (c *conn) flush(out *buffer) error {
	if len(out.b) == 0 {
		return nil
	}
	const slowest = 32 << 10 // bytes a second
	allowed := c.server.cfg.WriteTimeout + time.Duration(len(out.b)/slowest)*time.Second
	c.nc.SetWriteDeadline(time.Now().Add(allowed))
	n, err := c.nc.Write(out.b)
	c.server.metrics.bytesOut.Add(float64(n))
	out.b = out.b[:0]
	return err
}

// finish gives back what a request still holds. It may be called once only, by whoever has the frame last.
func (c *conn) finish(f *frame) {
	f.release()
	if f.produce != nil {
		c.server.recycle(f.produce)
		f.produce = nil
	}
	<-c.slots
}

// call is what the function of one request works with. Its context ends with the connection.
type call struct {
	context.Context
	server *Server
	node   Node
	frame  *frame
}

// within returns the call's context bounded by the time that the client gave, capped; AdminTimeout if it gave none.
func (c *call) within(millis int32) (context.Context, context.CancelFunc) {
	d := c.server.cfg.AdminTimeout
	if millis > 0 {
		d = min(time.Duration(millis)*time.Millisecond, c.server.cfg.MaxTimeout)
	}
	return context.WithTimeout(c, d)
}
