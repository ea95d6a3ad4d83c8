package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// raftStall is how long a disk may hang before this node takes itself out of Raft's conversation. Raft's heartbeats
// do not wait for its disk, so a leader whose disk hangs would stay leader for ever: it commits nothing, and its
// followers are content. Without its heartbeats they elect another.
const raftStall = 3 * time.Second

var errRaftGate = errors.New("this node keeps out of Raft while its disk hangs")

// raftGate holds the outgoing Raft connections, and cuts them while it is shut.
type raftGate struct {
	dial func(context.Context, transport.Target) (net.Conn, error)

	mu    sync.Mutex
	shut  bool
	conns map[*gatedConn]struct{}
}

type gatedConn struct {
	net.Conn
	gate *raftGate
}

func newRaftGate(dial func(context.Context, transport.Target) (net.Conn, error)) *raftGate {
	return &raftGate{dial: dial, conns: map[*gatedConn]struct{}{}}
}

// Dial opens a Raft connection while the gate is open.
func (g *raftGate) Dial(ctx context.Context, to transport.Target) (net.Conn, error) {
	if g.isShut() {
		return nil, fmt.Errorf("%w: %w", vtop.ErrNotReady, errRaftGate)
	}
	conn, err := g.dial(ctx, to)
	if err != nil {
		return nil, err
	}
	c := &gatedConn{Conn: conn, gate: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, errors.Join(fmt.Errorf("%w: %w", vtop.ErrNotReady, errRaftGate), conn.Close())
	}
	g.conns[c] = struct{}{}
	return c, nil
}

func (g *raftGate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// Set opens or shuts the gate and reports whether that changed it. Shutting cuts every connection.
func (g *raftGate) Set(shut bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := g.shut != shut
	g.shut = shut
	if shut {
		for c := range g.conns {
			_ = c.Conn.Close()
		}
		clear(g.conns)
	}
	return changed
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// stepAside stops serving as leader while the disk hangs, without waiting for the leases to move: nothing can be
// acknowledged, and clients should look for the next leader now.
func (n *Node) stepAside() {
	n.machine.Leases().Expire()
	if e := n.engine.Load(); e != nil {
		e.RefuseWaiting("the disk of its leader hangs")
	}
}

// watchRaftGate steps aside and shuts the gate while the disk hangs.
func (n *Node) watchRaftGate() {
	defer n.wg.Done()
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-ticker.C:
		}
		stalled := n.disk.Stalled()
		if stalled > diskStallSuspect {
			n.stepAside()
		}
		if n.gate.Set(stalled > raftStall) {
			if stalled > raftStall {
				n.log.Warn("disk hangs: keeping out of Raft, so that others elect a leader whose disk works", "stalled", stalled)
			} else {
				n.log.Info("disk answers again: back in Raft")
			}
		}
	}
}
