package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

const (
	// electionTimeout is how long a host hears no leader before it stands for election; up to half as much more by chance.
	electionTimeout = 800 * time.Millisecond
	electionLook    = 150 * time.Millisecond
)

// errNotProposed: the command surely did not enter the log.
var errNotProposed = errors.New("not proposed")

// ledger stands for Raft: one log of commands that a leader with a majority extends, and that is applied on each host at its own
// pace. Hosts may be wrong about who leads; an old leader's verification and its proposals then fail. What an old leader had
// taken and not committed is committed or dropped by the next one. Its own storage is not simulated: what is committed stays.
type ledger struct {
	life *life

	mu      sync.Mutex
	rng     *rand.Rand
	state   *fsm.State
	cmds    []fsm.Command
	states  []*fsm.State // after each command
	grown   chan struct{}
	pending []*entry
	term    uint64
	leader  vtop.NodeName
	// views are what the processes believe.
	views map[*process]*view
}

// view is what one process believes of the leadership.
type view struct {
	term   uint64
	leader vtop.NodeName
	heard  time.Time     // of its leader
	wait   time.Duration // how long it hears nothing before it stands
	ready  uint64        // the term whose barrier it has passed as leader
}

// entry is a command that its leader has taken and not committed.
type entry struct {
	cmd  fsm.Command
	term uint64
	done chan struct{}
	out  fsm.Outcome
	err  error
}

func newLedger(l *life) *ledger {
	return &ledger{
		life: l, rng: rngOf(l.seed, "ledger"), state: fsm.NewState(), grown: make(chan struct{}), views: map[*process]*view{},
	}
}

func (g *ledger) join(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.views[p] = &view{heard: time.Now(), wait: g.patienceLocked()}
}

func (g *ledger) leave(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.views, p)
}

func (g *ledger) patienceLocked() time.Duration {
	return electionTimeout + time.Duration(g.rng.Int64N(int64(electionTimeout/2)))
}

// majority says whether a host reaches a majority of all hosts whose processes run.
func (g *ledger) majority(name vtop.NodeName) bool {
	n := 0
	for _, h := range g.life.hosts {
		if p := h.running(); p != nil && g.life.net.both(string(name), string(h.name)) {
			n++
		}
	}
	return n > len(g.life.hosts)/2
}

// elect is one look at who leads, in the order of the hosts.
func (g *ledger) elect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, h := range g.life.hosts {
		p := h.running()
		v := g.views[p]
		if p == nil || v == nil || g.life.net.isFrozen(string(h.name)) {
			continue
		}
		g.listenLocked(p, v, now)
		if now.Sub(v.heard) < v.wait {
			continue
		}
		v.leader, v.ready = "", 0
		if g.majority(h.name) {
			g.wonLocked(p, v, "heard no leader")
		} else {
			v.heard, v.wait = now, g.patienceLocked()
		}
	}
	g.commitLocked(len(g.pending))
}

// listenLocked brings a process what the leaders that it reaches tell it.
func (g *ledger) listenLocked(p *process, v *view, now time.Time) {
	if v.leader == p.host.name { // a leader that reaches no majority steps down
		if g.majority(p.host.name) && v.term == g.term {
			v.heard = now
			if v.ready != v.term && p.machine.Applied() >= uint64(len(g.cmds)) {
				v.ready = v.term
			}
		}
	}
	for _, h := range g.life.hosts {
		q := h.running()
		w := g.views[q]
		if q == nil || q == p || w == nil || w.leader != h.name || w.term < v.term || !g.life.net.both(string(p.host.name), string(h.name)) {
			continue
		}
		if w.term > v.term || v.leader != h.name {
			v.term, v.leader, v.ready = w.term, h.name, 0
		}
		v.heard = now
	}
}

// wonLocked makes a process the leader. What the last one had taken is committed, as far as the log of the new one goes.
func (g *ledger) wonLocked(p *process, v *view, why string) {
	g.commitLocked(g.rng.IntN(len(g.pending) + 1))
	for _, e := range g.pending {
		e.err = errors.New("the leadership moved before it was committed")
		close(e.done)
	}
	g.pending = nil
	g.term++
	g.leader = p.host.name
	v.term, v.leader, v.heard, v.ready, v.wait = g.term, g.leader, time.Now(), 0, g.patienceLocked()
	g.life.trace.note("metadata: %s leads term %d: %s", g.leader, g.term, why)
}

// depose has another host lead at once, if it can.
func (g *ledger) depose(to *host) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := to.running()
	if v := g.views[p]; p != nil && v != nil && to.name != g.leader && g.majority(to.name) {
		g.wonLocked(p, v, "by the plan")
	}
}

// commitLocked commits up to n of the pending entries, while their leader leads and has a majority.
func (g *ledger) commitLocked(n int) {
	for ; n > 0 && len(g.pending) > 0; n-- {
		e := g.pending[0]
		if e.term != g.term || !g.majority(g.leader) {
			return
		}
		g.pending = g.pending[1:]
		index := uint64(len(g.cmds)) + 1
		before := g.state
		after, outs := before.Apply(index, e.cmd)
		g.state, g.cmds, g.states = after, append(g.cmds, e.cmd), append(g.states, after)
		e.out = outs[0]
		close(e.done)
		close(g.grown)
		g.grown = make(chan struct{})
		g.life.oracle.decided(index, e.cmd, e.out, before, after)
	}
}

