package protocol

import (
	"slices"

	"github.com/vtop-log/vtop"
)

// actions lists what may happen next; it leaves out what would change nothing.
func (w *world) actions(out []action) []action {
	last := w.last()
	if last.view.Lease.Epoch < w.lim.epochs {
		out = w.grants(out)
	}
	for i := range w.lim.nodes {
		out = w.nodeActions(i, out)
	}
	for _, l := range w.net {
		out = w.msgActions(l.msg, out)
	}
	if w.rewinds < w.lim.rewinds {
		for k := 1; k < len(w.hist)-1; k++ {
			if w.mayRewind(k) {
				out = append(out, action{kind: actRewind, k: k})
			}
		}
	}
	return out
}

func (w *world) grants(out []action) []action {
	m := w.last()
	for i := range w.lim.nodes {
		if w.lim.firstHolder && m.view.Lease.Epoch == 0 && i > 0 {
			break
		}
		if m.conf.Voters.Has(m.reps[i]) && !m.conf.Lost.Has(m.reps[i]) {
			out = append(out, action{kind: actGrant, n: i})
		}
	}
	return out
}

func (w *world) nodeActions(i int, out []action) []action {
	n, m := &w.nodes[i], w.last()
	for k := len(w.hist) - 1; k > 0 && w.hist[k] != n.view && w.hist[k].view.Index > 0; k-- {
		if w.hist[k].gen == n.view.gen && w.hist[k].view.Index <= n.view.view.Index || w.hist[k].gen < w.gen {
			break
		}
		if w.lim.jumps || k == len(w.hist)-1 || w.hist[k-1] == n.view {
			out = append(out, action{kind: actApply, n: i, k: k})
		}
	}
	if n.lead != nil {
		out = w.leaderActions(i, out)
	}
	if n.asked != 0 && !n.bad {
		out = w.candidateActions(i, out)
	}
	out = w.diskActions(i, out)
	if m.reps[i] == 0 && w.spares < w.lim.spares && m.view.Started {
		out = append(out, action{kind: actLearner, n: i})
	}
	if w.wipes < w.lim.wipes && n.rep != 0 && m.reps[i] == n.rep {
		out = append(out, action{kind: actWipe, n: i})
	}
	return out
}

func (w *world) diskActions(i int, out []action) []action {
	n := &w.nodes[i]
	from := len(n.log)
	if w.lim.partial {
		from = n.durable + 1
	}
	for k := from; k <= len(n.log) && k > n.durable; k++ {
		out = append(out, action{kind: actSync, n: i, k: k})
	}
	if w.bounces >= w.lim.bounces {
		return out
	}
	for k := n.durable; k <= len(n.log); k++ {
		if k != n.durable && k != len(n.log) && !w.lim.partial {
			continue
		}
		if !w.rules.staleRestart {
			out = append(out, action{kind: actBounce, n: i, k: k})
			continue
		}
		for snap := range w.hist {
			out = append(out, action{kind: actBounce, n: i, k: k, change: Change{Replica: vtop.ReplicaID(snap)}})
		}
	}
	return out
}

func (w *world) leaderActions(i int, out []action) []action {
	n := &w.nodes[i]
	if w.produced < w.lim.retries {
		for v := uint8(1); v <= w.lim.values; v++ {
			waits := slices.ContainsFunc(n.waits, func(p waiting) bool { return p.val == v })
			if !waits && w.done&(1<<v) == 0 {
				out = append(out, action{kind: actProduce, n: i, k: int(v)})
			}
		}
	}
	if w.fails < w.lim.fails {
		for k := n.durable; k < len(n.log); k++ {
			out = append(out, action{kind: actFail, n: i, k: k})
		}
	}
	if w.changes >= w.lim.changes || n.lead.voters.Joint() || n.flight == n.lead.Version() {
		return out
	}
	for _, id := range n.view.conf.Learners {
		out = w.changeAction(i, Change{AddVoter, id}, out)
	}
	for _, id := range n.view.conf.Voters {
		out = w.changeAction(i, Change{RemoveVoter, id}, out)
	}
	return out
}

func (w *world) changeAction(i int, c Change, out []action) []action {
	n := &w.nodes[i]
	if _, _, err := n.lead.Clone().Begin(c, n.end(), w.settlement(n)); err != nil {
		return out
	}
	return append(out, action{kind: actChange, n: i, change: c})
}

