package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// chunk is what one Write sent.
type chunk struct {
	data     []byte
	sent, at time.Time
}

// pipe is one direction of a connection: bytes arrive in order, each chunk when its delay has passed and nothing cuts the way.
// Writes never wait, since writers hold locks: what is on its way is bounded by the windows of those who use it.
type pipe struct {
	net      *network
	from, to string

	mu    sync.Mutex
	queue []chunk
	last  time.Time // when the last chunk, or the end, is due
	ended bool
	reset bool
	wake  chan struct{}
}

func newPipe(n *network, from, to string) *pipe {
	return &pipe{net: n, from: from, to: to, wake: make(chan struct{}, 1)}
}

// poke has the reader look again.
func (p *pipe) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipe) send(b []byte, end bool) {
	d := p.net.delay(p.from, p.to)
	p.mu.Lock()
	now := time.Now()
	if at := now.Add(d); at.After(p.last) {
		p.last = at
	}
	if len(b) > 0 {
		p.queue = append(p.queue, chunk{append([]byte(nil), b...), now, p.last})
	}
	p.ended = p.ended || end
	p.mu.Unlock()
	p.poke()
}

// breakOff makes the reader fail.
func (p *pipe) breakOff() {
	p.mu.Lock()
	p.reset = true
	p.mu.Unlock()
	p.poke()
}

// take gives the reader what has arrived. Without anything, it says when to look again; zero: only when woken.
func (p *pipe) take(b []byte) (n int, again time.Time, err error) {
	open, _ := p.net.passes(p.from, p.to)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.reset:
		return 0, again, syscall.ECONNRESET
	case len(p.queue) > 0 && !open:
		limit := p.queue[0].sent.Add(patienceTCP)
		if now.Before(limit) {
			return 0, limit, nil
		}
		p.reset = true
		return 0, again, syscall.ETIMEDOUT
	case len(p.queue) > 0 && p.queue[0].at.After(now):
		return 0, p.queue[0].at, nil
	case len(p.queue) > 0:
		n = copy(b, p.queue[0].data)
		if p.queue[0].data = p.queue[0].data[n:]; len(p.queue[0].data) == 0 {
			p.queue = p.queue[1:]
		}
		return n, again, nil
	case p.ended && !open:
		return 0, again, nil
	case p.ended && p.last.After(now):
		return 0, p.last, nil
	case p.ended:
		return 0, again, io.EOF
	}
	return 0, again, nil
}

// conn is one end of a connection.
type conn struct {
	in, out *pipe
	owner   *process // whose end it is
	other   *conn

	closed   atomic.Bool
	deadline atomic.Int64 // of reads, Unix nanoseconds; 0: none
}

func (c *conn) isClosed() bool { return c.closed.Load() }

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		c.refused()
		n, again, err := c.in.take(b)
		if n > 0 || err != nil {
			if errors.Is(err, syscall.ETIMEDOUT) {
				c.out.breakOff()
			}
			return n, err
		}
		if d := c.deadline.Load(); d != 0 {
			at := time.Unix(0, d)
			if !time.Now().Before(at) {
				return 0, os.ErrDeadlineExceeded
			}
			if again.IsZero() || at.Before(again) {
				again = at
			}
		}
		if again.IsZero() {
			<-c.in.wake
			continue
		}
		t := time.NewTimer(time.Until(again))
		select {
		case <-c.in.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	c.out.mu.Lock()
	reset := c.out.reset
	c.out.mu.Unlock()
	if reset {
		return 0, syscall.ECONNRESET
	}
	if !c.owner.dead.Load() { // a dead process sends nothing
		c.out.send(b, false)
		c.refused()
	}
	return len(b), nil
}

// refused breaks the connection if bytes are on the way to an end that is no more, and its host says so: it has power, and the
// way is open.
func (c *conn) refused() {
	if !c.other.closed.Load() || !c.in.net.both(c.out.from, c.out.to) {
		return
	}
	c.out.mu.Lock()
	unread := len(c.out.queue) > 0
	c.out.mu.Unlock()
	if unread {
		c.in.breakOff()
		c.out.breakOff()
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		if !c.owner.dead.Load() {
			c.out.send(nil, true)
		}
		c.in.poke()
	}
	return nil
}

// die ends the connection of a process that was killed, or lost its power: then nobody tells the other side.
func (c *conn) die(power bool) {
	if c.closed.CompareAndSwap(false, true) {
		if !power {
			c.out.send(nil, true)
		}
		c.in.poke()
	}
}

type address string

func (address) Network() string  { return "sim" }
func (a address) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address(c.out.from) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address(c.out.to) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	d := int64(0)
	if !t.IsZero() {
		d = t.UnixNano()
	}
	c.deadline.Store(d)
	c.in.poke()
	return nil
}

// SetWriteDeadline implements net.Conn: writes never wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// listener is the port of one process.
type listener struct {
	owner *process
	ch    chan *conn
	done  chan struct{}
	once  sync.Once
}

// listen opens the port of a process; a later process of the host takes it over.
func (n *network) listen(p *process) *listener {
	ln := &listener{owner: p, ch: make(chan *conn, 64), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[p.name()] = ln
	return ln
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address(l.owner.name()) }

func (l *listener) open() bool {
	select {
	case <-l.done:
		return false
	default:
		return !l.owner.dead.Load()
	}
}

// DialContext implements transport.NetDialer: an address is the name of a host.
func (p *process) DialContext(ctx context.Context, _, to string) (net.Conn, error) {
	n, from := p.host.life.net, p.name()
	for _, w := range []way{{from, to}, {to, from}} {
		if err := n.await(ctx, w.from, w.to); err != nil {
			return nil, err
		}
		if err := sleep(ctx, n.delay(w.from, w.to)); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ln := n.ports[to]
	if p.dead.Load() {
		return nil, net.ErrClosed
	}
	if ln == nil || !ln.open() {
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: address(to), Err: syscall.ECONNREFUSED}
	}
	there, back := newPipe(n, from, to), newPipe(n, to, from)
	mine, other := &conn{in: back, out: there, owner: p}, &conn{in: there, out: back, owner: ln.owner}
	mine.other, other.other = other, mine
	select {
	case ln.ch <- other:
	default:
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: address(to), Err: syscall.ECONNREFUSED}
	}
	n.conns = append(n.conns, mine, other)
	return mine, nil
}

// sever ends all connections of a process.
func (n *network) sever(p *process, power bool) {
	n.mu.Lock()
	all := append([]*conn(nil), n.conns...)
	n.mu.Unlock()
	for _, c := range all {
		if c.owner == p {
			c.die(power)
		}
	}
}
