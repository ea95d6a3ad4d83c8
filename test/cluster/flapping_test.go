//go:build cluster

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// A6: the holder falls silent, and every two seconds the Raft leader dies, sooner than silence counts. Each voter has heard the silence for itself,
// so that an election gives the lease no new time: it moves while the leaders still fall.
func TestPause_SilentHolderBesideOneElectionAfterAnother(t *testing.T) {
	const every, strikes = 2 * time.Second, 15
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: append([]string{"--node-timeout", "6s"}, steady...)})
	createTopic(t, c, "ledger", 1, 5)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(200, 30*time.Second)
	holder, before := c.HolderBeside("ledger", false)
	term := c.RaftTerm()
	holder.Pause()
	paused := time.Now()
	moved := func() error {
		for _, n := range c.Running() { // not the lease list: who makes one waits a second for the silent node
			if held, err := n.Metric("vtop_leases"); err == nil && held > 0 {
				return nil
			}
		}
		return fmt.Errorf("none of the living nodes holds the lease")
	}
	fallen := 0
	for ; ; fallen++ {
		err := harness.Within(every, moved)
		if err == nil {
			break
		}
		if fallen == strikes {
			t.Fatalf("%s after the silence began, and after the fall of %d Raft leaders: %v", time.Since(paused).Round(time.Millisecond), fallen, err)
		}
		leader := c.RaftLeader()
		leader.Kill()
		leader.Start()
	}
	took := time.Since(paused)
	ledger.WaitMore(200, 60*time.Second)
	holder.Resume()
	c.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	t.Logf("granted elsewhere %s after the silence began; %d Raft leaders fell meanwhile, %d terms began", took.Round(time.Millisecond), fallen, c.RaftTerm()-term)
	if _, after := c.Holder("ledger", 0); after.Epoch <= before.Epoch {
		t.Errorf("lease was %+v, is %+v", before, after)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
