package replica

import (
	"context"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
)

// healParallel is how many learners this node feeds for healing at once, over all the ranges it leads.
const healParallel = 8

// runHealer looks now and then for replicas to replace.
func (e *Engine) runHealer() {
	if e.cfg.HealInterval < 0 {
		return
	}
	tick := time.NewTicker(e.cfg.HealInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.Heal(e.ctx)
		case <-e.ctx.Done():
			return
		}
	}
}

// Heal takes the next step for each range that this node leads and that has a lost replica on a node that is alive: a learner
// under a new replica id on that same node, fed from the log start; when it has everything committed, the lost voter goes and
// the learner takes its place. One step a range and call; protocol.Plan decides the order, the book and the state machine
// guard it. It may be called at any time and does nothing where nothing is wrong.
func (e *Engine) Heal(ctx context.Context) {
	if !e.caughtUp() {
		return
	}
	st := e.machine.State()
	learners := 0
	for _, s := range e.allSlots() {
		ld := s.leading.Load()
		rg, ok := st.Range(s.r)
		if ld == nil || !ok || rg.Lease.Epoch != ld.epoch || ctx.Err() != nil {
			continue
		}
		learners += len(rg.Learners())
		if change, ok := e.nextVoterChange(st, rg, ld); ok {
			e.heal(ctx, rg, change.kind, "", change.id)
			continue
		}
		if node, ok := e.wantsLearner(st, rg); ok && learners < healParallel {
			learners++
			e.heal(ctx, rg, fsm.AddLearner, node, 0)
		}
	}
}

type healStep struct {
	kind fsm.ReplicaChange
	id   vtop.ReplicaID
}

// nextVoterChange asks the protocol which voter comes or goes next.
func (e *Engine) nextVoterChange(st *fsm.State, rg *fsm.Range, ld *leadership) (healStep, bool) {
	plan := protocol.Plan{Self: ld.self, Want: max(len(rg.Preferred), 1)}
	lost, learners := 0, 0
	for _, rep := range rg.Replicas {
		m := protocol.Member{Replica: rep.ID, Condition: e.condition(st, rep)}
		if m.Condition == protocol.Lost {
			lost++
		}
		if rep.Role == fsm.Voter {
			plan.Voters = append(plan.Voters, m)
		} else if m.Condition == protocol.Lost {
			return healStep{fsm.RemoveLearner, rep.ID}, true // a learner that forgot is worth nothing
		} else {
			plan.Learners = append(plan.Learners, m)
			learners++
		}
	}
	if lost == 0 && learners == 0 {
		return healStep{}, false
	}
	ld.mu.Lock()
	plan.Marks, plan.HighWatermark = ld.book.Marks(), ld.book.HighWatermark()
	ld.mu.Unlock()
	next, ok := plan.Next()
	if !ok {
		return healStep{}, false
	}
	if next.Kind == protocol.AddVoter {
		return healStep{fsm.PromoteLearner, next.Replica}, true
	}
	return healStep{fsm.RemoveVoter, next.Replica}, true
}

// condition is what this node knows of a replica. A node that does not answer is not replaced here: that takes a decision
// about how long to wait for it.
func (e *Engine) condition(st *fsm.State, rep fsm.Replica) protocol.Condition {
	node, ok := st.Node(rep.Node)
	switch {
	case rep.Lost != "":
		return protocol.Lost
	case !ok || node.State == fsm.NodeGone:
		return protocol.Dead
	}
	return protocol.Living
}

// wantsLearner finds a node whose replica is lost, that is alive, and that has no replica to take its place yet.
func (e *Engine) wantsLearner(st *fsm.State, rg *fsm.Range) (vtop.NodeName, bool) {
	for _, rep := range rg.Replicas {
		if rep.Lost == "" || rep.Role != fsm.Voter {
			continue
		}
		node, ok := st.Node(rep.Node)
		if _, replaced := rg.On(rep.Node); replaced || !ok || node.State != fsm.NodeActive || !e.cfg.Alive(rep.Node) {
			continue
		}
		return rep.Node, true
	}
	return "", false
}

func (e *Engine) heal(ctx context.Context, rg *fsm.Range, change fsm.ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) {
	ctx, cancel := context.WithTimeout(ctx, dutyTime)
	defer cancel()
	added, err := e.ChangeReplicas(ctx, rg.ID, change, node, id)
	if err != nil {
		e.log.Debug("heal", "range", rg.ID, "change", change, "node", node, "replica", id, "error", err)
		return
	}
	e.log.Info("heal", "range", rg.ID, "change", change, "node", node, "replica", max(id, added))
}
