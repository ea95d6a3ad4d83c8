package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// kindDamaged is the problem of a replica that has a hole in its sealed segments. Its subject is the range, until status
// adds the node.
const kindDamaged = "segment_damaged"

// Local implements adminapi.LocalHandler: from this node alone.
func (f *Face) Local(_ context.Context, topic string) (*adminapi.Local, error) {
	n, err := f.attached()
	if err != nil {
		return nil, err
	}
	out := &adminapi.Local{
		Node: string(n.Self()), RaftLeader: n.IsRaftLeader(),
		Pins:     localPins(n.Self(), n.State(), n.Pins()),
		Verdicts: []adminapi.LocalVerdict{}, Stuck: []adminapi.LocalStuck{}, Ranges: []adminapi.LocalRange{}, Problems: []adminapi.Problem{},
	}
	if d := f.drills.Load(); d != nil {
		out.Drills = &adminapi.LocalDrills{ReturnsBy: (*d).ReturnsBy()}
	}
	out.Problems = append(out.Problems, f.CertificateProblems(time.Now())...)
	state := n.State()
	for node := range state.Nodes() {
		out.Verdicts = append(out.Verdicts, verdictOf(n, node.Name))
	}
	for r, why := range n.Stuck() {
		out.Stuck = append(out.Stuck, adminapi.LocalStuck{TopicID: r.Topic.String(), Range: r.Index, Reason: why})
	}
	if out.RaftLeader {
		out.Healing = localHealing(n.Healing())
	}
	engine, err := n.Engine()
	if err != nil {
		return out, nil // it has no replicas to tell of before it has joined
	}
	for r := range state.RangesOf(n.Self()) {
		if t, ok := state.Topic(r.ID.Topic); !ok || topic != "" && t.Name != topic {
			continue
		}
		if local, ok := localRange(n, engine, r); ok {
			out.Ranges = append(out.Ranges, local)
		}
	}
	for _, info := range n.Replicas() {
		if problem, ok := problemOf(state.RangeName(info.Range), info); ok {
			out.Problems = append(out.Problems, problem)
		}
	}
	return out, nil
}

// problemOf is what a node says of a replica that is not served, or not all of it.
func problemOf(name string, info storage.ReplicaInfo) (adminapi.Problem, bool) {
	problem := adminapi.Problem{Subject: name, Message: info.Reason}
	switch info.State {
	case storage.StateQuarantined:
		problem.Kind = kindQuarantined
		problem.Hint = "nothing was changed and nothing is served from this replica: keep its directory, and compare it with the others"
	case storage.StateHoles:
		problem.Kind = kindDamaged
		problem.Hint = "the replica keeps its vote and serves nothing of that segment; the other replicas have it whole"
	case storage.StateFailed:
		problem.Kind = kindFailed
		problem.Hint = "it is read anew by itself, with growing pauses, and catches up; look at the disk and the kernel log of its node"
	default:
		return adminapi.Problem{}, false
	}
	return problem, true
}

func verdictOf(n *cluster.Node, name vtop.NodeName) adminapi.LocalVerdict {
	v := n.Verdict(name)
	return adminapi.LocalVerdict{
		Node: string(name), Alive: v.Alive, Reason: v.Reason, SilentMS: v.SilentFor.Milliseconds(),
		DiskStalledMS: v.Health.DiskStalled.Milliseconds(), DiskFailing: v.Health.DiskFailing, NoSpace: v.Health.NoSpace,
		FreeBytes: freeBytes(v.Health.FreeBytes),
	}
}

// freeBytes turns what a node could not learn, or never told, into unknown: a disk with nothing free at all is full long
// before.
func freeBytes(n uint64) int64 {
	if n == 0 {
		return adminapi.Unknown
	}
	return int64(n)
}

// localRange is this node's replica that the metadata counts on, and the other replicas if it leads.
func localRange(n *cluster.Node, engine *replica.Engine, r *fsm.Range) (adminapi.LocalRange, bool) {
	own, ok := r.On(n.Self())
	if !ok {
		return adminapi.LocalRange{}, false
	}
	d, err := engine.Describe(r.ID)
	if err != nil {
		return adminapi.LocalRange{}, false
	}
	out := adminapi.LocalRange{
		TopicID: r.ID.Topic.String(), Range: r.ID.Index, ReplicaID: uint64(own.ID), Role: d.Role.String(), Epoch: int32(d.Epoch), Reason: d.Why,
		HighWatermark: int64(d.HighWatermark), LogEnd: int64(d.LogEnd), DurableEnd: adminapi.Unknown, LogStart: int64(d.LogStart),
		TimeLeftMS: adminapi.Unknown,
	}
	if d.Role == replica.RoleLeading {
		out.TimeLeftMS = max(0, n.TimeLeft().Milliseconds())
	}
	for _, rep := range d.Replicas {
		if rep.ID == own.ID {
			out.DurableEnd = int64(rep.Durable)
			continue
		}
		if d.Role == replica.RoleLeading {
			out.Followers = append(out.Followers, adminapi.LocalReplica{
				ReplicaID: uint64(rep.ID), State: rep.State, LogEnd: int64(rep.LogEnd), DurableEnd: int64(rep.Durable), Reason: rep.Why,
			})
		}
	}
	return out, true
}

// Segments implements adminapi.Handler.
func (f *Face) Segments(ctx context.Context, topic string, index int32, node string) ([]adminapi.Segment, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	_, r, err := rangeNamed(n.State(), topic, index)
	if err != nil {
		return nil, err
	}
	if node == "" {
		node = string(r.Lease.Holder)
	}
	if node == "" {
		return nil, adminapi.Errorf(adminapi.CodeUnavailable, "%s/%d has no holder now", topic, index).WithHint("say --node NODE")
	}
	if vtop.NodeName(node) == n.Self() {
		return f.LocalSegments(ctx, topic, index)
	}
	other, ok := n.State().Node(vtop.NodeName(node))
	if !ok {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "there is no node %q", node).WithHint("vtopctl node list shows the nodes")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return f.clientOf(other.Addresses.Admin).LocalSegments(ctx, topic, index)
}

// LocalSegments implements adminapi.LocalHandler.
func (f *Face) LocalSegments(_ context.Context, topic string, index int32) ([]adminapi.Segment, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	_, r, err := rangeNamed(n.State(), topic, index)
	if err != nil {
		return nil, err
	}
	segments, err := n.Segments(r.ID)
	if errors.Is(err, vtop.ErrUnknownRange) {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "node %s has no replica of %s/%d", n.Self(), topic, index).WithHint("vtopctl lease show %s/%d lists its replicas", topic, index)
	}
	if err != nil {
		return nil, err
	}
	out := []adminapi.Segment{}
	for _, s := range segments {
		seg := adminapi.Segment{
			Node: string(n.Self()), Base: int64(s.Base), End: int64(s.End), SizeBytes: s.Bytes, State: s.State.String(),
			File: fmt.Sprintf("%020d.log", s.Base), Reason: s.Hole,
		}
		if s.Hole != "" {
			seg.State = "damaged"
		}
		if s.State == storage.SegmentSealed {
			seg.Root = hex.EncodeToString(s.Root[:])
		}
		if c, ok := n.State().Segment(r.ID, s.Base); ok {
			seg.Catalogued, seg.SealEpoch = true, int32(c.Epoch)
			seg.SealedAt = time.UnixMilli(c.SealedAt).UTC()
		}
		out = append(out, seg)
	}
	return out, nil
}
