package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
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
	c.await("the job to reach the holder", func() bool {
		_, ok := c.nodes["a"].machine.State().Repair(id)
		return ok
	})
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
