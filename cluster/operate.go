package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/meta"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// TransferLease moves a lease to a voter, from any node: the Raft leader carries it out. It returns the new epoch
// once the grant is applied here; the new holder starts on its own.
func (n *Node) TransferLease(ctx context.Context, r vtop.Range, to vtop.NodeName) (vtop.Epoch, error) {
	if n.meta.IsLeader() {
		return n.control.Transfer(ctx, r, to, 0)
	}
	leader, ok := n.meta.LeaderName()
	if !ok {
		return 0, fmt.Errorf("%w: no Raft leader is known", vtop.ErrNotReady)
	}
	target, err := n.target(leader)
	if err != nil {
		return 0, err
	}
	resp, err := n.client.TransferLease(ctx, target, &peerpb.TransferLeaseRequest{Range: transport.RangeTo(r), To: string(to)})
	if err != nil {
		return 0, err
	}
	return vtop.Epoch(resp.GetEpoch()), nil
}

// ClusterID is the cluster that this node belongs to; ok is false before one was born or found.
func (n *Node) ClusterID() (id vtop.ClusterID, ok bool) { return n.meta.ClusterID() }

// Version is the build's version.
func (n *Node) Version() string { return n.cfg.Version }

// IsRaftLeader reports whether this node is the Raft leader and has passed its barrier.
func (n *Node) IsRaftLeader() bool { return n.meta.IsLeader() }

// RaftTerm is the term this node is in; it rises with each Raft election.
func (n *Node) RaftTerm() uint64 { return n.meta.Term() }

// RaftServers are the members of the Raft group.
func (n *Node) RaftServers() []meta.RaftServer { return n.meta.RaftServers() }

// Verdict is what this node believes of another, from the beats that it is sent as a Raft voter.
func (n *Node) Verdict(name vtop.NodeName) liveness.Verdict { return n.tracker.Verdict(name) }

// Stuck says why ranges have no holder, as the Raft leader knows.
func (n *Node) Stuck() map[vtop.Range]string { return n.control.Stuck() }

// Replicas describes the replicas on this node's disk.
func (n *Node) Replicas() []storage.ReplicaInfo { return n.store.List() }

// Segments lists the segments of this node's replica of a range; vtop.ErrUnknownRange if it has none.
func (n *Node) Segments(r vtop.Range) ([]storage.SegmentInfo, error) {
	log := n.store.Get(r)
	if log == nil {
		return nil, fmt.Errorf("no replica of range %s here: %w", r, vtop.ErrUnknownRange)
	}
	return log.Segments(), nil
}

// TimeLeft is how long this process may lead without another answer of the metadata quorum, by its own clock.
func (n *Node) TimeLeft() time.Duration { return n.machine.Leases().Deadline() - monotonic() }

// Disk tells the watchdog's view of this node's disk.
func (n *Node) Disk() (stalled time.Duration, failing bool) {
	return n.disk.Stalled(), n.disk.Failing()
}

// RaftStats are Raft's own figures, by its names.
func (n *Node) RaftStats() map[string]string { return n.meta.Stats() }
