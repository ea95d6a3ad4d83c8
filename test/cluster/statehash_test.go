//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// M4: all three nodes are killed at once, again and again, while topics come and go and a group commits; each time they have
// the same metadata again, compared at one index under that load.
func TestStateHash_SameAfterEveryKill(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, Size: 200, InFlight: 64})
	members := harness.StartMembers(t, c.Bootstrap(), "readers", "ledger", 3)
	ledger.WaitMore(500, 60*time.Second)
	var last int64
	for round := range 5 {
		createTopic(t, c, fmt.Sprint("topic-", round), 4, 3)
		ledger.WaitMore(500, 60*time.Second)
		if round%2 == 1 { // a deletion is on its way when they die
			if _, errOut, code := c.Nodes[0].Ctl("topic", "delete", fmt.Sprint("topic-", round-1)); code != 0 {
				t.Fatalf("topic delete: exit %d: %s", code, errOut)
			}
		}
		for _, n := range c.Nodes {
			n.Kill()
		}
		for _, n := range c.Nodes {
			n.Start()
		}
		c.WaitReady()
		ledger.WaitMore(500, 90*time.Second)
		last = sameStates(t, c, c.Nodes[round%3], last)
		t.Logf("round %d: one state at index %d, under load", round+1, last)
	}
	_, answers, _ := members.Counts()
	members.Stop()
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
	if answers == 0 {
		t.Error("the group's offsets were never told: nothing was committed meanwhile")
	}
	sameStates(t, c, c.Nodes[0], last)
}

// sameStates returns the index, above last, at which all nodes have one state. One that differs is told at once; one that is
// late is waited for.
func sameStates(t *testing.T, c *harness.Cluster, asked *harness.Node, last int64) (index int64) {
	t.Helper()
	c.Eventually(60*time.Second, "one index for all nodes", func() error {
		var h adminapi.StateHashes
		if err := asked.Get("/v1/state-hash", &h); err != nil {
			return err
		}
		if h.Verdict == adminapi.StateDiffers {
			t.Fatalf("the metadata differs: %+v", h)
		}
		if h.Verdict != adminapi.StateSame || len(h.Nodes) != len(c.Nodes) {
			return fmt.Errorf("not yet: %+v", h)
		}
		for _, n := range h.Nodes {
			if n.Index != h.Index || n.Hash != h.Nodes[0].Hash || len(n.Hash) != 64 {
				return fmt.Errorf("called the same: %+v", h)
			}
		}
		if index = h.Index; index <= last {
			return errors.New("the metadata did not move")
		}
		return nil
	})
	return index
}
