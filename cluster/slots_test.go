package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// startNodes starts n nodes of one cluster in this process; the first of dirs that are given are used again.
func startNodes(t *testing.T, n int, dirs ...string) []*Node {
	t.Helper()
	var peers []string
	var nodes []*Node
	for range n {
		peers = append(peers, transporttest.FreeAddr(t))
	}
	for i := range n {
		dir := t.TempDir()
		if i < len(dirs) {
			dir = dirs[i]
		}
		gossip := transporttest.FreeAddr(t)
		node, err := Start(Config{
			Name: vtop.NodeName(fmt.Sprint("n", i+1)), DataDir: dir, PeerBind: peers[i], GossipBind: gossip,
			Advertise: fsm.Addresses{Peer: peers[i], Gossip: gossip, Kafka: "127.0.0.1:1"},
			Join:      peers, BootstrapExpect: n, RaftHeartbeat: 500 * time.Millisecond, OnDiskStall: func(time.Duration) {}, Log: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = node.Close(ctx) // a second time, where the test closed it
		})
		nodes = append(nodes, node)
	}
	return nodes
}

// await waits until the state of a node is as ok wants it: whatever changes is looked at.
func await(t *testing.T, n *Node, what string, ok func(*fsm.State) bool) {
	t.Helper()
	moved := make(chan struct{}, 1)
	n.machine.Observe(func(fsm.Change) {
		select {
		case moved <- struct{}{}:
		default:
		}
	})
	const patience = 3 * time.Minute
	limit := time.After(patience)
	for !ok(n.State()) {
		select {
		case <-moved:
		case <-limit:
			t.Fatalf("%s: not within %s; slots %v", what, patience, slotsOf(n.State()))
		}
	}
}

// slotsOf counts the slots of each holder.
func slotsOf(s *fsm.State) map[vtop.NodeName]int {
	out := map[vtop.NodeName]int{}
	for c := range s.Coordinators() {
		out[c.Holder]++
	}
	return out
}

// A node that stops alone gives its slots back; its next life is granted them anew, under higher epochs (I5).
func TestNode_CloseGivesCoordinatorSlotsBack(t *testing.T) {
	dir := t.TempDir()
	first := startNodes(t, 1, dir)[0]
	await(t, first, "the only node coordinates", func(s *fsm.State) bool { return slotsOf(s)["n1"] == fsm.GroupSlots })
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := slotsOf(first.State()); held[""] != fsm.GroupSlots {
		t.Fatalf("after an orderly stop slots are held: %v", held)
	}
	second := startNodes(t, 1, dir)[0]
	await(t, second, "its next life coordinates", func(s *fsm.State) bool {
		n, ok := s.Node("n1")
		return ok && n.Incarnation > 1 && s.Coordinator(5).HeldBy("n1", n.Incarnation)
	})
	if c := second.State().Coordinator(5); c.Epoch != 2 {
		t.Errorf("slot %+v", c)
	}
}

// A node that stops among others has handed all slots over before it goes.
func TestNode_HandOverMovesCoordinatorSlots(t *testing.T) {
	nodes := startNodes(t, 3)
	even := func(s *fsm.State) bool {
		held := slotsOf(s)
		return held["n1"] >= 21 && held["n2"] >= 21 && held["n3"] >= 21
	}
	for _, n := range nodes {
		await(t, n, "slots are spread", even)
	}
	var stops *Node
	for _, n := range nodes {
		if n.IsRaftLeader() {
			stops = n // the hardest case: it has to move its own
		}
	}
	if stops == nil {
		t.Skip("the Raft leader changes just now")
	}
	stops.HandOver(t.Context())
	if held := slotsOf(stops.State()); held[stops.Self()] != 0 || held[""] != 0 {
		t.Fatalf("%s has handed over, slots are held: %v", stops.Self(), held)
	}
}
