package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/cluster/repair"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// startRunner starts the node's runner of repair jobs.
func (n *node) startRunner() {
	var err error
	n.runner, err = repair.New(repair.Config{
		Self: n.name, Incarnation: n.self.Incarnation, Machine: n.machine, Store: n.store, Propose: n.propose,
		Peers:    repair.ClientPeers{Client: n.client, Target: n.target},
		CaughtUp: func() bool { return n.machine.Applied() >= n.goal },
		Follows: func(r vtop.Range) repair.Following {
			d, err := n.engine.Describe(r)
			if err != nil {
				return repair.Following{HighWatermark: -1, Why: err.Error()}
			}
			return repair.Following{HighWatermark: d.HighWatermark, Why: d.Why}
		},
		Wake: n.engine.WakeRange, Pressure: n.engine.Pressure, Log: n.c.log.Named(string(n.name)),
	})
	if err != nil {
		n.c.t.Fatal(err)
	}
}

// submit asks for one repair.
func (c *cluster) submit(q fsm.RepairRequest) fsm.RepairID {
	c.t.Helper()
	if q.Origin == 0 {
		q.Origin = fsm.OriginOperator
	}
	q.Reason = "test"
	return c.mustPropose(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{q}}).Items[0].Repair
}

// finish has the leader, whoever it is, do its duties until a job has ended.
func (c *cluster) finish(id fsm.RepairID) *fsm.RepairJob {
	c.t.Helper()
	var job *fsm.RepairJob
	c.await(fmt.Sprintf("repair %d to end", id), func() bool {
		c.nudge()
		job, _ = c.state().Repair(id)
		return !job.Active()
	})
	return job
}

func (c *cluster) nudge() {
	for _, n := range c.alive() {
		_ = n.engine.Duties(context.Background())
		n.engine.Heal(context.Background())
	}
}

func (c *cluster) wantWhole(id fsm.RepairID) *fsm.RepairJob {
	c.t.Helper()
	job := c.finish(id)
	if job.Outcome != fsm.OutcomeWhole {
		c.t.Fatalf("repair ended %s %s: %s; %+v", job.Step, job.Outcome, job.Cause, job.RepairProgress)
	}
	return job
}

// changes lists the changes of a range's replicas that were taken, in order.
func (c *cluster) changes(r vtop.Range) (out []fsm.ReplicaChange) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	state := fsm.NewState()
	for i, cmd := range c.ledger.cmds {
		next, outs := state.Apply(uint64(i)+1, cmd)
		state = next
		if change, ok := cmd.(*fsm.ChangeReplicas); ok && change.Range == r && outs[0].Refusal == nil {
			out = append(out, change.Change)
		}
	}
	return out
}

func (c *cluster) votersOf(r vtop.Range) (out []vtop.NodeName) {
	for _, rep := range c.rangeOf(r).Voters() {
		out = append(out, rep.Node)
	}
	slices.Sort(out)
	return out
}

func (c *cluster) wantVoters(r vtop.Range, want ...vtop.NodeName) {
	c.t.Helper()
	if got := c.votersOf(r); !slices.Equal(got, want) {
		c.t.Fatalf("voters %v, want %v", got, want)
	}
	if rg := c.rangeOf(r); len(rg.Preferred) != len(want) {
		c.t.Fatalf("preferred %v of voters %v", rg.Preferred, want)
	}
}

