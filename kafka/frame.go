package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	// errFrame: a length or header that no client of ours sends; the connection ends.
	errFrame = errors.New("bad frame")
	// errUnserved: an API key or version that is not served; the protocol has no answer for it.
	errUnserved = errors.New("request not served")
)

// firstChunk is how much of a frame is taken without asking the budget: a connection's fixed allowance.
const firstChunk = 64 << 10

// minFrame is the shortest request: key, version, correlation id.
const minFrame = 8

// frame is one request as it came. release gives its memory back.
type frame struct {
	conn     *conn
	buf      *buffer
	reserved int64

	api     *api
	version int16
	corr    int32
	// client is the client id, cut to maxClientID; empty if there is none. quota is what it may move.
	client string
	quota  *clientQuota
	// body is what follows the request header.
	body     []byte
	flexible bool
	// size of the whole frame, and when it had arrived.
	size int
	at   time.Time
	// produce is set on a Produce that was admitted.
	produce *produceCall
	// failed and succeeded say whether any part of the answer is an error, and whether any is not: see conn.pace.
	failed, succeeded bool
	// createErr is why topics that a Metadata asked for could not be created.
	createErr map[string]error
	// unsupported: ApiVersions of a version that is not served, which alone has an answer.
	unsupported bool
}

func (f *frame) release() {
	if f.buf == nil {
		return
	}
	s := f.conn.server
	s.pool.put(f.buf)
	s.requests.release(f.reserved)
	f.buf, f.body, f.reserved = nil, nil, 0
	f.conn.holdBytes(-f.size)
}

// note records how one part of the answer went.
func (f *frame) note(failed bool) {
	f.failed = f.failed || failed
	f.succeeded = f.succeeded || !failed
}

// readFrame takes the next request off the socket. Nothing is allocated that has not been received: the length is
// checked first, the buffer doubles as bytes arrive (unless this connection has sent as much before), and beyond
// the first chunk the bytes are reserved in the server's budget, where the reader waits under overload.
func (c *conn) readFrame(ctx context.Context, r *bufio.Reader) (*frame, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(head)))
	if n < minFrame || n > c.server.cfg.MaxProduceFrame {
		return nil, fmt.Errorf("%w: length %d: want %d to %d%s", errFrame, n, minFrame, c.server.cfg.MaxProduceFrame, guess(head))
	}
	c.extendRead()
	if head, err = r.Peek(8); err != nil {
		return nil, err
	}
	key, version := int16(binary.BigEndian.Uint16(head[4:])), int16(binary.BigEndian.Uint16(head[6:]))
	f, err := c.identify(key, version)
	if err != nil {
		return nil, err
	}
	if key != keyProduce && n > c.server.cfg.MaxFrame {
		return nil, fmt.Errorf("%w: %s of %d bytes: want at most %d", errFrame, f.api.name, n, c.server.cfg.MaxFrame)
	}
	if _, err := r.Discard(4); err != nil {
		return nil, err
	}
	f.size, f.buf = n, c.server.pool.get(min(n, firstChunk))
	c.holdBytes(n)
	if err := c.readBody(ctx, r, f, n); err != nil {
		f.release()
		return nil, err
	}
	f.at = time.Now()
	if err := f.header(); err != nil {
		f.release()
		return nil, err
	}
	return f, nil
}

// identify finds the API before the body is read, so that its limits hold.
func (c *conn) identify(key, version int16) (*frame, error) {
	a := c.server.api(key)
	if a == nil {
		return nil, fmt.Errorf("%w: api key %d version %d", errUnserved, key, version)
	}
	f := &frame{conn: c, api: a, version: version}
	if version < a.min || version > a.max {
		if key != keyApiVersions {
			return nil, fmt.Errorf("%w: %s version %d: want %d to %d", errUnserved, a.name, version, a.min, a.max)
		}
		f.unsupported = true
	}
	return f, nil
}

func (c *conn) readBody(ctx context.Context, r *bufio.Reader, f *frame, n int) error {
	if err := c.fill(r, f, min(n, firstChunk)); err != nil {
		return err
	}
	if n > firstChunk {
		reserved, err := c.server.requests.acquire(ctx, int64(n))
		if err != nil {
			return err
		}
		f.reserved = reserved
		if c.received >= int64(n) {
			f.buf = c.server.pool.grow(f.buf, n)
		}
	}
	const step = 1 << 20 // each within FrameTimeout
	for len(f.buf.b) < n {
		want := min(n, len(f.buf.b)+step)
		if want > cap(f.buf.b) {
			f.buf = c.server.pool.grow(f.buf, min(n, 2*cap(f.buf.b)))
			want = min(want, cap(f.buf.b))
		}
		c.extendRead()
		if err := c.fill(r, f, want); err != nil {
			return err
		}
	}
	c.received += int64(n)
	return nil
}

// fill reads until the buffer holds n bytes, which it has room for.
func (c *conn) fill(r *bufio.Reader, f *frame, n int) error {
	have := len(f.buf.b)
	f.buf.b = f.buf.b[:n]
	if _, err := io.ReadFull(r, f.buf.b[have:]); err != nil {
		return err
	}
	return nil
}

// header takes the request header off the frame: key, version, correlation id, client id, and tags where flexible.
func (f *frame) header() error {
	b := f.buf.b
	f.corr = int32(binary.BigEndian.Uint32(b[4:]))
	if f.unsupported {
		return nil
	}
	f.flexible = f.version >= f.conn.server.flexMin[f.api.key]
	g := guard{src: b[8:], version: f.version}
	err := g.sized(2, true) // the client id is never compact
	if err == nil {
		f.conn.identifyClient(f, clientID(b[8:], len(g.src)))
	}
	if err == nil && f.flexible {
		g.flexible = true
		err = g.tagSection()
	}
	if err != nil {
		return fmt.Errorf("%w: header of %s version %d: %w", errMalformed, f.api.name, f.version, err)
	}
	f.body = g.src
	return nil
}

// clientID is the client id at the front of b, of which rest bytes are behind it; empty if it is null.
func clientID(b []byte, rest int) []byte { return b[2 : len(b)-rest] }

// guess names other protocols by their first bytes, for the operator who looks for a wrong port.
func guess(head []byte) string {
	switch {
	case head[0] == 0x16 && head[1] == 3:
		return " (looks like a TLS client on a plaintext port)"
	case string(head) == "GET " || string(head) == "POST" || string(head) == "HEAD" || string(head) == "PUT ":
		return " (looks like HTTP)"
	}
	return ""
}
