package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// ledger stands for Raft: one list of commands, applied to each node's machine by a goroutine of its own, so that a test can
// let one lag behind.
type ledger struct {
	mu      sync.Mutex
	state   *fsm.State
	cmds    []fsm.Command
	grown   chan struct{}
	refuses func(fsm.Command) error // before it is taken; nil takes all
}

func newLedger() *ledger { return &ledger{state: fsm.NewState(), grown: make(chan struct{})} }

func (l *ledger) propose(cmd fsm.Command) (fsm.Outcome, error) {
	raw, err := fsm.Encode(cmd)
	if err != nil {
		return fsm.Outcome{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses != nil {
		if err := l.refuses(cmd); err != nil {
			return fsm.Outcome{}, err
		}
	}
	copied, err := fsm.Decode(raw)
	if err != nil {
		return fsm.Outcome{}, err
	}
	next, outs := l.state.Apply(uint64(len(l.cmds))+1, copied)
	l.state, l.cmds = next, append(l.cmds, copied)
	close(l.grown)
	l.grown = make(chan struct{})
	return outs[0], nil
}

// next returns the command at index and a channel that is closed when there is one.
func (l *ledger) next(index uint64) (fsm.Command, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index <= uint64(len(l.cmds)) {
		return l.cmds[index-1], nil
	}
	return nil, l.grown
}

// Dial and Peer are the node's Network.
func (n *node) Dial(ctx context.Context, to vtop.NodeName) (*transport.Stream, error) {
	target, err := n.target(to)
	if err != nil {
		return nil, err
	}
	stream, err := n.dialer.DialStream(ctx, target, transport.Replication)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[to] { // meanwhile
		stream.Close()
		return nil, fmt.Errorf("%w: %s", transport.ErrUnreachable, to)
	}
	n.streams[to] = stream
	return stream, nil
}

// cutOff breaks the connections to the nodes, also those that the engine is only just getting, and has none come about until
// they are taken from n.cut. When it returns no more gets through.
func (n *node) cutOff(to ...vtop.NodeName) {
	n.mu.Lock()
	for _, other := range to {
		n.cut[other] = true
		if stream := n.streams[other]; stream != nil {
			stream.Close()
		}
	}
	n.mu.Unlock()
	n.engine.breakConnections()
}

func (n *node) target(to vtop.NodeName) (transport.Target, error) {
	n.mu.Lock()
	cut := n.cut[to]
	n.mu.Unlock()
	addr := n.c.address(to)
	if cut || addr == "" {
		return transport.Target{}, fmt.Errorf("%w: %s", transport.ErrUnreachable, to)
	}
	return transport.Target{Name: to, Addr: addr}, nil
}

func (n *node) Peer(to vtop.NodeName) Peer { return remote{n, to} }

type remote struct {
	n  *node
	to vtop.NodeName
}

func (r remote) Fence(ctx context.Context, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	target, err := r.n.target(r.to)
	if err != nil {
		return nil, err
	}
	return r.n.client.Fence(ctx, target, req)
}

func (r remote) ReadLog(ctx context.Context, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	target, err := r.n.target(r.to)
	if err != nil {
		return nil, err
	}
	return r.n.client.ReadLog(ctx, target, req)
}

func (r remote) LogEnds(ctx context.Context, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	target, err := r.n.target(r.to)
	if err != nil {
		return nil, err
	}
	return r.n.client.LogEnds(ctx, target, req)
}

var addresses sync.Map // of *cluster and node name, since nodes start and stop while others dial

type addressKey struct {
	c    *cluster
	name vtop.NodeName
}

func (c *cluster) address(name vtop.NodeName) string {
	if v, ok := addresses.Load(addressKey{c, name}); ok {
		return v.(string)
	}
	return ""
}
