package meta

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/transporttest"
)

// Only raft.db is lost: the node is a new Raft server, the old one is replaced, and no vote is given twice (I10).
func TestMeta_WipedRaftDB(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	old := w.box("c").who.Self().ServerID
	w.box("c").kill()
	removeAll(t, w.box("c").disk.dir+"/raft")
	w.box("c").start()
	w.joined("c")
	if now := w.box("c").who.Self().ServerID; now == old {
		t.Fatalf("server id %q survived raft.db", now)
	}
	w.until("the old raft server to go", func() bool {
		return !slices.ContainsFunc(w.leader().meta.RaftServers(), func(s RaftServer) bool { return s.ServerID == old })
	})
	w.wantVoters("a b c")
	w.wantOneCluster()
}

// The whole disk is lost: the name is the old disk's while that may come back, then the new one takes its place.
func TestMeta_WipedWhollyIsPending(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.heal = 1500 * time.Millisecond
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.box("c").kill()
	w.box("c").wipe()
	w.box("c").start()
	w.until("c is shown as pending", func() bool {
		n, ok := w.leader().fsm.State().Node("c")
		return ok && len(n.Pending) == 1 && n.Pending[0].Storage == w.box("c").disk.storage && n.Storage != w.box("c").disk.storage ||
			ok && n.Storage == w.box("c").disk.storage
	})
	w.joined("c")
	n, _ := w.leader().fsm.State().Node("c")
	if n.Storage != w.box("c").disk.storage || n.Broker == 0 {
		t.Fatalf("c is registered as %+v", n)
	}
	w.wantVoters("a b c")
	w.wantOneCluster()
}

// A second live node with a name that is taken is refused, and both are named.
func TestMeta_SecondNodeOfOneName(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.heal = 20 * time.Second // longer than a busy machine holds up the owner of the name
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	twin := &box{w: w, name: "b", peer: transporttest.FreeAddr(t), gossip: transporttest.FreeAddr(t)}
	twin.wipe()
	twin.start()
	defer twin.kill()
	w.until("the twin is told who holds the name", func() bool {
		s := twin.meta.Status()
		return contains(s, "refused") && contains(s, w.box("b").disk.storage.String()) && contains(s, w.box("b").peer) && contains(s, twin.disk.storage.String())
	})
	if twin.meta.Joined() {
		t.Fatal("two nodes named b are in the cluster")
	}

	// Case: a running copy of a data directory is refused, whatever its counter says.
	twin.kill()
	twin.disk = w.box("b").copyDisk()
	removeAll(t, twin.disk.dir+"/raft")
	twin.start()
	w.until("the copy is told", func() bool { return contains(twin.meta.Status(), "copy") })
	if n, _ := w.leader().fsm.State().Node("b"); n.Addresses.Peer != w.box("b").peer {
		t.Fatalf("b is registered at %s, the original is at %s", n.Addresses.Peer, w.box("b").peer)
	}
}

// A disk restored from an old copy has forgotten votes: its raft.db is set aside before Raft runs (I10).
func TestMeta_RestoredCopy(t *testing.T) {
	w := newWorld(t, 3, "a", "b", "c")
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	b := w.box("b")
	b.kill()
	old := b.copyDisk()
	b.start()
	w.joined("b")
	server := b.who.Self().ServerID
	b.kill()
	b.disk = old
	b.start()
	w.joined("b")
	if b.who.Self().ServerID == server {
		t.Fatal("an old raft.db went on voting")
	}
	if b.meta.ReplicasLost() == "" {
		t.Fatal("replicas of an old copy are not said to be lost")
	}
	if n, _ := w.leader().fsm.State().Node("b"); n.Incarnation <= 2 {
		t.Fatalf("registered incarnation %d, want more than 2", n.Incarnation)
	}
	w.wantVoters("a b c")
}

// Two clusters never melt together, and the refusal names both (H2).
func TestMeta_OtherCluster(t *testing.T) {
	w := newWorld(t, 1, "a")
	w.startAll("a")
	w.joined("a")
	v := newWorld(t, 1, "x")
	v.startAll("x")
	v.joined("x")
	v.box("x").stop()
	v.join, v.expect = w.join, 0
	v.box("x").start()
	v.joined("x")
	_, err := v.box("x").meta.ask(context.Background(), target(w.box("a").peer))
	if err == nil || !contains(err.Error(), w.box("a").disk.cluster().String()) || !contains(err.Error(), v.box("x").disk.cluster().String()) {
		t.Fatalf("refusal should name both clusters: %v", err)
	}
}
