package controller

import (
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
