package fsm

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// ReplicaChange says what ChangeReplicas does.
type ReplicaChange uint8

const (
	// AddLearner adds a learner on Node, under an id minted here.
	AddLearner ReplicaChange = iota + 1
	// PromoteLearner makes the learner ReplicaID a voter.
	PromoteLearner
	// RemoveVoter removes the voter ReplicaID.
	RemoveVoter
	// RemoveLearner removes the learner ReplicaID.
	RemoveLearner
)

// String names the change.
func (c ReplicaChange) String() string {
	switch c {
	case AddLearner:
		return "add learner"
	case PromoteLearner:
		return "promote learner"
	case RemoveVoter:
		return "remove voter"
	case RemoveLearner:
		return "remove learner"
	}
	return "unknown"
}

// ChangeReplicas changes one replica of a range.
//
//	op            15, since level 1
//	proposed by   the holder, which from the proposal until its own applied state shows the change taken or refused
//	              commits only what majorities of both sets have acknowledged, and reports no floor
//	precondition  Epoch is the lease's and started; Config is the range's configuration version. For voters also:
//	              the last change has settled: a report under this epoch and configuration carried a quorum
//	              position at or above the settle mark; no voter is promoted while a lost one is still there; the
//	              leader itself stays; the voters left that can vote are a majority
//	effect        one replica changes; the configuration version rises; no quorum position is known. SettleMark becomes the
//	              range's settle mark if the voters changed. A repair whose replica is removed fails, one that has nothing left
//	              to do is cancelled. A learner that an active repair brought takes the preferred place of the node that it
//	              replaces
//	refused       CodeUnknownRange; CodeStaleEpoch; CodeNotStarted; CodeStaleConfig; CodeUnknownReplica;
//	              CodeNotSettled; CodeLostFirst; CodeRemovesLeader; CodeNoMajority; CodeReplicaLost;
//	              CodeUnknownNode; CodeNodeGone; CodeConflict (a replica is there already, or has another role; the
//	              learner to be removed is an active repair's, and not lost); CodeLimit
//	a repeat      is refused with CodeStaleConfig
type ChangeReplicas struct {
	Range  vtop.Range
	Epoch  vtop.Epoch
	Config uint64
	Change ReplicaChange
	// Node is for AddLearner, ReplicaID for the others.
	Node      vtop.NodeName
	ReplicaID vtop.ReplicaID
	// SettleMark is the leader's log end when it proposes.
	SettleMark vtop.Offset
}

// Op implements Command.
func (c *ChangeReplicas) Op() Op { return OpChangeReplicas }

// Check implements Command.
func (c *ChangeReplicas) Check() error {
	var s shape
	s.rangeID(c.Range)
	s.epoch(c.Epoch)
	s.must(c.Config > 0, "configuration version is 0")
	s.must(c.Change >= AddLearner && c.Change <= RemoveLearner, "replica change %d", c.Change)
	if c.Change == AddLearner {
		s.node(c.Node)
		s.must(c.ReplicaID == 0, "replica id %d: the id of a new learner is minted by the state machine", c.ReplicaID)
	} else {
		s.must(c.ReplicaID > 0, "replica id is 0")
		s.must(c.Node == "", "node %q: replicas are named by id", c.Node)
	}
	s.offset("settle mark", c.SettleMark)
	return s.err()
}

func (c *ChangeReplicas) encode() proto.Message {
	return &fsmpb.ChangeReplicas{
		Range: putRangeID(c.Range), Epoch: int32(c.Epoch), Config: c.Config, Change: uint32(c.Change),
		Node: string(c.Node), ReplicaId: uint64(c.ReplicaID), SettleMark: int64(c.SettleMark),
	}
}

func decodeChangeReplicas(r *reader, p *fsmpb.ChangeReplicas) *ChangeReplicas {
	return &ChangeReplicas{
		Range: r.rangeID(p.GetRange()), Epoch: vtop.Epoch(p.GetEpoch()), Config: p.GetConfig(),
		Change: ReplicaChange(r.small(p.GetChange())), Node: vtop.NodeName(p.GetNode()),
		ReplicaID: vtop.ReplicaID(p.GetReplicaId()), SettleMark: vtop.Offset(p.GetSettleMark()),
	}
}

