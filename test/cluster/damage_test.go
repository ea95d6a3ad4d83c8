//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// rangeDir is where a node keeps range 0 of ledger.
func rangeDir(t *testing.T, c *harness.Cluster, n *harness.Node) string {
	t.Helper()
	id := ""
	c.Eventually(30*time.Second, "the id of the topic", func() (err error) {
		id, err = c.TopicID("ledger")
		return err
	})
	return filepath.Join(n.Dir, "store", "ranges", id+"-0")
}

// flip changes one bit in the middle of a file.
func flip(t *testing.T, path string, at func(size int64) int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	offset := at(info.Size())
	if _, err := f.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
}

// segmentFiles gives the segments of a range directory in order.
func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segments in %s (%v)", dir, err)
	}
	slices.Sort(files)
	return files
}

// E3: one bit flips below the floor on one follower, in a sealed segment; it restarts, then the other follower and the
// leader die. The range may be unavailable; the bad copy is never served. Once the others are back all is read.
func TestDamage_FlippedBitInASealedSegmentIsNeverServed(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3, "--config", "segment.bytes=1048576")
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 4096, InFlight: 64})
	ledger.WaitMore(1500, 60*time.Second)
	acks := ledger.Stop(60 * time.Second)
	c.WaitCaughtUp("ledger", 60*time.Second)
	victim := follower(t, c, "ledger")
	c.Eventually(30*time.Second, "a sealed segment", func() error {
		if files, _ := filepath.Glob(filepath.Join(rangeDir(t, c, victim), "*.manifest")); len(files) == 0 {
			return errors.New("no manifest yet")
		}
		return nil
	})
	bad := segmentFiles(t, rangeDir(t, c, victim))[0]
	victim.Kill()
	flip(t, bad, func(size int64) int64 { return size / 2 })
	if _, errOut, code := victim.Ctl("segment", "verify", bad); code != 3 {
		t.Errorf("vtopctl segment verify of a damaged segment: exit %d, want 3: %s", code, errOut)
	}
	victim.Start()
	victim.WaitReady()
	holder, _ := c.Holder("ledger", 0)
	others := []*harness.Node{holder, c.Nodes[3-holder.Index-victim.Index]}
	for _, n := range others {
		n.Kill()
	}
	victim.Kill()
	victim.Start() // it restarts alone with its bad copy
	others[1].Start()
	for _, n := range []*harness.Node{victim, others[1]} {
		n.WaitReady()
	}
	c.VerifyReadable("ledger", acks) // by the one that is whole, or once it leads
	others[0].Start()
	others[0].WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	// Now the bad copy leads, if it is let: a reader still gets the right bytes, from it or from another.
	if _, errOut, code := c.RaftLeader().Ctl("lease", "transfer", "ledger/0", "--to", victim.Name); code != 0 {
		t.Logf("the replica with a hole is refused the lease: %s", errOut)
	}
	c.VerifyReadable("ledger", acks)
	c.Eventually(30*time.Second, "the damage named in status, or healed", func() error {
		s, err := c.Status()
		if err != nil {
			return err
		}
		for _, p := range s.Problems {
			if strings.Contains(p.Subject, victim.Name) {
				t.Logf("status says: %s: %s: %s", p.Kind, p.Subject, p.Message)
				return nil
			}
		}
		if _, _, code := victim.Ctl("segment", "verify", bad); code == 0 {
			t.Log("the segment is whole again")
			return nil
		}
		_, l := c.Holder("ledger", 0)
		return fmt.Errorf("problems %+v, lease %+v", s.Problems, l)
	})
}

