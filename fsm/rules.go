package fsm

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// What more than one command asks of the state, or does to it.

// node finds a node and, if incarnation is not 0, wants it to be the registered one.
func (t *tx) node(name vtop.NodeName, incarnation vtop.Incarnation) (*Node, *Refusal) {
	n, ok := t.s.Node(name)
	if !ok {
		return nil, refusef(CodeUnknownNode, "no node %q is registered", name)
	}
	if incarnation != 0 && incarnation != n.Incarnation {
		return nil, refusef(CodeStaleIncarnation, "node %q is registered in incarnation %d, not %d", name, n.Incarnation, incarnation)
	}
	return n, nil
}

func (t *tx) topic(id vtop.TopicID) (*Topic, *Refusal) {
	topic, ok := t.s.Topic(id)
	if !ok {
		return nil, refusef(CodeUnknownRange, "no topic has id %s", id)
	}
	return topic, nil
}

func (t *tx) rangeOf(id vtop.Range) (*Range, *Refusal) {
	r, ok := t.s.Range(id)
	if !ok {
		return nil, refusef(CodeUnknownRange, "no range %s", t.s.RangeName(id))
	}
	return r, nil
}

// leased finds a range and wants its lease to be that of the epoch.
func (t *tx) leased(id vtop.Range, e vtop.Epoch) (*Range, *Refusal) {
	r, refusal := t.rangeOf(id)
	if refusal != nil {
		return nil, refusal
	}
	if r.Lease.Holder == "" {
		return nil, refusef(CodeStaleEpoch, "%s has no lease; epoch %d was named, the last was %d", t.s.RangeName(id), e, r.LastEpoch)
	}
	if r.Lease.Epoch != e {
		return nil, refusef(CodeStaleEpoch, "lease of %s is epoch %d of %q, not epoch %d", t.s.RangeName(id), r.Lease.Epoch, r.Lease.Holder, e)
	}
	return r, nil
}

// leading finds a range and wants the epoch to be that of its lease and started, and config, if it is not 0, to be its
// configuration version.
func (t *tx) leading(id vtop.Range, e vtop.Epoch, config uint64) (*Range, *Refusal) {
	r, refusal := t.leased(id, e)
	if refusal != nil {
		return nil, refusal
	}
	if !r.Started {
		return nil, refusef(CodeNotStarted, "epoch %d of %s has not started", e, t.s.RangeName(id))
	}
	if config != 0 && config != r.ConfigVersion {
		return nil, refusef(CodeStaleConfig, "%s is at configuration version %d, not %d", t.s.RangeName(id), r.ConfigVersion, config)
	}
	return r, nil
}

// takesReplica wants a node that may be given a replica.
func (t *tx) takesReplica(name vtop.NodeName) *Refusal {
	n, refusal := t.node(name, 0)
	if refusal != nil {
		return refusal
	}
	if n.State == NodeGone {
		return refusef(CodeNodeGone, "node %q was removed: it takes no replica", name)
	}
	return nil
}