func (c *ChangeReplicas) apply(t *tx) Outcome {
	old, refusal := t.leading(c.Range, c.Epoch, c.Config)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	r := old.clone()
	r.Replicas = slices.Clone(old.Replicas)
	var out Outcome
	switch c.Change {
	case AddLearner:
		out.ReplicaID, refusal = c.addLearner(t, r)
	case PromoteLearner:
		refusal = c.promote(t, r)
	case RemoveVoter:
		refusal = c.removeVoter(t, r)
	case RemoveLearner:
		refusal = c.removeLearner(t, r)
	}
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	r.ConfigVersion++
	r.QuorumPosition = NoOffset
	if c.Change == PromoteLearner || c.Change == RemoveVoter {
		r.SettleMark = c.SettleMark
	}
	t.putRange(r)
	if now, ok := t.s.Range(r.ID); ok { // a job that ended with it may have taken its learner along
		out.ConfigVersion = now.ConfigVersion
	}
	return out
}

func (c *ChangeReplicas) addLearner(t *tx, r *Range) (vtop.ReplicaID, *Refusal) {
	name := t.s.RangeName(r.ID)
	if refusal := t.takesReplica(c.Node); refusal != nil {
		return 0, refusal
	}
	if rep, ok := r.On(c.Node); ok {
		return 0, refusef(CodeConflict, "node %q has replica %d of %s already (%s)", c.Node, rep.ID, name, rep.Role)
	}
	if len(r.Replicas) >= MaxReplicas {
		return 0, refusef(CodeLimit, "%s has %d replicas, at most %d", name, len(r.Replicas), MaxReplicas)
	}
	t.s.lastReplica++
	r.Replicas = append(r.Replicas, Replica{Replica: vtop.Replica{Node: c.Node, ID: t.s.lastReplica}, Role: Learner})
	return t.s.lastReplica, nil
}

func (c *ChangeReplicas) promote(t *tx, r *Range) *Refusal {
	i, refusal := c.find(t, r, Learner)
	if refusal != nil {
		return refusal
	}
	if lost := r.Replicas[i].Lost; lost != "" {
		return refusef(CodeReplicaLost, "learner %d of %s may have forgotten: %s", c.ReplicaID, t.s.RangeName(r.ID), lost)
	}
	for _, v := range r.Voters() {
		if v.Lost != "" {
			return refusef(CodeLostFirst, "remove the lost voter %d on %q of %s before learner %d becomes a voter", v.ID, v.Node, t.s.RangeName(r.ID), c.ReplicaID)
		}
	}
	if refusal := c.settled(t, r); refusal != nil {
		return refusal
	}
	r.Replicas[i].Role = Voter
	job, ok := t.s.ActiveRepair(r.ID, r.Replicas[i].Node)
	if ok = ok && job.Replica == c.ReplicaID; ok {
		r.preferInstead(job.Replace, job.Destination)
	}
	r.prefer(r.Replicas[i].Node, t.holdsPlace(r, ok && job.Origin == OriginHeal && job.Replace == ""))
	return nil
}

func (c *ChangeReplicas) removeVoter(t *tx, r *Range) *Refusal {
	if i, refusal := c.find(t, r, Voter); refusal != nil {
		return refusal
	} else if rep := r.Replicas[i]; rep.Node == r.Lease.Holder && rep.CanVote() {
		return refusef(CodeRemovesLeader, "replica %d on %q leads %s: move the lease first", rep.ID, rep.Node, t.s.RangeName(r.ID))
	}
	if refusal := c.settled(t, r); refusal != nil {
		return refusal
	}
	if refusal := c.remove(t, r, Voter); refusal != nil {
		return refusal
	}
	voters, able := r.Voters(), r.AbleVoters()
	if able <= len(voters)/2 {
		return refusef(CodeNoMajority, "without replica %d only %d of %d voters of %s can vote", c.ReplicaID, able, len(voters), t.s.RangeName(r.ID))
	}
	return nil
}

