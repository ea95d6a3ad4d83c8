//go:build cluster

package repair

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

const healAfter = 4 * time.Second

// rack puts the first two nodes into one rack and the others into another.
func rack(i int) []string {
	if i < 2 {
		return []string{"--rack", "a"}
	}
	return []string{"--rack", "b"}
}

func ledgerOn(c *harness.Cluster, ranges int32) *harness.Ledger {
	return harness.StartLedger(c.T, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: ranges, Size: 1024, InFlight: 32, PerSecond: 2000})
}

// A node is gone for longer than heal.after: not before, and not while healing is paused, its replicas are rebuilt on
// the spare node by themselves, a few at a time. After that the dead node may be removed; before, it may not.
func TestHeal_GoneNodeIsRebuiltElsewhere(t *testing.T) {
	const topicRanges = 6
	c, spare := withSpare(t, harness.Options{Flags: []string{"--heal-after", healAfter.String()}, NodeFlags: rack}, topicRanges, smallSegments...)
	ledger := ledgerOn(c, topicRanges)
	ledger.WaitMore(6000, 60*time.Second)
	lost := replicasOf(t, c, 0)[1]
	admin := running(t, c, lost)
	if _, errOut, code := admin.Ctl("heal", "pause", "--why", "moving racks"); code != 0 {
		t.Fatalf("heal pause: exit %d: %s", code, errOut)
	}
	lost.Kill()
	died := time.Now()
	healDue(t, c, lost, topicRanges)
	if jobs, err := c.Repairs(true); err != nil || len(jobs) != 0 {
		t.Errorf("repairs while healing is paused: %+v (%v)", jobs, err)
	}
	if out, errOut, code := admin.Ctl("node", "remove", lost.Name); code != 3 || !strings.Contains(out+errOut, "ledger/0") {
		t.Errorf("node remove with replicas: exit %d, want 3 and what is left: %s%s", code, out, errOut)
	}
	if _, errOut, code := admin.Ctl("heal", "resume"); code != 0 {
		t.Fatalf("heal resume: exit %d: %s", code, errOut)
	}
	most := 0
	c.Eventually(120*time.Second, "every replica of the dead node on the spare", func() error {
		if jobs, err := c.Repairs(false); err == nil {
			most = max(most, len(jobs))
		}
		return votesOnlyOn(c, spare, lost, topicRanges)
	})
	c.Eventually(30*time.Second, "no repair under way", func() error {
		if jobs, err := c.Repairs(false); err != nil || len(jobs) > 0 {
			return fmt.Errorf("%+v (%w)", jobs, err)
		}
		return nil
	})
	jobs, err := c.Repairs(true)
	if err != nil || len(jobs) < topicRanges {
		t.Errorf("repairs: %+v (%v)", jobs, err)
	}
	for _, j := range jobs {
		if j.Origin != "heal" || j.Outcome != adminapi.OutcomeWhole || j.Reason == "" {
			t.Errorf("repair %+v", j)
		}
	}
	t.Logf("%d repairs, at most %d under way at once, the last one done %s after the death", len(jobs), most, time.Since(died).Round(time.Millisecond))
	if _, errOut, code := admin.Ctl("node", "remove", lost.Name); code != 0 {
		t.Errorf("node remove of the dead, empty node: exit %d: %s", code, errOut)
	}
	c.Eventually(30*time.Second, lost.Name+" out of the list", func() error { return notListed(c, lost) })
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// healDue waits until heal status says that the node's replicas are due, and that healing is paused.
func healDue(t *testing.T, c *harness.Cluster, lost *harness.Node, replicas int) {
	t.Helper()
	c.Eventually(60*time.Second, "heal status names the dead node as due", func() error {
		var s adminapi.HealStatus
		running(t, c).CtlJSON(&s, "heal", "status")
		if !s.Paused || s.Why != "moving racks" || len(s.Gone) != 1 || s.Gone[0].Node != lost.Name || s.Gone[0].Replicas != replicas || s.Gone[0].LeftMS > 0 || s.Gone[0].GoneMS < healAfter.Milliseconds() {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// votesOnlyOn returns nil if node votes in all ranges, and the other one has no replica.
func votesOnlyOn(c *harness.Cluster, node, gone *harness.Node, ranges int) error {
	leases, err := c.Leases("ledger")
	if err != nil {
		return err
	}
	if len(leases) != ranges {
		return fmt.Errorf("%d leases", len(leases))
	}
	for _, l := range leases {
		ok := false
		for _, r := range l.Replicas {
			if gone != nil && r.Node == gone.Name {
				return fmt.Errorf("%s/%d still on %s: %+v", l.Topic, l.Range, gone.Name, r)
			}
			ok = ok || r.Node == node.Name && r.Role == "voter" && (r.State == "following" || r.State == "leading")
		}
		if !ok {
			return fmt.Errorf("%s/%d not on %s: %+v", l.Topic, l.Range, node.Name, l.Replicas)
		}
	}
	return nil
}

func notListed(c *harness.Cluster, n *harness.Node) error {
	nodes, err := c.NodeLines()
	if err != nil {
		return err
	}
	for _, line := range nodes {
		if line.Name == n.Name && line.State != "gone" {
			return fmt.Errorf("%+v", line)
		}
	}
	return nil
}

// I10: a node comes back under its old name with an empty disk, and nothing is asked of anybody: its replicas are
// rebuilt under new ids, from sealed segments and the live log.
func TestHeal_WipedNodeHealsByItself(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--heal-after", healAfter.String()}, base...)})
	createTopic(t, c, "ledger", 2, 3, smallSegments...)
	ledger := ledgerOn(c, 2)
	ledger.WaitMore(8000, 60*time.Second)
	wiped := replicasOf(t, c, 0)[1]
	var old [2]adminapi.Replica
	for i := range old {
		var err error
		if old[i], err = c.ReplicaOn("ledger", int32(i), wiped); err != nil {
			t.Fatal(err)
		}
	}
	wiped.Kill()
	if err := os.RemoveAll(wiped.Dir); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wiped.Start()
	c.Eventually(120*time.Second, "new voters on "+wiped.Name, func() error {
		for i := range old {
			r, err := c.ReplicaOn("ledger", int32(i), wiped)
			if err != nil || r.ReplicaID == old[i].ReplicaID || r.Role != "voter" || r.State != "following" && r.State != "leading" {
				return fmt.Errorf("replica %+v (%w), it was %+v", r, err, old[i])
			}
		}
		return nil
	})
	t.Logf("two replicas whole %s after the start with an empty disk", time.Since(began).Round(time.Millisecond))
	jobs, err := c.Repairs(true)
	moved := int64(0)
	for _, j := range jobs {
		moved += j.Bytes
	}
	if err != nil || len(jobs) == 0 || moved == 0 {
		t.Errorf("repairs: %+v (%v)", jobs, err)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// The disk of one range is lost on a node that is well otherwise: `repair --node N --all` and healing do not fight over
// it, and it is whole again under a new id.
func TestHeal_RepairAllBesideHealing(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: base})
	createTopic(t, c, "ledger", 2, 3, smallSegments...)
	ledger := ledgerOn(c, 2)
	ledger.WaitMore(8000, 60*time.Second)
	victim := replicasOf(t, c, 0)[1]
	old, err := c.ReplicaOn("ledger", 0, victim)
	if err != nil {
		t.Fatal(err)
	}
	victim.Kill()
	if err := os.RemoveAll(c.RangeDir("ledger", 0, victim)); err != nil {
		t.Fatal(err)
	}
	victim.Start()
	victim.WaitReady()
	var out, errOut string
	var code int
	c.Eventually(60*time.Second, "repair --all", func() error {
		out, errOut, code = running(t, c).Ctl("repair", "--node", victim.Name, "--all")
		if code == 3 && strings.Contains(errOut, "cannot be used now") { // a node that has just started does not follow yet: it is told so
			return errors.New(errOut)
		}
		return nil
	})
	if code != 0 {
		t.Errorf("repair --all: exit %d: %s%s", code, out, errOut)
	}
	c.Eventually(60*time.Second, "whole again", func() error {
		r, err := c.ReplicaOn("ledger", 0, victim)
		if err != nil || r.ReplicaID == old.ReplicaID || r.Role != "voter" || r.State != "following" && r.State != "leading" {
			return fmt.Errorf("replica %+v (%w), it was %+v", r, err, old)
		}
		return nil
	})
	c.WaitInSync("ledger", 60*time.Second)
	out, errOut, code = running(t, c).Ctl("repair", "--node", victim.Name, "--all")
	if code != 0 || !strings.Contains(out, "nothing to repair") {
		t.Errorf("repair --all with nothing to do: exit %d: %s%s", code, out, errOut)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
