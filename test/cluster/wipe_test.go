//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// copyDir copies a data directory as a backup tool would.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp -a %s %s: %v: %s", from, to, err, out)
	}
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the drill removes what is not there: %v", err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// follower gives a node that neither holds range 0 of topic nor leads Raft.
func follower(t *testing.T, c *harness.Cluster, topic string) *harness.Node {
	t.Helper()
	holder, _ := c.HolderBeside(topic, true)
	return c.Nodes[(holder.Index+1)%len(c.Nodes)]
}

// replicaOf gives the replica of range 0 on node, as any other node tells it.
func replicaOf(c *harness.Cluster, topic string, node *harness.Node) (adminapi.Replica, error) {
	for _, n := range c.Running() {
		d, err := n.LeaseDetail(topic, 0)
		if err != nil {
			continue
		}
		for _, r := range d.Replicas {
			if r.Node == node.Name {
				return r, nil
			}
		}
		return adminapi.Replica{}, fmt.Errorf("no replica on %s in %+v", node.Name, d.Replicas)
	}
	return adminapi.Replica{}, fmt.Errorf("no node told the lease of %s/0", topic)
}

// statusNames asks vtopctl status -o json until check is content with it.
func statusNames(t *testing.T, from *harness.Node, what string, check func(*adminapi.Status) error) {
	t.Helper()
	harness.Eventually(t, 60*time.Second, what, func() error {
		out, errOut, code := from.Ctl("status", "-o", "json")
		s := new(adminapi.Status)
		if err := json.Unmarshal([]byte(out), s); err != nil {
			return fmt.Errorf("vtopctl status: exit %d: %w: %s", code, err, errOut)
		}
		return check(s)
	})
	if out, errOut, code := from.Ctl("status"); code > 1 {
		t.Errorf("vtopctl status as a table: exit %d: %s%s", code, out, errOut)
	}
}

// I10: a node that lost its whole disk, or its store but not its metadata, comes back under its old name. It votes
// nowhere, status names it as a claimant, and nothing is lost; with the other up-to-date follower dead as well,
// nothing is acknowledged.
func TestWipe_DiskOrStoreIsAClaimant(t *testing.T) {
	for _, lost := range []string{"", "store"} {
		name := "whole disk"
		if lost != "" {
			name = "only " + lost
		}
		t.Run(name, func(t *testing.T) {
			c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
			createTopic(t, c, "ledger", 1, 3)
			ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
			ledger.WaitMore(500, 30*time.Second)
			victim := follower(t, c, "ledger")
			victim.Kill()
			removeAll(t, filepath.Join(victim.Dir, lost))
			victim.Start()
			holder, _ := c.Holder("ledger", 0)
			statusNames(t, holder, "claimant in status", func(s *adminapi.Status) error {
				for _, p := range s.PendingNodes {
					if p.Name == victim.Name && p.StorageID != p.HolderStorageID && p.Reason != "" {
						return nil
					}
				}
				return fmt.Errorf("pending_nodes is %+v", s.PendingNodes)
			})
			ledger.WaitMore(200, 30*time.Second)
			withoutMajority(t, c, ledger, holder, victim)
			c.VerifyReadable("ledger", ledger.Stop(60*time.Second))
		})
	}
}

// withoutMajority kills the follower that is whole: holder and the node that forgot are no majority.
func withoutMajority(t *testing.T, c *harness.Cluster, ledger *harness.Ledger, holder, forgot *harness.Node) {
	t.Helper()
	whole := c.Nodes[3-holder.Index-forgot.Index]
	whole.Kill()
	acked := ledger.Count()
	for range 10 { // what was on its way to be acknowledged
		time.Sleep(time.Second)
		now := ledger.Count()
		if now == acked {
			break
		}
		acked = now
	}
	time.Sleep(6 * time.Second)
	if now := ledger.Count(); now != acked {
		t.Errorf("%d records acknowledged with a majority only if %s counts, which forgot what it held", now-acked, forgot.Name)
	}
	whole.Start()
	ledger.WaitMore(200, 60*time.Second)
}

