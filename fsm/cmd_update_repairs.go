package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// UpdateRepairs tells how the repairs of one destination stand.
//
//	op            20, since level 1
//	proposed by   the destination: at each change of a step, and about once a second for what moved
//	precondition  Incarnation is the node's registered one; per item: the job is active and to this node; StepVersion is the
//	              job's; Step is not below the job's, except that it may be RepairSealing again, with LastError to say
//	              why; Replica, if not 0, is a replica of the range on this node and not lost (I10); OutcomeWhole is told only of
//	              a replica that is a voter in this state (I12)
//	effect        per item: Progress replaces the job's; the step version rises if the step is another, the attempts if it
//	              went back. A job that ends keeps neither rate, nor sources, nor Waiting; when it failed, its learner goes
//	              (the configuration version rises). One that has nothing left to do, now that its replica is known, is cancelled
//	refused       CodeUnknownNode; CodeStaleIncarnation; per item: CodeUnknownRepair; CodeRepairEnded (stop working on it);
//	              CodeStaleStep; CodeConflict (another destination, a step back); CodeUnknownReplica; CodeReplicaLost; CodeNotVoter;
//	              CodeLimit (MaxRepairAttempts)
//	a repeat      changes nothing and succeeds, unless the step changed: then it is refused with CodeStaleStep or CodeRepairEnded
type UpdateRepairs struct {
	Node        vtop.NodeName
	Incarnation vtop.Incarnation
	Items       []RepairUpdate
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// RepairUpdate is one item of UpdateRepairs.
type RepairUpdate struct {
	ID RepairID
	// StepVersion is the job's on which the update is based.
	StepVersion uint64
	// Step is the step at which the job is now: RepairQueued to RepairFailed.
	Step     RepairStep
	Progress RepairProgress
}

// Op implements Command.
func (c *UpdateRepairs) Op() Op { return OpUpdateRepairs }

// Check implements Command.
func (c *UpdateRepairs) Check() error {
	var s shape
	s.node(c.Node)
	s.must(c.Incarnation > 0, "incarnation is 0")
	s.items(len(c.Items))
	for _, u := range c.Items {
		s.must(u.ID > 0, "repair id is 0")
		s.must(u.StepVersion > 0, "step version is 0")
		s.must(u.Step >= RepairQueued && u.Step <= RepairFailed, "repair step %d: want %d to %d", u.Step, RepairQueued, RepairFailed)
		s.repairProgress(u.Progress)
		s.repairEnds(u.Step, u.Progress)
	}
	return s.err()
}

func (c *UpdateRepairs) encode() proto.Message {
	return &fsmpb.UpdateRepairs{
		Node: string(c.Node), Incarnation: uint64(c.Incarnation), At: c.At,
		Items: mapSlice(c.Items, func(u RepairUpdate) *fsmpb.UpdateRepairs_Item {
			return &fsmpb.UpdateRepairs_Item{
				Id: uint64(u.ID), StepVersion: u.StepVersion, Step: uint32(u.Step), Progress: putRepairProgress(u.Progress),
			}
		}),
	}
}

func decodeUpdateRepairs(r *reader, p *fsmpb.UpdateRepairs) *UpdateRepairs {
	return &UpdateRepairs{
		Node: vtop.NodeName(p.GetNode()), Incarnation: vtop.Incarnation(p.GetIncarnation()), At: p.GetAt(),
		Items: mapSlice(p.GetItems(), func(u *fsmpb.UpdateRepairs_Item) RepairUpdate {
			return RepairUpdate{
				ID: RepairID(u.GetId()), StepVersion: u.GetStepVersion(), Step: RepairStep(r.small(u.GetStep())),
				Progress: r.repairProgress(u.GetProgress()),
			}
		}),
	}
}

func (c *UpdateRepairs) apply(t *tx) Outcome {
	if _, refusal := t.node(c.Node, c.Incarnation); refusal != nil {
		return Outcome{Refusal: refusal}
	}
	return Outcome{Items: mapSlice(c.Items, func(u RepairUpdate) Item {
		job, refusal := t.activeRepair(u.ID)
		if refusal == nil {
			refusal = c.update(t, job, u)
		}
		item := Item{Repair: u.ID, Refusal: refusal}
		if job != nil {
			item.Range = job.Range
		}
		return item
	})}
}

func (c *UpdateRepairs) update(t *tx, old *RepairJob, u RepairUpdate) *Refusal {
	if old.Destination != c.Node {
		return refusef(CodeConflict, "repair %d is to node %q: %q does not update it", u.ID, old.Destination, c.Node)
	}
	if old.StepVersion != u.StepVersion {
		return refusef(CodeStaleStep, "repair %d is %s at step version %d, the update is based on %d", u.ID, old.Step, old.StepVersion, u.StepVersion)
	}
	again := u.Step < old.Step
	if again && (u.Step != RepairSealing || u.Progress.LastError == "") {
		return refusef(CodeConflict, "repair %d cannot go back from %s to %s: only to %s, saying why", u.ID, old.Step, u.Step, RepairSealing)
	}
	if again && old.Attempts >= MaxRepairAttempts {
		return refusef(CodeLimit, "repair %d began %d times, at most %d", u.ID, old.Attempts, MaxRepairAttempts)
	}
	if refusal := u.replicaFits(t, old); refusal != nil {
		return refusal
	}
	job := old.clone()
	job.RepairProgress, job.UpdatedAt = u.Progress, c.At
	if job.Holes {
		job.Replica = old.Replica // it is the one that was there, from the beginning
	}
	if !u.Step.Active() {
		t.endRepair(job, u.Step)
		return nil
	}
	if u.Step != old.Step {
		job.Step = u.Step
		job.StepVersion++
	}
	if again {
		job.Attempts++
	}
	t.putRepair(job)
	if job.Replica != old.Replica {
		if r, ok := t.s.Range(job.Range); ok {
			t.endNeedless(r)
		}
	}
	return nil
}

// replicaFits: a job works for no replica that another node has, or that may have forgotten (I10); and what it says of the
// vote is compared (I12).
func (u RepairUpdate) replicaFits(t *tx, job *RepairJob) *Refusal {
	r, refusal := t.rangeOf(job.Range)
	if refusal != nil {
		return refusal
	}
	id := u.Progress.Replica
	rep, ok := r.Replica(id)
	switch {
	case id == 0:
	case !ok || rep.Node != job.Destination:
		return refusef(CodeUnknownReplica, "%s has no replica %d on node %q", job.Name, id, job.Destination)
	case rep.Lost != "":
		return refusef(CodeReplicaLost, "replica %d of %s on %q may have forgotten: %s", id, job.Name, rep.Node, rep.Lost)
	}
	if u.Progress.Outcome == OutcomeWhole && !rep.CanVote() {
		return refusef(CodeNotVoter, "repair %d: replica %d of %s on %q is no voter yet", job.ID, id, job.Name, job.Destination)
	}
	return nil
}
