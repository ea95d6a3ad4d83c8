package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func (w *world) lost(node vtop.NodeName) {
	w.t.Helper()
	w.must(&fsm.MarkReplicasLost{Node: node, Storage: vtop.UUID{1, node[1]}, Incarnation: 1, Reason: "test", Items: []fsm.LostReplica{{Range: w.rangeOf().ID, ReplicaID: w.voter(node)}}})
}

// A lost voter is being rebuilt where it was by a learner when its node goes for good: the learner will never be ready, and another
// node takes the place.
func TestHeal_NodeGoesWhileItsLearnerFollows(t *testing.T) {
	for name, removed := range map[string]bool{"the lost voter is still there": false, "the lost voter has gone": true} {
		t.Run(name, func(t *testing.T) {
			runHealing(t, healAfter, func(w *world) {
				w.spare("n4")
				w.pass(time.Second)
				w.started(10)
				w.report(10)
				lost := w.voter("n3")
				w.lost("n3")
				w.report(10)
				w.change(fsm.AddLearner, "n3", 0)
				if removed {
					w.change(fsm.RemoveVoter, "", lost)
				}
				w.pass(5 * time.Second)
				w.noJob("its own learner comes")
				w.hush("n3")
				w.pass(healAfter + 5*time.Second)
				j := w.oneJob()
				if j.Destination != "n4" {
					t.Fatalf("job %+v", j.RepairRequest)
				}
				w.step(j, fsm.RepairAdopting, 0)
				learner := w.change(fsm.AddLearner, "n4", 0)
				w.step(j, fsm.RepairCatchingUp, learner)
				if !removed {
					w.change(fsm.RemoveVoter, "", lost)
				}
				w.step(j, fsm.RepairPromoting, learner)
				w.change(fsm.PromoteLearner, "", learner)
				w.step(j, fsm.RepairDone, learner)
				if r := w.rangeOf(); len(r.Preferred) != 3 || len(r.Voters()) != 3 {
					t.Fatalf("preferred %v, voters %+v: the node that has gone keeps its place", r.Preferred, r.Voters())
				}
				w.pass(time.Minute)
				w.noJob("all voters are there")
			})
		})
	}
}

// The lease of a voter that is replaced moves, though the node that took its place is being drained by now: else the job would wait
// for ever, and the drain for the job.
func TestHeal_HandsOverThoughTheSuccessorDrains(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4", "n5")
		w.pass(time.Second)
		w.started(10)
		w.report(10)
		w.must(&fsm.SubmitRepairs{At: 1, Items: []fsm.RepairRequest{{Range: w.rangeOf().ID, Destination: "n4", Replace: "n2", Origin: fsm.OriginReplace, Reason: "test"}}})
		j := w.oneJob()
		w.step(j, fsm.RepairAdopting, 0)
		learner := w.change(fsm.AddLearner, "n4", 0)
		w.step(j, fsm.RepairCatchingUp, learner)
		w.step(j, fsm.RepairPromoting, learner)
		w.must(&fsm.UpdateNode{Name: "n4", State: fsm.NodeDraining})
		w.change(fsm.PromoteLearner, "", learner)
		w.pass(3 * time.Second)
		if r := w.rangeOf(); r.Lease.Holder == "n2" || r.Lease.Holder == "n4" {
			t.Fatalf("lease %+v", r.Lease)
		}
	})
}

