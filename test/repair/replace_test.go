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

// written is how much the long drill writes before the repair.
const written = 300 * mib

// I9, I10, I11, I12: a node dies for good, and one command brings its replica to a spare while records come in. What was
// read back is so; the sealed segments are the leader's, byte by byte; and when one leader after the other dies, the
// repaired replica leads and has all that was acknowledged. At last a second repair says that there is nothing to do,
// and touches no file.
func TestRepair_LostNodeIsReplacedByASpareAndLeads(t *testing.T) {
	c, spare := withSpare(t, harness.Options{}, 1, smallSegments...)
	began := time.Now()
	acks := fill(t, c, 1, written, 16<<10, 1)
	t.Logf("%d MiB written in %s", written/mib, time.Since(began).Round(time.Millisecond))
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 1024, InFlight: 64, PerSecond: 2000, First: after(acks)})
	ledger.WaitMore(500, 30*time.Second)
	has := replicasOf(t, c, 0)
	leader, lost := has[0], has[1]
	lost.Kill()
	job, stderr, code := leader.Repair(120*time.Second, "ledger/0", "--node", spare.Name, "--replace", lost.Name, "--seal-tail")
	_, lease := c.Holder("ledger", 0) // the floor at the end of the command
	mustBeWhole(t, job, stderr, code)
	t.Logf("%.0f MB/s from submission to vote, records coming in", float64(job.Bytes)/1e6/job.UpdatedAt.Sub(job.CreatedAt).Seconds())
	if r, err := c.ReplicaOn("ledger", 0, spare); err != nil || r.Role != "voter" || r.LogEnd < lease.Floor {
		t.Errorf("replica on %s is %+v (%v), the floor was %d when vtopctl ended", spare.Name, r, err, lease.Floor)
	}
	if r, err := c.ReplicaOn("ledger", 0, lost); err == nil {
		t.Errorf("the replaced replica is still there: %+v", r)
	}
	if job.Bytes < written*9/10 || job.Segments < written/mib*9/10 {
		t.Errorf("%d segments of %d bytes were copied, of %d written", job.Segments, job.Bytes, written)
	}
	n, err := harness.CompareSealed(c.RangeDir("ledger", 0, leader), c.RangeDir("ledger", 0, spare), job.SealedEnd)
	if err != nil || n != job.Segments {
		t.Errorf("%d of %d segments compared with the leader's: %v", n, job.Segments, err)
	}
	ledger.WaitMore(500, 30*time.Second)
	c.Eventually(30*time.Second, "three Raft voters that live", func() error { return raftVoters(c, 3) })
	killLeadersUntilItLeads(t, c, ledger, spare, lost)
	acks = append(acks, ledger.Stop(60*time.Second)...)
	c.VerifyLedger("ledger", acks)
	repairOfWholeDoesNothing(t, c, spare)
}

// raftVoters returns nil if the metadata has so many voters, and all of them live.
func raftVoters(c *harness.Cluster, want int) error {
	nodes, err := c.NodeLines()
	if err != nil {
		return err
	}
	voters := 0
	for _, n := range nodes {
		if n.RaftRole != "voter" && n.RaftRole != "leader" {
			continue
		}
		if voters++; !n.Alive {
			return fmt.Errorf("%s votes and is dead: %+v", n.Name, nodes)
		}
	}
	if voters != want {
		return fmt.Errorf("%d voters: %+v", voters, nodes)
	}
	return nil
}

// killLeadersUntilItLeads kills the leader, and the next one, each time with the one before back, until node leads: at the latest
// the third time, with some help.
func killLeadersUntilItLeads(t *testing.T, c *harness.Cluster, ledger *harness.Ledger, node, gone *harness.Node) {
	t.Helper()
	for range 2 {
		leader, before := c.Holder("ledger", 0)
		if leader == node {
			break
		}
		leader.Kill()
		ledger.WaitMore(500, 60*time.Second)
		next, lease := c.Holder("ledger", 0)
		t.Logf("%s killed, %s leads under epoch %d, after epoch %d", leader.Name, next.Name, lease.Epoch, before.Epoch)
		if next == gone || lease.Epoch <= before.Epoch {
			t.Fatalf("lease %+v after %+v", lease, before)
		}
		leader.Start()
		leader.WaitReady()
		c.WaitInSync("ledger", 60*time.Second)
	}
	c.LeadAt("ledger", 0, node)
	ledger.WaitMore(500, 60*time.Second)
}

