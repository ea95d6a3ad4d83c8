package replica

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// ready reports whether the leader has heard of a replica that it has everything committed.
func (n *node) ready(r vtop.Range, id vtop.ReplicaID) bool {
	ld := n.engine.slotOf(r, true).leading.Load()
	if ld == nil {
		return false
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	return ld.book.Marks().Of(id) >= ld.book.HighWatermark()
}

// The place of a lost voter goes to the replica that a job was asked to bring, though the one that healing had begun before is ready,
// too, and has the lower id: a job whose place is taken by another would make the range larger, or never end.
func TestHeal_PlaceGoesToTheJobsReplica(t *testing.T) {
	c := newCluster(t, 4, 1)
	r := vtop.Range{Topic: c.createTopic("order", 1, nil, "a", "b", "c")}
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "one")
	c.duties("a")
	c.lose(r, "c")
	learner := func(node vtop.NodeName) vtop.ReplicaID {
		t.Helper()
		c.await("a learner on "+string(node), func() bool { // once its leader has heard of the loss
			_, err := a.engine.ChangeReplicas(waiting(t), r, fsm.AddLearner, node, 0)
			return err == nil
		})
		rep, _ := c.rangeOf(r).On(node)
		return rep.ID
	}
	healing := learner("c")
	id := c.mustPropose(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{{Range: r, Destination: "d", Replace: "c", Origin: fsm.OriginOperator, Reason: "test"}}}).Items[0].Repair
	asked := learner("d")
	p := fsm.NewRepairProgress()
	p.Replica = asked
	c.mustPropose(&fsm.UpdateRepairs{Node: "d", Incarnation: c.nodes["d"].self.Incarnation, Items: []fsm.RepairUpdate{{ID: id, StepVersion: 1, Step: fsm.RepairPromoting, Progress: p}}})
	c.await("both to be ready", func() bool { return a.ready(r, healing) && a.ready(r, asked) })
	c.await("one of them to vote", func() bool {
		c.nudge()
		return slices.Equal(c.changes(r)[len(c.changes(r))-1:], []fsm.ReplicaChange{fsm.PromoteLearner})
	})
	if rep, ok := c.rangeOf(r).Replica(asked); !ok || rep.Role != fsm.Voter {
		t.Fatalf("voters %+v: the job's replica %d is not among them", c.rangeOf(r).Voters(), asked)
	}
}

// A learner that no job works for any more waits on a node that is wanted by name, but not for one that has gone.
func TestHeal_WantedLearnerOfANodeThatHasGoneGoes(t *testing.T) {
	var gone atomic.Bool
	c := newCluster(t, 4, 1, withConfig(func(_ vtop.NodeName, cfg *Config) {
		cfg.Alive = func(n vtop.NodeName) bool { return n != "d" || !gone.Load() }
	}))
	r := vtop.Range{Topic: c.createTopic("wanted", 1, nil, "a", "b", "c")}
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "one")
	defer c.nodes["d"].lag()() // it never makes a directory
	job := c.mustPropose(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{{Range: r, Destination: "d", Replace: "c", Origin: fsm.OriginOperator, Reason: "test"}}}).Items[0].Repair
	if _, err := c.nodes["a"].engine.ChangeReplicas(waiting(t), r, fsm.AddLearner, "d", 0); err != nil {
		t.Fatal(err)
	}
	c.prefer(r, "d", "a", "b")
	gone.Store(true)
	stays := func(why string) {
		t.Helper()
		for range 5 {
			c.nudge()
		}
		if len(c.rangeOf(r).Learners()) != 1 {
			t.Fatalf("the learner on d was removed: %s", why)
		}
	}
	stays("its job waits for it")
	gone.Store(false)
	c.mustPropose(&fsm.CancelRepairs{IDs: []fsm.RepairID{job}, Reason: "test"})
	stays("its node is wanted, and there")
	gone.Store(true)
	c.await("the learner to go", func() bool { c.nudge(); return len(c.rangeOf(r).Learners()) == 0 })
	c.wantVotersAre(r, "a", "b", "c")
}
