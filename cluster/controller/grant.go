package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
)

// proposeTimeout bounds a proposal; its outcome is then unknown, and the next round looks at the state again.
const proposeTimeout = 5 * time.Second

// grantChunk is the most leases granted by one command: bounded entries, and other proposals get their turn.
const grantChunk = 1000

// needy is a range that needs a holder, and why.
type needy struct {
	r      *fsm.Range
	reason string
	avoid  vtop.NodeName
}

// round is one look at all leases. The coordinators come first: they take one command, and no question to anybody.
func (c *Controller) round(ctx context.Context) {
	state := c.cfg.Machine.State()
	nodes := c.nodes(state)
	c.coordinate(ctx, state, nodes)
	need := c.needy(state)
	if len(need) > 0 {
		c.grant(ctx, state, nodes, need)
		return
	}
	if now := c.now(); now-c.balanced >= c.cfg.BalanceEvery {
		c.balanced = now
		c.balance(ctx, state, nodes)
	}
}

// nodes judges every registered node.
func (c *Controller) nodes(state *fsm.State) []placement.Node {
	now := c.now()
	leases := map[vtop.NodeName]int{}
	for r := range state.Ranges() {
		if r.Lease.Holder != "" {
			leases[r.Lease.Holder]++
		}
	}
	var out []placement.Node
	for n := range state.Nodes() {
		v := c.cfg.Tracker.Verdict(n.Name)
		fit := v.Alive && n.State == fsm.NodeActive && v.Incarnation == n.Incarnation
		if !fit {
			delete(c.fitSince, n.Name)
		} else if _, ok := c.fitSince[n.Name]; !ok {
			c.fitSince[n.Name] = now
		}
		out = append(out, placement.Node{Name: n.Name, Incarnation: n.Incarnation, Fit: fit, HasRoom: fit && v.HasRoom, Leases: leases[n.Name]})
	}
	return out
}

// needy finds the ranges whose lease no living process holds, or whose holder did not start in time.
func (c *Controller) needy(state *fsm.State) []needy {
	verdicts := map[vtop.NodeName]liveness.Verdict{}
	for n := range state.Nodes() {
		verdicts[n.Name] = c.cfg.Tracker.Verdict(n.Name)
	}
	var out []needy
	for r := range state.Ranges() {
		reason := holderLost(state, verdicts, r)
		if reason == "" {
			reason = holderFull(state, verdicts, r)
		}
		if reason != "" {
			delete(c.attempts, r.ID)
			out = append(out, needy{r: r, reason: reason})
			continue
		}
		if r.Started {
			delete(c.attempts, r.ID)
			continue
		}
		if late, avoid := c.late(r); late {
			out = append(out, needy{r: r, reason: fmt.Sprintf("%s did not start epoch %d in time", r.Lease.Holder, r.Lease.Epoch), avoid: avoid})
		}
	}
	return out
}

// holderLost says why the lease has no living holder; empty if it has one.
func holderLost(state *fsm.State, verdicts map[vtop.NodeName]liveness.Verdict, r *fsm.Range) string {
	if r.Lease.Holder == "" {
		if r.EverStarted() {
			return "no holder"
		}
		return "new range"
	}
	return processLost(state, verdicts, r.Lease.Holder, r.Lease.Incarnation)
}

// processLost says why a process holds leases no more, or should not; empty if it may keep them.
func processLost(state *fsm.State, verdicts map[vtop.NodeName]liveness.Verdict, holder vtop.NodeName, incarnation vtop.Incarnation) string {
	n, ok := state.Node(holder)
	v := verdicts[holder]
	switch {
	case !ok || n.State == fsm.NodeGone:
		return fmt.Sprintf("%s was removed", holder)
	case n.State == fsm.NodeDraining:
		return fmt.Sprintf("%s is draining", holder)
	case incarnation != n.Incarnation || v.Incarnation > incarnation:
		return fmt.Sprintf("%s restarted", holder)
	case !v.Alive:
		return fmt.Sprintf("%s: %s", holder, v.Reason)
	}
	return ""
}

// holderFull says that the holder's disk takes no writes while another voter's does; empty if not. Where no voter has
// room the holder keeps the lease, and goes on with reads, retention and deletion.
func holderFull(state *fsm.State, verdicts map[vtop.NodeName]liveness.Verdict, r *fsm.Range) string {
	holder := verdicts[r.Lease.Holder]
	if !r.Started || holder.HasRoom {
		return ""
	}
	for _, rep := range r.Voters() {
		n, ok := state.Node(rep.Node)
		other := verdicts[rep.Node]
		if ok && n.Name != r.Lease.Holder && rep.CanVote() && n.State == fsm.NodeActive && other.HasRoom && other.Incarnation == n.Incarnation {
			return fmt.Sprintf("%s: %s", r.Lease.Holder, holder.Reason)
		}
	}
	return ""
}

// late reports whether the holder of a lease that has not started has used up its time.
func (c *Controller) late(r *fsm.Range) (bool, vtop.NodeName) {
	now := c.now()
	a, ok := c.attempts[r.ID]
	if !ok || a.epoch != r.Lease.Epoch {
		deadline := c.cfg.PromotionDeadline
		if ok && a.failed != "" {
			deadline = min(2*a.deadline, time.Minute)
		}
		c.attempts[r.ID] = attempt{epoch: r.Lease.Epoch, since: now, deadline: deadline, failed: a.failed}
		return false, ""
	}
	if now-a.since < a.deadline {
		return false, ""
	}
	a.failed = r.Lease.Holder
	c.attempts[r.ID] = a
	return true, r.Lease.Holder
}

