package fsm

import (
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

// needlessWorld is a range on n1, n2, n3, led by n1, with a settled configuration.
func needlessWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(100, 100)
	return w
}

// change changes a replica and settles that.
func (w *world) change(kind ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) vtop.ReplicaID {
	w.t.Helper()
	w.report(100, 100)
	out := w.ok(w.changeOf(kind, node, id))
	if now := w.rng(r0).ConfigVersion; out.ConfigVersion != now {
		w.t.Errorf("%s led to version %d of the configuration, and says %d", kind, now, out.ConfigVersion)
	}
	return out.ReplicaID
}

func (w *world) replace(node, old vtop.NodeName) RepairID {
	w.t.Helper()
	q := requestTo(node)
	q.Replace = old
	return w.submit(q)
}

// ended wants a job to have ended as needless, and its learner to be gone.
func (w *world) needless(id RepairID, cause string) {
	w.t.Helper()
	j := w.job(id)
	if j.Step != RepairCancelled || j.Outcome != OutcomeCancelled || !strings.Contains(j.Cause, cause) {
		w.t.Fatalf("repair %d is %s %s: %q, want it cancelled with %q", id, j.Step, j.Outcome, j.Cause, cause)
	}
	if rep, ok := w.rng(r0).On(j.Destination); ok && rep.Role == Learner {
		w.t.Fatalf("learner %d of repair %d is left", rep.ID, id)
	}
}

// A job that takes away another node's voter, while its own destination's is lost and has to be replaced first, would leave the range
// with fewer voters than before, or never end.
func TestSubmitRepairs_DestinationLostItsOwn(t *testing.T) {
	w := needlessWorld(t)
	w.ok(w.lostOf("n3", w.replicaOn("n3")))
	q := requestTo("n3")
	q.Replace = "n2"
	out := w.refused(&SubmitRepairs{Items: []RepairRequest{q}}, CodeConflict)
	if m := out.Items[0].Refusal.Message; !strings.Contains(m, "lost") || !strings.Contains(m, "without replacing") {
		t.Errorf("message %q", m)
	}
	for _, old := range []vtop.NodeName{"", "n3"} {
		id := w.replace("n3", old)
		w.ok(&CancelRepairs{IDs: []RepairID{id}, Reason: "next"})
	}
	w.replace("n4", "n3") // to a node that has none, it may
}

// What a job was to replace is gone, and the range has all the voters that are wished for: nobody would ever make its learner a voter.
func TestRepairs_NothingLeftToReplace(t *testing.T) {
	for name, adopted := range map[string]bool{"before it has a replica": false, "while its learner follows": true} {
		w := needlessWorld(t)
		lost := w.replicaOn("n2")
		w.ok(w.lostOf("n2", lost))
		heals := w.change(AddLearner, "n2", 0)
		id := w.replace("n4", "n2")
		if adopted {
			w.adopt(id)
		}
		w.change(RemoveVoter, "", lost)
		if !w.job(id).Active() {
			t.Fatalf("%s: the range is one short: the job is wanted", name)
		}
		w.change(PromoteLearner, "", heals)
		if !w.job(id).Active() {
			t.Fatalf("%s: the voter on n2 is older than the job's replica, and is to go now: %+v", name, w.job(id))
		}
	}
	// A voter that came to the node later than the job's replica is not meant.
	w := needlessWorld(t)
	lost := w.replicaOn("n2")
	w.ok(w.lostOf("n2", lost))
	id := w.replace("n4", "n2")
	w.adopt(id)
	later := w.change(AddLearner, "n2", 0)
	w.change(RemoveVoter, "", lost)
	w.change(PromoteLearner, "", later)
	w.needless(id, "nothing is left to replace")
	if r := w.rng(r0); len(r.Replicas) != 3 || len(r.Preferred) != 3 {
		t.Fatalf("range %+v", r)
	}
	// The same before the job has a replica: whoever is on the node now may be meant, but not once nobody is.
	w = needlessWorld(t)
	id = w.replace("n4", "n3")
	other := w.submit(requestTo("n5"))
	learner := w.adopt(other)
	w.change(RemoveVoter, "", w.replicaOn("n3"))
	w.change(PromoteLearner, "", learner)
	w.needless(id, "nothing is left to replace")
}

// A reassignment wants the destination, whatever became of the voter in whose place it was to come.
func TestRepairs_WantedBeyondWhatItReplaces(t *testing.T) {
	w := needlessWorld(t)
	id := w.replace("n4", "n3")
	w.ok(&SetPreferred{Items: []Preference{{Range: r0, Nodes: []vtop.NodeName{"n1", "n4"}}}})
	w.change(RemoveVoter, "", w.replicaOn("n3"))
	if !w.job(id).Active() {
		t.Fatalf("job %+v", w.job(id))
	}
	w.ok(&SetPreferred{Items: []Preference{{Range: r0, Nodes: []vtop.NodeName{"n1", "n2"}}}})
	w.needless(id, "nothing is left to replace")
}

