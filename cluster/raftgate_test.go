package cluster

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/vtop-log/vtop"
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