// removeLearner takes no learner from a job that works for it: who wants that cancels the job.
func (c *ChangeReplicas) removeLearner(t *tx, r *Range) *Refusal {
	if rep, ok := r.Replica(c.ReplicaID); ok && rep.Lost == "" {
		if job, ok := t.s.ActiveRepair(r.ID, rep.Node); ok && job.Replica == rep.ID {
			return refusef(CodeConflict, "learner %d of %s on %q is of repair %d, which is %s: cancel that", rep.ID, t.s.RangeName(r.ID), rep.Node, job.ID, job.Step)
		}
	}
	return c.remove(t, r, Learner)
}

func (c *ChangeReplicas) remove(t *tx, r *Range, role Role) *Refusal {
	i, refusal := c.find(t, r, role)
	if refusal != nil {
		return refusal
	}
	r.Replicas = slices.Delete(r.Replicas, i, i+1)
	return nil
}

func (c *ChangeReplicas) find(t *tx, r *Range, role Role) (int, *Refusal) {
	for i, rep := range r.Replicas {
		switch {
		case rep.ID != c.ReplicaID:
		case rep.Role != role:
			return 0, refusef(CodeConflict, "%s: replica %d of %s is a %s", c.Change, rep.ID, t.s.RangeName(r.ID), rep.Role)
		default:
			return i, nil
		}
	}
	return 0, refusef(CodeUnknownReplica, "%s: %s has no replica %d", c.Change, t.s.RangeName(r.ID), c.ReplicaID)
}

// settled: the quorums of two changes in a row need not meet unless a majority of the present voters has all that was
// written under the one before.
func (c *ChangeReplicas) settled(t *tx, r *Range) *Refusal {
	if !r.Settled() {
		return refusef(CodeNotSettled, "voters of %s: the last change settles at offset %d, a majority of configuration %d is known to be at %d",
			t.s.RangeName(r.ID), r.SettleMark, r.ConfigVersion, r.QuorumPosition)
	}
	if last, _ := r.Epochs.Last(); c.SettleMark < max(r.Floor, last.Start) {
		return refusef(CodeInvalid, "settle mark %d of %s: a leader's log end is at least the floor %d and its epoch's start %d",
			c.SettleMark, t.s.RangeName(r.ID), r.Floor, last.Start)
	}
	return nil
}

// preferInstead gives a new voter's node the place of the one that it replaces, be that still a voter: the preferred nodes stay as
// many as the voters wished for.
func (r *Range) preferInstead(old, node vtop.NodeName) {
	i := slices.Index(r.Preferred, old)
	if i < 0 || slices.Contains(r.Preferred, node) {
		return
	}
	r.Preferred = slices.Clone(r.Preferred)
	r.Preferred[i] = node
}

// holdsPlace reports of a node whether it keeps its preferred place: it has a replica, or an active repair brings it one. A learner
// that no repair brings does not count where the newcomer was asked for because it does not come.
func (t *tx) holdsPlace(r *Range, votersOnly bool) func(vtop.NodeName) bool {
	return func(node vtop.NodeName) bool {
		if job, ok := t.s.ActiveRepair(r.ID, node); ok && !job.Holes {
			return true
		}
		return slices.ContainsFunc(r.Replicas, func(rep Replica) bool { return rep.Node == node && (rep.Role == Voter || !votersOnly) })
	}
}

// prefer gives a new voter's node a place in the preferred order: one that nobody holds, or the last.
func (r *Range) prefer(node vtop.NodeName, holds func(vtop.NodeName) bool) {
	if !slices.Contains(r.Preferred, node) && !r.preferWhereFree(node, holds) {
		r.Preferred = append(slices.Clone(r.Preferred), node)
	}
}

// preferWhereFree gives a node the first preferred place that nobody holds; false if there is none.
func (r *Range) preferWhereFree(node vtop.NodeName, holds func(vtop.NodeName) bool) bool {
	for i, n := range r.Preferred {
		if !holds(n) {
			r.Preferred = slices.Clone(r.Preferred)
			r.Preferred[i] = node
			return true
		}
	}
	return false
}
