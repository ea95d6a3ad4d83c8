//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// E9: the disk of a node that is Raft leader and leads the range has no room at all, so that raft.db can't be written either. The metadata that it does not get
// can't tell it that its lease is gone: it is told nothing else, and stops to answer as leader. Elections, whose terms it can't keep, do not end it. With room, it
// is back by itself.
func TestDisk_NoRoomForRaftsLog(t *testing.T) {
	var disks []*harness.Disk
	for range 3 {
		disks = append(disks, harness.NewDisk(t, 256<<20))
	}
	c := harness.Start(t, harness.Options{
		Nodes: 3, Flags: append([]string{"--disk-reserve", "32MiB", "--raft-heartbeat", "500ms", "--lease-time", "5s"}, steady...),
		Dir: func(i int) string { return filepath.Join(disks[i].Dir, "data") },
	})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 32, PerSecond: 500})
	ledger.WaitMore(200, 30*time.Second)
	victim, before := c.HolderBeside("ledger", true)
	pid, other := victim.PID(), c.Nodes[(victim.Index+1)%3]
	started := time.Now()
	step := func(what string) { t.Logf("%6s %s", time.Since(started).Round(10*time.Millisecond), what) }
	free := disks[victim.Index].FillUp()
	defer func() { free() }()
	entries := 0
	c.Eventually(60*time.Second, "raft.db without room", func() error {
		if strings.Contains(victim.Log(), "raft.db: no space left on device") {
			return nil
		}
		entries++
		_, errOut, code := other.Ctl("topic", "create", fmt.Sprint("more", entries), "--ranges", "50", "--replicas", "3")
		return fmt.Errorf("topic create: exit %d: %s", code, errOut)
	})
	step("raft.db has no room")
	waitNotHolder(t, other, victim, before.Epoch)
	step("lease elsewhere")
	c.Eventually(60*time.Second, "disk_full in status", func() error { return fullIn(other, victim) })
	untilRefused(t, victim, time.Now())
	step("the old holder refuses")
	ledger.WaitMore(200, 60*time.Second)
	for range 3 {
		leader := raftLeaderBut(t, c, victim)
		leader.Kill()
		leader.Start()
		ledger.WaitMore(200, 60*time.Second)
	}
	step("three elections later")
	if code, ended := victim.Exited(); ended {
		t.Fatalf("%s ended with code %d: %s", victim.Name, code, victim.LogTail(20))
	}
	free()
	free = func() {}
	c.Eventually(120*time.Second, "the metadata at "+victim.Name, func() error { // it answers for the leases, too, as it knows them
		here, err := other.Status()
		if err != nil {
			return err
		}
		there, err := victim.Status()
		if err == nil && (!there.Ready || there.AppliedIndex < here.AppliedIndex) {
			err = fmt.Errorf("%s has applied %d, %s %d", victim.Name, there.AppliedIndex, other.Name, here.AppliedIndex)
		}
		return err
	})
	step("its metadata is that of the others")
	c.WaitInSync("", 120*time.Second) // the replicas that it could not make, too
	step("in sync")
	if !victim.Runs() || victim.PID() != pid {
		t.Errorf("%s has ended", victim.Name)
	}
	ledger.WaitMore(200, 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// fullIn asks one node whether the other's disk is full.
func fullIn(other, victim *harness.Node) error {
	s, err := other.Status()
	if err != nil {
		return err
	}
	for _, p := range s.Problems {
		if p.Kind == "disk_full" && p.Subject == victim.Name {
			return nil
		}
	}
	return fmt.Errorf("problems are %+v", s.Problems)
}

// raftLeaderBut waits for a Raft leader other than victim, by its own word.
func raftLeaderBut(t *testing.T, c *harness.Cluster, victim *harness.Node) *harness.Node {
	t.Helper()
	var found *harness.Node
	c.Eventually(60*time.Second, "a Raft leader other than "+victim.Name, func() error {
		for _, n := range c.Running() {
			if leads, err := n.Metric("vtop_raft_leader"); n != victim && err == nil && leads == 1 {
				found = n
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return found
}
