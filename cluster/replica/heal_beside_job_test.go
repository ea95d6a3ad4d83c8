package replica

import (
	"context"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// TestHeal_NoSecondLearnerForWhatAJobReplaces: the simulation found (seed 2991) that a node whose disk was replaced got a learner though a
// repair job was bringing one to a spare in its place. Whichever was ready first became the voter; the other was fed for ever, and
// where that was the job's, the job never ended.
func TestHeal_NoSecondLearnerForWhatAJobReplaces(t *testing.T) {
	c := newCluster(t, 4, 1)
	r := vtop.Range{Topic: c.createTopic("replaced", 1, nil, "a", "b", "c")}
	c.lead("a", r)
	lost := func() {
		rep, _ := c.rangeOf(r).VoterOn("c")
		c.mustPropose(&fsm.MarkReplicasLost{
			Node: "c", Storage: c.nodes["c"].self.Storage, Incarnation: c.nodes["c"].self.Incarnation, Reason: "its disk was replaced",
			Items: []fsm.LostReplica{{Range: r, ReplicaID: rep.ID}},
		})
	}
	wants := func() (vtop.NodeName, bool) {
		n := c.nodes["a"]
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := n.machine.WaitApplied(ctx, c.state().Index()); err != nil {
			t.Fatal(err)
		}
		st := n.machine.State()
		rg, _ := st.Range(r)
		return n.engine.wantsLearner(st, rg)
	}
	lost()
	if node, ok := wants(); !ok || node != "c" {
		t.Fatalf("without a job a learner is wanted on %q (%v), not on c", node, ok)
	}
	job := c.mustPropose(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{{
		Range: r, Destination: "d", Replace: "c", Origin: fsm.OriginOperator, Reason: "test",
	}}}).Items[0].Repair
	if node, ok := wants(); ok {
		t.Fatalf("a learner is wanted on %s beside the one of repair %d", node, job)
	}
	c.mustPropose(&fsm.CancelRepairs{IDs: []fsm.RepairID{job}, Reason: "test"})
	if node, ok := wants(); !ok || node != "c" {
		t.Fatalf("after the job a learner is wanted on %q (%v), not on c", node, ok)
	}
}
