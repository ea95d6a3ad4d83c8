package replica

import (
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// lose marks the voter of a node lost, as after a disk that was replaced.
func (c *cluster) lose(r vtop.Range, node vtop.NodeName) {
	c.t.Helper()
	rep, ok := c.rangeOf(r).VoterOn(node)
	if !ok {
		c.t.Fatalf("no voter on %s", node)
	}
	self := c.nodes[node].self
	c.mustPropose(&fsm.MarkReplicasLost{
		Node: node, Storage: self.Storage, Incarnation: self.Incarnation, Reason: "its disk was replaced",
		Items: []fsm.LostReplica{{Range: r, ReplicaID: rep.ID}},
	})
}

// A node that lost its voter has a learner by healing when somebody asks for a replica elsewhere in its place. Whichever is ready first,
// the job ends, and no learner is left.
func TestHeal_JobForWhatHealingHasBegun(t *testing.T) {
	for _, first := range []string{"healing", "job"} {
		t.Run(first, func(t *testing.T) {
			c := newCluster(t, 4, 1, withRepairs(), withConfig(func(_ vtop.NodeName, cfg *Config) { cfg.Alive = func(vtop.NodeName) bool { return true } }))
			r := vtop.Range{Topic: c.createTopic("healing", 1, nil, "a", "b", "c")}
			c.lead("a", r)
			c.nodes["a"].mustProduce(r, "one")
			c.duties("a")
			if first == "job" {
				defer c.nodes["c"].lag()() // it never makes a directory for its learner
			}
			c.lose(r, "c")
			e := c.nodes["a"].engine
			c.await("a learner on c", func() bool {
				e.Heal(t.Context())
				_, ok := c.rangeOf(r).On("c")
				return ok
			})
			id := c.submit(fsm.RepairRequest{Range: r, Destination: "d", Replace: "c"})
			c.wantWhole(id)
			c.await("the learner on c to go", func() bool {
				c.nudge()
				return len(c.rangeOf(r).Replicas) == 3
			})
			c.wantVoters(r, "a", "b", "d")
		})
	}
}

// A learner that no job works for, of a range whose voters are complete and stay, is nobody's: it would be fed for ever.
func TestHeal_LearnerThatNobodyNeedsGoes(t *testing.T) {
	c := newCluster(t, 4, 1)
	r := vtop.Range{Topic: c.createTopic("left", 1, nil, "a", "b", "c")}
	c.lead("a", r)
	learn := func() {
		t.Helper()
		if _, err := c.nodes["a"].engine.ChangeReplicas(waiting(t), r, fsm.AddLearner, "d", 0); err != nil {
			t.Fatal(err)
		}
	}
	heal := func() { c.nudge() }
	learn()
	c.await("the learner to go", func() bool { heal(); return len(c.rangeOf(r).Learners()) == 0 })
	// Case: a job may make it whole yet.
	job := c.mustPropose(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{{Range: r, Destination: "d", Replace: "c", Origin: fsm.OriginOperator, Reason: "test"}}}).Items[0].Repair
	learn()
	for range 5 {
		heal()
	}
	if len(c.rangeOf(r).Learners()) != 1 {
		t.Fatal("the learner of a job was removed")
	}
	c.mustPropose(&fsm.CancelRepairs{IDs: []fsm.RepairID{job}, Reason: "test"})
	c.await("the learner to go", func() bool { heal(); return len(c.rangeOf(r).Learners()) == 0 })
	if got := c.votersOf(r); len(got) != 3 {
		t.Fatalf("voters %v", got)
	}
}

// A learner on a node that nobody asked for by name is not left over while a voter is lost: it takes that one's place.
func TestHeal_LearnerTakesALostVotersPlace(t *testing.T) {
	c := newCluster(t, 4, 1, withConfig(func(_ vtop.NodeName, cfg *Config) { cfg.Alive = func(vtop.NodeName) bool { return true } }))
	r := vtop.Range{Topic: c.createTopic("lost", 1, nil, "a", "b", "c")}
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "one")
	defer c.nodes["c"].lag()() // what healing brings there is never ready
	c.lose(r, "c")
	c.await("a learner on d", func() bool { // once its leader has heard of the loss
		_, err := c.nodes["a"].engine.ChangeReplicas(waiting(t), r, fsm.AddLearner, "d", 0)
		return err == nil
	})
	first := c.rangeOf(r).Learners()
	c.await("the learner on d to vote", func() bool {
		c.nudge()
		if _, there := c.rangeOf(r).On("d"); !there {
			t.Fatalf("learner %+v was removed while a voter is lost", first)
		}
		_, votes := c.rangeOf(r).VoterOn("d")
		return votes
	})
}