// settlement is what the leader believes when it proposes a change.
func (w *world) settlement(n *node) Settlement {
	s := n.view.set
	if w.rules.proposeUnsettled {
		s.Quorum = s.Mark
	}
	return s
}

func (w *world) candidateActions(i int, out []action) []action {
	n := &w.nodes[i]
	c := w.choice(i)
	switch c.Step {
	case StepStart:
		m := msg{kind: msgStart, gen: n.view.gen, from: int8(i), epoch: n.asked, off: c.End}
		if !slices.Contains(w.net, w.post.letter(m)) {
			out = append(out, action{kind: actStart, n: i})
		}
	case StepFetch:
		for j := range w.lim.nodes {
			src := &w.nodes[j]
			if slices.Contains(c.Sources, src.rep) && src.view.gen == n.view.gen && src.promise == To(n.view.view.Lease) &&
				src.end() >= c.End && !src.bad && n.end() < c.End {
				out = append(out, action{kind: actFetch, n: i, k: j})
			}
		}
	}
	return out
}

func (w *world) msgActions(m msg, out []action) []action {
	for i := range w.lim.nodes {
		if w.nodes[i].view.gen == m.gen && w.wants(i, m) {
			out = append(out, action{kind: actDeliver, n: i, msg: m})
		}
	}
	last, may := w.last(), false
	switch m.kind {
	case msgStart:
		may = last.mayStart(m)
	case msgReport:
		may = last.mayReport(m)
	case msgChange:
		_, may = last.changeVerdict(m)
		from := w.nodes[m.from].lead
		may = may || from != nil && from.Epoch() == m.epoch && from.Version() == m.version && !w.refused(m)
	}
	if may && m.gen == w.gen {
		out = append(out, action{kind: actCommit, msg: m})
	}
	return out
}

// wants reports whether delivery of m at node i would change anything.
func (w *world) wants(i int, m msg) bool {
	n := &w.nodes[i]
	switch m.kind {
	case msgAsk:
		if n.rep != m.rep {
			return false
		}
		err := Fence(askOf(m), n.view.view, w.local(i))
		if err == nil {
			return n.promise != To(askOf(m).Lease) || !w.answered(m)
		}
		r := err.(*Refusal)
		return r.Code == Promised && w.lim.rewinds > 0 && !r.Retryable()
	case msgAnswer:
		if n.asked != m.epoch || n.asked == 0 || n.bad {
			return false
		}
		return !slices.ContainsFunc(n.answers, func(a Answer) bool {
			return a.Replica == m.rep && (m.refusal.Code != 0 || a.Refusal == nil && a.End >= m.off)
		})
	case msgAppend:
		return m.off == n.end() && !w.held(i, n.view.view.Lease) && Follow(m.epoch, n.rep, n.view.view, w.local(i)) == nil
	case msgHigh:
		return m.off > n.high && n.lead == nil && Follow(m.epoch, n.rep, n.view.view, w.local(i)) == nil
	case msgAck:
		return n.lead != nil && (n.lead.Epoch() == m.epoch) && n.lead.counts(m.rep) && n.lead.marks.Of(m.rep) < m.off
	case msgRefused:
		return n.lead != nil && n.lead.Epoch() == m.epoch && n.lead.Version() == m.version && n.lead.change == m.change && i == int(m.from) &&
			(w.rules.refusedEarly || n.view.view.Index >= m.grant)
	}
	return false
}

// answered reports whether an answer to the fence is in the net already. A second one would not differ: after the
// promise the log stands still until the epoch starts.
func (w *world) answered(ask msg) bool {
	return slices.ContainsFunc(w.net, func(m *letter) bool {
		return m.kind == msgAnswer && m.refusal.Code == 0 && m.gen == ask.gen && m.epoch == ask.epoch && m.rep == ask.rep
	})
}

// refused reports whether the refusal of this change is in the net already.
func (w *world) refused(p msg) bool {
	return slices.ContainsFunc(w.net, func(m *letter) bool {
		return m.kind == msgRefused && m.epoch == p.epoch && m.version == p.version && m.change == p.change
	})
}
