package liveness

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// port is one end of the peer plane on loopback.
type port struct {
	*transport.Mux
	dialer *transport.Dialer
}

func openPort(t *testing.T, name vtop.NodeName) port {
	t.Helper()
	opt := transport.Options{
		Self: func() transport.Self {
			return transport.Self{Name: name, Cluster: vtop.ClusterID{1}, Storage: vtop.StorageID{1}, Incarnation: 7, ServerID: "s-" + string(name)}
		},
		Log: hclog.NewNullLogger(),
	}
	mux, err := transport.Listen("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	dialer, err := transport.NewDialer(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialer.Close(); _ = mux.Close() })
	return port{mux, dialer}
}

// follower sends beats to voter by a clock that the test moves, and notes what extends its deadline.
type follower struct {
	clock atomic.Int64
	begun atomic.Uint64 // beats, each before its time is taken
	mu    sync.Mutex
	got   []time.Duration
}

func (f *follower) now() time.Duration { return time.Duration(f.clock.Load()) }

func (f *follower) extended() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Duration(nil), f.got...)
}

func startFollower(t *testing.T, voter port) *follower {
	t.Helper()
	f, own := &follower{}, openPort(t, "f")
	f.clock.Store(int64(time.Hour))
	target := transport.Target{Name: "v", Addr: voter.Addr().String()}
	s := StartSender(SenderConfig{
		Interval: 5 * time.Millisecond,
		Voters:   func() []transport.Target { return []transport.Target{target} },
		Dial: func(ctx context.Context, to transport.Target) (*transport.Stream, error) {
			return own.dialer.DialStream(ctx, to, transport.Heartbeat)
		},
		Beat: func() *peerpb.Beat { f.begun.Add(1); return &peerpb.Beat{DiskOk: true} },
		Extend: func(sent time.Duration) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.got = append(f.got, sent)
		},
		Gone: func(vtop.NodeName) {}, Clock: f.now, Log: hclog.NewNullLogger(),
	})
	t.Cleanup(s.Close)
	return f
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const patience = 2 * time.Minute
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// A beat that arrived renews nothing (A2): only a leader that verified its quorum after the beat answers it, and the time
// that counts is when the beat was sent, however late the answer is (I7).
func TestBeats_DeadlineCountsFromABeatThatAVerifiedLeaderAnswered(t *testing.T) {
	voter := openPort(t, "v")
	tracker, _ := newTestTracker()
	r := NewReceiver(ReceiverConfig{
		Tracker: tracker, Address: func(vtop.NodeName) (string, bool) { return "", false },
		Evidence: func(vtop.NodeName) {}, Log: hclog.NewNullLogger(),
	})
	voter.HandleStream(transport.Heartbeat, r.Serve)
	f := startFollower(t, voter)
	beats := func() uint64 { seq, _ := tracker.Seq("f"); return seq }
	eventually(t, "five beats", func() bool { return beats() >= 5 })
	if got := f.extended(); len(got) != 0 {
		t.Fatalf("A2: extended to %v by beats that nobody answered", got)
	}
	// The leader notes the beats, then its verification takes long; beats go on arriving meanwhile.
	pending := r.Pending()
	f.clock.Add(int64(10 * time.Second))
	early := f.begun.Load() // what is on its way may be of these
	eventually(t, "a later beat", func() bool { return beats() > early })
	r.Acknowledge(pending, 1, "v")
	eventually(t, "the acknowledgement", func() bool { return len(f.extended()) > 0 })
	if got := f.extended(); len(got) != 1 || got[0] != time.Hour {
		t.Fatalf("I7: extended from %v, the acknowledged beat was sent at %s", got, time.Hour)
	}
	// Case: the same beats again, as from a leader that was slow: nothing new is said.
	r.Acknowledge(pending, 1, "v")
	r.Acknowledge(r.Pending(), 1, "v")
	eventually(t, "the next acknowledgement", func() bool { return len(f.extended()) > 1 })
	if got := f.extended(); len(got) != 2 || got[1] != time.Hour+10*time.Second {
		t.Fatalf("I7: extended from %v", got)
	}
}

// Answers without a verified quorum, of a voter that does not lead, and to beats that were never sent, renew nothing (A2).
func TestBeats_UnverifiedAnswersRenewNothing(t *testing.T) {
	voter := openPort(t, "v")
	voter.HandleStream(transport.Heartbeat, func(_ context.Context, s *transport.Stream) {
		frame, err := s.Recv()
		if err != nil {
			return
		}
		frame.Release()
		for _, ack := range []*peerpb.BeatAck{
			{Seq: 1, Leader: true},
			{Seq: 1, QuorumVerified: true},
			{Seq: 0, Leader: true, QuorumVerified: true},
			{Seq: 1 << 40, Leader: true, QuorumVerified: true},
			{Seq: 1, Leader: true, QuorumVerified: true, Term: 1, LeaderName: "v"}, // the end of the line
		} {
			if s.SendControl(ack) != nil || s.Flush() != nil {
				return
			}
		}
		for { // until it is closed
			if frame, err := s.Recv(); err != nil {
				return
			} else {
				frame.Release()
			}
		}
	})
	f := startFollower(t, voter)
	eventually(t, "the one good answer", func() bool { return len(f.extended()) > 0 })
	if got := f.extended(); len(got) != 1 || got[0] != time.Hour {
		t.Fatalf("A2: extended %d times, from %v", len(got), got)
	}
}
