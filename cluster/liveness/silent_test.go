package liveness

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// wires is a network of pipes, which lives on a bubble's time. What is dialed comes out of the listener of that name.
type wires struct {
	mu        sync.Mutex
	listeners map[string]chan net.Conn
}

type wireListener struct {
	w      *wires
	name   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (w *wires) listen(name string) *wireListener {
	l := &wireListener{w: w, name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[name] = l.conns
	return l
}

// Accept implements net.Listener.
func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *wireListener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

// Addr implements net.Listener.
func (l *wireListener) Addr() net.Addr { return &net.UnixAddr{Name: l.name} }

// DialContext implements transport.NetDialer.
func (w *wires) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	w.mu.Lock()
	to := w.listeners[addr]
	w.mu.Unlock()
	if to == nil {
		return nil, syscall.ECONNREFUSED
	}
	mine, theirs := net.Pipe()
	select {
	case to <- theirs:
		return mine, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// answering is a voter that counts the streams to it, and acknowledges beats as a verified leader on those that answers says.
type answering struct {
	mu      sync.Mutex
	streams int
	answers func(stream int) bool
}

func (a *answering) opened() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streams
}

func (a *answering) serve(_ context.Context, s *transport.Stream) {
	a.mu.Lock()
	a.streams++
	answer := a.answers(a.streams)
	a.mu.Unlock()
	for {
		frame, err := s.Recv()
		if err != nil {
			return
		}
		msg, err := transport.DecodeControl(frame.Type, frame.Body)
		frame.Release()
		beat, ok := msg.(*peerpb.Beat)
		if err != nil || !ok {
			return
		}
		if answer && (s.SendControl(&peerpb.BeatAck{Seq: beat.GetSeq(), Leader: true, QuorumVerified: true, Term: 1}) != nil || s.Flush() != nil) {
			return
		}
	}
}

// beating runs fn in a bubble in which a node sends beats to voters.
func beating(t *testing.T, voters map[vtop.NodeName]*answering, fn func(extended func() time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) + time.Hour }
		w := &wires{listeners: map[string]chan net.Conn{}}
		options := func(name vtop.NodeName) transport.Options {
			return transport.Options{
				Self: func() transport.Self {
					return transport.Self{Name: name, Cluster: vtop.ClusterID{1}, Storage: vtop.StorageID{1}, Incarnation: 7, ServerID: "s-" + string(name)}
				},
				Log: hclog.NewNullLogger(), Dialer: w,
			}
		}
		var targets []transport.Target
		for name, v := range voters {
			mux, err := transport.Serve(w.listen(string(name)), options(name))
			if err != nil {
				t.Fatal(err)
			}
			defer mux.Close()
			mux.HandleStream(transport.Heartbeat, v.serve)
			targets = append(targets, transport.Target{Name: name, Addr: string(name)})
		}
		dialer, err := transport.NewDialer(options("f"))
		if err != nil {
			t.Fatal(err)
		}
		defer dialer.Close()
		var mu sync.Mutex
		var last time.Duration
		s := StartSender(SenderConfig{
			Interval: 500 * time.Millisecond, AckTimeout: 6 * time.Second,
			Voters: func() []transport.Target { return targets },
			Dial: func(ctx context.Context, to transport.Target) (*transport.Stream, error) {
				return dialer.DialStream(ctx, to, transport.Heartbeat)
			},
			Beat: func() *peerpb.Beat { return &peerpb.Beat{DiskOk: true} },
			Extend: func(sent time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				last = max(last, sent)
			},
			Gone: func(vtop.NodeName) {}, Clock: clock, Log: hclog.NewNullLogger(),
		})
		defer s.Close()
		fn(func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if last == 0 {
				return -1
			}
			return last - time.Hour
		})
	})
}

// A stream that stays up and on which no acknowledgement comes is given up: a firewall may have forgotten the connection, or a cut
// may have had TCP back off for minutes.
func TestSender_GivesUpAStreamWithoutAcknowledgements(t *testing.T) {
	leader := &answering{answers: func(n int) bool { return n > 2 }}
	beating(t, map[vtop.NodeName]*answering{"v": leader}, func(extended func() time.Duration) {
		time.Sleep(5 * time.Second)
		if n := leader.opened(); n != 1 {
			t.Fatalf("%d streams within the time that an acknowledgement may take", n)
		}
		time.Sleep(15 * time.Second)
		if n := leader.opened(); n != 3 || extended() < 12*time.Second {
			t.Fatalf("%d streams, want a third after two times 6 s; extended from %s", n, extended())
		}
		time.Sleep(time.Hour)
		if n := leader.opened(); n != 3 {
			t.Fatalf("%d streams: one on which acknowledgements come was given up", n)
		}
	})
}

// Those who do not lead acknowledge nothing: their streams stay while the leader's has acknowledgements, and are dialed anew when
// that has none any more, since one of them may lead by then.
func TestSender_KeepsStreamsToThoseWhoDoNotLead(t *testing.T) {
	follower := &answering{answers: func(int) bool { return false }}
	beating(t, map[vtop.NodeName]*answering{"v": {answers: func(int) bool { return true }}, "w": follower}, func(extended func() time.Duration) {
		time.Sleep(time.Hour)
		if n := follower.opened(); n != 1 || extended() < 59*time.Minute {
			t.Fatalf("%d streams to a voter that does not lead; extended from %s", n, extended())
		}
	})
}