func repairOfWholeDoesNothing(t *testing.T, c *harness.Cluster, node *harness.Node) {
	t.Helper()
	dir := c.RangeDir("ledger", 0, node)
	before, err := harness.Listing(dir)
	if err != nil {
		t.Fatal(err)
	}
	job, stderr, code := running(t, c).Repair(30*time.Second, "ledger/0", "--node", node.Name)
	if code != 0 || job.Outcome != adminapi.OutcomeNothingToRepair || job.ID != 0 || job.Cause == "" {
		t.Errorf("repair of a whole replica: exit %d, %q, %+v", code, stderr, job)
	}
	if now, err := harness.Listing(dir); err != nil || now != before {
		t.Errorf("repair of a whole replica changed its files (%v):\n%s\nbefore:\n%s", err, now, before)
	}
	out, _, code := running(t, c).Ctl("repair", "ledger/0", "--node", node.Name)
	if code != 0 || !strings.Contains(out, "nothing to repair") {
		t.Errorf("repair of a whole replica as text: exit %d: %q", code, out)
	}
}

// Resubmitting joins the job that is under way; every node tells the same of it; --dry-run starts nothing; --no-wait
// returns at once, watch waits; cancel ends it and leaves the voters as they were; another repair after that succeeds.
func TestRepair_OneJobSeenFromEverywhere(t *testing.T) {
	c, spare := withSpare(t, harness.Options{}, 1, smallSegments...)
	acks := fill(t, c, 1, 24*mib, 4<<10, 1)
	leader := replicasOf(t, c, 0)[0]
	sealed(t, c, 0, leader, 16)
	plan, stderr, code := leader.Repair(30*time.Second, "ledger/0", "--node", spare.Name, "--dry-run", "--seal-tail")
	if code != 0 || plan.Outcome != adminapi.OutcomePlanned || plan.ID != 0 || plan.BytesTotal < 8*mib || len(plan.Sources) == 0 {
		t.Errorf("--dry-run: exit %d, %q, %+v", code, stderr, plan)
	}
	if jobs, err := c.Repairs(true); err != nil || len(jobs) != 0 {
		t.Errorf("--dry-run started something: %+v (%v)", jobs, err)
	}
	slow := []string{"ledger/0", "--node", spare.Name, "--max-rate", "4MiB/s"}
	first, stderr, code := leader.Repair(30*time.Second, append(slow, "--no-wait")...)
	if code != 0 || first.ID == 0 || first.Ended() {
		t.Fatalf("--no-wait: exit %d, %q, %+v", code, stderr, first)
	}
	waitStep(t, c, 30*time.Second, transferring(spare))
	again, stderr, code := spare.Repair(30*time.Second, append(slow, "--no-wait")...)
	if code != 0 || again.ID != first.ID {
		t.Errorf("submitted again: exit %d, %q, job %d, the first is %d", code, stderr, again.ID, first.ID)
	}
	sameFromEverywhere(t, c, first.ID)
	states := map[string]bool{}
	if r, err := c.ReplicaOn("ledger", 0, spare); err == nil {
		states[r.Role+" "+r.State] = true
		if r.Role == "voter" {
			t.Errorf("I10: a half-received replica votes: %+v", r)
		}
	}
	t.Logf("lease show calls the replica under repair %v", states)
	cancelled(t, c, first.ID)
	c.WaitInSync("ledger", 30*time.Second)
	job, stderr, code := leader.Repair(60*time.Second, "ledger/0", "--node", spare.Name, "--replace", replicasOf(t, c, 0)[1].Name)
	mustBeWhole(t, job, stderr, code)
	c.VerifyLedger("ledger", acks)
}

// sameFromEverywhere asks all nodes for the job until they agree; what moves is looked at again.
func sameFromEverywhere(t *testing.T, c *harness.Cluster, id uint64) {
	t.Helper()
	c.Eventually(20*time.Second, "the same answer from every node", func() error {
		var answers []adminapi.Repair
		for _, n := range c.Running() {
			var j adminapi.Repair
			n.CtlJSON(&j, "repair", "status", "ledger/0")
			if j.ID != id || j.Step != adminapi.StepTransferring || j.BytesTotal == 0 {
				t.Fatalf("%s tells %+v", n.Name, j)
			}
			j.ETAMS = 0
			answers = append(answers, j)
		}
		return allEqual(answers)
	})
}

func cancelled(t *testing.T, c *harness.Cluster, id uint64) {
	t.Helper()
	watch := c.Nodes[1].StartRepair("watch")
	var j adminapi.Repair
	c.Nodes[2].CtlJSON(&j, "repair", "cancel", "ledger/0")
	if j.ID != id || j.Step != adminapi.StepCancelled {
		t.Errorf("cancel: %+v", j)
	}
	select {
	case <-time.After(20 * time.Second):
		t.Error("repair watch doesn't see the end of a cancelled repair")
		watch.Kill()
	case <-watch.Done():
	}
	if code := watch.Code(); code != 1 {
		t.Errorf("repair watch of a cancelled repair: exit %d, want 1", code)
	}
}