// A claimant, be it without its whole disk or without its store, takes the place of what is gone after --heal-after, its replicas are built anew, and they vote
// again under new replica ids.
func TestWipe_ClaimantIsTakenInAfterHealAfter(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--heal-after", "5s"}, steady...)})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(500, 30*time.Second)
	for round, lost := range []string{"", "store"} {
		victim := c.Nodes[round]
		old, err := replicaOf(c, "ledger", victim)
		if err != nil {
			t.Fatal(err)
		}
		victim.Kill()
		removeAll(t, filepath.Join(victim.Dir, lost))
		victim.Start()
		victim.WaitReady()
		c.Eventually(90*time.Second, "a new voter on "+victim.Name, func() error { return newVoter(c, victim, old) })
		c.WaitInSync("ledger", 60*time.Second)
		ledger.WaitMore(100, 60*time.Second)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// newVoter returns nil if the node's replica is a voter in sync under another replica id than old's.
func newVoter(c *harness.Cluster, node *harness.Node, old adminapi.Replica) error {
	r, err := replicaOf(c, "ledger", node)
	if err != nil {
		return err
	}
	if r.ReplicaID == old.ReplicaID || r.Role != "voter" || r.State != "following" && r.State != "leading" {
		return fmt.Errorf("replica %+v, before the loss it had id %d", r, old.ReplicaID)
	}
	return nil
}

// A node that lost only raft/ is a new Raft server: its vote is new, its replicas are the old ones, since store/
// with its promises is whole.
func TestWipe_OnlyRaft(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(500, 30*time.Second)
	for round := range 3 {
		victim := c.Nodes[round]
		victim.Kill()
		removeAll(t, filepath.Join(victim.Dir, "raft"))
		victim.Start()
		ledger.WaitMore(200, 60*time.Second)
		victim.WaitReady()
		c.Eventually(60*time.Second, "three Raft voters again", func() error { return threeVoters(c) })
		c.WaitInSync("ledger", 60*time.Second)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

func threeVoters(c *harness.Cluster) error {
	nodes, err := c.NodeLines()
	if err != nil {
		return err
	}
	voters := 0
	for _, n := range nodes {
		if n.RaftRole == "voter" || n.RaftRole == "leader" {
			voters++
		}
	}
	if voters != 3 {
		return fmt.Errorf("%d voters: %+v", voters, nodes)
	}
	return nil
}

// A node that lost one range's directory lost that replica alone: it is named, doesn't vote, and is built anew under
// a new replica id, while its other range goes on voting under the old one.
func TestWipe_OneRangeDirectory(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	createTopic(t, c, "other", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(500, 30*time.Second)
	victim := follower(t, c, "ledger")
	old, err := replicaOf(c, "ledger", victim)
	if err != nil {
		t.Fatal(err)
	}
	otherOld, err := replicaOf(c, "other", victim)
	if err != nil {
		t.Fatal(err)
	}
	var topic struct {
		ID string `json:"id"`
	}
	victim.CtlJSON(&topic, "topic", "describe", "ledger")
	victim.Kill()
	removeAll(t, filepath.Join(victim.Dir, "store", "ranges", topic.ID+"-0"))
	victim.Start()
	lostSeen := false
	c.Eventually(60*time.Second, "a new voter on "+victim.Name, func() error {
		if s, err := c.Status(); err == nil {
			for _, l := range s.LostReplicas {
				lostSeen = lostSeen || l.Node == victim.Name && l.Topic == "ledger" && l.ReplicaID == old.ReplicaID
			}
		}
		return newVoter(c, victim, old)
	})
	t.Logf("status named the lost replica before it was replaced: %v", lostSeen)
	if now, err := replicaOf(c, "other", victim); err != nil || now.ReplicaID != otherOld.ReplicaID {
		t.Errorf("the replica of the other range: %+v (%v), it was %+v", now, err, otherOld)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// A node that was restored from an old copy of its disk forgot what it promised and acknowledged since: its
// incarnation gives it away, and every replica on it is lost and built anew.
func TestWipe_RestoredFromAnOldCopy(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(500, 30*time.Second)
	victim := follower(t, c, "ledger")
	victim.Kill()
	backup := victim.Dir + ".copy"
	copyDir(t, victim.Dir, backup)
	victim.Start()
	victim.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	old, err := replicaOf(c, "ledger", victim)
	if err != nil {
		t.Fatal(err)
	}
	ledger.WaitMore(500, 30*time.Second)
	victim.Kill()
	removeAll(t, victim.Dir)
	copyDir(t, backup, victim.Dir)
	victim.Start()
	holder, _ := c.Holder("ledger", 0)
	statusNames(t, holder, "the restored copy in status", func(s *adminapi.Status) error { return lostNamed(s, victim) })
	c.Eventually(90*time.Second, "a new voter on "+victim.Name, func() error { return newVoter(c, victim, old) })
	ledger.WaitMore(200, 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
