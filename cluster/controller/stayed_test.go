package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// What a job brought may have taken a lost voter's place instead of that of the voter it replaces, which stays meanwhile: another
// one is brought for it, and then it goes.
func TestHeal_ReplacedVoterThatStayedIsReplaced(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4")
		w.pass(time.Second)
		w.started(10)
		w.report(10)
		w.must(&fsm.SubmitRepairs{At: 1, Items: []fsm.RepairRequest{{Range: w.rangeOf().ID, Destination: "n4", Replace: "n3", Origin: fsm.OriginOperator, Reason: "test"}}})
		j := w.oneJob()
		w.step(j, fsm.RepairAdopting, 0)
		learner := w.change(fsm.AddLearner, "n4", 0)
		w.step(j, fsm.RepairCatchingUp, learner)
		w.step(j, fsm.RepairPromoting, learner)
		w.change(fsm.RemoveVoter, "", w.voter("n1"))
		w.change(fsm.PromoteLearner, "", learner)
		w.pass(10 * time.Second)
		w.oneJob()
		w.step(j, fsm.RepairDone, learner)
		w.pass(10 * time.Second)
		next := w.oneJob()
		if next.Replace != "" || next.Destination != "n1" || !strings.Contains(next.Reason, "n3 is replaced") {
			t.Fatalf("job %+v", next.RepairRequest)
		}
		// Case: when it has gone nothing more is wanted.
		w.step(next, fsm.RepairAdopting, 0)
		learner = w.change(fsm.AddLearner, "n1", 0)
		w.step(next, fsm.RepairCatchingUp, learner)
		w.step(next, fsm.RepairPromoting, learner)
		w.change(fsm.PromoteLearner, "", learner)
		w.change(fsm.RemoveVoter, "", w.voter("n3"))
		w.step(next, fsm.RepairDone, learner)
		w.pass(2 * time.Minute)
		w.noJob("all is well")
	})
}
