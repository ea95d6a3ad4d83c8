//go:build cluster

package repair

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

const (
	// manyRepairs is how many replicas move under retention, over manyRanges ranges.
	manyRepairs = 50
	manyRanges  = 5
	// manyRate is a rate of their own: by default they would yield to a producer that takes all there is.
	manyRate = "200MB/s"
)

// F1, F2: retention keeps less than a tail was, a producer writes at full speed, and fifty repairs run: each seals, and reaches
// what it sealed. What a seal pinned is delivered, whatever retention removes meanwhile.
func TestRetention_FiftyRepairsReachTheSealedEnd(t *testing.T) {
	c, _ := withSpare(t, harness.Options{}, manyRanges, append([]string{"--config", "retention.bytes=1048576"}, smallSegments...)...)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: manyRanges, Size: 4096, InFlight: 256, PerSecond: harness.Unbounded})
	ledger.WaitMore(4*manyRanges*mib/4096, 60*time.Second)
	began, copied := time.Now(), int64(0)
	for round := range manyRepairs / manyRanges {
		var runs []*harness.RepairRun
		for i := range int32(manyRanges) {
			dest, has := without(t, c, i), replicasOf(t, c, i)
			replaced := has[1+(round+int(i))%2]
			runs = append(runs, running(t, c).StartRepair(rangeName(i), "--node", dest.Name, "--replace", replaced.Name, "--seal-tail", "--max-rate", manyRate))
		}
		for i, run := range runs {
			job, stderr, code := run.Wait(90 * time.Second)
			if err := isWhole(job, stderr, code); err != nil {
				t.Fatalf("round %d, range %d: %v", round, i, err)
			}
			if job.SealedEnd <= 0 {
				t.Errorf("round %d, range %d: sealed end %d", round, i, job.SealedEnd)
			}
			copied += job.Bytes
		}
	}
	t.Logf("%d repairs in %s, %d MiB copied, %d records written meanwhile", manyRepairs, time.Since(began).Round(time.Second), copied/mib, ledger.Count())
	acks := ledger.Stop(60 * time.Second)
	leases := retentionRests(t, c)
	starts, ends := map[int32]int64{}, map[int32]int64{}
	for _, l := range leases {
		starts[l.Range], ends[l.Range] = l.LogStart, l.HighWatermark
		if l.LogStart == 0 {
			t.Errorf("retention has removed nothing of range %d: the drill shows nothing", l.Range)
		}
	}
	var kept []harness.Ack
	for _, a := range acks {
		if a.Offset >= starts[a.Range] {
			kept = append(kept, a)
		}
	}
	if err := harness.CheckLedger(kept, harness.ReadAll(t, c.Bootstrap(), "ledger", ends)); err != nil {
		t.Error(err)
	}
	if err := c.CompareReplicas(leases); err != nil {
		t.Error(err)
	}
	noPins(t, c, 30*time.Second)
}

// retentionRests waits until all replicas have all there is, and the log starts stay where they are, so that what is read next is
// what was looked at.
func retentionRests(t *testing.T, c *harness.Cluster) (leases []harness.Lease) {
	t.Helper()
	const looks = 4 // longer than a round of the duties
	var before []int64
	still := 0
	c.Eventually(60*time.Second, "retention to rest", func() error {
		leases = c.WaitCaughtUp("ledger", 60*time.Second)
		var starts []int64
		for _, l := range leases {
			starts = append(starts, l.LogStart)
		}
		if still++; !slices.Equal(starts, before) {
			before, still = starts, 0
		}
		if still < looks {
			time.Sleep(time.Second)
			return fmt.Errorf("log starts are %v", starts)
		}
		return nil
	})
	return leases
}

// noPins waits until no node holds anything for a transfer, and no removed file open.
func noPins(t *testing.T, c *harness.Cluster, limit time.Duration) {
	t.Helper()
	c.Eventually(limit, "pins gone, disk use back", func() error {
		left, err := pins(c)
		if err != nil || len(left) > 0 {
			return fmt.Errorf("pins are %+v (%w)", left, err)
		}
		for _, n := range c.Running() {
			if files, size := n.Unlinked(); files > 0 {
				return fmt.Errorf("%s holds %d removed files open, %d bytes", n.Name, files, size)
			}
		}
		return nil
	})
}

// underRetention starts a slow repair to the spare with a pin on the leader, then has retention remove, on every
// replica, most of what is pinned.
func underRetention(t *testing.T, c *harness.Cluster, spare *harness.Node) (run *harness.RepairRun, leader *harness.Node, first uint64) {
	t.Helper()
	acks := fill(t, c, 1, 24*mib, 4096, 1)
	has := replicasOf(t, c, 0)
	sealed(t, c, 0, has[0], 20)
	run = has[0].StartRepair("ledger/0", "--node", spare.Name, "--replace", has[1].Name, "--seal-tail", "--max-rate", "2MiB/s")
	waitStep(t, c, 30*time.Second, transferring(spare))
	c.Eventually(10*time.Second, "a pin on the leader", func() error {
		held, err := pins(c)
		if err != nil || len(held) == 0 || held[0].Node != has[0].Name || held[0].Bytes < 20*mib {
			return fmt.Errorf("pins are %+v (%w)", held, err)
		}
		return nil
	})
	return run, has[0], after(acks)
}

