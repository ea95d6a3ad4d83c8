//go:build cluster

package cluster

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

const powerCutRounds = 20

// onDisks starts nodes, each on an ext4 of its own whose power can be cut.
func onDisks(t *testing.T, nodes int, flags ...string) (*harness.Cluster, []*harness.Disk) {
	t.Helper()
	var disks []*harness.Disk
	for range nodes {
		disks = append(disks, harness.NewDisk(t, 2<<30))
	}
	c := harness.Start(t, harness.Options{
		Nodes: nodes, Flags: append(flags, steady...),
		Dir: func(i int) string { return filepath.Join(disks[i].Dir, "data") },
	})
	return c, disks
}

// I1, I2, I6, I9: the power of all three nodes goes at once under load, twenty times. A kill proves nothing here: the
// page cache survives it.
func TestPowerCut_AllNodesAtOnceUnderLoad(t *testing.T) {
	c, disks := onDisks(t, 3, "--raft-heartbeat", "500ms")
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, Size: 700, InFlight: 256, PerSecond: harness.Unbounded})
	observer := harness.StartObserver(t, c.Bootstrap(), "ledger")
	ledger.WaitMore(500, 60*time.Second)
	for round := range powerCutRounds {
		started := time.Now()
		var cut sync.WaitGroup
		for _, d := range disks {
			cut.Go(d.PowerCut)
		}
		cut.Wait()
		for _, n := range c.Nodes {
			n.Kill()
		}
		before := ledger.Count()
		for _, d := range disks {
			d.Remount()
		}
		for _, n := range c.Nodes {
			n.Start()
		}
		first := ledger.WaitMore(1000, 90*time.Second)
		t.Logf("round %d: %d acknowledged before the cut, the next %s after it", round+1, before, first.Sub(started).Round(time.Millisecond))
	}
	c.WaitReady()
	observer.Check(c.VerifyLedger("ledger", ledger.Stop(60*time.Second)))
}

// The power of one node goes, holder or follower as it comes; the others go on.
func TestPowerCut_OneOfThree(t *testing.T) {
	c, disks := onDisks(t, 3)
	createTopic(t, c, "ledger", 3, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 3, Size: 700, InFlight: 256, PerSecond: harness.Unbounded})
	ledger.WaitMore(500, 60*time.Second)
	for round := range 6 {
		i := round % 3
		started := time.Now()
		disks[i].PowerCut()
		c.Nodes[i].Kill()
		first := ledger.WaitMore(1000, 60*time.Second)
		t.Logf("round %d: power of %s cut, the next record acknowledged after %s", round+1, c.Nodes[i].Name, first.Sub(started).Round(time.Millisecond))
		disks[i].Remount()
		c.Nodes[i].Start()
		c.Nodes[i].WaitReady()
		c.WaitInSync("ledger", 60*time.Second)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// E2: one power loss and pauses. Of five nodes two are paused and fall behind, one of the three others loses its power;
// then the two wake, and the two that know everything are paused. What was acknowledged by the three must be there.
func TestPowerCut_AndPausesMakeNoFork(t *testing.T) {
	c, disks := onDisks(t, 5, "--raft-heartbeat", "500ms")
	createTopic(t, c, "ledger", 2, 5)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 2, Size: 300, InFlight: 64})
	ledger.WaitMore(500, 60*time.Second)
	n := c.Nodes
	for _, behind := range n[:2] {
		behind.Pause()
	}
	ledger.WaitMore(2000, 90*time.Second)
	disks[2].PowerCut()
	n[2].Kill()
	for _, behind := range n[:2] {
		behind.Resume()
	}
	for _, knows := range n[3:] {
		knows.Pause()
	}
	disks[2].Remount()
	n[2].Start()
	ledger.WaitMore(2000, 90*time.Second)
	for _, knows := range n[3:] {
		knows.Resume()
	}
	c.WaitInSync("ledger", 90*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
