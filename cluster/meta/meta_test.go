package meta

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// What Meta starts ends with Close; memberlist's and net/http's goroutines end on their own soon after.
func TestMain(m *testing.M) { transporttest.Main(m) }

func TestMeta_OneNodeAlone(t *testing.T) {
	w := newWorld(t, 1, "a")
	w.join = nil
	w.startAll("a")
	w.joined("a")
	if id, ok := w.box("a").meta.ClusterID(); !ok || id != w.box("a").disk.cluster() {
		t.Fatalf("cluster id %s, disk has %s", id, w.box("a").disk.cluster())
	}
	out, err := w.createTopic(w.box("a"), "lines")
	if err != nil || out.Refusal != nil {
		t.Fatalf("create topic: %v %v", err, out.Refusal)
	}
	// Case: it comes back with what it had, under a higher incarnation, and without any address to ask.
	w.box("a").stop()
	w.box("a").start()
	w.joined("a")
	if _, ok := w.box("a").fsm.State().TopicByName("lines"); !ok {
		t.Fatal("topic is gone after a restart")
	}
	if n, _ := w.box("a").fsm.State().Node("a"); n.Incarnation != 2 || n.Broker != 1 {
		t.Fatalf("registered as %+v, want incarnation 2 of broker 1", n)
	}
}

func TestMeta_ThreeNodesAnyOrder(t *testing.T) {
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			w := newWorld(t, 3, "a", "b", "c")
			w.startAll(order...)
			w.joined(order...)
			w.wantOneCluster()
			w.wantVoters("a b c")
		})
	}
}

func TestMeta_WaitsForEveryAddress(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b")
	w.until("a names the address that does not answer", func() bool {
		return contains(w.box("a").meta.Status(), w.box("c").peer)
	})
	if !w.wantOneCluster().IsZero() {
		t.Fatal("a cluster was born without c")
	}
	w.startAll("c")
	w.joined("a", "b", "c")
}

func TestMeta_ProposeFromEveryNode(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	for _, b := range w.boxes {
		out, err := w.createTopic(b, "topic-"+string(b.name))
		if err != nil || out.Refusal != nil {
			t.Fatalf("%s: %v %v", b.name, err, out.Refusal)
		}
		// Case: the effect is visible at the proposer when Propose returns.
		if _, ok := b.fsm.State().TopicByName("topic-" + string(b.name)); !ok {
			t.Fatalf("%s: proposed, not applied here", b.name)
		}
		// Case: a refusal is a result and travels.
		out, err = w.createTopic(b, "topic-"+string(b.name))
		if err != nil || out.Refusal == nil || out.Refusal.Code != fsm.CodeTopicExists {
			t.Fatalf("%s: second create: %v %+v", b.name, err, out)
		}
	}
	// Case: without a majority the outcome is unknown for the leader, and "not ready" for one that finds no leader.
	leader := w.leader()
	for _, b := range w.boxes {
		if b != leader {
			b.kill()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := leader.meta.Propose(ctx, &fsm.GrantLeases{Items: []fsm.Grant{{
		Range: vtop.Range{Topic: randomUUID()}, Holder: "a", Incarnation: 1, Reason: "test",
	}}})
	if !errors.Is(err, vtop.ErrTimeout) && !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("proposal without a majority: %v", err)
	}
	w.until("leader steps down", func() bool { return !leader.meta.IsLeader() })
	ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := leader.meta.Propose(ctx, &fsm.DeleteTopic{ID: randomUUID()}); !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("proposal without a leader: %v", err)
	}
	if _, err := leader.meta.ReadIndex(ctx); err == nil {
		t.Fatal("read index without a leader")
	}
}

func TestMeta_RestartAll(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	if _, err := w.createTopic(w.box("b"), "kept"); err != nil {
		t.Fatal(err)
	}
	w.stopAll()
	id := w.wantOneCluster()
	// Case: no --join any more; peers are remembered.
	w.join, w.expect = nil, 0
	w.startAll("c", "a", "b")
	w.joined("a", "b", "c")
	if _, ok := w.box("c").fsm.State().TopicByName("kept"); !ok || w.wantOneCluster() != id {
		t.Fatal("state or cluster changed over a restart of all")
	}
}

