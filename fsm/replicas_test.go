package fsm

import (
	"testing"

	"github.com/vtop-log/vtop"
)

// replicaOn finds the replica id of r0 that a node is to keep.
func (w *world) replicaOn(node vtop.NodeName) vtop.ReplicaID {
	w.t.Helper()
	rep, ok := w.rng(r0).On(node)
	if !ok {
		w.t.Fatalf("no replica on %s", node)
	}
	return rep.ID
}

func (w *world) voters() (out []vtop.NodeName) {
	for _, v := range w.rng(r0).Voters() {
		out = append(out, v.Node)
	}
	return out
}

// Case by case: a lost voter is removed, then its caught-up learner on the same node becomes a voter.
func TestChangeReplicas_RepairInPlace(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	w.report(100, 100)
	lost := w.replicaOn("n2")
	w.ok(w.lostOf("n2", lost))
	w.refused(w.changeOf(RemoveVoter, "", lost), CodeNotSettled) // the loss made every leader count anew
	w.report(100, 100)
	out := w.ok(w.changeOf(AddLearner, "n2", 0))
	if out.ReplicaID == lost || out.ReplicaID == 0 || out.ConfigVersion != w.rng(r0).ConfigVersion {
		t.Fatalf("I10: outcome %+v", out)
	}
	w.refused(w.changeOf(AddLearner, "n2", 0), CodeConflict)
	w.refused(w.changeOf(PromoteLearner, "", out.ReplicaID), CodeLostFirst)
	w.report(120, 120)
	w.ok(w.changeOf(RemoveVoter, "", lost))
	if r := w.rng(r0); r.SettleMark != 120 || r.Settled() {
		t.Fatalf("settle mark %d, quorum position %d", r.SettleMark, r.QuorumPosition)
	}
	w.refused(w.changeOf(PromoteLearner, "", out.ReplicaID), CodeNotSettled)
	w.report(120, 119)
	w.refused(w.changeOf(PromoteLearner, "", out.ReplicaID), CodeNotSettled) // the floor is high, this set's quorum is not
	w.report(120, 120)
	w.ok(w.changeOf(PromoteLearner, "", out.ReplicaID))
	r := w.rng(r0)
	if len(r.Voters()) != 3 || len(r.Replicas) != 3 || r.Lease.Epoch != e || r.Preferred[1] != "n2" || len(r.Preferred) != 3 {
		t.Errorf("range %+v", r)
	}
}

// A report under an older configuration, or one that was written for another epoch, does not settle a change.
func TestChangeReplicas_OnlyAReportOfThePresentSetSettles(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(50, 50)
	late := w.reportOf(60, 60)
	id := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	w.refused(late, CodeStaleConfig)
	w.refused(w.changeOf(PromoteLearner, "", id), CodeNotSettled)
	w.report(60, 60)
	w.lead("n2", 70)
	w.refused(w.changeOf(PromoteLearner, "", id), CodeNotSettled)
	w.report(60, 69)
	w.refused(w.changeOf(PromoteLearner, "", id), CodeNotSettled) // below the epoch's start
	w.report(60, 70)
	w.ok(w.changeOf(PromoteLearner, "", id))
	if got := w.rng(r0).Preferred; len(got) != 4 || got[3] != "n4" {
		t.Errorf("preferred %v", got)
	}
}

func TestChangeReplicas_MoveAVoter(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(10, 10)
	id := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	w.report(10, 10)
	w.ok(w.changeOf(PromoteLearner, "", id)) // a living one is removed after
	w.refused(w.changeOf(RemoveVoter, "", w.replicaOn("n3")), CodeNotSettled)
	w.report(10, 10)
	w.refused(w.changeOf(RemoveVoter, "", w.replicaOn("n1")), CodeRemovesLeader)
	w.ok(w.changeOf(RemoveVoter, "", w.replicaOn("n3")))
	if got := w.voters(); len(got) != 3 || got[2] != "n4" {
		t.Errorf("voters %v", got)
	}
	for r := range w.s.RangesOf("n3") {
		if r.ID == r0 {
			t.Error("the index still has the removed replica")
		}
	}
	// The place of a node that left is taken by the next one to come.
	w.report(10, 10)
	id = w.ok(w.changeOf(AddLearner, "n5", 0)).ReplicaID
	w.report(10, 10)
	w.ok(w.changeOf(PromoteLearner, "", id))
	if got := w.rng(r0).Preferred; len(got) != 4 || got[2] != "n5" || got[3] != "n4" {
		t.Errorf("preferred %v", got)
	}
}

