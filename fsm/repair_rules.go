package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vtop-log/vtop"
)

// What becomes of repair jobs when commands, or the ranges and nodes that they work for, change.

// repairRequest wants the form of a request.
func (s *shape) repairRequest(q RepairRequest) {
	s.rangeID(q.Range)
	s.node(q.Destination)
	s.atMost("length of node name", len(q.Replace), MaxName)
	s.atMost("sources", len(q.Sources), MaxRepairSources)
	for i, n := range q.Sources {
		s.node(n)
		s.must(n != q.Destination, "node %q is destination and source", n)
		s.must(!slices.Contains(q.Sources[:i], n), "source %q twice", n)
	}
	s.must(q.MaxRate >= 0, "rate %d is negative", q.MaxRate)
	s.must(q.Origin >= OriginOperator && q.Origin <= OriginReplace, "repair origin %d", q.Origin)
	s.text("reason", q.Reason)
}

func (s *shape) repairProgress(p RepairProgress) {
	s.must(p.Epoch >= vtop.NoEpoch, "epoch %d is negative", p.Epoch)
	for _, o := range []vtop.Offset{p.SealedEnd, p.LogEnd, p.Floor} {
		s.must(o >= NoOffset, "offset %d: want -1 or more", o)
	}
	for _, n := range []int64{p.RecordsSealed, int64(p.Segments), p.BytesTotal, p.BytesDone, p.BytesPerSecond, p.Gap} {
		s.must(n >= 0, "count %d is negative", n)
	}
	s.atMost("sources", len(p.ActiveSources), MaxRepairSources)
	for _, n := range p.ActiveSources {
		s.node(n)
	}
	s.atMost("dropped sources", len(p.DroppedSources), MaxRepairSources)
	for _, d := range p.DroppedSources {
		s.node(d.Node)
		s.text("reason", d.Reason)
	}
	s.text("last error", p.LastError)
	s.text("waiting", p.Waiting)
	s.text("cause", p.Cause)
}

// repairEnds wants step and outcome to fit, and a cause wherever something is missing.
func (s *shape) repairEnds(step RepairStep, p RepairProgress) {
	switch p.Outcome {
	case OutcomeNone:
		s.must(step.Active(), "a job that is %s has an outcome", step)
		s.must(p.Replica > 0 || step != RepairCatchingUp && step != RepairPromoting, "a job that is %s has a replica", step)
	case OutcomeWhole:
		s.must(step == RepairDone, "a job that is %s is not whole", step)
		s.must(p.Replica > 0 && p.Voter && p.Gap == 0 && p.Floor >= 0 && p.LogEnd >= p.Floor,
			"whole, with replica %d, voter %t, gap %d, log end %d, floor %d", p.Replica, p.Voter, p.Gap, p.LogEnd, p.Floor)
	case OutcomeGap:
		s.must(step == RepairDone, "a job that is %s has no measured gap", step)
		s.must(p.Gap > 0 && p.Cause != "", "gap of %d offsets, cause %q", p.Gap, p.Cause)
	case OutcomeFailed, OutcomeRefused:
		s.must(step == RepairFailed, "a job that is %s has not failed", step)
		s.must(p.Cause != "", "failed without a cause")
	case OutcomeCancelled:
		s.must(step == RepairCancelled, "a job that is %s was not cancelled", step)
	default:
		s.must(false, "repair outcome %d", p.Outcome)
	}
}

func (t *tx) activeRepair(id RepairID) (*RepairJob, *Refusal) {
	job, ok := t.s.Repair(id)
	if !ok {
		return nil, refusef(CodeUnknownRepair, "no repair %d, or it was forgotten", id)
	}
	if !job.Active() {
		return job, refusef(CodeRepairEnded, "repair %d of %s has ended: %s %s", id, job.Name, job.Step, job.Cause)
	}
	return job, nil
}

// setRepair puts a job and its place in the indexes.
func (s *State) setRepair(j *RepairJob) {
	s.repairs.Set(j)
	byRange, byNode := rangeRepair{j.Range, j.Destination, j.ID}, nodeRepair{j.Destination, j.ID}
	if j.Active() {
		s.repairing.Set(byRange)
		s.repairsTo.Set(byNode)
		return
	}
	s.repairing.Delete(byRange)
	s.repairsTo.Delete(byNode)
	s.ended.Set(endedRepair{j.Ended, j.ID})
}