// grant chooses holders and proposes them, in bounded chunks.
func (c *Controller) grant(ctx context.Context, state *fsm.State, nodes []placement.Node, need []needy) {
	ends := c.positions(ctx, nodes, need)
	var ranges []placement.Range
	reasons := make(map[vtop.Range]string, len(need))
	for _, n := range need {
		ranges = append(ranges, describe(n.r, ends, n.avoid))
		reasons[n.r.ID] = n.reason
	}
	grants, stuck := placement.Plan(nodes, ranges)
	c.noteStuck(state, stuck, reasons)
	for len(grants) > 0 && ctx.Err() == nil {
		chunk := grants[:min(len(grants), grantChunk)]
		grants = grants[len(chunk):]
		c.propose(ctx, chunk, reasons, ends)
	}
}

func (c *Controller) propose(ctx context.Context, grants []placement.Grant, reasons map[vtop.Range]string, ends positions) {
	cmd := &fsm.GrantLeases{At: time.Now().UnixMilli()}
	for _, g := range grants {
		item := fsm.Grant{Range: g.Range, Holder: g.Holder, Incarnation: g.Incarnation, Expected: g.Expected, Reason: reasons[g.Range]}
		if promised := ends.promised[g.Range]; promised > g.Expected {
			item.Minimum = promised + 1 // the metadata went back: the next epoch must still be above every promise
		}
		cmd.Items = append(cmd.Items, item)
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	out, err := c.cfg.Quorum.Propose(ctx, cmd)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		c.cfg.Log.Warn("grants not taken", "leases", len(cmd.Items), "error", err)
		return
	}
	for i, item := range out.Items {
		name := c.cfg.Machine.State().RangeName(item.Range)
		if err := item.Err(); err != nil {
			c.cfg.Log.Info("grant refused", "range", name, "error", err)
			continue
		}
		c.cfg.Log.Info("lease granted", "range", name, "holder", cmd.Items[i].Holder, "epoch", item.Epoch, "reason", cmd.Items[i].Reason)
	}
}

// describe turns a range of the state into what placement needs, voters in the order of preference.
func describe(r *fsm.Range, ends positions, avoid vtop.NodeName) placement.Range {
	out := placement.Range{ID: r.ID, Lease: r.Lease, Fresh: !r.EverStarted(), Avoid: avoid}
	out.Lease.Epoch = r.LastEpoch
	add := func(rep fsm.Replica) {
		v := placement.Voter{Node: rep.Node, Lost: !rep.CanVote(), End: placement.UnknownEnd}
		if e, ok := ends.ends[Ask{r.ID, rep.ID}]; ok {
			v.End, v.LastEpoch, v.Damaged = e.End, e.LastEpoch, e.Damaged
		}
		out.Voters = append(out.Voters, v)
	}
	voters := r.Voters()
	listed := map[vtop.ReplicaID]bool{}
	for _, name := range r.Preferred {
		for _, rep := range voters {
			if rep.Node == name && !listed[rep.ID] {
				listed[rep.ID] = true
				add(rep)
			}
		}
	}
	for _, rep := range voters {
		if !listed[rep.ID] {
			add(rep)
		}
	}
	return out
}

// positions are the log ends that nodes gave, and the highest promise of each range.
type positions struct {
	ends     map[Ask]LogEnd
	promised map[vtop.Range]vtop.Epoch
}

// positions asks the fit voters of ranges that were ever written how far they have come. Who does not answer in
// time is unknown and comes last: the promotion finds the longest log by itself.
func (c *Controller) positions(ctx context.Context, nodes []placement.Node, need []needy) positions {
	fit := map[vtop.NodeName]bool{}
	for _, n := range nodes {
		fit[n.Name] = n.Fit
	}
	asks := map[vtop.NodeName][]Ask{}
	for _, n := range need {
		if !n.r.EverStarted() {
			continue
		}
		for _, rep := range n.r.Voters() {
			if fit[rep.Node] && rep.CanVote() {
				asks[rep.Node] = append(asks[rep.Node], Ask{n.r.ID, rep.ID})
			}
		}
	}
	out := positions{map[Ask]LogEnd{}, map[vtop.Range]vtop.Epoch{}}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.LogEndTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for node, ask := range asks {
		wg.Go(func() {
			ends, err := c.cfg.LogEnds(ctx, node, ask)
			if err != nil {
				c.cfg.Log.Debug("log ends not learned", "node", node, "error", err)
				return
			}
			byRange := map[vtop.Range]vtop.ReplicaID{}
			for _, a := range ask {
				byRange[a.Range] = a.Replica
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range ends {
				out.ends[Ask{e.Range, byRange[e.Range]}] = e
				out.promised[e.Range] = max(out.promised[e.Range], e.Promised)
			}
		})
	}
	wg.Wait()
	return out
}

func (c *Controller) noteStuck(state *fsm.State, stuck []vtop.Range, reasons map[vtop.Range]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.stuck
	c.stuck = make(map[vtop.Range]string, len(stuck))
	for _, r := range stuck {
		c.stuck[r] = reasons[r] + "; no voter that is alive and whole can lead"
		if old[r] == "" {
			c.cfg.Log.Warn("range has no voter that can lead", "range", state.RangeName(r), "reason", reasons[r])
		}
	}
}
