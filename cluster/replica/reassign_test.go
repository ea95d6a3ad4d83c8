package replica

import (
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func (c *cluster) prefer(r vtop.Range, nodes ...vtop.NodeName) {
	c.t.Helper()
	out := c.mustPropose(&fsm.SetPreferred{Items: []fsm.Preference{{Range: r, Nodes: nodes}}})
	if err := out.Items[0].Err(); err != nil {
		c.t.Fatal(err)
	}
}

// A range that is wanted on fewer nodes loses the voters on others, but not its leader: that one goes when another leads.
func TestHeal_VotersThatAreNotWantedGo(t *testing.T) {
	c := newCluster(t, 4, 1, withRepairs())
	r := c.written("a", "a", "b", "c", "d")
	c.prefer(r, "b", "c")
	c.await("d to go", func() bool {
		c.nudge()
		return len(c.rangeOf(r).Voters()) == 3
	})
	c.wantVotersAre(r, "a", "b", "c")
	for range 5 {
		c.nudge()
	}
	c.wantVotersAre(r, "a", "b", "c") // the leader stays
	c.lead("b", r)
	c.await("a to go", func() bool {
		c.nudge()
		return len(c.rangeOf(r).Voters()) == 2
	})
	c.wantVoters(r, "b", "c")
	if got := c.changes(r); !slices.Equal(got, []fsm.ReplicaChange{fsm.RemoveVoter, fsm.RemoveVoter}) {
		t.Errorf("changes %v", got)
	}
}

func (c *cluster) wantVotersAre(r vtop.Range, want ...vtop.NodeName) {
	c.t.Helper()
	if got := c.votersOf(r); !slices.Equal(got, want) {
		c.t.Fatalf("voters %v, want %v", got, want)
	}
}

// While a node that is wanted has no voter yet, nobody goes to make room for it but the one in whose place it comes.
func TestHeal_MoveAndShrinkInOneReassignment(t *testing.T) {
	c := newCluster(t, 4, 1, withRepairs())
	r := c.written("a", "a", "b", "c")
	id := c.submit(fsm.RepairRequest{Range: r, Destination: "d", Replace: "c"})
	c.prefer(r, "d", "a")
	c.wantWhole(id)
	c.await("b and c to go", func() bool {
		c.nudge()
		return len(c.rangeOf(r).Voters()) == 2
	})
	c.wantVoters(r, "a", "d")
	if got := c.changes(r); got[0] != fsm.AddLearner || got[1] != fsm.PromoteLearner {
		t.Errorf("changes %v: somebody went before the newcomer voted", got)
	}
}
