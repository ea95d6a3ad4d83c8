package protocol

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

type actKind uint8

const (
	actGrant actKind = iota
	actApply         // node n moves its view to hist[k]
	actDeliver
	actCommit // a proposal reaches the metadata log
	actStart  // a candidate that may start proposes so
	actFetch  // a candidate fetches one record from node k
	actProduce
	actSync
	actFail   // the leader's write fails; k records stay
	actBounce // crash that keeps k records, and restart
	actWipe
	actLearner
	actChange
	actRewind
	actKinds
)

type action struct {
	kind   actKind
	n, k   int
	msg    msg
	change Change
}

func (a action) String() string {
	switch a.kind {
	case actGrant:
		return fmt.Sprintf("grant to n%d", a.n)
	case actApply:
		return fmt.Sprintf("n%d applies metadata entry %d", a.n, a.k)
	case actDeliver:
		return fmt.Sprintf("n%d receives %v", a.n, a.msg)
	case actCommit:
		return fmt.Sprintf("metadata applies %v", a.msg)
	case actStart:
		return fmt.Sprintf("n%d proposes to start its epoch", a.n)
	case actFetch:
		return fmt.Sprintf("n%d fetches a record from n%d", a.n, a.k)
	case actProduce:
		return fmt.Sprintf("producer sends value %d to n%d", a.k, a.n)
	case actSync:
		return fmt.Sprintf("n%d syncs up to %d", a.n, a.k)
	case actFail:
		return fmt.Sprintf("write fails on n%d, %d records stay", a.n, a.k)
	case actBounce:
		return fmt.Sprintf("n%d crashes, keeps %d records, restarts", a.n, a.k)
	case actWipe:
		return fmt.Sprintf("n%d loses its disk", a.n)
	case actLearner:
		return fmt.Sprintf("n%d gets a learner", a.n)
	case actChange:
		return fmt.Sprintf("n%d proposes change %v", a.n, a.change)
	case actRewind:
		return fmt.Sprintf("metadata goes back to entry %d", a.k)
	}
	return "?"
}

func (m msg) String() string {
	switch m.kind {
	case msgAsk:
		return fmt.Sprintf("ask(epoch %d from n%d for replica %d)", m.epoch, m.from, m.rep)
	case msgAnswer:
		if m.refusal.Code != 0 {
			return fmt.Sprintf("refusal(epoch %d replica %d: %s)", m.epoch, m.rep, m.refusal.Code)
		}
		return fmt.Sprintf("answer(epoch %d replica %d end %d)", m.epoch, m.rep, m.off)
	case msgStart:
		return fmt.Sprintf("start(epoch %d at %d)", m.epoch, m.off)
	case msgAppend:
		return fmt.Sprintf("append(epoch %d offset %d record %v)", m.epoch, m.off, m.rec)
	case msgHigh:
		return fmt.Sprintf("high(epoch %d at %d)", m.epoch, m.off)
	case msgAck:
		return fmt.Sprintf("ack(epoch %d replica %d end %d)", m.epoch, m.rep, m.off)
	case msgReport:
		return fmt.Sprintf("report(epoch %d version %d floor %d quorum %d)", m.epoch, m.version, m.off, m.off2)
	case msgChange:
		return fmt.Sprintf("change(epoch %d version %d %v mark %d)", m.epoch, m.version, m.change, m.off)
	case msgRefused:
		return fmt.Sprintf("change refused(epoch %d version %d)", m.epoch, m.version)
	}
	return "?"
}

// step does one action and checks the invariants.
func (w *world) step(a action) violation {
	bad := w.do(a)
	if bad == "" {
		bad = w.check()
	}
	return bad
}

func (w *world) do(a action) violation {
	switch a.kind {
	case actGrant:
		w.grant(a.n)
	case actApply:
		return w.setView(a.n, w.hist[a.k])
	case actDeliver:
		return w.deliver(a.n, a.msg)
	case actCommit:
		return w.commit(a.msg)
	case actStart:
		n := &w.nodes[a.n]
		w.send(msg{kind: msgStart, from: int8(a.n), epoch: n.asked, off: w.choice(a.n).End})
	case actFetch:
		return w.fetch(a.n, a.k)
	case actProduce:
		return w.produce(a.n, uint8(a.k))
	case actSync:
		w.nodes[a.n].durable = a.k
		return w.outputs(a.n)
	case actFail:
		return w.fail(a.n, a.k)
	case actBounce:
		return w.bounce(a.n, a.k, a.change.Replica)
	case actWipe:
		return w.wipe(a.n)
	case actLearner:
		w.spares++
		w.addLearner(a.n)
	case actChange:
		return w.propose(a.n, a.change)
	case actRewind:
		w.rewinds++
		w.rewind(a.k)
	}
	return ""
}

func (w *world) commit(p msg) violation {
	switch p.kind {
	case msgStart:
		return w.applyStart(p)
	case msgReport:
		return w.applyReport(p)
	default:
		return w.applyChange(p)
	}
}

// setView moves a node to a state of the metadata log, over any number of entries.
func (w *world) setView(i int, m *meta) violation {
	n := &w.nodes[i]
	before := n.view.view.Compared()
	if n.view.gen != m.gen {
		n.asked, n.answers = 0, nil
	}
	n.view = m
	w.adoptReplica(n)
	lease := m.view.Lease
	if n.lead != nil && (n.lead.Epoch() != lease.Epoch || !m.view.Started || !w.held(i, lease)) {
		n.oldMarks = n.lead.Marks()
		w.resign(n)
	}
	if lease.Epoch != n.asked {
		n.asked, n.answers = 0, nil
	}
	if n.lead != nil {
		n.lead = n.lead.Clone()
		n.lead.Applied(n.view.conf)
	}
	if bad := w.reconcile(n, before); bad != "" {
		return bad
	}
	if !w.held(i, lease) || n.ended >= lease.Epoch || n.rep == 0 || n.bad {
		return w.outputs(i)
	}
	if !m.view.Started && n.asked != lease.Epoch {
		w.askVoters(i)
	}
	if m.view.Started && n.lead == nil {
		if bad := w.lead(i); bad != "" {
			return bad
		}
	}
	return w.outputs(i)
}

