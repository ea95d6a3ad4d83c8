package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// Mux is the peer port of a node. It accepts from the moment it is made: calls are refused until SetHandler,
// streams until HandleStream, and Raft connections wait for RaftLayer.Accept for a few seconds.
type Mux struct {
	opt   Options
	log   hclog.Logger
	ln    net.Listener
	tls   *tls.Config
	conns *connSet
	raft  *RaftLayer
	http  *http.Server
	rpc   *handoff

	handler atomic.Pointer[Handler]
	calls   atomic.Int64
	// transfers are the segment requests being answered.
	transfers atomic.Int64
	refusals  refusals

	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	streams map[Purpose]func(context.Context, *Stream)
	closed  bool
}

// Listen binds the peer port at addr (host:port).
func Listen(addr string, opt Options) (*Mux, error) {
	if _, err := opt.withDefaults(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	return Serve(ln, opt)
}

// Serve is Listen on a listener that is there already, of any network: the Mux closes it.
func Serve(ln net.Listener, opt Options) (*Mux, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	dialer, err := NewDialer(opt)
	if err != nil {
		return nil, err
	}
	m := &Mux{
		opt: opt, log: opt.Log.Named("peer"), ln: ln,
		conns:   newConnSet(opt.MaxConns, opt.MaxPending),
		rpc:     newHandoff(ln.Addr()),
		streams: map[Purpose]func(context.Context, *Stream){},
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	if opt.TLS != nil {
		m.tls = opt.TLS.ServerConfig([]tlsid.Role{tlsid.Node}, alpnRaft, alpnStream, alpnHTTP)
	}
	m.raft = &RaftLayer{handoff: newHandoff(ln.Addr()), conns: m.conns, dialer: dialer}
	m.SetHandler(Refuser{})
	m.http = m.newHTTPServer()
	m.wg.Add(2)
	go m.serveHTTP()
	go m.accept()
	return m, nil
}

// Addr is the bound address, not the advertised one.
func (m *Mux) Addr() net.Addr { return m.ln.Addr() }

// SetHandler takes effect for the next call. It may be called again, as more of the node comes up.
func (m *Mux) SetHandler(h Handler) { m.handler.Store(&h) }

// HandleStream registers what serves the streams of one purpose, each in a goroutine of its own. The stream
// is closed when serve returns; its context ends with Close, which waits for serve. A purpose without a
// function is refused with vtop.ErrNotReady.
func (m *Mux) HandleStream(p Purpose, serve func(ctx context.Context, s *Stream)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[p] = serve
}

// Raft is the Raft side of the port.
func (m *Mux) Raft() *RaftLayer { return m.raft }

// Stats counts connections.
func (m *Mux) Stats() Stats {
	s := m.conns.stats()
	s.Rejected = m.refusals.sum()
	return s
}

// Close stops accepting, closes every connection, Raft's included, and waits for all that served them. Calls
// that are being answered see their context end. It is safe to call twice.
func (m *Mux) Close() error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	if again {
		m.wg.Wait()
		return nil
	}
	m.cancel(vtop.ErrClosed)
	err := m.ln.Close()
	err = errors.Join(err, m.raft.Close(), m.http.Close())
	m.rpc.close()
	m.conns.close()
	m.wg.Wait()
	return err
}

// accept hands each connection to a goroutine at once: nothing a stranger does can hold up the next one.
func (m *Mux) accept() {
	defer m.wg.Done()
	pause := 5 * time.Millisecond
	for {
		raw, err := m.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || m.ctx.Err() != nil {
				return
			}
			// Out of file descriptors, say. It heals when some connection ends.
			m.log.Warn("accept", "error", err, "pause", pause)
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		c := m.conns.add(raw)
		if c == nil {
			continue
		}
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			if err := m.admit(c); err != nil {
				m.refusals.report(m.log, "connection refused", raw.RemoteAddr(), err)
				_ = c.Close() // refused
			}
		}()
	}
}

// admit finds out what a connection is for and who is there, and hands it on. Under an error the caller
// closes it.
func (m *Mux) admit(c *conn) error {
	deadline(c, time.Now().Add(HandshakeTimeout))
	proto, err := m.secure(c)
	if err != nil {
		return err
	}
	if proto == alpnHTTP {
		return m.admitHTTP(c, nil)
	}
	var first [preambleSize]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return fmt.Errorf("read preamble: %w", err)
	}
	switch got := string(first[:]); {
	case got == preambleRaft && proto != alpnStream:
		return m.admitRaft(c)
	case got == preambleStream && proto != alpnRaft:
		return m.admitStream(c)
	case proto != "":
		return refusef(ErrInvalid, "protocol %s began with %q", proto, first)
	case first[0] == tlsHandshake:
		return refusef(ErrInvalid, "peer speaks TLS, this node's peer port is plaintext: give --tls-* to all nodes")
	}
	return m.admitHTTP(c, first[:])
}