// A job of any origin whose destination has gone for good ends, and the voter that was lost meanwhile is replaced. A job that a person
// asked for goes on while healing is paused: whoever pauses it knows of nodes that are away.
func TestHeal_JobOfAnyOriginEndsWithItsDestination(t *testing.T) {
	for _, origin := range []fsm.RepairOrigin{fsm.OriginOperator, fsm.OriginHeal, fsm.OriginReplace} {
		t.Run(origin.String(), func(t *testing.T) {
			runHealing(t, healAfter, func(w *world) {
				w.spare("n4", "n5")
				w.pass(time.Second)
				w.started(10)
				w.seal(10)
				w.report(10)
				w.hush("n4", "n3")
				w.must(&fsm.SubmitRepairs{At: 1, Items: []fsm.RepairRequest{{Range: w.rangeOf().ID, Destination: "n4", Origin: origin, Reason: "test"}}})
				asked := w.oneJob()
				w.must(&fsm.SetHeal{Paused: true, Why: "moving house", At: 1})
				w.pass(2 * healAfter)
				if asked, _ = w.machine.State().Repair(asked.ID); asked.Active() != (origin != fsm.OriginHeal) {
					t.Fatalf("while healing is paused, job of %s is %s: %s", origin, asked.Step, asked.Cause)
				}
				w.must(&fsm.SetHeal{At: 1})
				w.pass(5 * time.Second)
				if asked, _ = w.machine.State().Repair(asked.ID); asked.Step != fsm.RepairCancelled || !strings.Contains(asked.Cause, "n4 has been silent for") {
					t.Fatalf("job %s: %s", asked.Step, asked.Cause)
				}
				if strings.Contains(asked.Cause, "vtopctl repair TOPIC/N --node OTHER") != (origin == fsm.OriginOperator) {
					t.Fatalf("a job of %s says: %s", origin, asked.Cause)
				}
				if j := w.oneJob(); j.Destination != "n5" || j.Replace != "n3" || j.Origin != fsm.OriginHeal {
					t.Fatalf("job %+v", j.RepairRequest)
				}
				if h := w.control.Healing(); h.Running != 1 {
					t.Fatalf("healing %+v, want one running", h)
				}
			})
		})
	}
}

// So does one that may copy from certain nodes only, all of which have gone for good before it had everything.
func TestHeal_JobEndsWithTheLastOfItsSources(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4", "n5")
		w.pass(time.Second)
		w.started(10)
		w.seal(10)
		w.report(10)
		w.must(&fsm.SubmitRepairs{At: 1, Items: []fsm.RepairRequest{{
			Range: w.rangeOf().ID, Destination: "n4", Sources: []vtop.NodeName{"n3"}, Origin: fsm.OriginOperator, Reason: "test",
		}}})
		asked := w.oneJob()
		w.hush("n3")
		w.pass(healAfter + 5*time.Second)
		if asked, _ = w.machine.State().Repair(asked.ID); asked.Step != fsm.RepairCancelled || !strings.Contains(asked.Cause, "--source") {
			t.Fatalf("job %s: %s", asked.Step, asked.Cause)
		}
		if j := w.oneJob(); j.Replace != "n3" {
			t.Fatalf("job %+v", j.RepairRequest)
		}
	})
}

// The node that takes another's place took that of a voter that was lost meanwhile: the job is over, and the node that was to be emptied
// is emptied all the same.
func TestHeal_NodeThatIsReplacedIsEmptiedThoughItsJobTookAnothersPlace(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4", "n5")
		w.pass(time.Second)
		w.started(10)
		w.report(10)
		away := vtop.NodeName("n1")
		if w.rangeOf().Lease.Holder == away {
			away = "n2"
		}
		w.must(&fsm.SubmitRepairs{At: 1, Items: []fsm.RepairRequest{{Range: w.rangeOf().ID, Destination: "n4", Replace: "n3", Origin: fsm.OriginReplace, Reason: "test"}}})
		w.must(&fsm.UpdateNode{Name: "n3", State: fsm.NodeDraining})
		asked := w.oneJob()
		w.step(asked, fsm.RepairAdopting, 0)
		learner := w.change(fsm.AddLearner, "n4", 0)
		w.step(asked, fsm.RepairCatchingUp, learner)
		w.change(fsm.RemoveVoter, "", w.voter(away))
		w.change(fsm.PromoteLearner, "", learner)
		if asked, _ = w.machine.State().Repair(asked.ID); asked.Step != fsm.RepairCancelled || !strings.Contains(asked.Cause, "takes its place by itself") {
			t.Fatalf("job %s: %s", asked.Step, asked.Cause)
		}
		w.pass(5 * time.Second)
		if j := w.oneJob(); j.Replace != "n3" || j.Origin != fsm.OriginDrain || j.Destination != "n5" && j.Destination != away {
			t.Fatalf("job %+v", j.RepairRequest)
		}
	})
}