// written makes a topic on some nodes with two sealed segments and a tail.
func (c *cluster) written(leader vtop.NodeName, on ...vtop.NodeName) vtop.Range {
	c.t.Helper()
	c.topic = c.createTopic("written", 1, nil, on...)
	r := c.r(0)
	c.lead(leader, r)
	for range 2 {
		c.nodes[leader].fill(r, 3<<10)
		if _, err := c.sealAt(waiting(c.t), leader, leader, c.sealRequest(r)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.nodes[leader].mustProduce(r, "tail")
	c.duties(leader)
	return r
}

// wantSegments: two nodes have the same sealed segments, by name (K5).
func (c *cluster) wantSegments(r vtop.Range, a, b vtop.NodeName) {
	c.t.Helper()
	sealed := func(n vtop.NodeName) (out []string) {
		for _, seg := range c.nodes[n].store.Get(r).Segments() {
			if seg.State == storage.SegmentSealed {
				out = append(out, fmt.Sprintf("%d-%d %d %x", seg.Base, seg.End, seg.Bytes, seg.Root))
			}
		}
		return out
	}
	if got, want := sealed(b), sealed(a); len(want) == 0 || !slices.Equal(got, want) {
		c.t.Fatalf("I9: %s has %v, %s has %v", b, got, a, want)
	}
}

// A dead voter goes before its successor votes, a living one after; and what was repaired leads.
func TestRepair_DeadVoterGoesBeforeLivingAfter(t *testing.T) {
	for name, dead := range map[string]bool{"dead": true, "living": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 4, 1, withRepairs())
			r := c.written("a", "a", "b", "c")
			want := []fsm.ReplicaChange{fsm.AddLearner, fsm.PromoteLearner, fsm.RemoveVoter}
			if dead {
				c.kill("c")
				c.names = []vtop.NodeName{"a", "b", "d"}
				want = []fsm.ReplicaChange{fsm.AddLearner, fsm.RemoveVoter, fsm.PromoteLearner}
			}
			job := c.wantWhole(c.submit(fsm.RepairRequest{Range: r, Destination: "d", Replace: "c", SealTail: true}))
			if got := c.changes(r); !slices.Equal(got, want) {
				t.Fatalf("changes %v, want %v", got, want)
			}
			if job.SealedEnd != 7 || job.RecordsSealed != 1 || job.LogEnd < job.Floor || !job.Voter {
				t.Fatalf("job %+v", job.RepairProgress)
			}
			c.wantVoters(r, "a", "b", "d")
			c.wantSegments(r, "a", "d")
			c.names = []vtop.NodeName{"a", "b", "d"}
			c.awaitSame("a", r)
			c.kill("a")
			c.lead("d", r)
			c.nodes["d"].mustProduce(r, "led by d")
		})
	}
}

// A leader that is to go has its successor vote first, and never removes itself: the next leader does.
func TestRepair_LeaderIsReplaced(t *testing.T) {
	for _, on := range [][]vtop.NodeName{{"a", "b", "c"}, {"a"}} {
		t.Run(fmt.Sprint(len(on)), func(t *testing.T) {
			c := newCluster(t, 4, 1, withRepairs())
			r := c.written("a", on...)
			id := c.submit(fsm.RepairRequest{Range: r, Destination: "d", Replace: "a", Origin: fsm.OriginReplace})
			c.await("d to vote", func() bool {
				c.nudge()
				_, votes := c.rangeOf(r).VoterOn("d")
				return votes
			})
			for range 3 {
				c.nudge()
			}
			if _, votes := c.rangeOf(r).VoterOn("a"); !votes {
				t.Fatal("a leader removed itself")
			}
			c.lead("d", r)
			c.wantWhole(id)
			c.wantVoters(r, append(slices.DeleteFunc(slices.Clone(on), func(n vtop.NodeName) bool { return n == "a" }), "d")...)
			c.nodes["d"].mustProduce(r, "led by d")
		})
	}
}

// A replica that was asked for in nobody's place makes the set larger.
func TestRepair_OneMore(t *testing.T) {
	c := newCluster(t, 4, 1, withRepairs())
	r := c.written("a", "a", "b", "c")
	c.wantWhole(c.submit(fsm.RepairRequest{Range: r, Destination: "d"}))
	c.wantVoters(r, "a", "b", "c", "d")
}

