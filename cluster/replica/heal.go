package replica

import (
	"context"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
)

// healParallel is how many learners this node feeds for healing at once, over all the ranges it leads.
const healParallel = 8

// learnerPause is how often a leader that feeds learners looks whether one of them can take its place.
const learnerPause = 500 * time.Millisecond

// runHealer looks now and then for replicas to replace, and more often while there are learners.
func (e *Engine) runHealer() {
	if e.cfg.HealInterval < 0 {
		return
	}
	timer := time.NewTimer(e.cfg.HealInterval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-e.healNow:
			if !e.rest(learnerPause / 5) { // many jobs change together
				return
			}
		case <-e.ctx.Done():
			return
		}
		next := e.cfg.HealInterval
		if e.Heal(e.ctx) {
			next = min(next, learnerPause)
		}
		timer.Reset(next)
	}
}

// rest pauses; false if the engine was closed first.
func (e *Engine) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.ctx.Done():
		return false
	}
}

// Heal takes one step towards whole replicas in each range that this node leads: a voter that is lost, dead or to be replaced
// goes, a learner that has caught up takes its place; and where nothing is sealed that could be copied, a learner is added on a
// live node that lost its replica. One step a range and call; protocol.Plan decides the order, the book and the state machine
// guard it. It may be called at any time and does nothing where nothing is wrong. It reports whether there are learners.
func (e *Engine) Heal(ctx context.Context) (busy bool) {
	if !e.caughtUp() {
		return false
	}
	st := e.machine.State()
	orders := ordersOf(st)
	learners := 0
	for _, s := range e.allSlots() {
		ld := s.leading.Load()
		rg, ok := st.Range(s.r)
		if ld == nil || !ok || rg.Lease.Epoch != ld.epoch || ctx.Err() != nil {
			continue
		}
		learners += len(rg.Learners())
		if change, ok := e.nextVoterChange(st, rg, ld, orders[rg.ID]); ok {
			e.heal(ctx, rg, change.kind, "", change.id)
			continue
		}
		if node, ok := e.wantsLearner(st, rg); ok && learners < healParallel {
			learners++
			e.heal(ctx, rg, fsm.AddLearner, node, 0)
		}
	}
	return learners > 0
}

type healStep struct {
	kind fsm.ReplicaChange
	id   vtop.ReplicaID
}

// order is what a repair job wants of the voters of its range.
type order struct {
	// replica is the one that the job brings; replace the node whose older voter goes for it, empty if none does.
	replica vtop.ReplicaID
	replace vtop.NodeName
}

// ordersOf reads the orders of all jobs: of those that are being made, and of those that are done, since a living voter goes when
// the one that takes its place votes already, and the job with it may be done.
func ordersOf(st *fsm.State) map[vtop.Range][]order {
	out := make(map[vtop.Range][]order)
	for job := range st.Repairs() {
		done := job.Step == fsm.RepairDone && job.Replace != "" && job.Replace != job.Destination
		if job.Replica != 0 && !job.Holes && (job.Active() || done) {
			out[job.Range] = append(out[job.Range], order{job.Replica, job.Replace})
		}
	}
	return out
}

// leaving reports whether a voter is to go for a replica that a job has brought. One that came to the node later is not meant.
func leaving(rep fsm.Replica, orders []order) bool {
	for _, o := range orders {
		if rep.Role == fsm.Voter && o.replace != "" && o.replace == rep.Node && rep.ID < o.replica {
			return true
		}
	}
	return false
}

// wanted gives the nodes that the range is to be on, if all of them have a voter that can vote: voters elsewhere are then one too
// many. Else none, and nobody goes for want of being preferred.
func wanted(rg *fsm.Range) []vtop.NodeName {
	for _, n := range rg.Preferred {
		if _, votes := rg.VoterOn(n); !votes {
			return nil
		}
	}
	return rg.Preferred
}

// wantsOneOf reports whether one of the learners is on a node that the range is wanted on and that has no voter yet.
func wantsOneOf(rg *fsm.Range, learners []protocol.Member) bool {
	for _, m := range learners {
		rep, _ := rg.Replica(m.Replica)
		if _, votes := rg.VoterOn(rep.Node); !votes && slices.Contains(rg.Preferred, rep.Node) {
			return true
		}
	}
	return false
}

