package fsm

import (
	"fmt"
	"slices"
)

// endNeedless ends the jobs of a range that have nothing left to do, in the entry that made it so: whoever is to wait for a
// replica to become a voter, or for a voter to go, must not wait for ever.
//
// It follows what a leader does of itself (cluster/protocol.Plan): a learner becomes a voter where there are fewer than wished, where
// one is lost, where one is to go for it, where its node is wanted by name, or where its job was asked for in nobody's place; a
// living voter goes only where there are more than wished.
func (t *tx) endNeedless(r *Range) {
	for _, job := range slices.Collect(t.s.ActiveRepairs(r.ID)) {
		// The end of one may have taken its learner from the range, and ended others.
		now, ok := t.s.Range(r.ID)
		old, known := t.s.Repair(job.ID)
		if !ok || !known || !old.Active() {
			continue
		}
		why := now.needless(old)
		if why == "" {
			continue
		}
		if stays := now.clone(); now.replacedStays(old) && !slices.Contains(now.Preferred, old.Replace) && stays.preferWhereFree(old.Replace, t.holdsPlace(now, false)) {
			t.putRange(stays)
		}
		ended := old.clone()
		ended.Cause = clip(why)
		t.endRepair(ended, RepairCancelled)
	}
}

// needless says why a job has nothing left to do; empty if it has.
func (r *Range) needless(job *RepairJob) string {
	if job.Holes || job.Replace == "" {
		return ""
	}
	if r.replacedStays(job) {
		return fmt.Sprintf("not needed any more: node %q keeps its voter: without it the range would have %d of %d voters; ask again once they are complete",
			job.Replace, len(r.Voters())-1, len(r.Preferred))
	}
	if _, votes := r.VoterOn(job.Destination); votes || r.replaced(job) || len(r.Voters()) < len(r.Preferred) {
		return ""
	}
	if slices.Contains(r.Preferred, job.Destination) || slices.ContainsFunc(r.Voters(), func(v Replica) bool { return v.Lost != "" }) {
		return "" // it is wanted there by name, or may take the place of one that is lost
	}
	return fmt.Sprintf("not needed any more: nothing is left to replace on node %q, and the range has its %d voters", job.Replace, len(r.Voters()))
}

// replaced reports whether the voter that a job is to replace is there. One that came to the node after the job's replica is not meant.
func (r *Range) replaced(job *RepairJob) bool {
	for _, v := range r.Voters() {
		if v.Node == job.Replace && (job.Replica == 0 || v.ID < job.Replica) {
			return true
		}
	}
	return false
}

// replacedStays reports whether a job's replica votes, and the range cannot do without the one that was to go for it.
func (r *Range) replacedStays(job *RepairJob) bool {
	if rep, ok := r.Replica(job.Replica); !ok || !rep.CanVote() || job.Replace == job.Destination {
		return false
	}
	return r.replaced(job) && len(r.Voters()) <= len(r.Preferred)
}
