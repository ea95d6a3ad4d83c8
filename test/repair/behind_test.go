//go:build cluster

package repair

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// F3: while a follower is down, retention takes all that it had. It returns when nobody writes any more, and is whole
// without a write: its log starts where the leader's does, and it can lead.
func TestBehind_RetentionPassedTheLogEndAndNoTraffic(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: base})
	createTopic(t, c, "ledger", 1, 3, smallSegments...)
	acks := fill(t, c, 1, 3*mib, 4096, 1)
	has := replicasOf(t, c, 0)
	leader, late := has[0], has[1]
	end := c.WaitCaughtUp("ledger", 30*time.Second)[0].LogEnd
	late.Kill()
	alter(t, c, "retention.bytes", "1048576")
	acks = append(acks, fill(t, c, 1, 8*mib, 4096, after(acks))...)
	var lease harness.Lease
	c.Eventually(60*time.Second, "retention beyond what the dead follower had", func() error {
		if _, lease = c.Holder("ledger", 0); lease.LogStart <= end {
			return fmt.Errorf("log start %d, the follower's end was %d", lease.LogStart, end)
		}
		return nil
	})
	began := time.Now()
	late.Start()
	late.WaitReady()
	leases := c.WaitCaughtUp("ledger", 60*time.Second)
	t.Logf("whole %s after the start, log start %d, nothing was written", time.Since(began).Round(time.Millisecond), leases[0].LogStart)
	if now := leases[0].LogEnd; now != lease.LogEnd {
		t.Errorf("the log end moved from %d to %d without traffic", lease.LogEnd, now)
	}
	if a, b := firstBase(t, c, leader), firstBase(t, c, late); a != b {
		t.Errorf("the first segment is %d on the leader, %d on the follower that came back", a, b)
	}
	if err := c.CompareReplicas(leases); err != nil {
		t.Error(err)
	}
	now := c.LeadAt("ledger", 0, late)
	if now.LogStart != leases[0].LogStart || now.LogEnd != leases[0].LogEnd {
		t.Errorf("led by the one that came back: %+v, before: %+v", now, leases[0])
	}
	var kept []harness.Ack
	for _, a := range acks {
		if a.Offset >= now.LogStart {
			kept = append(kept, a)
		}
	}
	readBack(t, c, kept)
}

// firstBase is the base of the first segment on the node's disk.
func firstBase(t *testing.T, c *harness.Cluster, n *harness.Node) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.RangeDir("ledger", 0, n), "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segment on %s: %v", n.Name, err)
	}
	return harness.SegmentBase(slices.Min(files))
}

const (
	// farBehind is how much a follower misses.
	farBehind = 1 << 30
	// memoryLimit is what the leader and the follower may use while it catches up.
	memoryLimit = 400 << 20
)

// A follower misses a gibibyte, and catches up from the leader's log by itself; neither of the two needs memory for it
// that grows with how far it is behind.
func TestBehind_AGibibyteWithBoundedMemory(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: base})
	createTopic(t, c, "ledger", 1, 3)
	acks := fill(t, c, 1, mib, 4096, 1)
	has := replicasOf(t, c, 0)
	leader, late := has[0], has[1]
	late.Kill()
	acks = append(acks, fill(t, c, 1, farBehind, 64<<10, after(acks))...)
	leader.ResetPeak()
	before := leader.RSS()
	began := time.Now()
	late.Start()
	late.WaitReady()
	c.WaitCaughtUp("ledger", 120*time.Second)
	took := time.Since(began)
	t.Logf("caught up by %d MiB in %s (%.0f MB/s); peak resident memory: leader %d MiB (%d before), follower %d MiB",
		farBehind/mib, took.Round(time.Millisecond), farBehind/1e6/took.Seconds(), leader.PeakRSS()/mib, before/mib, late.PeakRSS()/mib)
	for _, n := range []*harness.Node{leader, late} {
		if peak := n.PeakRSS(); peak > memoryLimit {
			t.Errorf("%s needed %d MiB", n.Name, peak/mib)
		}
	}
	c.VerifyLedger("ledger", acks)
}

const (
	// rangesBehind are behind at once, by bytesBehind in all.
	rangesBehind = 2000
	bytesBehind  = 384 << 20
	// rangesLimit is what a follower may use while it catches up with all of them: what its ranges take by themselves, 64 MiB that
	// are admitted and not yet synced over all logs, 16 MiB on their way from each of two leaders, and what is garbage of that.
	rangesLimit = 256 << 20
)

// E14: a follower misses something of each of thousands of ranges and catches up with all of them at once, from two leaders that are
// faster than its disk. What it has in memory is bounded for the node and for a connection, not for a range, and is less than what it missed.
func TestBehind_ThousandsOfRangesWithBoundedMemory(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--log-level", "info"}})
	createTopic(t, c, "first", 1, 3) // all nodes are known
	if _, errOut, code := c.Nodes[0].Ctl("topic", "create", "ledger", "--ranges", fmt.Sprint(rangesBehind), "--replicas", "3"); code != 0 {
		t.Fatalf("topic create: exit %d: %s", code, errOut)
	}
	c.WaitCaughtUp("ledger", 120*time.Second)
	late := c.Nodes[2]
	empty := late.RSS()
	late.Kill()
	acks := fill(t, c, rangesBehind, bytesBehind, 32<<10, 1)
	began := time.Now()
	late.Start()
	late.Inject("trace=fdatasync,syncfs", "inject=fdatasync,syncfs:delay_enter=700ms")
	late.WaitReady()
	ends := map[int32]int64{}
	c.Eventually(240*time.Second, "all ranges caught up", func() error {
		leases, err := c.Leases("ledger")
		if err != nil {
			return err
		}
		for _, l := range leases {
			ends[l.Range] = l.LogEnd
		}
		return caughtUp(leases, late.Name)
	})
	peak := late.PeakRSS()
	t.Logf("caught up by %d MiB in %d ranges in %s; peak resident memory %d MiB, with the empty ranges %d MiB",
		bytesBehind/mib, rangesBehind, time.Since(began).Round(time.Millisecond), peak/mib, empty/mib)
	if peak > rangesLimit {
		t.Errorf("%s needed %d MiB", late.Name, peak/mib)
	}
	behind := map[int32]bool{}
	for _, a := range acks {
		behind[a.Range] = true
		if a.Offset >= ends[a.Range] {
			t.Fatalf("range %d: offset %d was acknowledged, %s ends at %d", a.Range, a.Offset, late.Name, ends[a.Range])
		}
	}
	if len(behind) < rangesBehind*9/10 {
		t.Errorf("only %d ranges were behind", len(behind))
	}
}

// caughtUp says which replica of a node is behind.
func caughtUp(leases []harness.Lease, node string) error {
	for _, l := range leases {
		for _, r := range l.Replicas {
			if r.Node == node && (r.LogEnd != l.LogEnd || r.Lag != 0) {
				return fmt.Errorf("%s/%d: replica %+v, log end %d", l.Topic, l.Range, r, l.LogEnd)
			}
		}
	}
	return nil
}
