package protocol

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"

	"github.com/vtop-log/vtop"
)

// fingerprint identifies a world; two worlds with one fingerprint are taken for the same (128 bits).
type fingerprint [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// add mixes in bytes; the order of calls does not matter.
func (fp *fingerprint) add(b []byte) {
	for i := range fp {
		fp[i] += maphash.Bytes(seeds[i], b)
	}
}

type encoder struct{ buf []byte }

func (e *encoder) u(xs ...int) {
	for _, x := range xs {
		e.buf = append(e.buf, byte(x), byte(x>>8))
	}
}

func (e *encoder) set(s Set) {
	e.u(len(s))
	for _, id := range s {
		e.u(int(id))
	}
}

func (e *encoder) flag(b ...bool) {
	for _, x := range b {
		if x {
			e.buf = append(e.buf, 1)
		} else {
			e.buf = append(e.buf, 0)
		}
	}
}

func (e *encoder) meta(m *meta) {
	v := &m.view
	e.u(int(m.gen), int(v.Index), holder(v.Lease.Holder), int(v.Lease.Incarnation), int(v.Lease.Epoch), int(v.Floor), len(v.Table))
	for _, s := range v.Table {
		e.u(int(s.Epoch), int(s.Start))
	}
	e.u(int(m.conf.Version), int(m.set.Mark), int(m.set.Quorum), int(m.next))
	e.set(m.conf.Voters)
	e.set(m.conf.Learners)
	e.set(m.conf.Lost)
	for i := range m.reps {
		e.u(int(m.reps[i]))
	}
	e.flag(v.Started)
}

func holder(n vtop.NodeName) int {
	if n == "" {
		return 0
	}
	return int(n[1]-'0') + 1
}

func (e *encoder) node(n *node) {
	e.u(int(n.inc), int(n.view.gen), int(n.view.view.Index), len(n.log), n.durable, int(n.rep), int(n.promise.Epoch), holder(n.promise.Holder), int(n.promise.Incarnation))
	for _, r := range n.log {
		e.u(int(r.epoch), int(r.val))
	}
	e.flag(n.bad, n.reconciled.Started, n.lead != nil)
	e.u(int(n.reconciled.Epoch), int(n.high), int(n.known), int(n.asked), int(n.ended), len(n.waits), len(n.oldMarks), int(n.flight))
	for _, p := range n.waits {
		e.u(int(p.Epoch), int(p.off), int(p.val))
	}
	for _, k := range n.oldMarks {
		e.u(int(k.Replica), int(k.End))
	}
	if l := n.lead; l != nil {
		e.u(int(l.version), int(l.high), int(l.change.Kind), int(l.change.Replica), len(l.marks))
		e.set(l.voters.Present)
		e.set(l.voters.Next)
		for _, k := range l.marks {
			e.u(int(k.Replica), int(k.End))
		}
	}
}

func (e *encoder) msg(m *msg) {
	e.u(int(m.kind), int(m.gen), int(m.from), int(m.rep), int(m.epoch), int(m.off), int(m.off2), int(m.rec.epoch), int(m.rec.val),
		int(m.version), int(m.grant), int(m.refusal.Code), int(m.refusal.Epoch), int(m.change.Kind), int(m.change.Replica))
}

// fingerprint hashes a world. Messages and answers are sets: their order does not matter.
func (w *world) fingerprint(e *encoder) fingerprint {
	var fp fingerprint
	add := func() {
		fp.add(e.buf)
		e.buf = e.buf[:0]
	}
	e.buf = e.buf[:0]
	for _, l := range w.net {
		fp[0] += l.hash[0]
		fp[1] += l.hash[1]
	}
	oldest := w.last().view.Index
	for i := range w.lim.nodes {
		n := &w.nodes[i]
		for _, a := range n.answers {
			e.u(-1, i, int(a.Replica), int(a.Epoch), int(a.End), int(a.Last))
			e.flag(a.Refusal != nil)
			add()
		}
		oldest = min(oldest, n.view.view.Index)
	}
	for i := range w.lim.nodes {
		e.node(&w.nodes[i])
	}
	for _, m := range w.hist {
		if m.view.Index >= oldest {
			e.meta(m)
		}
	}
	e.u(int(w.min), int(w.done), w.produced, w.bounces, w.wipes, w.fails, w.changes, w.spares, w.rewinds, len(w.committed))
	for _, r := range w.committed {
		e.u(int(r.epoch), int(r.val))
	}
	for _, x := range w.shown {
		e.u(int(x))
	}
	add()
	return fp
}

// found is a counter-example: the actions that lead from the first world to the violation.
type found struct {
	bad    violation
	trace  []action
	states int
}

// edge is one step of the search tree: the parent, and which of its actions was taken. Worlds are not kept: a trace
// is found again by replay.
type edge struct {
	parent int32
	act    uint16
}

// explore visits every world within the limits, nearest first, and stops at the first violation or after budget worlds.
func explore(r *rules, lim *limits, budget int) (f found, complete bool) {
	type open struct {
		w  *world
		id int32
	}
	var e encoder
	start := newWorld(r, lim)
	seen := map[fingerprint]struct{}{start.fingerprint(&e): {}}
	tree := []edge{{parent: -1}}
	level := []open{{start, 0}}
	var acts []action
	for len(level) > 0 {
		var next []open
		for i, o := range level {
			level[i].w = nil
			acts = o.w.actions(acts[:0])
			for k, a := range acts {
				w := o.w.clone()
				if bad := w.step(a); bad != "" {
					return found{bad, append(retrace(r, lim, tree, o.id), a), len(seen)}, false
				}
				fp := w.fingerprint(&e)
				if _, ok := seen[fp]; ok {
					continue
				}
				if len(seen) >= budget {
					return found{states: len(seen)}, false
				}
				seen[fp] = struct{}{}
				tree = append(tree, edge{o.id, uint16(k)})
				next = append(next, open{w, int32(len(tree) - 1)})
			}
		}
		level = next
	}
	return found{states: len(seen)}, true
}

// retrace gives the actions that lead to a node of the search tree.
func retrace(r *rules, lim *limits, tree []edge, id int32) (trace []action) {
	var picks []uint16
	for ; id > 0; id = tree[id].parent {
		picks = append(picks, tree[id].act)
	}
	w := newWorld(r, lim)
	for i := len(picks) - 1; i >= 0; i-- {
		a := w.actions(nil)[picks[i]]
		trace = append(trace, a)
		w.step(a)
	}
	return trace
}

// walk goes one random way of at most steps actions. Each walk draws its own weights, so that some walks are all
// crashes and others hardly any: a swarm covers more than one careful mixture.
func walk(r *rules, lim *limits, from scene, seed uint64, steps int) found {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var weights [actKinds]float64
	for i := range weights {
		weights[i] = []float64{0.1, 1, 1, 4}[rng.IntN(4)]
	}
	weights[actDeliver], weights[actApply] = 4, 1
	weights[actGrant] = []float64{0.02, 0.1, 0.3}[rng.IntN(3)]
	for _, k := range []actKind{actBounce, actWipe, actFail, actRewind, actLearner} {
		weights[k] = []float64{0.01, 0.05, 0.3}[rng.IntN(3)]
	}
	var lazy [maxNodes]float64 // some nodes hear little of the metadata, some little of their peers
	var deaf [maxNodes]float64
	for i := range lazy {
		lazy[i] = []float64{0.02, 0.3, 1, 3}[rng.IntN(4)]
		deaf[i] = []float64{0.05, 0.5, 1, 3}[rng.IntN(4)]
	}
	d := driver{w: newWorld(r, lim), rng: rng}
	from(&d)
	bursts := []int{0, 2, 5, 9}[rng.IntN(4)]
	for len(d.trace) < steps && d.bad == "" {
		if rng.IntN(10) < bursts {
			d.burst()
			continue
		}
		d.acts = d.w.actions(d.acts[:0])
		if len(d.acts) == 0 {
			break
		}
		d.take(pick(rng, d.acts, &weights, &lazy, &deaf))
	}
	return found{d.bad, d.trace, len(d.trace)}
}

// pick draws a kind of action by the walk's weights, then one action of that kind by the nodes' habits.
func pick(rng *rand.Rand, acts []action, weights *[actKinds]float64, lazy, deaf *[maxNodes]float64) action {
	weight := func(a *action) float64 {
		switch a.kind {
		case actApply:
			return lazy[a.n]
		case actDeliver:
			return deaf[a.n]
		}
		return 1
	}
	var sums [actKinds]float64
	for i := range acts {
		sums[acts[i].kind] += weight(&acts[i])
	}
	total := 0.0
	for k, sum := range sums {
		if sum > 0 {
			total += weights[k]
		}
	}
	x, kind := rng.Float64()*total, actKinds
	for k, sum := range sums {
		if sum == 0 {
			continue
		}
		kind = actKind(k)
		if x -= weights[k]; x < 0 {
			break
		}
	}
	x = rng.Float64() * sums[kind]
	var last action
	for i := range acts {
		if acts[i].kind != kind {
			continue
		}
		last = acts[i]
		if x -= weight(&acts[i]); x < 0 {
			break
		}
	}
	return last
}

// replay runs a trace on a fresh world; ok is false if an action of it is not possible there.
func replay(r *rules, lim *limits, trace []action) (bad violation, used int, ok bool) {
	w := newWorld(r, lim)
	for i, a := range trace {
		possible := false
		for _, b := range w.actions(nil) {
			possible = possible || a == b
		}
		if !possible {
			return "", i, false
		}
		if bad = w.step(a); bad != "" {
			return bad, i + 1, true
		}
	}
	return "", len(trace), true
}

// shrink drops actions from a trace as long as it still ends in a violation.
func shrink(r *rules, lim *limits, f found) found {
	for size := len(f.trace) / 2; size > 0; {
		smaller := false
		for at := 0; at+size <= len(f.trace); at++ {
			shorter := append(append([]action(nil), f.trace[:at]...), f.trace[at+size:]...)
			if bad, used, ok := replay(r, lim, shorter); ok && bad != "" {
				f.trace, f.bad, smaller = shorter[:used], bad, true
			}
		}
		if !smaller {
			size /= 2
		}
	}
	return f
}

// String prints the counter-example and the world it ends in.
func (f found) String() string { return fmt.Sprintf("%s\n%s", f.bad, traceText(f.trace)) }

func traceText(trace []action) string {
	var b strings.Builder
	for i, a := range trace {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, a)
	}
	return b.String()
}