// retain has retention remove all but about a megabyte, and waits until the leader has.
func retain(t *testing.T, c *harness.Cluster, first uint64) (acks []harness.Ack, start int64) {
	t.Helper()
	alter(t, c, "retention.bytes", "1048576")
	acks = fill(t, c, 1, 4*mib, 4096, first)
	c.Eventually(60*time.Second, "retention", func() error {
		_, l := c.Holder("ledger", 0)
		if start = l.LogStart; start < 20*mib/4096 {
			return fmt.Errorf("log start is %d", start)
		}
		return nil
	})
	return acks, start
}

// F1: retention removes what a running transfer has pinned: the transfer still gets it, from open files.
func TestRetention_PinOutlivesTheNames(t *testing.T) {
	c, spare := withSpare(t, harness.Options{}, 1, smallSegments...)
	run, leader, first := underRetention(t, c, spare)
	_, start := retain(t, c, first)
	files, size := leader.Unlinked()
	t.Logf("the log starts at %d; the leader holds %d removed files open, %d MiB", start, files, size/mib)
	if files == 0 {
		t.Error("the pin holds no removed file: the drill shows nothing")
	}
	job, stderr, code := run.Wait(90 * time.Second)
	mustBeWhole(t, job, stderr, code)
	noPins(t, c, 30*time.Second)
}

// F1, I12: the destination is paused for longer than a pin lives unused, and retention removes what was pinned. The
// repair ends with 1, and names what was reclaimed; the replica is among the voters from the new log start on.
func TestRetention_ExpiredPinIsAMeasuredGapWithItsCause(t *testing.T) {
	c, spare := withSpare(t, harness.Options{Flags: []string{"--pin-idle", "2s"}}, 1, smallSegments...)
	run, _, first := underRetention(t, c, spare)
	spare.Pause()
	acks, start := retain(t, c, first)
	noPins(t, c, 30*time.Second)
	spare.Resume()
	job, stderr, code := run.Wait(90 * time.Second)
	if code != 1 || job.Outcome != adminapi.OutcomeGap || job.Gap <= 0 || !strings.Contains(job.Cause, "retention") || !strings.Contains(stderr, job.Cause) {
		t.Errorf("the pin expired: exit %d, %q, %+v; the log starts at %d", code, stderr, job, start)
	}
	t.Logf("exit %d: %s", code, strings.TrimSpace(stderr))
	c.Eventually(60*time.Second, "a voter from the new log start on", func() error {
		r, err := c.ReplicaOn("ledger", 0, spare)
		if err != nil || r.Role != "voter" || r.State != "following" && r.State != "leading" {
			return fmt.Errorf("replica is %+v (%w)", r, err)
		}
		return nil
	})
	leases := c.WaitCaughtUp("ledger", 60*time.Second)
	if err := c.CompareReplicas(leases); err != nil {
		t.Error(err)
	}
	c.LeadAt("ledger", 0, spare)
	_, lease := c.Holder("ledger", 0)
	var kept []harness.Ack
	for _, a := range acks {
		if a.Offset >= lease.LogStart {
			kept = append(kept, a)
		}
	}
	if err := harness.CheckLedger(kept, harness.ReadAll(t, c.Bootstrap(), "ledger", map[int32]int64{0: lease.HighWatermark})); err != nil {
		t.Error(err)
	}
}

// The node that a repair runs on dies and stays dead: its pin ends by itself and gives the disk back; cancelled, the
// job is gone too, and the range is as it was.
func TestRetention_PinOfADeadRepairerEnds(t *testing.T) {
	const idle = 3 * time.Second
	c, spare := withSpare(t, harness.Options{Flags: []string{"--pin-idle", idle.String()}}, 1, smallSegments...)
	run, leader, first := underRetention(t, c, spare)
	spare.Kill()
	died := time.Now()
	retain(t, c, first)
	files, size := leader.Unlinked()
	noPins(t, c, 30*time.Second)
	t.Logf("%d removed files of %d MiB were held; all was given back %s after the death (a pin lives %s unused)", files, size/mib, time.Since(died).Round(time.Millisecond), idle)
	if _, errOut, code := leader.Ctl("repair", "cancel", "ledger/0"); code != 0 {
		t.Errorf("cancel: exit %d: %s", code, errOut)
	}
	if _, _, code := run.Wait(30 * time.Second); code != 1 {
		t.Errorf("vtopctl repair of a cancelled job: exit %d, want 1", code)
	}
	c.WaitInSync("ledger", 30*time.Second)
}