// All addresses change at once: members are ids, addresses are looked up.
func TestMeta_AllAddressesChange(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.stopAll()
	w.join = nil
	for _, n := range []string{"a", "b", "c"} {
		w.box(n).peer = transporttest.FreeAddr(t)
		w.join = append(w.join, w.box(n).peer)
	}
	w.startAll("c", "a", "b")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	w.until("new addresses in the state", func() bool {
		for _, n := range []string{"a", "b", "c"} {
			node, ok := w.box("a").fsm.State().Node(vtop.NodeName(n))
			if !ok || node.Addresses.Peer != w.box(n).peer {
				return false
			}
		}
		return true
	})
}

func TestMeta_OneAddressChanges(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.box("b").kill()
	w.box("b").peer = transporttest.FreeAddr(t)
	w.box("b").start()
	w.joined("b")
	if addr, ok := w.box("c").meta.NodeAddress("b"); !ok || addr.Peer != w.box("b").peer {
		t.Fatalf("c looks for b at %v, it is at %s", addr, w.box("b").peer)
	}
	w.until("raft configuration has the new address", func() bool {
		for _, s := range w.leader().meta.RaftServers() {
			if s.Name == "b" && s.Voter && s.Address == w.box("b").peer {
				return true
			}
		}
		return false
	})
}

// Five nodes are voters, the sixth takes a vote when a voter has been removed.
func TestMeta_SixNodes(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c", "d", "e", "f")
	w.gossip = true
	w.startAll("f", "e", "d", "c", "b", "a")
	w.joined("a", "b", "c", "d", "e", "f")
	w.wantOneCluster()
	w.until("five voters of six", func() bool {
		voters, all := w.leader().members()
		return len(voters) == 5 && len(all) == 6
	})
	voters, _ := w.leader().members()
	victim := voters[0]
	if w.leader().name == vtop.NodeName(victim) {
		victim = voters[1]
	}
	w.box(victim).kill()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := w.leader().meta.Propose(ctx, &fsm.UpdateNode{Name: vtop.NodeName(victim), State: fsm.NodeGone})
	if err != nil || out.Refusal != nil {
		t.Fatalf("remove %s: %v %v", victim, err, out.Refusal)
	}
	w.until("the sixth has the vote", func() bool {
		voters, all := w.leader().members()
		return len(voters) == 5 && len(all) == 5
	})
	w.until("gossip sees five nodes", func() bool { return w.leader().meta.gossip.Load().list.NumMembers() == 5 })
}

// A voter that has been away for long loses its vote to a node that can have it (H6: never below a majority).
func TestMeta_LongGoneVoterIsReplaced(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c", "d")
	w.heal = 6 * time.Second // a voter that a busy machine holds up keeps its vote
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.startAll("d")
	w.joined("d")
	w.wantVoters("a b c")
	victim := "a"
	if w.leader().name == "a" {
		victim = "b"
	}
	w.box(victim).kill()
	want := map[string]string{"a": "b c d", "b": "a c d"}[victim]
	w.wantVoters(want)
	// Case: it comes back, and stays without a vote.
	w.box(victim).start()
	w.joined(victim)
	w.wantVoters(want)
}

