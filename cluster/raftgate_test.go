package cluster

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

func TestRaftGate_ShutCutsEveryConnectionAndRefusesNewOnes(t *testing.T) {
	var others []net.Conn
	g := newRaftGate(func(context.Context, transport.Target) (net.Conn, error) {
		here, there := net.Pipe()
		others = append(others, there)
		return here, nil
	})
	a, err := g.Dial(t.Context(), transport.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Dial(t.Context(), transport.Target{}); err != nil {
		t.Fatal(err)
	}
	if !g.Set(true) || g.Set(true) {
		t.Fatal("Set does not tell a change from a repeat")
	}
	for _, other := range others {
		if _, err := other.Read(make([]byte, 1)); err == nil {
			t.Fatal("a connection outlived the gate")
		}
	}
	if _, err := g.Dial(t.Context(), transport.Target{}); !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("dial through a shut gate: %v", err)
	}
	if err := a.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	g.Set(false)
	if _, err := g.Dial(t.Context(), transport.Target{}); err != nil {
		t.Fatalf("dial through an open gate: %v", err)
	}
}

// A node whose disk hangs leads nothing from that moment on, whatever its deadline was: nothing is admitted (I7), and an answer
// that comes late from the metadata quorum may renew the lease only until the next look.
func TestNode_StepAsideEndsTheDeadline(t *testing.T) {
	now := time.Duration(time.Hour)
	n := &Node{machine: fsm.New(fsm.Options{Clock: func() time.Duration { return now }})}
	n.machine.Leases().SetIdentity("a", 1)
	n.machine.Leases().SetDeadline(now + time.Minute)
	n.stepAside() // there may be no engine yet
	if left := n.machine.Leases().Deadline(); left >= now {
		t.Fatalf("the deadline is %s, want it to be over at %s", left, now)
	}
}
