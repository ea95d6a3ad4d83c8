//go:build cluster

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// steady are flags under which a two-core machine does not elect by accident while tests run.
var steady = []string{"--log-level", "debug"}

func createTopic(t *testing.T, c *harness.Cluster, name string, ranges, replicas int, config ...string) {
	t.Helper()
	args := append([]string{"topic", "create", name, "--ranges", fmt.Sprint(ranges), "--replicas", fmt.Sprint(replicas)}, config...)
	c.Eventually(20*time.Second, "topic "+name, func() error {
		if _, errOut, code := c.Running()[0].Ctl(args...); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut) // the first second of a cluster: not all nodes are known alive
		}
		return nil
	})
	for i := range ranges {
		c.Holder(name, int32(i))
	}
}

// I1, I2, I5, K1 to K6: kill -9 of the holder ten times while an idempotent producer writes.
func TestFailover_KillHolderTenTimes(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	killTenTimes(t, c, func() *harness.Node {
		holder, _ := c.Holder("ledger", 0)
		return holder
	})
}

// The same where the holder is also the Raft leader, so that metadata and data fail over at once.
func TestFailover_KillHolderThatIsRaftLeaderTenTimes(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	killTenTimes(t, c, func() *harness.Node {
		leader := c.RaftLeader()
		holder, _ := c.Holder("ledger", 0)
		if holder != leader {
			if _, errOut, code := leader.Ctl("lease", "transfer", "ledger/0", "--to", leader.Name); code != 0 {
				t.Fatalf("lease transfer: exit %d: %s", code, errOut)
			}
			c.Eventually(20*time.Second, "lease at the Raft leader", func() error {
				if h, l := c.Holder("ledger", 0); h != leader {
					return fmt.Errorf("lease is %+v", l)
				}
				return nil
			})
		}
		return leader
	})
}

func killTenTimes(t *testing.T, c *harness.Cluster, victim func() *harness.Node) {
	t.Helper()
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 512, InFlight: 64, PerSecond: harness.Unbounded})
	observer := harness.StartObserver(t, c.Bootstrap(), "ledger")
	ledger.WaitMore(100, 30*time.Second)
	var epoch int32
	for round := range 10 {
		n := victim()
		_, lease := c.Holder("ledger", 0)
		if lease.Epoch < epoch {
			t.Fatalf("round %d: epoch went from %d to %d", round, epoch, lease.Epoch)
		}
		killed := time.Now()
		n.Kill()
		first := ledger.WaitMore(200, 60*time.Second)
		_, after := c.Holder("ledger", 0)
		if after.Epoch <= lease.Epoch {
			t.Fatalf("round %d: epoch %d after epoch %d", round, after.Epoch, lease.Epoch)
		}
		epoch = after.Epoch
		t.Logf("round %d: %s killed, next record acknowledged after %s under epoch %d", round, n.Name, first.Sub(killed).Round(time.Millisecond), after.Epoch)
		n.Start()
		n.WaitReady()
	}
	observer.Check(c.VerifyLedger("ledger", ledger.Stop(60*time.Second)))
}

// I5: a holder that restarts well inside its lease time acknowledges nothing under its old epoch, also where it is
// the only replica.
func TestFailover_RestartInsideTheLeaseTakesANewEpoch(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) {
			c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
			createTopic(t, c, "ledger", 1, replicas)
			ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
			ledger.WaitMore(50, 30*time.Second)
			for range 3 {
				holder, before := c.Holder("ledger", 0)
				holder.Kill()
				holder.Start()
				ledger.WaitMore(50, 60*time.Second)
				if _, after := c.Holder("ledger", 0); after.Epoch <= before.Epoch {
					t.Fatalf("epoch %d after epoch %d", after.Epoch, before.Epoch)
				}
				holder.WaitReady()
			}
			c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
		})
	}
}

// SIGTERM hands the leases over, loses nothing and ends with 0 within ten seconds, one node after the other.
func TestStop_RollingRestartLosesNothing(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 4, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 4, InFlight: 64})
	ledger.WaitMore(200, 30*time.Second)
	for _, n := range c.Nodes {
		if code := n.Stop(10 * time.Second); code != 0 {
			t.Fatalf("%s ended with exit code %d", n.Name, code)
		}
		ledger.WaitMore(200, 30*time.Second)
		n.Start()
		n.WaitReady()
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