func TestChangeReplicas_Refusals(t *testing.T) {
	w := newWorld(t)
	e := w.grant("n1")
	w.refused(w.changeOf(AddLearner, "n4", 0), CodeNotStarted)
	w.ok(startOf(e, 5))
	w.report(5, 5)
	w.refused(w.changeOf(AddLearner, "n9", 0), CodeUnknownNode)
	w.refused(w.changeOf(AddLearner, "n2", 0), CodeConflict)
	w.refused(w.changeOf(RemoveVoter, "", 999), CodeUnknownReplica)
	w.refused(w.changeOf(PromoteLearner, "", w.replicaOn("n2")), CodeConflict)
	w.refused(w.changeOf(RemoveLearner, "", w.replicaOn("n2")), CodeConflict)
	low := w.changeOf(RemoveVoter, "", w.replicaOn("n2"))
	low.SettleMark = 4
	w.refused(low, CodeInvalid) // a leader's log end is never below its epoch's start

	id := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	stale := w.changeOf(AddLearner, "n5", 0)
	stale.Config--
	w.refused(stale, CodeStaleConfig)
	w.ok(w.lostOf("n4", id))
	w.refused(w.changeOf(PromoteLearner, "", id), CodeReplicaLost)
	w.ok(w.changeOf(RemoveLearner, "", id)) // learners wait for nothing
	if next := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID; next == id {
		t.Error("I10: a replica id was given out twice")
	}
	late := w.changeOf(AddLearner, "n5", 0)
	w.lead("n2", 5)
	w.refused(late, CodeStaleEpoch)
}

// Removing a voter must leave a majority that can vote: otherwise no change would ever settle again.
func TestChangeReplicas_KeepsAMajority(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.ok(w.lostOf("n2", w.replicaOn("n2")))
	w.report(10, 10)
	w.refused(w.changeOf(RemoveVoter, "", w.replicaOn("n3")), CodeNoMajority)
	w.ok(w.changeOf(RemoveVoter, "", w.rng(r0).Replicas[1].ID))
}

func TestMarkReplicasLost(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	cmd := w.lostOf("n2", w.replicaOn("n2"))
	w.refused(w.lostOf("n2", w.replicaOn("n3")), CodeUnknownReplica)
	w.refused(w.lostOf("n2", 999), CodeUnknownReplica)
	stale := *cmd
	stale.Incarnation = 9
	w.refused(&stale, CodeStaleIncarnation)
	stale = *cmd
	stale.Storage = uuid(9)
	w.refused(&stale, CodeStaleIncarnation)

	w.ok(cmd)
	version := w.rng(r0).ConfigVersion
	w.ok(cmd)
	r := w.rng(r0)
	if r.ConfigVersion != version || len(r.Losses) != 1 || r.Lease.Epoch != e || r.Replicas[1].Lost != "damage" {
		t.Errorf("range %+v", r)
	}
	if _, ok := r.VoterOn("n2"); ok || len(r.Voters()) != 3 {
		t.Error("I10: a lost voter counts in the quorum's size, and cannot vote")
	}
	// Case: the leader's own replica. The lease ends, the epoch is not used again.
	w.ok(w.lostOf("n1", w.replicaOn("n1")))
	if r := w.rng(r0); r.Lease.Holder != "" || r.Started || r.LastEpoch != e {
		t.Errorf("range %+v", r)
	}
	if got := w.grant("n3"); got != e+1 {
		t.Errorf("epoch %d", got)
	}
}
