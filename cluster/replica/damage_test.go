package replica

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
)

// I9: a leader with a bad segment hands its lease to a voter that is whole, and a job fetches that one segment.
func TestRepair_DamagedLeaderHandsOverAndIsMended(t *testing.T) {
	c := newCluster(t, 3, 1, withRepairs(), withCrashFS())
	r := c.written("a", "a", "b", "c")
	c.awaitSame("a", r)
	for _, n := range c.nodes {
		c.await("all to have sealed", func() bool { _ = n.engine.Duties(context.Background()); return sealedBelow(n.store.Get(r), 6) })
	}
	a := c.nodes["a"]
	c.flip("a", r, 3)
	if err := a.store.Get(r).VerifySegment(waiting(t), 3); !errors.Is(err, vtop.ErrDamaged) {
		t.Fatalf("the flipped bit: %v", err)
	}
	before := c.rangeOf(r).LastEpoch
	if d, err := a.engine.Describe(r); err != nil || d.Damaged == "" {
		t.Fatalf("description %+v, %v", d, err)
	}
	c.duties("a")
	c.await("the lease to be given back", func() bool { return !c.rangeOf(r).Lease.HeldBy("a", a.self.Incarnation) })
	if rg := c.rangeOf(r); rg.LastEpoch != before || !strings.Contains(rg.Changes[len(rg.Changes)-1].Reason, "is whole") {
		t.Fatalf("last change %+v", rg.Changes[len(rg.Changes)-1])
	}
	c.lead("b", r)
	var job *fsm.RepairJob
	c.await("a job for the hole", func() bool {
		for j := range c.state().Repairs() {
			job = j
		}
		return job != nil
	})
	if !job.Holes || job.Destination != "a" || job.Origin != fsm.OriginHeal {
		t.Fatalf("job %+v", job.RepairRequest)
	}
	c.wantWhole(job.ID)
	if holes := a.store.Get(r).Holes(); len(holes) != 0 {
		t.Fatalf("holes %+v", holes)
	}
	c.wantSegments(r, "b", "a")
	if c.changes(r) != nil {
		t.Fatal("the replica was to keep its id and its vote")
	}
}

// Where no other voter is whole the leader keeps the lease.
func TestRepair_DamagedLeaderWithoutAWholeVoterGoesOn(t *testing.T) {
	c := newCluster(t, 2, 1, withCrashFS())
	r := c.written("a", "a", "b")
	c.awaitSame("a", r)
	for _, n := range c.nodes {
		c.await("all to have sealed", func() bool { _ = n.engine.Duties(context.Background()); return sealedBelow(n.store.Get(r), 6) })
		c.flip(n.name, r, 0)
		if err := n.store.Get(r).VerifySegment(waiting(t), 0); !errors.Is(err, vtop.ErrDamaged) {
			t.Fatal(err)
		}
	}
	c.duties("a")
	c.nodes["a"].mustProduce(r, "still led by a")
}

// A majority is lost for good, and an operator accepts the loss: what a process was told of the lost offsets does not keep the range
// from being led.
func TestRecover_WhatWasToldOfLostOffsetsIsVoid(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("b", r)
	c.nodes["b"].mustProduce(r, "kept")
	c.awaitSame("b", r)
	resume := c.stallFollower("b", "a")
	defer resume()
	c.nodes["b"].mustProduce(r, "lost", "lost too")
	c.duties("b")
	if f := c.rangeOf(r).Floor; f != 3 {
		t.Fatalf("floor %d", f)
	}
	a := c.nodes["a"]
	a.engine.slotOf(r, false).tell(c.rangeOf(r).LastEpoch, 3) // as a leader may have told before a's log was cut
	c.kill("b")
	c.kill("c")
	own, _ := c.rangeOf(r).On("a")
	rg := c.rangeOf(r)
	c.mustPropose(&fsm.RecoverRange{Range: r, Keep: own.ID, Config: rg.ConfigVersion, Epoch: rg.LastEpoch, From: 1, To: 3, Reason: "test"})
	c.lead("a", r)
	if o := a.mustProduce(r, "goes on"); o != 1 {
		t.Fatalf("appended at %d", o)
	}
	c.duties("a")
	if f := c.rangeOf(r).Floor; f != 2 {
		t.Fatalf("floor %d", f)
	}
}

func TestSlot_ToldAfterALoss(t *testing.T) {
	s := newSlot(&Engine{}, vtop.Range{})
	loss := func(index uint64, epoch vtop.Epoch, from vtop.Offset) *fsm.Range {
		return &fsm.Range{LostOffsets: []fsm.LostOffsets{{From: from, To: from + 1, Epoch: epoch, Index: index}}}
	}
	s.tell(3, 10)
	s.forgive(&fsm.Range{})
	if s.told != 10 {
		t.Fatalf("told %d without a loss", s.told)
	}
	s.forgive(loss(7, 3, 5))
	s.tell(3, 9) // on its way when the loss was accepted
	if s.told != 5 {
		t.Fatalf("told %d, want 5", s.told)
	}
	s.tell(4, 8)
	s.forgive(loss(7, 3, 5)) // the same loss again binds nothing that came later
	if s.told != 8 {
		t.Fatalf("told %d, want 8", s.told)
	}
	s.forgive(loss(9, 4, 6))
	if s.told != 6 {
		t.Fatalf("told %d, want 6", s.told)
	}
}

func TestHeal_WhoLeaves(t *testing.T) {
	voter := func(node vtop.NodeName, id vtop.ReplicaID) fsm.Replica {
		return fsm.Replica{Replica: vtop.Replica{Node: node, ID: id}, Role: fsm.Voter}
	}
	orders := []order{{replica: 9, replace: "b"}, {replica: 12}}
	for name, row := range map[string]struct {
		rep  fsm.Replica
		want bool
	}{
		"the one that is replaced":           {voter("b", 3), true},
		"one that came there later":          {voter("b", 10), false},
		"one on another node":                {voter("c", 4), false},
		"a learner on the node":              {fsm.Replica{Replica: vtop.Replica{Node: "b", ID: 3}, Role: fsm.Learner}, false},
		"the one that was brought":           {voter("d", 9), false},
		"nobody goes for one in addition to": {voter("", 2), false},
	} {
		if got := leaving(row.rep, orders); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	members := []protocol.Member{{Replica: 1, Condition: protocol.Living}, {Replica: 2, Condition: protocol.Living}, {Replica: 3, Condition: protocol.Dead}}
	if majorityLives(members, 3, map[vtop.ReplicaID]bool{1: true}) || !majorityLives(members, 3, map[vtop.ReplicaID]bool{1: true, 2: true}) {
		t.Error("of two that stay both must live")
	}
}