// now is the state of all that is committed.
func (g *ledger) now() *fsm.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// viewOf is what a process believes of the leadership.
func (g *ledger) viewOf(p *process) view {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.views[p]; v != nil {
		return *v
	}
	return view{}
}

// leads says whether a process leads and has passed its barrier, as it believes.
func (g *ledger) leads(p *process) bool {
	v := g.viewOf(p)
	return v.leader == p.host.name && v.term != 0 && v.ready == v.term
}

// verify proves that a process led when it was called.
func (g *ledger) verify(ctx context.Context, p *process) error {
	v := g.viewOf(p)
	if v.leader != p.host.name {
		return fmt.Errorf("%w: not the leader", errNotProposed)
	}
	if err := sleep(ctx, 2*g.life.net.delay(p.name(), "raft")); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != v.term || g.leader != p.host.name || !g.majority(p.host.name) {
		return errors.New("no majority confirms the leadership")
	}
	return nil
}

// propose takes a command of a process to the leader and back, as cluster/meta does: what was surely not proposed is tried again,
// and what may have been only if a repeat changes nothing.
func (g *ledger) propose(ctx context.Context, p *process, cmd fsm.Command) (fsm.Outcome, error) {
	raw, err := fsm.Encode(cmd)
	if err != nil {
		return fsm.Outcome{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
	}
	unknown := false
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		out, err := g.proposeOnce(ctx, p, raw)
		var refusal *fsm.Refusal
		if err == nil || errors.As(err, &refusal) {
			return out, err
		}
		unknown = unknown || !errors.Is(err, errNotProposed)
		if p.dead.Load() {
			return out, fmt.Errorf("%s: %w", cmd.Op(), vtop.ErrClosed)
		}
		if unknown && !repeatable(cmd) || sleep(ctx, pause) != nil {
			if unknown {
				return out, fmt.Errorf("%s: %w: %w", cmd.Op(), vtop.ErrTimeout, err)
			}
			return out, fmt.Errorf("%s: %w: %w", cmd.Op(), vtop.ErrNotReady, err)
		}
	}
}

// repeatable says whether a second entry of the same command changes nothing: see cluster/meta.
func repeatable(cmd fsm.Command) bool {
	switch cmd.(type) {
	case *fsm.GrantLeases, *fsm.ChangeReplicas, *fsm.CreateRanges, *fsm.GrantCoordinators, *fsm.UpdateGroups:
		return false
	}
	return true
}

func (g *ledger) proposeOnce(ctx context.Context, p *process, raw []byte) (fsm.Outcome, error) {
	v := g.viewOf(p)
	if v.leader == "" || p.dead.Load() {
		return fsm.Outcome{}, errNotProposed
	}
	n, to := g.life.net, string(v.leader)
	if to != p.name() {
		if ok, _ := n.passes(p.name(), to); !ok {
			if err := sleep(ctx, 300*time.Millisecond); err != nil {
				return fsm.Outcome{}, err
			}
			return fsm.Outcome{}, errNotProposed
		}
		if err := n.carry(ctx, p.name(), to); err != nil {
			return fsm.Outcome{}, err
		}
	}
	e, err := g.take(v.leader, raw)
	if err != nil {
		return fsm.Outcome{}, err
	}
	if err := sleep(ctx, 2*n.delay(to, "raft")); err != nil {
		return fsm.Outcome{}, err
	}
	g.mu.Lock()
	for i, at := range g.pending {
		if at == e {
			g.commitLocked(i + 1)
			break
		}
	}
	g.mu.Unlock()
	select {
	case <-e.done:
	case <-ctx.Done():
		return fsm.Outcome{}, context.Cause(ctx)
	}
	if e.err != nil {
		return fsm.Outcome{}, e.err
	}
	if to != p.name() {
		if n.chance(to, p.name(), 0.01) {
			return fsm.Outcome{}, errors.New("the answer to the proposal was lost")
		}
		if err := n.carry(ctx, to, p.name()); err != nil {
			return fsm.Outcome{}, err
		}
	}
	return e.out, p.machine.WaitApplied(ctx, e.out.Index)
}

// take is what the leader does with a proposal that reached it.
func (g *ledger) take(name vtop.NodeName, raw []byte) (*entry, error) {
	cmd, err := fsm.Decode(raw)
	if err != nil {
		return nil, err
	}
	p := g.life.process(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.views[p]
	if p == nil || v == nil || v.leader != name || v.term != g.term {
		return nil, errNotProposed
	}
	if v.ready == v.term {
		if err := p.machine.State().CheckProposal(cmd); err != nil {
			return nil, err
		}
	}
	e := &entry{cmd: cmd, term: v.term, done: make(chan struct{})}
	g.pending = append(g.pending, e)
	return e, nil
}

// readIndex is an index that covers all that was committed when it was called.
func (g *ledger) readIndex(ctx context.Context, p *process) (uint64, error) {
	v := g.viewOf(p)
	if v.leader == "" {
		return 0, errNotProposed
	}
	if v.leader != p.host.name {
		if err := g.life.net.carry(ctx, p.name(), string(v.leader)); err != nil {
			return 0, err
		}
	}
	q := g.life.process(v.leader)
	if q == nil || !g.leads(q) {
		return 0, errNotProposed
	}
	if err := g.verify(ctx, q); err != nil {
		return 0, err
	}
	index := q.machine.Applied()
	if v.leader != p.host.name {
		return index, g.life.net.carry(ctx, string(v.leader), p.name())
	}
	return index, nil
}