func TestMeta_LeadershipEvents(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	leader := w.leader()
	var l Leadership
	for !l.Leading {
		l = <-leader.meta.Leadership()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := leader.meta.VerifyLeader(ctx); err != nil {
		t.Fatal(err)
	}
	if err := leader.meta.TransferLeadership(ctx); err != nil {
		t.Fatal(err)
	}
	if l = <-leader.meta.Leadership(); l.Leading {
		t.Fatalf("after the transfer: %+v", l)
	}
	w.until("another leads", func() bool { return w.leader() != leader })
	if err := leader.meta.TransferLeadership(ctx); err == nil {
		t.Fatal("a follower handed over leadership")
	}
}

// The times are printed, not judged: machines differ. Proposals go on meanwhile, as they do in a cluster.
func TestMeta_FailoverTimes(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.tune = func(c *Config) { c.HeartbeatTimeout = max(time.Second, w.pace) } // the shipped default, if it can be
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	if n, err := strconv.Atoi(os.Getenv("VTOP_TEST_ROUNDS")); err == nil {
		rounds = n
	}
	for round := range rounds {
		old := w.leader()
		for i := range 20 {
			if _, err := w.createTopic(old, fmt.Sprintf("t-%d-%d", round, i)); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		old.kill()
		var next *box
		w.until("another leader", func() bool {
			for _, b := range w.boxes {
				if b.meta != nil && b.meta.IsLeader() {
					next = b
				}
			}
			return next != nil
		})
		t.Logf("raft leader %s killed, %s leads with its barrier applied after %s", old.name, next.name, time.Since(start).Round(time.Millisecond))
		old.start()
		w.joined(string(old.name))
	}
}

// Raft's log is bounded in bytes, and a node that comes when its beginning is gone gets a snapshot.
func TestMeta_LogIsBoundedInBytes(t *testing.T) {
	w := newWorld(t, 1, "a", "b")
	w.tune = func(c *Config) { c.SnapshotBytes, c.TrailingBytes, c.TrailingLogs = 64<<10, 64<<10, 300 }
	w.startAll("a")
	w.joined("a")
	a := w.box("a")
	rack := strings.Repeat("r", 200)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	last := ""
	propose := func(i int) {
		last = fmt.Sprint(rack, i)
		if _, err := a.meta.Propose(ctx, &fsm.UpdateNode{Name: "a", Rack: &last}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 400 {
		propose(i)
	}
	s := a.meta.server.Load()
	w.until("a snapshot for the bytes alone", func() bool { return s.raft.Stats()["last_snapshot_index"] != "0" })
	cut := func() bool {
		first, err := a.meta.db().bolt.FirstIndex()
		return err == nil && first > 1
	}
	// Where the snapshot came early, there was nothing to cut yet: the next one comes with as many bytes again.
	for i := 400; !cut(); i++ {
		if i == 4000 {
			t.Fatal("the log has not been cut")
		}
		propose(i)
	}
	w.startAll("b")
	w.joined("b")
	if n, ok := w.box("b").fsm.State().Node("a"); !ok || n.Rack != last {
		t.Fatalf("b has %+v", n)
	}
}

// Five nodes started in any order with three expected, killed, wiped and started again: never two clusters, and in the
// end all are in one, with the one state.
func TestMeta_BirthUnderFire(t *testing.T) {
	rounds := uint64(3)
	if testing.Short() {
		rounds = 1
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { birthUnderFire(t, seed) })
	}
}

func birthUnderFire(t *testing.T, seed uint64) {
	rng := mrand.New(mrand.NewPCG(seed, 5))
	w := newWorld(t, 3, "a", "b", "c", "d", "e")
	w.heal = 500 * time.Millisecond
	names := []string{"a", "b", "c", "d", "e"}
	founderWiped := false
	for range 20 {
		b := w.box(names[rng.IntN(len(names))])
		switch {
		case b.meta == nil:
			b.start()
		case rng.IntN(3) == 0:
			b.kill()
			if founder := slices.Contains(w.join, b.peer); !founder || !founderWiped && rng.IntN(2) == 0 {
				founderWiped = founderWiped || founder
				b.wipe()
			}
		}
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond) // the pace of the fire
		w.wantOneCluster()
	}
	for _, n := range names {
		if w.box(n).meta == nil {
			w.box(n).start()
		}
	}
	w.joined(names...)
	id := w.wantOneCluster()
	for _, b := range w.boxes {
		if got := b.fsm.State().Cluster().ID; got != id || b.disk.cluster() != id {
			t.Fatalf("%s: state says %s, disk %s, want %s", b.name, got, b.disk.cluster(), id)
		}
	}
	w.until("five voters", func() bool { voters, all := w.leader().members(); return len(voters) == 5 && len(all) == 5 })
}
