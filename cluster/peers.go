package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// target finds where a node is to be reached.
func (n *Node) target(node vtop.NodeName) (transport.Target, error) {
	addr, ok := n.peerAddress(node)
	if !ok {
		return transport.Target{}, fmt.Errorf("%w: no address of node %q is known", vtop.ErrNotReady, node)
	}
	return transport.Target{Name: node, Addr: addr}, nil
}

// network is the peer plane as the engine sees it: by node name.
type network struct{ n *Node }

// Dial implements replica.Network.
func (w network) Dial(ctx context.Context, to vtop.NodeName) (*transport.Stream, error) {
	target, err := w.n.target(to)
	if err != nil {
		return nil, err
	}
	return w.n.dialer.DialStream(ctx, target, transport.Replication)
}

// Peer implements replica.Network.
func (w network) Peer(to vtop.NodeName) replica.Peer { return peer{w.n, to} }

type peer struct {
	n  *Node
	to vtop.NodeName
}

// Fence implements replica.Peer.
func (p peer) Fence(ctx context.Context, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	target, err := p.n.target(p.to)
	if err != nil {
		return nil, err
	}
	return p.n.client.Fence(ctx, target, req)
}

// ReadLog implements replica.Peer.
func (p peer) ReadLog(ctx context.Context, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	target, err := p.n.target(p.to)
	if err != nil {
		return nil, err
	}
	return p.n.client.ReadLog(ctx, target, req)
}

// LogEnds implements replica.Peer.
func (p peer) LogEnds(ctx context.Context, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	target, err := p.n.target(p.to)
	if err != nil {
		return nil, err
	}
	return p.n.client.LogEnds(ctx, target, req)
}

// replicaSide answers the calls of other nodes about replicas, once there is an engine.
type replicaSide struct{ n *Node }

func (s replicaSide) engine() (*replica.Engine, error) {
	if e := s.n.engine.Load(); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%w: node %q has not joined yet", vtop.ErrNotReady, s.n.cfg.Name)
}

// Fence implements transport.ReplicaHandler.
func (s replicaSide) Fence(ctx context.Context, from transport.Caller, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e.Fence(ctx, from, req)
}

// LogEnds implements transport.ReplicaHandler.
func (s replicaSide) LogEnds(ctx context.Context, from transport.Caller, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e.LogEnds(ctx, from, req)
}

// ReadLog implements transport.ReplicaHandler.
func (s replicaSide) ReadLog(ctx context.Context, from transport.Caller, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e.ReadLog(ctx, from, req)
}

// controlSide answers what operators asked another node; only the Raft leader can.
type controlSide struct{ n *Node }

// Drain implements transport.ControlHandler.
func (s controlSide) Drain(ctx context.Context, from transport.Caller, req *peerpb.DrainRequest) (*peerpb.DrainResponse, error) {
	return transport.Refuser{}.Drain(ctx, from, req)
}

// TransferLease implements transport.ControlHandler.
func (s controlSide) TransferLease(ctx context.Context, _ transport.Caller, req *peerpb.TransferLeaseRequest) (*peerpb.TransferLeaseResponse, error) {
	r, err := transport.RangeFrom(req.GetRange())
	if err != nil {
		return nil, err
	}
	if !s.n.meta.IsLeader() {
		return nil, transport.NotRaftLeader(s.n.cfg.Name, nil)
	}
	epoch, err := s.n.control.Transfer(ctx, r, vtop.NodeName(req.GetTo()), vtop.Epoch(req.GetExpectedEpoch()))
	var refused *controller.TransferError
	if errors.As(err, &refused) {
		return nil, fmt.Errorf("%w: %w", transport.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	return &peerpb.TransferLeaseResponse{Holder: req.GetTo(), Epoch: int32(epoch)}, nil
}
