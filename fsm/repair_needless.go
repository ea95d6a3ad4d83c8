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
		why := t.needless(now, old)
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
func (t *tx) needless(r *Range, job *RepairJob) string {
	if job.Holes || job.Replace == "" {
		return ""
	}
	if r.replacedStays(job) {
		return t.whyStays(r, job)
	}
	if _, votes := r.VoterOn(job.Destination); votes || r.replaced(job) || len(r.Voters()) < len(r.Preferred) {
		return ""
	}
	if slices.Contains(r.Preferred, job.Destination) || slices.ContainsFunc(r.Voters(), func(v Replica) bool { return v.Lost != "" }) {
		return "" // it is wanted there by name, or may take the place of one that is lost
	}
	return fmt.Sprintf("not needed any more: nothing is left to replace on node %q, and the range has its %d voters", job.Replace, len(r.Voters()))
}

// whyStays says why the voter that a job was to replace stays, and what is to be done for it to go all the same. What drains needs
// nobody to ask again.
func (t *tx) whyStays(r *Range, job *RepairJob) string {
	why := fmt.Sprintf("not needed any more: node %q keeps its voter, for the one on %q took the place of another that is missing: without it the range would have %d of %d voters",
		job.Replace, job.Destination, len(r.Voters())-1, len(r.Preferred))
	if n, ok := t.s.Node(job.Replace); ok && n.State == NodeDraining {
		return why + "; it is draining: another replica takes its place by itself"
	}
	when := "for it to go all the same"
	if len(r.Voters()) < len(r.Preferred) {
		when = fmt.Sprintf("for it to go once the range has its %d voters", len(r.Preferred))
	}
	return fmt.Sprintf("%s; %s: vtopctl repair %s --node OTHER --replace %s", why, when, job.Name, job.Replace)
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