// Two of three voters are gone, and the acknowledgements of an idle range look as if they were not: nothing is removed, though a
// learner is ready, for those that stay would be fewer than a majority alive.
func TestRepair_NoRemovalWithoutALivingMajority(t *testing.T) {
	c := newCluster(t, 4, 1, withRepairs())
	r := c.written("a", "a", "b", "c")
	c.awaitSame2(r, "a", "b", "c")
	c.duties("a")
	id := c.submit(fsm.RepairRequest{Range: r, Destination: "d", Replace: "c"})
	c.await("d to follow", func() bool {
		_ = c.nodes["a"].engine.Duties(context.Background())
		return following(t, c.nodes["a"].engine, r) == 3
	})
	ld := c.nodes["a"].engine.slotOf(r, false).leading.Load()
	c.kill("b")
	c.kill("c")
	c.await("a to know", func() bool { return len(slices.Collect(liveOf(ld))) == 2 })
	for range 5 {
		c.nudge()
	}
	if got := c.changes(r); slices.Contains(got, fsm.RemoveVoter) {
		t.Fatalf("changes %v", got)
	}
	if job, _ := c.state().Repair(id); !job.Active() {
		t.Fatalf("job %+v", job)
	}
}

func liveOf(ld *leadership) func(func(vtop.ReplicaID) bool) {
	return func(yield func(vtop.ReplicaID) bool) {
		for id, live := range ld.live() {
			if live && !yield(id) {
				return
			}
		}
	}
}

// awaitSame2 waits until the nodes have the same log.
func (c *cluster) awaitSame2(r vtop.Range, names ...vtop.NodeName) {
	c.t.Helper()
	all := c.names
	c.names = names
	defer func() { c.names = all }()
	c.awaitSame(names[0], r)
}

// I11: while a job brings a replica, no directory is made for it and none is served; a half-received replica says that it is one.
func TestRepair_ReceivingIsNoReplicaYet(t *testing.T) {
	c := newCluster(t, 4, 1)
	r := c.written("a", "a", "b", "c")
	id := c.submit(fsm.RepairRequest{Range: r, Destination: "d"})
	d := c.nodes["d"]
	ask := func(job fsm.RepairID, node vtop.NodeName) (*peerpb.AddLearnerResponse, error) {
		return d.client.AddLearner(waiting(t), c.targetOf("a"), &peerpb.AddLearnerRequest{Range: rangeTo(r), Epoch: int32(c.rangeOf(r).LastEpoch), Node: string(node), Job: uint64(job)})
	}
	// Case: no such job, and another node than the caller.
	if _, err := ask(id+1, "d"); !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("without a job: %v", err)
	}
	if _, err := ask(id, "b"); !errors.Is(err, transport.ErrNotAllowed) {
		t.Fatalf("for another node: %v", err)
	}
	first, err := ask(id, "d")
	if err != nil || first.GetAlready() || first.GetReplicaId() == 0 {
		t.Fatalf("learner: %v %v", first, err)
	}
	again, err := ask(id, "d")
	if err != nil || !again.GetAlready() || again.GetReplicaId() != first.GetReplicaId() {
		t.Fatalf("asked again: %v %v", again, err)
	}
	c.await("d to know that it receives", func() bool {
		desc, err := d.engine.Describe(r)
		return err == nil && desc.Role == RoleReceiving
	})
	if d.store.Get(r) != nil {
		t.Fatal("I11: an empty directory was made")
	}
	seg, _ := c.state().LastSegment(r)
	buf := make([]byte, 1)
	_, err = c.nodes["b"].client.FetchRange(waiting(t), c.targetOf("d"), transport.SegmentRef{Range: r, Base: seg.Base, Root: seg.Root}, 0, buf)
	if !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("a source that is being received: %v", err)
	}
	// Case: it is adopted, and follows.
	learner := vtop.ReplicaID(first.GetReplicaId())
	base, producers, err := c.nodes["a"].store.Get(r).ResetPoint()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.AdoptEmpty(r, learner, base, producers); err != nil {
		t.Fatal(err)
	}
	d.engine.WakeRange(r)
	c.awaitSame("a", r)
}

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
