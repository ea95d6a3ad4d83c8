package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/tlsid"
)

func defaultDialer() NetDialer { return &net.Dialer{KeepAlive: 15 * time.Second} }

// Dialer opens Raft and stream connections. It is safe for concurrent use, and knows every connection it
// opened until that is closed.
type Dialer struct {
	opt   Options
	conns *connSet
}

// NewDialer checks the options. Close it.
func NewDialer(opt Options) (*Dialer, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Dialer{opt: opt, conns: newConnSet(math.MaxInt, math.MaxInt)}, nil
}

// Close closes every connection that is still open. Later dials give vtop.ErrClosed.
func (d *Dialer) Close() error {
	d.conns.close()
	return nil
}

// DialStream opens a stream, and returns once the other side has accepted it or said why not. Without a
// deadline in ctx, HandshakeTimeout bounds it. A failed dial matches ErrUnreachable.
func (d *Dialer) DialStream(ctx context.Context, to Target, p Purpose) (*Stream, error) {
	c, peer, err := d.greet(ctx, to, p)
	if err != nil {
		return nil, fmt.Errorf("stream to %s: %w", to, err)
	}
	d.conns.settle(c, kindStream)
	return newStream(c, peer, p), nil
}

// greet dials, says who we are and reads who answers.
func (d *Dialer) greet(ctx context.Context, to Target, p Purpose) (*conn, Caller, error) {
	preamble, alpn := preambleStream, alpnStream
	if p == peerpb.Purpose_PURPOSE_RAFT {
		preamble, alpn = preambleRaft, alpnRaft
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	c, err := d.dial(ctx, to, alpn)
	if err != nil {
		return nil, Caller{}, err
	}
	stop := context.AfterFunc(ctx, func() { deadline(c, time.Unix(1, 0)) })
	defer stop()
	peer, err := d.hello(c, to, p, preamble)
	if err == nil && !stop() {
		err = context.Cause(ctx) // the deadline is spoilt or about to be
	}
	if err != nil {
		_ = c.Close() // the first error says more
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, Caller{}, err
	}
	return c, peer, nil
}

func (d *Dialer) hello(c *conn, to Target, p Purpose, preamble string) (Caller, error) {
	self := d.opt.Self()
	if err := writeMessage(c, preamble, helloOf(self, to.Name, p)); err != nil {
		return Caller{}, brokenError("send hello", err)
	}
	reply := new(peerpb.HelloReply)
	if err := readMessage(c, reply); err != nil {
		var refusal *PeerError
		if errors.As(err, &refusal) {
			return Caller{}, err
		}
		return Caller{}, brokenError("the answer to hello did not come; does the other side use TLS with the same authority, and is it a vtopd?", err)
	}
	return checkReply(self, to, reply, c.name)
}

// dial opens a connection and does the TLS handshake.
func (d *Dialer) dial(ctx context.Context, to Target, alpn string) (*conn, error) {
	raw, err := d.opt.Dialer.DialContext(ctx, "tcp", to.Addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	c := d.conns.add(raw)
	if c == nil {
		return nil, fmt.Errorf("dial: %w", vtop.ErrClosed)
	}
	if d.opt.TLS == nil {
		return c, nil
	}
	t := tls.Client(raw, d.opt.TLS.ClientConfig(to.Name, alpn))
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the first error says more
		if errors.Is(err, tlsid.ErrWrongName) {
			return nil, refusef(ErrWrongNode, "%s: %v", to, err)
		}
		return nil, fmt.Errorf("%w: tls handshake with %s (has it --tls-* of the same authority?): %w", ErrUnreachable, to, err)
	}
	subject, err := tlsid.SubjectOf(t.ConnectionState())
	if err != nil {
		_ = c.Close() // the first error says more
		return nil, err
	}
	c.Conn, c.name = t, subject.Name
	return c, nil
}

// RaftLayer is the Raft side of the peer port: a net.Listener and a Dial, of which cluster/meta makes a
// raft.StreamLayer. Connections have been greeted both ways, so that no two clusters or generations meet.
type RaftLayer struct {
	*handoff
	conns  *connSet
	dialer *Dialer
}

// Dial connects to whatever node answers at addr, if it is of this cluster and generation.
func (l *RaftLayer) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.DialTarget(ctx, Target{Addr: addr})
}

// DialTarget connects to one node and no other.
func (l *RaftLayer) DialTarget(ctx context.Context, to Target) (net.Conn, error) {
	c, _, err := l.dialer.greet(ctx, to, peerpb.Purpose_PURPOSE_RAFT)
	if err != nil {
		return nil, fmt.Errorf("raft connection to %s: %w", to, err)
	}
	l.dialer.conns.settle(c, kindRaft)
	return c, nil
}

// Close ends Accept and closes every Raft connection, accepted or dialled: Raft's own transport would leave
// those alive. The rest of the Mux goes on.
func (l *RaftLayer) Close() error {
	l.handoff.close()
	l.conns.closeKind(kindRaft)
	return l.dialer.Close()
}
