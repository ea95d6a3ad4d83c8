package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// SubmitRepairs asks for repairs. `repair --all` is one command.
//
//	op            19, since level 1
//	proposed by   any node for an operator; the Raft leader to heal, drain and replace
//	precondition  per item: the range exists, Config is 0 or its configuration version; the destination is registered, not gone,
//	              and not draining unless only holes are filled; another node's replica of the range can vote; the
//	              destination's own is not whole, or with Holes it is a voter; Replace has a voter of the range, is the destination where that has a
//	              lost one, and no other active job replaces it; Sources are registered; healing is not paused, for OriginHeal
//	effect        per item: a job, queued; its id is the item's Repair. If an active job of that range and destination is
//	              there already, it is the one meant, whatever else the item asks for: Existing
//	refused       per item: CodeUnknownRange; CodeStaleConfig; CodeUnknownNode; CodeNodeGone; CodeConflict (draining; the destination's own lost
//	              voter first; replaced by another job; paused); CodeUnknownReplica (nothing to replace, no voter that could have holes); CodeWhole (nothing to repair);
//	              CodeNoSource (nothing to repair from); CodeLimit (MaxActiveRepairs)
//	a repeat      changes nothing and gives the same ids while the jobs are active
type SubmitRepairs struct {
	Items []RepairRequest
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *SubmitRepairs) Op() Op { return OpSubmitRepairs }

// Check implements Command.
func (c *SubmitRepairs) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, q := range c.Items {
		s.repairRequest(q)
	}
	return s.err()
}

func (c *SubmitRepairs) encode() proto.Message {
	return &fsmpb.SubmitRepairs{At: c.At, Items: mapSlice(c.Items, putRepairRequest)}
}

func decodeSubmitRepairs(r *reader, p *fsmpb.SubmitRepairs) *SubmitRepairs {
	return &SubmitRepairs{At: p.GetAt(), Items: mapSlice(p.GetItems(), r.repairRequest)}
}

func (c *SubmitRepairs) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(q RepairRequest) Item {
		if job, ok := t.s.ActiveRepair(q.Range, q.Destination); ok {
			return Item{Range: q.Range, Repair: job.ID, Existing: true}
		}
		replica, refusal := q.admit(t)
		if refusal != nil {
			return Item{Range: q.Range, Refusal: refusal}
		}
		t.s.lastRepair++
		job := &RepairJob{
			ID: t.s.lastRepair, RepairRequest: q, Name: t.s.RangeName(q.Range), Step: RepairQueued, StepVersion: 1, Attempts: 1,
			RepairProgress: NewRepairProgress(), Created: t.index, CreatedAt: c.At, UpdatedAt: c.At,
		}
		job.Replica = replica
		t.putRepair(job)
		return Item{Range: q.Range, Repair: job.ID}
	})}
}

// admit says whether there is anything to do and to do it with. The replica is the one that has holes, else 0.
func (q RepairRequest) admit(t *tx) (vtop.ReplicaID, *Refusal) {
	r, refusal := t.rangeOf(q.Range)
	if refusal != nil {
		return 0, refusal
	}
	name := t.s.RangeName(q.Range)
	if heal := t.s.cluster.Heal; heal.Paused && q.Origin == OriginHeal {
		return 0, refusef(CodeConflict, "repair of %s: healing is paused: %s", name, heal.Why)
	}
	if q.Config != 0 && q.Config != r.ConfigVersion {
		return 0, refusef(CodeStaleConfig, "repair of %s expects configuration version %d: it is %d", name, q.Config, r.ConfigVersion)
	}
	for _, check := range []func(*tx, *Range, string) *Refusal{q.nodesFit, q.sourceThere, q.replaces} {
		if refusal := check(t, r, name); refusal != nil {
			return 0, refusal
		}
	}
	rep, votes := r.VoterOn(q.Destination)
	switch {
	case q.Holes && !votes:
		return 0, refusef(CodeUnknownReplica, "node %q has no voter of %s whose holes could be filled: repair it whole", q.Destination, name)
	case !q.Holes && votes:
		return 0, refusef(CodeWhole, "replica %d of %s on %q is a voter and not lost: nothing to repair", rep.ID, name, q.Destination)
	}
	if n := t.s.ActiveRepairCount(); n >= MaxActiveRepairs {
		return 0, refusef(CodeLimit, "repair of %s: %d repairs are active, at most %d: submit again when some have ended", name, n, MaxActiveRepairs)
	}
	if q.Holes {
		return rep.ID, nil
	}
	return 0, nil
}

func (q RepairRequest) nodesFit(t *tx, _ *Range, name string) *Refusal {
	if refusal := t.takesReplica(q.Destination); refusal != nil {
		return refusal
	}
	if n, _ := t.s.Node(q.Destination); n.State == NodeDraining && !q.Holes {
		return refusef(CodeConflict, "node %q is draining: it takes no new replica of %s", q.Destination, name)
	}
	for _, source := range q.Sources {
		if _, refusal := t.node(source, 0); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (q RepairRequest) sourceThere(_ *tx, r *Range, name string) *Refusal {
	for _, rep := range r.Replicas {
		if rep.CanVote() && rep.Node != q.Destination {
			return nil
		}
	}
	return refusef(CodeNoSource, "no replica of %s on another node than %q can vote: there is nothing to repair from", name, q.Destination)
}

func (q RepairRequest) replaces(t *tx, r *Range, name string) *Refusal {
	if q.Replace == "" {
		return nil
	}
	found := false
	for _, rep := range r.Voters() {
		found = found || rep.Node == q.Replace
	}
	if !found {
		return refusef(CodeUnknownReplica, "node %q has no voter of %s that could be replaced", q.Replace, name)
	}
	for _, rep := range r.Voters() {
		if rep.Node == q.Destination && rep.Lost != "" && q.Replace != q.Destination {
			return refusef(CodeConflict, "node %q has lost its own voter %d of %s (%s): a replica there takes the place of that one, and not of the one on %q: "+
				"repair it without replacing another, then move the one on %q to a node that has none", q.Destination, rep.ID, name, rep.Lost, q.Replace, q.Replace)
		}
	}
	for job := range t.s.ActiveRepairs(r.ID) {
		if job.Replace == q.Replace {
			return refusef(CodeConflict, "repair %d replaces %q by %q for %s already: cancel it first", job.ID, job.Replace, job.Destination, name)
		}
	}
	return nil
}