// secure does the TLS handshake and returns the negotiated protocol; in plaintext, "".
func (m *Mux) secure(c *conn) (string, error) {
	if m.tls == nil {
		return "", nil
	}
	t := tls.Server(c.raw, m.tls)
	ctx, cancel := context.WithTimeout(m.ctx, HandshakeTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		return "", fmt.Errorf("tls handshake: %w", tlsid.Named(err))
	}
	subject, err := tlsid.SubjectOf(t.ConnectionState())
	if err != nil {
		return "", err
	}
	c.Conn, c.name = t, subject.Name
	if p := t.ConnectionState().NegotiatedProtocol; p != "" {
		return p, nil
	}
	return alpnHTTP, nil
}

func (m *Mux) admitHTTP(c *conn, first []byte) error {
	deadline(c, time.Time{})
	m.conns.settle(c, kindHTTP)
	rc := &rpcConn{Conn: c, under: c, ended: m.wg.Done}
	if len(first) > 0 {
		rc.Conn = &prefixConn{Conn: c, prefix: first}
	}
	m.wg.Add(1) // until the HTTP server is done with it
	err := m.rpc.give(m.ctx, rc)
	if err != nil {
		rc.end()
	}
	return err
}

// greet reads the hello and judges it, and answers.
func (m *Mux) greet(c *conn, raft bool, ready func(*peerpb.Hello) error) (Caller, Purpose, error) {
	h := new(peerpb.Hello)
	if err := readMessage(c, h); err != nil {
		return Caller{}, 0, fmt.Errorf("read hello: %w", err)
	}
	from, err := callerOf(h, c.RemoteAddr().String(), c.name)
	if err == nil {
		err = m.opt.checkHello(h, from, raft)
	}
	if err == nil {
		err = ready(h)
	}
	if werr := writeMessage(c, "", replyOf(m.opt.Self(), err)); err == nil && werr != nil {
		err = fmt.Errorf("answer hello: %w", werr)
	}
	return from, h.GetPurpose(), err
}

func (m *Mux) admitRaft(c *conn) error {
	if _, _, err := m.greet(c, true, func(*peerpb.Hello) error { return nil }); err != nil {
		return err
	}
	deadline(c, time.Time{})
	m.conns.settle(c, kindRaft)
	return m.raft.give(m.ctx, c)
}

func (m *Mux) admitStream(c *conn) error {
	var serve func(context.Context, *Stream)
	from, purpose, err := m.greet(c, false, func(h *peerpb.Hello) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if serve = m.streams[h.GetPurpose()]; serve == nil {
			return refusef(vtop.ErrNotReady, "node %q serves no %s streams yet", m.opt.Self().Name, h.GetPurpose())
		}
		return nil
	})
	if err != nil {
		return err
	}
	deadline(c, time.Time{})
	m.conns.settle(c, kindStream)
	s := newStream(c, from, purpose)
	defer func() { _ = s.Close() }() // serve is done with it
	serve(m.ctx, s)
	return nil
}

// handoff is a net.Listener that is given its connections.
type handoff struct {
	addr net.Addr
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newHandoff(addr net.Addr) *handoff {
	return &handoff{addr: addr, ch: make(chan net.Conn), done: make(chan struct{})}
}

// give waits, bounded, until somebody accepts c.
func (h *handoff) give(ctx context.Context, c net.Conn) error {
	wait := time.NewTimer(HandshakeTimeout)
	defer wait.Stop()
	select {
	case h.ch <- c:
		select {
		case <-h.done: // accepted while closing: whoever closed may have missed it
			return vtop.ErrClosed
		default:
			return nil
		}
	case <-h.done:
		return vtop.ErrClosed
	case <-ctx.Done():
		return vtop.ErrClosed
	case <-wait.C:
		return refusef(vtop.ErrNotReady, "nobody accepted the connection within %s", HandshakeTimeout)
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.ch:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.close()
	return nil
}

func (h *handoff) close() { h.once.Do(func() { close(h.done) }) }

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return h.addr }
