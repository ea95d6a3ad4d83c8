package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// What operators ask for when a replica, a node or a range is to be brought back. Each of these is a proposal, or a
// question to the node that knows; what follows from a proposal is done by the Raft leader, the ranges' leaders and the
// destinations.

// repairChunk is the most jobs that one command carries: bounded entries, and other proposals get their turn.
const repairChunk = 1000

// SubmitRepairs puts jobs into the metadata and returns one item per request, once they are applied here. A request that
// is refused says why in its item. If the error is not nil, the items that came before it are returned.
func (n *Node) SubmitRepairs(ctx context.Context, requests []fsm.RepairRequest) ([]fsm.Item, error) {
	var out []fsm.Item
	for len(requests) > 0 {
		chunk := requests[:min(len(requests), repairChunk)]
		requests = requests[len(chunk):]
		res, err := n.meta.Propose(ctx, &fsm.SubmitRepairs{Items: chunk, At: time.Now().UnixMilli()})
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			return out, err
		}
		out = append(out, res.Items...)
	}
	return out, nil
}

// CancelRepairs ends jobs; each item says whether it did.
func (n *Node) CancelRepairs(ctx context.Context, ids []fsm.RepairID, reason string) ([]fsm.Item, error) {
	res, err := n.meta.Propose(ctx, &fsm.CancelRepairs{IDs: ids, Reason: reason, At: time.Now().UnixMilli()})
	if err == nil {
		err = res.Err()
	}
	return res.Items, err
}

// SetPreferred names the nodes wanted for ranges, in the order of preference; each item says whether that was taken.
func (n *Node) SetPreferred(ctx context.Context, wishes []fsm.Preference) ([]fsm.Item, error) {
	res, err := n.meta.Propose(ctx, &fsm.SetPreferred{Items: wishes})
	if err == nil {
		err = res.Err()
	}
	return res.Items, err
}

// AlterClientQuotas changes what client ids may move; each item says whether that was taken.
func (n *Node) AlterClientQuotas(ctx context.Context, changes []fsm.QuotaChange) ([]fsm.Item, error) {
	res, err := n.meta.Propose(ctx, &fsm.AlterClientQuotas{Items: changes})
	if err == nil {
		err = res.Err()
	}
	return res.Items, err
}

// SetHeal pauses or resumes the healing of the whole cluster.
func (n *Node) SetHeal(ctx context.Context, paused bool, why string) error {
	return n.propose(ctx, &fsm.SetHeal{Paused: paused, Why: why, At: time.Now().UnixMilli()})
}

// SetNodeState says what is wanted of a node, whatever its incarnation.
func (n *Node) SetNodeState(ctx context.Context, name vtop.NodeName, state fsm.NodeState) error {
	return n.propose(ctx, &fsm.UpdateNode{Name: name, State: state})
}

// RemoveNode takes an empty node out of the cluster; the Raft leader takes it out of the Raft group.
func (n *Node) RemoveNode(ctx context.Context, name vtop.NodeName) error {
	return n.propose(ctx, &fsm.RemoveNode{Name: name})
}

// AdmitPending gives a name to the data directory that claims it.
func (n *Node) AdmitPending(ctx context.Context, name vtop.NodeName, storage vtop.StorageID, reason string) error {
	return n.propose(ctx, &fsm.AdmitPending{Name: name, Storage: storage, Reason: reason, At: time.Now().UnixMilli()})
}

// RecoverRange makes one replica the whole of a range. The caller has measured what is lost.
func (n *Node) RecoverRange(ctx context.Context, cmd fsm.RecoverRange) error {
	cmd.At = time.Now().UnixMilli()
	return n.propose(ctx, &cmd)
}

// SealTail has the holder of a range's lease close its tail, and returns once that is committed and catalogued. epoch
// 0 means the present one. Errors are those of transport.SegmentHandler, and vtop.ErrNotLeader if there is no holder.
func (n *Node) SealTail(ctx context.Context, r vtop.Range, epoch vtop.Epoch) (leader vtop.NodeName, at vtop.Epoch, _ *peerpb.SealTailResponse, _ error) {
	rg, ok := n.State().Range(r)
	if !ok {
		return "", 0, nil, fmt.Errorf("range %s: %w", r, vtop.ErrUnknownRange)
	}
	if rg.Lease.Holder == "" {
		return "", 0, nil, fmt.Errorf("%w: nobody holds the lease of the range now", vtop.ErrNotLeader)
	}
	if epoch == 0 {
		epoch = rg.Lease.Epoch
	}
	to, err := n.target(rg.Lease.Holder)
	if err != nil {
		return "", 0, nil, err
	}
	resp, err := n.client.SealTail(ctx, to, &peerpb.SealTailRequest{Range: transport.RangeTo(r), Epoch: int32(epoch), NoPin: true})
	return rg.Lease.Holder, epoch, resp, err
}

// Scrub reads the sealed segments of this node's replica of a range and compares them with the catalogue.
// errors.ErrUnsupported if this build can't, vtop.ErrUnknownRange if there is no replica.
func (n *Node) Scrub(ctx context.Context, r vtop.Range, bytesPerSecond int64, tell func(storage.Verdict)) error {
	want := func(base vtop.Offset) (root [32]byte, known bool) {
		seg, ok := n.State().Segment(r, base)
		if !ok {
			return root, false
		}
		return seg.Root, true
	}
	return n.store.ScrubEach(ctx, r, bytesPerSecond, want, tell)
}

// Pins are the sealed segments that this node holds open for transfers.
func (n *Node) Pins() []storage.PinInfo { return n.store.Pins() }

// LogEnd asks a node for the durable end of its replica, and the last epoch in it. It changes nothing.
func (n *Node) LogEnd(ctx context.Context, node vtop.NodeName, r vtop.Range, id vtop.ReplicaID) (end vtop.Offset, last vtop.Epoch, err error) {
	ends, err := n.logEnds(ctx, node, []controller.Ask{{Range: r, Replica: id}})
	if err != nil {
		return 0, 0, err
	}
	if len(ends) != 1 {
		return 0, 0, errors.New("the replica does not tell its position")
	}
	return ends[0].End, ends[0].LastEpoch, nil
}

// HealAfter is how long a node may be gone before its replicas are rebuilt elsewhere.
func (n *Node) HealAfter() time.Duration { return n.cfg.HealAfter }

// LeaseTime is how long a holder may go on serving without the metadata quorum.
func (n *Node) LeaseTime() time.Duration { return n.cfg.LeaseTime }