// nextVoterChange asks the protocol which voter comes or goes next.
func (e *Engine) nextVoterChange(st *fsm.State, rg *fsm.Range, ld *leadership, orders []order) (healStep, bool) {
	plan := protocol.Plan{Self: ld.self, Want: max(len(rg.Preferred), 1)}
	live, home := ld.live(), wanted(rg)
	wrong, selfLeaves := false, false
	for _, rep := range rg.Replicas {
		m := protocol.Member{Replica: rep.ID, Condition: e.condition(st, rep, live, orders)}
		if m.Condition == protocol.Living && rep.Role == fsm.Voter && len(home) > 0 && !slices.Contains(home, rep.Node) {
			m.Condition = leavingAs(rep, live)
		}
		switch {
		case rep.Role == fsm.Voter:
			plan.Voters = append(plan.Voters, m)
			wrong = wrong || m.Condition != protocol.Living
			selfLeaves = selfLeaves || rep.ID == ld.self && m.Condition == protocol.Leaving
		case m.Condition == protocol.Lost:
			return healStep{fsm.RemoveLearner, rep.ID}, true // a learner that forgot is worth nothing
		default:
			plan.Learners = append(plan.Learners, m)
		}
	}
	if !wrong && len(plan.Learners) == 0 {
		return healStep{}, false
	}
	if id := e.leftOver(st, rg, plan); id != 0 && !wrong {
		return healStep{fsm.RemoveLearner, id}, true
	}
	jobsFirst(plan.Learners, orders)
	if len(plan.Voters) >= plan.Want && len(plan.Learners) > 0 && (selfLeaves || !wrong && added(plan.Learners, orders)) {
		// A leader never removes itself: its successor votes beside it first, and may then lead. And a replica that was asked for
		// in addition, in nobody's place, makes the set larger.
		plan.Want = len(plan.Voters) + 1
	}
	if len(home) == 0 && wantsOneOf(rg, plan.Learners) {
		// Nobody is one too many before all who are wanted vote, even where there are to be fewer in the end.
		plan.Want = max(plan.Want, len(plan.Voters))
		if !wrong {
			plan.Want = len(plan.Voters) + 1
		}
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
	return healStep{fsm.RemoveVoter, next.Replica}, majorityLives(plan.Voters, next.Replica, live)
}

// leftOver finds a learner of a range with as many voters as wished that no active job works for and whose node is not wanted by name,
// or is not there: where a job's replica took the place that it was made for, nobody would ever make it a voter, and it would be fed for
// ever; and where the job ended since its destination has gone for good, nobody waits for it.
func (e *Engine) leftOver(st *fsm.State, rg *fsm.Range, plan protocol.Plan) vtop.ReplicaID {
	if len(plan.Voters) < plan.Want {
		return 0
	}
	for _, m := range plan.Learners {
		rep, _ := rg.Replica(m.Replica)
		job, made := st.ActiveRepair(rg.ID, rep.Node)
		if made && !job.Holes {
			continue
		}
		if !wantsOneOf(rg, []protocol.Member{m}) || !e.cfg.Alive(rep.Node) {
			return m.Replica
		}
	}
	return 0
}

// jobsFirst puts the learners of jobs before those that are there by healing alone: a place that is free is the one that a job was
// asked for.
func jobsFirst(learners []protocol.Member, orders []order) {
	of := func(m protocol.Member) int {
		if slices.ContainsFunc(orders, func(o order) bool { return o.replica == m.Replica }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(learners, func(a, b protocol.Member) int { return of(a) - of(b) })
}

// added reports whether one of the learners was asked for in addition to the voters.
func added(learners []protocol.Member, orders []order) bool {
	for _, m := range learners {
		for _, o := range orders {
			if o.replica == m.Replica && o.replace == "" {
				return true
			}
		}
	}
	return false
}

// majorityLives reports whether, without one voter, a majority of the others follows this leader now. Acknowledgements prove what
// was durable; an idle range has them of nodes that are long dead.
func majorityLives(voters []protocol.Member, without vtop.ReplicaID, live map[vtop.ReplicaID]bool) bool {
	rest, alive := 0, 0
	for _, m := range voters {
		if m.Replica == without {
			continue
		}
		rest++
		if live[m.Replica] && m.Condition != protocol.Lost {
			alive++
		}
	}
	return alive > rest/2
}

// condition is what this node knows of a replica. One that is to be replaced, and is not connected, goes as a dead one does: first.
// For how long a silent node is waited for is decided where the job is made.
func (e *Engine) condition(st *fsm.State, rep fsm.Replica, live map[vtop.ReplicaID]bool, orders []order) protocol.Condition {
	node, ok := st.Node(rep.Node)
	switch {
	case rep.Lost != "":
		return protocol.Lost
	case !ok || node.State == fsm.NodeGone:
		return protocol.Dead
	case !leaving(rep, orders):
		return protocol.Living
	}
	return leavingAs(rep, live)
}

// leavingAs is the condition of a replica that is to go.
func leavingAs(rep fsm.Replica, live map[vtop.ReplicaID]bool) protocol.Condition {
	if live[rep.ID] {
		return protocol.Leaving
	}
	return protocol.Dead
}

// wantsLearner finds a node whose replica is lost, that is alive, and that has no replica to take its place yet. Where segments are
// sealed, a repair job copies them from all that have them; here the leader's log alone is the source.
func (e *Engine) wantsLearner(st *fsm.State, rg *fsm.Range) (vtop.NodeName, bool) {
	if e.cfg.RepairJobs && (rg.CatalogueEnd > rg.LogStart || st.Heal().Paused) {
		return "", false
	}
	for _, rep := range rg.Replicas {
		if rep.Lost == "" || rep.Role != fsm.Voter {
			continue
		}
		node, ok := st.Node(rep.Node)
		if _, replaced := rg.On(rep.Node); replaced || !ok || node.State != fsm.NodeActive {
			continue
		}
		if comes(st, rg.ID, rep.Node) {
			continue
		}
		return rep.Node, true
	}
	return "", false
}

// comes reports whether a repair job brings a replica of the range to the node, or one elsewhere in its place: a second learner would
// take the place that the job's is meant for, and the job would wait for ever.
func comes(st *fsm.State, r vtop.Range, node vtop.NodeName) bool {
	for job := range st.ActiveRepairs(r) {
		if job.Destination == node || job.Replace == node && !job.Holes {
			return true
		}
	}
	return false
}

func (e *Engine) heal(ctx context.Context, rg *fsm.Range, change fsm.ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) {
	ctx, cancel := context.WithTimeout(ctx, dutyTime)
	defer cancel()
	added, err := e.ChangeReplicas(ctx, rg.ID, change, node, id)
	if err != nil {
		e.log.Debug("heal", "range", e.name(rg.ID), "change", change, "node", node, "replica", id, "error", err)
		return
	}
	e.log.Info("heal", "range", e.name(rg.ID), "change", change, "node", node, "replica", max(id, added))
	_ = e.ReportFloors(ctx) // the next change waits for the quorum position of this one
}
