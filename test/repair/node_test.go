//go:build cluster

package repair

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// A node is drained while a client writes: its leases leave, then its replicas, and every range keeps a majority that lives.
// The mark outlives its restart; empty, it is removed, and the rest goes on.
func TestNode_DrainAndRemove(t *testing.T) {
	const topicRanges = 4
	c, spare := withSpare(t, harness.Options{}, topicRanges, smallSegments...)
	ledger := ledgerOn(c, topicRanges)
	ledger.WaitMore(8000, 60*time.Second)
	leaving := c.RaftLeader()
	if leaving == spare {
		leaving = c.Nodes[0]
	}
	admin := running(t, c, leaving)
	fewest := watchVoters(c)
	if _, errOut, code := admin.Ctl("node", "drain", leaving.Name, "--no-wait"); code != 0 {
		t.Fatalf("node drain --no-wait: exit %d: %s", code, errOut)
	}
	leaving.Stop(15 * time.Second)
	leaving.Start()
	leaving.WaitReady()
	var d adminapi.DrainResult
	admin.CtlJSON(&d, "node", "drain", leaving.Name)
	if least := fewest(); least < 2 { // two, where a range was moved while the node was down: a dead voter goes first
		t.Errorf("a range had %d voters during the drain", least)
	}
	if !d.Done || d.State != "draining" || d.LeasesLeft != 0 || d.ReplicasLeft != 0 {
		t.Errorf("drain ended with %+v", d)
	}
	if err := votesOnlyOn(c, spare, leaving, topicRanges); err != nil {
		t.Error(err)
	}
	ledger.WaitMore(500, 30*time.Second)
	leaving.Stop(15 * time.Second)
	if out, errOut, code := admin.Ctl("node", "remove", leaving.Name); code != 0 {
		t.Errorf("node remove: exit %d: %s%s", code, out, errOut)
	}
	c.Eventually(30*time.Second, leaving.Name+" out of the list", func() error { return notListed(c, leaving) })
	ledger.WaitMore(500, 30*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// watchVoters looks at the voters of all ranges, over and over, until fewest is called, which tells the smallest set seen.
func watchVoters(c *harness.Cluster) (fewest func() int) {
	stop, least := make(chan struct{}), make(chan int, 1)
	go func() {
		seen := 99
		for {
			if leases, err := c.Leases("ledger"); err == nil {
				for _, l := range leases {
					seen = min(seen, voters(l))
				}
			}
			select {
			case <-stop:
				least <- seen
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int {
		close(stop)
		return <-least
	}
}

func voters(l harness.Lease) (n int) {
	for _, r := range l.Replicas {
		if r.Role == "voter" {
			n++
		}
	}
	return n
}

// A living node is replaced by the spare, with a plan first, and what it had votes there when the command ends. A drain
// that has nowhere to go says so, and is taken back.
func TestNode_ReplaceALivingOne(t *testing.T) {
	const topicRanges = 3
	c, spare := withSpare(t, harness.Options{}, topicRanges, smallSegments...)
	ledger := ledgerOn(c, topicRanges)
	ledger.WaitMore(6000, 60*time.Second)
	old := replicasOf(t, c, 0)[0]
	admin := running(t, c, old)
	var r adminapi.ReplaceResult
	admin.CtlJSON(&r, "node", "replace", old.Name, spare.Name, "--dry-run")
	if len(r.Repairs) != topicRanges || r.Admitted {
		t.Errorf("--dry-run: %+v", r)
	}
	if jobs, err := c.Repairs(true); err != nil || len(jobs) != 0 {
		t.Errorf("--dry-run started something: %+v (%v)", jobs, err)
	}
	fewest := watchVoters(c)
	admin.CtlJSON(&r, "node", "replace", old.Name, spare.Name)
	if len(r.Repairs) != topicRanges {
		t.Errorf("replace: %+v", r)
	}
	c.Eventually(60*time.Second, "replicas on the spare alone", func() error { return votesOnlyOn(c, spare, old, topicRanges) })
	if least := fewest(); least < 3 {
		t.Errorf("a range had %d voters: a living voter goes only after the one that takes its place votes", least)
	}
	old.Stop(15 * time.Second)
	if _, errOut, code := admin.Ctl("node", "remove", old.Name); code != 0 {
		t.Errorf("node remove: exit %d: %s", code, errOut)
	}
	if out, errOut, code := admin.Ctl("node", "drain", admin.Name); code != 1 || !strings.Contains(out+errOut, "nowhere") {
		t.Errorf("drain with nowhere to go: exit %d, want 1: %s%s", code, out, errOut)
	}
	if _, errOut, code := admin.Ctl("node", "drain", admin.Name, "--cancel"); code != 0 {
		t.Errorf("drain --cancel: exit %d: %s", code, errOut)
	}
	c.WaitInSync("ledger", 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// Every node is restarted as soon as safe-to-stop allows it, as often as two rounds, and no record is given up. While a
// node is down, no other one may be stopped, and the answer says why.
func TestNode_RollingRestartBySafeToStop(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: base})
	createTopic(t, c, "ledger", 4, 3)
	ledger := ledgerOn(c, 4)
	ledger.WaitMore(500, 30*time.Second)
	for range 2 {
		for _, n := range c.Nodes {
			other := running(t, c, n)
			c.Eventually(60*time.Second, n.Name+" safe to stop", func() error {
				if out, errOut, code := other.Ctl("node", "safe-to-stop", n.Name); code != 0 {
					return fmt.Errorf("exit %d: %s%s", code, out, errOut)
				}
				return nil
			})
			if code := n.Stop(15 * time.Second); code != 0 {
				t.Errorf("%s ended with %d", n.Name, code)
			}
			for _, m := range c.Running() {
				var s adminapi.SafeToStop
				out, errOut, code := m.Ctl("node", "safe-to-stop", m.Name)
				if code != 1 || out == "" {
					t.Errorf("safe-to-stop %s while %s is down: exit %d, %+v: %s%s", m.Name, n.Name, code, s, out, errOut)
				}
			}
			n.Start()
		}
	}
	for _, n := range c.Nodes {
		n.WaitReady()
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// A majority of a range is gone for good. The plan lists what would be lost and changes nothing; the recovery needs to be
// accepted; after it the range goes on from what the last replica has, the loss is in the range's history, and it gets
// its copies back.
func TestNode_RecoverALostMajority(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 5, Flags: base})
	createTopic(t, c, "ledger", 1, 3, smallSegments...)
	acks := fill(t, c, 1, 4*mib, 4096, 1)
	c.WaitCaughtUp("ledger", 30*time.Second)
	has := replicasOf(t, c, 0)
	kept := has[2]
	kept.Kill()
	acks = append(acks, fill(t, c, 1, mib, 4096, after(acks))...) // only the two that go have these
	c.Eventually(30*time.Second, "what was acknowledged promised", func() error {
		if _, l := c.Holder("ledger", 0); l.Floor < int64(len(acks)) {
			return fmt.Errorf("floor %d, %d acknowledged", l.Floor, len(acks))
		}
		return nil
	})
	time.Sleep(2 * time.Second) // the metadata hears of floors about once a second, and nothing shows when it has
	has[0].Kill()
	has[1].Kill()
	kept.Start()
	kept.WaitReady()
	admin := running(t, c, kept)
	var plan adminapi.RecoverPlan
	c.Eventually(60*time.Second, "a plan for the range that lost its majority", func() error {
		out, errOut, code := admin.Ctl("range", "recover", "ledger/0", "--from", kept.Name, "--dry-run", "-o", "json")
		if code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		return decode(out, &plan)
	})
	if plan.Applied || plan.KeepEnd < 4*mib/4096 || len(plan.Lost) == 0 || len(plan.Voters) != 3 {
		t.Errorf("the plan: %+v", plan)
	}
	t.Logf("the plan: keep [%d, %d), floor %d, lost %+v", plan.LogStart, plan.KeepEnd, plan.Floor, plan.Lost)
	if _, errOut, code := admin.Ctl("range", "recover", "ledger/0", "--from", kept.Name); code != 2 {
		t.Errorf("recovery without --accept-data-loss: exit %d, want 2: %s", code, errOut)
	}
	admin.CtlJSON(&plan, "range", "recover", "ledger/0", "--from", kept.Name, "--accept-data-loss", "--confirm", "ledger/0")
	if !plan.Applied {
		t.Errorf("recovered: %+v", plan)
	}
	c.Eventually(30*time.Second, "the range serves again", func() error {
		leases, err := c.Leases("ledger")
		if err != nil || len(leases) != 1 || leases[0].Holder != kept.Name || leases[0].State != "serving" {
			return fmt.Errorf("%+v (%w)", leases, err)
		}
		return nil
	})
	d, err := admin.LeaseDetail("ledger", 0)
	if err != nil || len(d.Losses) != 1 || d.Losses[0].From != plan.KeepEnd || d.Losses[0].Kept != kept.Name {
		t.Errorf("the history: %+v (%v)", d.Losses, err)
	}
	for range 2 {
		dest := without(t, c, 0)
		job, stderr, code := admin.Repair(60*time.Second, "ledger/0", "--node", dest.Name, "--seal-tail")
		mustBeWhole(t, job, stderr, code)
	}
	var survived []harness.Ack
	for _, a := range acks {
		if a.Offset < plan.KeepEnd {
			survived = append(survived, a)
		}
	}
	survived = append(survived, fill(t, c, 1, mib, 4096, after(acks))...)
	c.VerifyLedger("ledger", survived)
	for _, n := range has[:2] { // the ones that were given up come back: they change nothing
		n.Start()
		n.WaitReady()
	}
	c.VerifyLedger("ledger", survived)
}