// putRepair replaces a job, and forgets those beyond the limit that ended first.
func (t *tx) putRepair(j *RepairJob) {
	t.s.setRepair(j)
	t.repairs = true
	for t.s.ended.Len() > MaxEndedRepairs {
		oldest, _ := t.s.ended.PopMin()
		t.s.repairs.Delete(&RepairJob{ID: oldest.id})
	}
}

// endRepair ends a job that is being made. What only a job that moves has goes, and so does a learner that it made, unless it is done.
func (t *tx) endRepair(j *RepairJob, step RepairStep) {
	j.Step, j.Ended = step, t.index
	j.StepVersion++
	j.BytesPerSecond, j.Waiting = 0, ""
	switch {
	case step == RepairCancelled:
		j.Outcome = OutcomeCancelled
	case step == RepairFailed && j.Outcome == OutcomeNone:
		j.Outcome = OutcomeFailed
	}
	t.putRepair(j)
	if step != RepairDone && j.Replica != 0 && !j.Holes {
		t.dropLearner(j.Range, j.Replica)
	}
}

// dropLearner removes a replica if it is a learner. It counts for nothing: no quorum changes.
func (t *tx) dropLearner(id vtop.Range, replica vtop.ReplicaID) {
	old, ok := t.s.Range(id)
	if !ok {
		return
	}
	i := slices.IndexFunc(old.Replicas, func(rep Replica) bool { return rep.ID == replica && rep.Role == Learner })
	if i < 0 {
		return
	}
	r := old.clone()
	r.Replicas = slices.Delete(slices.Clone(old.Replicas), i, i+1)
	r.ConfigVersion++
	r.QuorumPosition = NoOffset
	t.putRange(r)
}

// repairsFollow looks at the jobs of a range whose replicas have changed: one whose replica may have forgotten begins anew, one whose
// replica was taken away fails, one that has nothing left to do is cancelled.
func (t *tx) repairsFollow(r *Range) {
	for _, old := range slices.Collect(t.s.ActiveRepairs(r.ID)) {
		if old.Replica == 0 {
			continue
		}
		rep, there := r.Replica(old.Replica)
		if there && rep.Lost == "" {
			continue
		}
		job := old.clone()
		switch {
		case !there:
			job.Cause = fmt.Sprintf("replica %d on %q was removed from the range", old.Replica, old.Destination)
		case job.Holes:
			job.Cause = fmt.Sprintf("replica %d on %q may have forgotten: repair it whole: %s", rep.ID, rep.Node, rep.Lost)
		case job.Attempts >= MaxRepairAttempts:
			job.Cause = fmt.Sprintf("began %d times; replica %d on %q may have forgotten: %s", job.Attempts, rep.ID, rep.Node, rep.Lost)
		default:
			t.beginAnew(job, rep)
			continue
		}
		job.Cause = clip(job.Cause)
		t.endRepair(job, RepairFailed)
	}
	t.endNeedless(r)
}

// beginAnew sends a job that is being made back to its beginning: what it had brought was on a replica that is lost.
func (t *tx) beginAnew(job *RepairJob, lost Replica) {
	dropped := job.DroppedSources
	job.RepairProgress = NewRepairProgress()
	job.DroppedSources = dropped
	job.LastError = clip(fmt.Sprintf("replica %d on %q may have forgotten: %s", lost.ID, lost.Node, lost.Lost))
	job.Step = RepairQueued
	job.StepVersion++
	job.Attempts++
	t.putRepair(job)
}

// repairsOfDeleted cancels the jobs of a range that was deleted.
func (t *tx) repairsOfDeleted(id vtop.Range) {
	for _, old := range slices.Collect(t.s.ActiveRepairs(id)) {
		job := old.clone()
		job.Cause = "the topic was deleted"
		t.endRepair(job, RepairCancelled)
	}
}

// endRepairsTo fails the jobs to a node that is about to be gone.
func (t *tx) endRepairsTo(node vtop.NodeName) {
	for _, old := range slices.Collect(t.s.RepairsTo(node)) {
		job := old.clone()
		job.Cause = fmt.Sprintf("node %q was removed from the cluster", node)
		t.endRepair(job, RepairFailed)
	}
}

// clip cuts a text to MaxText bytes, at a character.
func clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	return strings.ToValidUTF8(s[:MaxText], "")
}