// The job's replica votes, and without the one that it was to replace the range would have fewer voters than are wished for: that one
// stays, and the job ends.
func TestRepairs_ReplacedVoterStays(t *testing.T) {
	w := needlessWorld(t)
	id := w.replace("n4", "n3")
	learner := w.adopt(id)
	w.change(RemoveVoter, "", w.replicaOn("n2")) // it was lost, say
	w.change(PromoteLearner, "", learner)
	w.needless(id, "keeps its voter")
	r := w.rng(r0)
	if _, stays := r.VoterOn("n3"); !stays || len(r.Voters()) != 3 || len(r.Preferred) != 3 {
		t.Fatalf("range %+v", r)
	}
	for _, n := range []vtop.NodeName{"n1", "n3", "n4"} {
		if _, votes := r.VoterOn(n); !votes {
			t.Errorf("no voter on %s", n)
		}
	}
	for _, n := range r.Preferred {
		if _, votes := r.VoterOn(n); !votes {
			t.Errorf("preferred %v: %s has no voter", r.Preferred, n)
		}
	}
	// The operator is told what to type for what was asked for, and that works at once: the range has its voters.
	if cause := w.job(id).Cause; !strings.Contains(cause, "vtopctl repair lines/0 --node OTHER --replace n3") || strings.Contains(cause, "once") {
		t.Fatalf("cause %q", cause)
	}
	id = w.replace("n5", "n3")
	learner = w.adopt(id)
	w.change(PromoteLearner, "", learner)
	w.change(RemoveVoter, "", w.replicaOn("n3"))
	w.step(id, RepairDone, func(p *RepairProgress) {
		p.Replica, p.Outcome, p.Voter, p.LogEnd, p.Floor = learner, OutcomeWhole, true, 100, 100
	})
	r = w.rng(r0)
	if _, stays := r.VoterOn("n3"); stays || len(r.Voters()) != 3 || len(r.Preferred) != 3 {
		t.Fatalf("range %+v", r)
	}
	// Case: two voters are missing: it would only take the other's place.
	w = needlessWorld(t)
	w.ok(&SetPreferred{Items: []Preference{{Range: r0, Nodes: []vtop.NodeName{"n1", "n2", "n3"}}}})
	four := w.adopt(w.submit(requestTo("n4")))
	w.change(PromoteLearner, "", four)
	id = w.replace("n5", "n3")
	learner = w.adopt(id)
	w.change(RemoveVoter, "", w.replicaOn("n2"))
	w.change(RemoveVoter, "", four)
	w.change(PromoteLearner, "", learner)
	w.needless(id, "once the range has its 4 voters: vtopctl repair lines/0 --node OTHER --replace n3")
	// Case: the node is draining: it goes by itself.
	w = needlessWorld(t)
	w.ok(&UpdateNode{Name: "n3", State: NodeDraining})
	id = w.replace("n4", "n3")
	learner = w.adopt(id)
	w.change(RemoveVoter, "", w.replicaOn("n2"))
	w.change(PromoteLearner, "", learner)
	w.needless(id, "draining: another replica takes its place by itself")
	// Case: all voters are there, so that the one that is replaced can go.
	w = needlessWorld(t)
	id = w.replace("n4", "n3")
	learner = w.adopt(id)
	w.change(PromoteLearner, "", learner)
	if !w.job(id).Active() {
		t.Fatalf("job %+v", w.job(id))
	}
}

// The leader may make a learner a voter before its job has told that it works for it: the job ends when it does.
func TestRepairs_ReplacedVoterStaysAndTheReplicaIsToldLate(t *testing.T) {
	w := needlessWorld(t)
	id := w.replace("n4", "n3")
	w.step(id, RepairAdopting, nil)
	learner := w.change(AddLearner, "n4", 0)
	w.change(RemoveVoter, "", w.replicaOn("n2"))
	w.change(PromoteLearner, "", learner)
	if !w.job(id).Active() {
		t.Fatalf("job %+v", w.job(id))
	}
	w.step(id, RepairCatchingUp, func(p *RepairProgress) { p.Replica = learner })
	w.needless(id, "keeps its voter")
}

// A node to which a job brings a replica keeps its place among the preferred, though its voter went first.
func TestChangeReplicas_WhoIsComingKeepsItsPlace(t *testing.T) {
	w := needlessWorld(t)
	lost := w.replicaOn("n3")
	w.ok(w.lostOf("n3", lost))
	own := w.replace("n3", "n3")
	more := w.submit(requestTo("n4"))
	learner := w.adopt(more)
	w.change(RemoveVoter, "", lost)
	w.change(PromoteLearner, "", learner)
	if r := w.rng(r0); len(r.Preferred) != 4 || !w.job(own).Active() {
		t.Fatalf("preferred %v, job %+v", r.Preferred, w.job(own))
	}
}

// A learner that an active job works for is not its leader's to remove, unless it is lost.
func TestChangeReplicas_LearnerOfAJobStays(t *testing.T) {
	w := needlessWorld(t)
	learner := w.adopt(w.submit(requestTo("n4")))
	w.refused(w.changeOf(RemoveLearner, "", learner), CodeConflict)
	w.ok(w.lostOf("n4", learner))
	w.ok(w.changeOf(RemoveLearner, "", learner))
}