// I10: a byte below the durable mark rots in the tail of a follower: what it acknowledged is in doubt. It is named as
// lost, and built anew under another replica id.
func TestDamage_TailBelowTheDurableMarkLosesTheReplica(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 512, InFlight: 16})
	ledger.WaitMore(3000, 60*time.Second)
	victim := follower(t, c, "ledger")
	old, err := replicaOf(c, "ledger", victim)
	if err != nil {
		t.Fatal(err)
	}
	tail := segmentFiles(t, rangeDir(t, c, victim))[0]
	victim.Kill()
	flip(t, tail, func(int64) int64 { return 2000 })
	victim.Start()
	victim.WaitReady()
	c.Eventually(90*time.Second, "a new voter on "+victim.Name, func() error { return newVoter(c, victim, old) })
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// E8: what a crash may leave behind the last good batch: garbage, zeros, half a batch, the last batch again. It is cut
// off, nothing is lost, no replica is given up.
func TestDamage_TornTailsAreCutAndNothingElse(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 512, InFlight: 1})
	ledger.WaitMore(300, 60*time.Second)
	for name, tear := range map[string]func([]byte, int) []byte{
		"garbage": func(b []byte, end int) []byte {
			return append(b[:end:end], []byte(strings.Repeat("\xa5garbage", 512))...)
		},
		"zeros":        func(b []byte, end int) []byte { return append(b[:end:end], make([]byte, 10_000)...) },
		"half a batch": func(b []byte, end int) []byte { return append(b[:end:end], b[:100]...) },
		"cut short":    func(b []byte, end int) []byte { return b[:end:end] },
	} {
		t.Run(name, func(t *testing.T) {
			victim := follower(t, c, "ledger")
			old, err := replicaOf(c, "ledger", victim)
			if err != nil {
				t.Fatal(err)
			}
			dir := rangeDir(t, c, victim)
			victim.Kill()
			files := segmentFiles(t, dir)
			tail := files[len(files)-1]
			b, err := os.ReadFile(tail)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(tail, tear(b, harness.WholeBatches(b)), 0o600); err != nil {
				t.Fatal(err)
			}
			victim.Start()
			victim.WaitReady()
			c.WaitInSync("ledger", 60*time.Second)
			if now, err := replicaOf(c, "ledger", victim); err != nil || now.ReplicaID != old.ReplicaID {
				t.Errorf("replica %+v (%v), it was %d: a torn tail is no damage", now, err, old.ReplicaID)
			}
			ledger.WaitMore(50, 30*time.Second)
		})
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// E7: every small file of a follower is emptied, cut in half, and zeroed, one at a time. The node comes back or says
// what to do; other ranges go on, and what was acknowledged stays.
func TestDamage_SmallFiles(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--heal-after", "3s"}, steady...)})
	createTopic(t, c, "ledger", 1, 3, "--config", "segment.bytes=1048576")
	createTopic(t, c, "other", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 2048, InFlight: 16, PerSecond: 1000})
	ledger.WaitMore(1500, 60*time.Second)
	for k, kind := range []string{"*.manifest", "*.producers", "*.index", "replica", "journal", "identity"} {
		t.Run(kind, func(t *testing.T) {
			victim := c.Nodes[k%3]
			dir := rangeDir(t, c, victim)
			if kind == "journal" || kind == "identity" {
				dir = filepath.Join(victim.Dir, "store")
			}
			var files []string
			c.Eventually(30*time.Second, "a file "+kind, func() (err error) {
				if files, err = filepath.Glob(filepath.Join(dir, kind)); len(files) == 0 {
					return fmt.Errorf("none in %s (%w)", dir, err)
				}
				return nil
			})
			victim.Kill()
			spoil(t, files[len(files)-1], k)
			victim.Start()
			ledger.WaitMore(200, 60*time.Second)
			victim.WaitReady()
			c.WaitInSync("ledger", 90*time.Second)
			c.WaitInSync("other", 90*time.Second)
		})
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

// spoil empties a file, cuts it in half or fills it with zeros.
func spoil(t *testing.T, path string, how int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch how % 3 {
	case 0:
		b = nil
	case 1:
		b = b[:len(b)/2]
	default:
		clear(b)
	}
	t.Logf("%s: %d bytes left, of them %d not zero", filepath.Base(path), len(b), len(b)-strings.Count(string(b), "\x00"))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// E13: pages of raft.db are overwritten. The node says in one line what to do, without a stack trace, and its
// segments are kept; without raft/ it joins again.
func TestDamage_RaftDatabase(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 16})
	ledger.WaitMore(300, 60*time.Second)
	victim := follower(t, c, "ledger")
	victim.Kill()
	db := filepath.Join(victim.Dir, "raft", "raft.db")
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for i := range min(len(b), 64<<10) {
		b[i] ^= 0x5a
	}
	if err := os.WriteFile(db, b, 0o600); err != nil {
		t.Fatal(err)
	}
	at := len(victim.Log())
	victim.Start()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		harness.Eventually(t, 30*time.Second, "an answer", func() error { return endedOrReady(victim) })
	}()
	<-ended
	said := victim.Log()[at:]
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "panic:") {
		t.Errorf("a stack trace for a damaged raft.db:\n%s", said[:min(len(said), 2000)])
	}
	if !victim.Runs() {
		t.Logf("it ends and says: %s", victim.LogTail(1))
		if !strings.Contains(said, "raft") {
			t.Errorf("its last word doesn't name raft.db: %s", victim.LogTail(3))
		}
		removeAll(t, filepath.Join(victim.Dir, "raft"))
		victim.Start()
	}
	victim.WaitReady()
	c.WaitInSync("ledger", 60*time.Second)
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}

func endedOrReady(n *harness.Node) error {
	if !n.Runs() {
		return nil
	}
	return n.Get("/readyz", nil)
}

// lostNamed returns nil if status names the replica on node as lost or its node as a claimant.
func lostNamed(s *adminapi.Status, node *harness.Node) error {
	for _, l := range s.LostReplicas {
		if l.Node == node.Name && l.Reason != "" {
			return nil
		}
	}
	for _, p := range s.PendingNodes {
		if p.Name == node.Name && p.Reason != "" {
			return nil
		}
	}
	return fmt.Errorf("lost_replicas %+v, pending_nodes %+v", s.LostReplicas, s.PendingNodes)
}
