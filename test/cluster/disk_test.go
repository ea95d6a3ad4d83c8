//go:build cluster

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

const exitDiskStall = 5

// A3: the disk of a node that leads everything hangs while its heartbeats go on. Leases and Raft leadership go
// elsewhere, status says why, the watchdog ends the process with its own code, and it comes back as a follower.
func TestDisk_HungDiskLosesLeasesAndRaftLeadership(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 32})
	ledger.WaitMore(200, 30*time.Second)
	victim, before := c.HolderBeside("ledger", true)
	hung := time.Now()
	strace := victim.Inject("trace=fdatasync,fsync,sync_file_range,msync", "inject=fdatasync,fsync,sync_file_range,msync:delay_enter=60s")
	other := c.Nodes[(victim.Index+1)%3]
	said, moved := "", time.Duration(0)
	harness.Eventually(t, 30*time.Second, "lease and Raft leadership elsewhere, the stalled disk named", func() error {
		s, err := other.Status()
		if err != nil {
			return err
		}
		d, err := other.LeaseDetail("ledger", 0)
		if err != nil {
			return err
		}
		for _, disk := range s.StalledDisks {
			if disk.Node == victim.Name && said == "" {
				said = disk.Reason
				t.Logf("status says after %s: %s", time.Since(hung).Round(time.Millisecond), said)
			}
		}
		if away := d.Holder != victim.Name && d.Epoch > before.Epoch && d.State == "serving"; away && moved == 0 {
			moved = time.Since(hung)
			t.Logf("lease elsewhere after %s: %s", moved.Round(time.Millisecond), d.Why)
		}
		if moved == 0 || said == "" || s.RaftLeader == "" || s.RaftLeader == victim.Name {
			return fmt.Errorf("raft leader %q, lease %+v, status said %q of the disk", s.RaftLeader, d.Lease, said)
		}
		return nil
	})
	t.Logf("Raft leadership elsewhere after %s", time.Since(hung).Round(time.Millisecond))
	if !strings.Contains(said, "stalled") {
		t.Errorf("status said %q of a disk that hangs", said)
	}
	c.Eventually(60*time.Second, "the watchdog", func() error {
		if !strings.Contains(victim.Log(), "ending the process") {
			return fmt.Errorf("%s says: %s", victim.Name, victim.LogTail(1))
		}
		return nil
	})
	t.Logf("the watchdog ended the process after %s", time.Since(hung).Round(time.Millisecond))
	strace.Stop() // a process with a thread that hangs in the kernel can't end
	if code := victim.WaitEnd(60 * time.Second); code != exitDiskStall {
		t.Errorf("the watchdog ended the process with code %d, want %d", code, exitDiskStall)
	}
	t.Logf("its end is seen after %s", time.Since(hung).Round(time.Millisecond))
	ledger.WaitMore(200, 30*time.Second)
	victim.Start()
	victim.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	t.Logf("in sync again after %s", time.Since(hung).Round(time.Millisecond))
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// waitNotHolder waits, by the word of other, until range 0 of ledger is served by another node under a later epoch.
func waitNotHolder(t *testing.T, other, victim *harness.Node, epoch int32) {
	t.Helper()
	harness.Eventually(t, 60*time.Second, "lease away from "+victim.Name, func() error {
		d, err := other.LeaseDetail("ledger", 0)
		if err != nil {
			return err
		}
		if d.Holder == victim.Name || d.Epoch <= epoch || d.State != "serving" {
			return fmt.Errorf("lease is %+v", d.Lease)
		}
		return nil
	})
}