// admitsPlacement looks at every node before anything is written.
func (t *tx) admitsPlacement(ranges [][]vtop.NodeName) *Refusal {
	if n := t.s.ranges.Len() + len(ranges); n > MaxRanges {
		return refusef(CodeLimit, "%d more ranges would make %d, at most %d", len(ranges), n, MaxRanges)
	}
	for _, nodes := range ranges {
		for _, name := range nodes {
			if refusal := t.takesReplica(name); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// addRanges creates ranges from index first on, and mints their replicas' ids.
func (t *tx) addRanges(topic vtop.TopicID, first int32, ranges [][]vtop.NodeName) {
	for i, nodes := range ranges {
		r := &Range{
			ID:        vtop.Range{Topic: topic, Index: first + int32(i)},
			Preferred: slices.Clone(nodes), ConfigVersion: 1, LastEpoch: t.s.firstEpoch, QuorumPosition: NoOffset,
		}
		for _, n := range nodes {
			t.s.lastReplica++
			r.Replicas = append(r.Replicas, Replica{Replica: vtop.Replica{Node: n, ID: t.s.lastReplica}, Role: Voter})
		}
		t.putRange(r)
	}
}

// identityTaken refuses a data directory or a Raft id that is registered under another name.
func (t *tx) identityTaken(name vtop.NodeName, id Identity) *Refusal {
	for n := range t.s.Nodes() {
		if n.Name == name || n.State == NodeGone {
			continue
		}
		if n.Storage == id.Storage {
			return refusef(CodeConflict, "data directory %s is registered as node %q, not %q: a node keeps its name", id.Storage, n.Name, name)
		}
		if n.RaftID == id.RaftID {
			return refusef(CodeConflict, "raft id %s is registered as node %q, not %q: raft.db was copied", id.RaftID, n.Name, name)
		}
	}
	return nil
}

func (t *tx) registration(name vtop.NodeName) Registration {
	n, ok := t.s.Node(name)
	if !ok {
		return Registration{}
	}
	return Registration{Broker: n.Broker, Storage: n.Storage, Incarnation: n.Incarnation}
}

// replaceOwner gives a name to another data directory. All that the old one held may be forgotten.
func (t *tx) replaceOwner(old *Node, id Identity, reason string, at int64) {
	n := *old
	n.Identity, n.State, n.Pending, n.RegisteredAt = id, NodeActive, nil, at
	t.putNode(&n)
	t.loseAll(n.Name, reason, at)
	t.endCoordinators(n.Name)
}

// loseAll marks every replica of a node lost.
func (t *tx) loseAll(node vtop.NodeName, reason string, at int64) {
	for _, r := range slices.Collect(t.s.RangesOf(node)) {
		for _, rep := range r.Replicas {
			if rep.Node == node {
				t.lose(r, rep, reason, at)
				r, _ = t.s.Range(r.ID)
			}
		}
	}
}

// lose marks one replica lost, once. Every leader must count anew: the configuration version rises. A lease that rests
// on the replica ends (I10).
func (t *tx) lose(old *Range, rep Replica, reason string, at int64) {
	if rep.Lost != "" {
		return
	}
	r := old.clone()
	r.Replicas = slices.Clone(old.Replicas)
	i := slices.IndexFunc(r.Replicas, func(x Replica) bool { return x.ID == rep.ID })
	r.Replicas[i].Lost = reason
	r.ConfigVersion++
	r.QuorumPosition = NoOffset
	r.Losses = appendCapped(r.Losses, Loss{Replica: rep.Replica, Reason: reason, Index: t.index, At: at}, MaxLosses)
	if rep.Role == Voter && r.Lease.Holder == rep.Node {
		r.endLease(t, LeaseRevoked, reason, at)
	}
	t.putRange(r)
}

// endLease takes the lease off a range that is being made. LastEpoch stays, so the epoch is never minted again.
func (r *Range) endLease(t *tx, event LeaseEvent, reason string, at int64) {
	r.note(t, event, reason, at)
	r.Lease, r.Started = vtop.Lease{}, false
	r.GrantIndex, r.GrantedAt, r.GrantReason = 0, 0, ""
	r.QuorumPosition = NoOffset
}

// note adds a line about the present lease to the range's history.
func (r *Range) note(t *tx, event LeaseEvent, reason string, at int64) {
	r.Changes = appendCapped(r.Changes, LeaseChange{
		Event: event, Epoch: r.Lease.Epoch, Holder: r.Lease.Holder, Incarnation: r.Lease.Incarnation,
		Reason: reason, Index: t.index, At: at,
	}, MaxLeaseChanges)
}

// appendCapped returns a new list with v at its end and at most limit entries: the list of an older State is not written to.
func appendCapped[T any](list []T, v T, limit int) []T {
	if over := len(list) + 1 - limit; over > 0 {
		list = list[over:]
	}
	out := make([]T, 0, len(list)+1)
	return append(append(out, list...), v)
}

// understands stops the node if the cluster moves to a level that this build does not know: from here on there may
// be commands that it cannot read.
func (t *tx) understands(level Level) {
	if level > LevelMax {
		panic(&Fault{Index: t.index, Err: fmt.Errorf("the cluster moved to feature level %d, this build understands up to %d", level, LevelMax)})
	}
}