// askVoters sends the fence; the candidate asks itself first, by the same rule.
func (w *world) askVoters(i int) {
	n := &w.nodes[i]
	m := n.view
	n.asked = m.view.Lease.Epoch
	for _, id := range m.conf.Voters {
		ask := msg{kind: msgAsk, from: int8(i), rep: id, epoch: n.asked, version: uint64(m.view.Lease.Incarnation), grant: m.view.Index}
		if id != n.rep {
			w.send(ask)
			continue
		}
		if Fence(askOf(ask), m.view, w.local(i)) != nil {
			continue
		}
		n.durable, n.promise = len(n.log), To(m.view.Lease)
		n.answers = []Answer{{Replica: id, Epoch: n.asked, End: n.end(), Last: n.lastEpoch()}}
	}
}

func (w *world) adoptReplica(n *node) {
	m := n.view
	if n.rep != 0 && !m.conf.Voters.Has(n.rep) && !m.conf.Learners.Has(n.rep) {
		n.rep, n.log, n.durable, n.promise, n.bad, n.high, n.known = 0, nil, 0, Promise{}, false, 0, 0
		n.reconciled = Compared{}
		w.resign(n)
	}
	for i := range w.nodes {
		if &w.nodes[i] == n && n.rep == 0 {
			n.rep = m.reps[i]
			n.reconciled = Compared{}
		}
	}
}

// resign leaves the epoch for ever: also if the metadata goes back to it, this process does not lead it again.
func (w *world) resign(n *node) {
	if n.lead != nil {
		n.ended, n.lead = n.lead.Epoch(), nil
	}
	if !w.rules.ackByOffset {
		n.waits = nil
	}
}

// reconcile compares the log with the table whenever the state of the lease has changed.
func (w *world) reconcile(n *node, before Compared) violation {
	now := n.view.view.Compared()
	if now == n.reconciled || n.rep == 0 || n.bad || now.Epoch == 0 {
		return ""
	}
	if now.Started && (w.rules.ackUnreconciled || w.rules.compareOnce && before.Epoch == now.Epoch && n.reconciled.Epoch == now.Epoch) {
		return ""
	}
	v, known := n.view.view, min(n.known, n.end())
	if w.rules.floorGuard {
		known = v.Floor
	}
	d := Reconcile(v, known, runsOf(n.log), n.end())
	if cut, ok := v.Table.Cut(runsOf(n.log), n.end()); w.rules.leaseQuarantine && ok && n.lastEpoch() <= v.Lease.Epoch {
		d = Decision{Action: Cut, At: cut} // records above the table's last epoch pass for superseded ones
	}
	switch d.Action {
	case Quarantine:
		n.bad = true
		w.resign(n)
		if w.rewinds == 0 && !w.rules.staleRestart {
			return violationf("I8: quarantined without a cause: %s", d.Why)
		}
		return ""
	case Cut:
		n.log = slices.Clone(n.log[:d.At])
		n.durable = min(n.durable, len(n.log))
	}
	n.reconciled = now
	return ""
}

func (w *world) lead(i int) violation {
	n := &w.nodes[i]
	v := n.view.view
	if Serve(v.Lease, n.rep, v, w.local(i)) != nil && !w.rules.leadBelowPromise {
		return ""
	}
	last, _ := v.Table.Last()
	l, err := Lead(v.Lease.Epoch, last.Start, n.rep, n.view.conf, max(v.Floor, n.high))
	if err != nil {
		return violationf("I1: %v", err)
	}
	if w.rules.marksSurviveEpoch {
		for _, k := range n.oldMarks {
			l.Acknowledge(v.Lease.Epoch, k.Replica, k.End)
		}
	}
	n.lead, n.asked, n.answers = l, 0, nil
	return ""
}

// outputs sends what a node may send now: early sending loses nothing, since the net delays at will.
func (w *world) outputs(i int) violation {
	n := &w.nodes[i]
	v := n.view.view
	if n.lead == nil {
		if n.rep != 0 && !w.held(i, v.Lease) && Follow(v.Lease.Epoch, n.rep, v, w.local(i)) == nil {
			w.send(msg{kind: msgAck, from: int8(i), rep: n.rep, epoch: v.Lease.Epoch, off: vtop.Offset(n.durable)})
		}
		return w.answerByOffset(n)
	}
	n.lead = n.lead.Clone()
	n.lead.Acknowledge(n.lead.Epoch(), n.rep, vtop.Offset(n.durable))
	e := n.lead.Epoch()
	for o, r := range n.log {
		w.send(msg{kind: msgAppend, from: int8(i), epoch: e, off: vtop.Offset(o), rec: r})
	}
	n.high = max(n.high, n.lead.HighWatermark())
	n.known = max(n.known, n.lead.HighWatermark())
	if !w.lim.quiet {
		w.send(msg{kind: msgHigh, from: int8(i), epoch: e, off: n.lead.HighWatermark()})
	}
	if p, ok := n.lead.Position(); ok && n.flight != n.lead.Version() && (w.lim.floors || w.lim.changes > 0) {
		if w.rules.settleByHigh {
			p.Quorum = p.Floor
		}
		w.send(msg{kind: msgReport, from: int8(i), epoch: p.Epoch, version: p.Version, off: p.Floor, off2: p.Quorum})
	}
	return w.answer(i)
}
