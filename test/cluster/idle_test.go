//go:build cluster

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// B3: a range without a record goes through five holders, then a follower restarts. Every replica is in sync without
// a write, and the first record afterwards goes through.
func TestIdle_EpochsWithoutRecords(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	for range 5 {
		holder, before := c.Holder("ledger", 0)
		to := c.Nodes[(holder.Index+1)%3]
		c.Eventually(30*time.Second, "transfer", func() error {
			if _, errOut, code := c.RaftLeader().Ctl("lease", "transfer", "ledger/0", "--to", to.Name); code != 0 {
				return fmt.Errorf("exit %d: %s", code, errOut)
			}
			return nil
		})
		c.Eventually(30*time.Second, "the next holder", func() error {
			if now, l := c.Holder("ledger", 0); now != to || l.Epoch <= before.Epoch {
				return fmt.Errorf("%+v", l)
			}
			return nil
		})
	}
	holder, _ := c.Holder("ledger", 0)
	victim := c.Nodes[(holder.Index+1)%3]
	victim.Kill()
	victim.Start()
	victim.WaitReady()
	c.WaitInSync("ledger", 30*time.Second)
	c.WaitCaughtUp("ledger", 30*time.Second)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 4})
	ledger.WaitMore(100, 30*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(30*time.Second))
}

// Many ranges: a dead node holds hundreds of leases, which move in batches; idle ones cost next to nothing.
func TestIdle_HundredsOfRangesMoveAtOnce(t *testing.T) {
	const ranges = 300
	c := harness.Start(t, harness.Options{Nodes: 3})
	created := time.Now()
	if out, errOut, code := c.Nodes[0].Ctl("topic", "create", "ledger", "--ranges", fmt.Sprint(ranges), "--replicas", "3"); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	serving := func(limit time.Duration, dead *harness.Node) {
		t.Helper()
		c.Eventually(limit, "all ranges serving", func() error {
			leases, err := c.Leases("ledger")
			if err != nil {
				return err
			}
			bad := 0
			for _, l := range leases {
				if l.State != "serving" || dead != nil && l.Holder == dead.Name {
					bad++
				}
			}
			if bad > 0 || len(leases) != ranges {
				return fmt.Errorf("%d of %d ranges don't serve", bad, len(leases))
			}
			return nil
		})
	}
	serving(60*time.Second, nil)
	t.Logf("%d ranges serve %s after their creation began", ranges, time.Since(created).Round(time.Millisecond))
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: ranges, InFlight: ranges})
	ledger.WaitMore(2*ranges, 60*time.Second)
	victim := c.Nodes[0]
	killed := time.Now()
	victim.Kill()
	serving(60*time.Second, victim)
	t.Logf("all served by others %s after kill -9 of a node that held %d of them", time.Since(killed).Round(time.Millisecond), ranges/3)
	ledger.WaitMore(2*ranges, 60*time.Second)
	victim.Start()
	victim.WaitReady()
	c.WaitInSync("ledger", 90*time.Second)
	acks := ledger.Stop(60 * time.Second)
	idle(t, c)
	c.VerifyLedger("ledger", acks)
}

// idle prints what a node with nothing to do costs.
func idle(t *testing.T, c *harness.Cluster) {
	t.Helper()
	const span = 5 * time.Second
	before := make([]float64, len(c.Nodes))
	for i, n := range c.Nodes {
		before[i], _ = n.Metric("process_cpu_seconds_total")
	}
	time.Sleep(span)
	for i, n := range c.Nodes {
		after, err := n.Metric("process_cpu_seconds_total")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s idle with all ranges: %.1f %% of a processor, %d MB resident", n.Name, (after-before[i])/span.Seconds()*100, n.RSS()/1e6)
	}
}