// A disk that hangs for a while, shorter than the limit of the watchdog: the node loses its lease, its process stays,
// and it follows again once the disk answers.
func TestDisk_HangShorterThanTheLimitHealsByItself(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--disk-stall-limit", "60s"}, steady...)})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 32})
	ledger.WaitMore(200, 30*time.Second)
	victim, before := c.HolderBeside("ledger", false)
	strace := victim.Inject("trace=fdatasync,fsync", "inject=fdatasync,fsync:delay_enter=12s")
	waitNotHolder(t, c.Nodes[(victim.Index+1)%3], victim, before.Epoch)
	ledger.WaitMore(200, 30*time.Second)
	strace.Stop()
	c.WaitInSync("ledger", 90*time.Second)
	if !victim.Runs() {
		t.Error("the process ended although the disk hung for less than --disk-stall-limit")
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// E10: one failed fdatasync. The batch is not acknowledged by that replica, it is never tried again on that file, and
// the replica is replicated to again without a restart, whether it led or followed.
func TestDisk_FailsOnceAndIsReplicatedToAgain(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 32})
	ledger.WaitMore(200, 30*time.Second)
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("holder %v", leads), func(t *testing.T) {
			victim, before := c.HolderBeside("ledger", false)
			if !leads {
				victim = c.Nodes[3-victim.Index-c.RaftLeader().Index]
			}
			strace := victim.Inject("trace=fdatasync", "inject=fdatasync:error=EIO:when=20")
			c.Eventually(30*time.Second, "the injected failure", func() error {
				if !strings.Contains(strace.Calls(), "EIO") {
					return fmt.Errorf("no call has failed yet")
				}
				return nil
			})
			ledger.WaitMore(200, 60*time.Second)
			strace.Stop()
			c.WaitInSync("ledger", 60*time.Second)
			if failures, err := victim.Metric("vtop_storage_failures_total"); err != nil || failures == 0 {
				t.Logf("the failed call did not hit a log: %v failures counted (%v)", failures, err)
			}
			if _, after := c.Holder("ledger", 0); leads && after.Epoch == before.Epoch {
				t.Logf("the epoch is the same: the failed call was no log's of this range")
			}
			if !victim.Runs() {
				t.Error("one failed fdatasync ended the process")
			}
		})
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// E9: disks fill up under load, a follower's first, then the holder's. Writes go on elsewhere, status says why, and
// when there is room again the node heals by itself.
func TestDisk_FullDiskHealsByItself(t *testing.T) {
	var disks []*harness.Disk
	for range 3 {
		disks = append(disks, harness.NewDisk(t, 1<<30))
	}
	c := harness.Start(t, harness.Options{
		Nodes: 3, Flags: append([]string{"--disk-reserve", "64MiB"}, steady...),
		Dir: func(i int) string { return filepath.Join(disks[i].Dir, "data") },
	})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 1024, InFlight: 32})
	ledger.WaitMore(200, 30*time.Second)
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("holder %v", leads), func(t *testing.T) {
			victim, before := c.HolderBeside("ledger", false)
			if !leads {
				victim = c.Nodes[3-victim.Index-c.RaftLeader().Index]
			}
			started := time.Now()
			step := func(what string) { t.Logf("%6s %s", time.Since(started).Round(10*time.Millisecond), what) }
			free := disks[victim.Index].Fill(16 << 20)
			defer func() { free() }()
			c.Eventually(60*time.Second, "disk_full in status", func() error { return hasProblem(c, "disk_full", victim.Name) })
			step("disk_full in status")
			if leads {
				waitNotHolder(t, c.RaftLeader(), victim, before.Epoch)
				step("lease elsewhere")
			}
			ledger.WaitMore(500, 60*time.Second)
			step("records acknowledged; freeing the space")
			free()
			free = func() {}
			c.Eventually(60*time.Second, "no disk_full any more", func() error {
				if hasProblem(c, "disk_full", victim.Name) == nil {
					return fmt.Errorf("status still has disk_full for %s", victim.Name)
				}
				return nil
			})
			step("no disk_full in status")
			c.WaitInSync("ledger", 60*time.Second)
			step("in sync")
			ledger.WaitMore(200, 60*time.Second)
		})
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// No node has room: the holder keeps its lease, refuses writes, goes on with reads, and takes writes again by itself.
func TestDisk_AllFullRefusesWritesAndReadsGoOn(t *testing.T) {
	var disks []*harness.Disk
	for range 3 {
		disks = append(disks, harness.NewDisk(t, 1<<30))
	}
	c := harness.Start(t, harness.Options{
		Nodes: 3, Flags: append([]string{"--disk-reserve", "64MiB"}, steady...),
		Dir: func(i int) string { return filepath.Join(disks[i].Dir, "data") },
	})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 1024, InFlight: 32})
	ledger.WaitMore(200, 30*time.Second)
	var frees []func()
	for _, d := range disks {
		frees = append(frees, d.Fill(32<<20))
	}
	for _, n := range c.Nodes {
		c.Eventually(60*time.Second, "disk_full in status", func() error { return hasProblem(c, "disk_full", n.Name) })
	}
	holder, lease := c.Holder("ledger", 0)
	raw := harness.DialRaw(t, holder.Kafka)
	c.Eventually(60*time.Second, "a refusal", func() error {
		if code := mustProduce(t, raw, -1, harness.NotInLedger); code == 0 {
			return fmt.Errorf("a record is still taken with every disk under its reserve")
		}
		return nil
	})
	harness.ReadAll(t, c.Bootstrap(), "ledger", map[int32]int64{0: lease.HighWatermark})
	for _, free := range frees {
		free()
	}
	ledger.WaitMore(500, 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

func hasProblem(c *harness.Cluster, kind, subject string) error {
	s, err := c.Status()
	if err != nil {
		return err
	}
	for _, p := range s.Problems {
		if p.Kind == kind && p.Subject == subject {
			return nil
		}
	}
	return fmt.Errorf("no %s for %s among %+v", kind, subject, append([]adminapi.Problem{}, s.Problems...))
}
