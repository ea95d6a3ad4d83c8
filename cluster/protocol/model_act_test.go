package protocol

import (
	"errors"
	"slices"

	"github.com/vtop-log/vtop"
)

func (w *world) deliver(i int, m msg) violation {
	n := &w.nodes[i]
	switch m.kind {
	case msgAsk:
		return w.answerFence(i, m)
	case msgAnswer:
		a := Answer{Replica: m.rep, Epoch: m.epoch, End: m.off, Last: m.rec.epoch}
		if m.refusal.Code != 0 {
			r := m.refusal
			a.Refusal = &r
		}
		n.answers = append(slices.Clip(n.answers), a)
		if c := w.choice(i); c.Step == StepGiveUp {
			w.min = max(w.min, c.Minimum)
		} else if c.Step == StepConflict && w.rewinds == 0 {
			return violationf("I2: %s", c.Why)
		}
	case msgAppend:
		n.log = append(slices.Clip(n.log), m.rec)
	case msgHigh:
		n.high = m.off
		n.known = max(n.known, min(m.off, n.end()))
		return w.answerByOffset(n)
	case msgAck:
		n.lead = n.lead.Clone()
		n.lead.Acknowledge(m.epoch, m.rep, m.off)
		return w.outputs(i)
	case msgRefused:
		n.lead = n.lead.Clone()
		n.lead.Refused(m.version)
		return w.outputs(i)
	}
	return ""
}

func askOf(m msg) Ask {
	lease := vtop.Lease{Holder: nodeNames[m.from], Incarnation: vtop.Incarnation(m.version), Epoch: m.epoch}
	return Ask{Lease: lease, Grant: m.grant, Replica: m.rep}
}

func (w *world) answerFence(i int, m msg) violation {
	n := &w.nodes[i]
	reply := msg{kind: msgAnswer, from: int8(i), rep: m.rep, epoch: m.epoch}
	err := Fence(askOf(m), n.view.view, w.local(i))
	var refused *Refusal
	if errors.As(err, &refused) {
		reply.refusal = Refusal{Code: refused.Code, Asked: refused.Asked, Epoch: refused.Epoch}
		w.send(reply)
		return ""
	}
	n.durable = len(n.log)
	n.promise = To(askOf(m).Lease)
	reply.off, reply.rec.epoch = n.end(), n.lastEpoch()
	w.send(reply)
	return w.outputs(i)
}

func (w *world) choice(i int) Choice {
	n := &w.nodes[i]
	p := Promotion{Epoch: n.asked, Self: n.rep, Voters: n.view.conf.Voters, Floor: n.view.view.Floor, Table: n.view.view.Table}
	return p.Choose(n.answers)
}

// fetch copies the next record of the longest log, fsynced.
func (w *world) fetch(i, from int) violation {
	n, src := &w.nodes[i], &w.nodes[from]
	n.log = append(slices.Clip(n.log), src.log[len(n.log)])
	n.durable = len(n.log)
	n.answers = append(slices.Clip(n.answers), Answer{Replica: n.rep, Epoch: n.asked, End: n.end(), Last: n.lastEpoch()})
	return ""
}

func (w *world) produce(i int, val uint8) violation {
	n := &w.nodes[i]
	w.produced++
	off := slices.IndexFunc(n.log, func(r rec) bool { return r.val == val })
	if off < 0 {
		off = len(n.log)
		n.log = append(slices.Clip(n.log), rec{n.lead.Epoch(), val})
		if bad := w.wrote(n.lead.Epoch(), vtop.Offset(off), val); bad != "" {
			return bad
		}
	} else if w.rules.eagerDuplicate {
		w.done |= 1 << val
		return w.acknowledged(vtop.Offset(off), n.log[off])
	}
	n.waits = append(slices.Clip(n.waits), waiting{Pending{n.lead.Epoch(), vtop.Offset(off) + 1}, vtop.Offset(off), val})
	return w.outputs(i)
}

// answer gives waiting requests their verdict, and shows the end to a client.
func (w *world) answer(i int) violation {
	n := &w.nodes[i]
	if bad := w.commits(n); bad != "" {
		return bad
	}
	var still []waiting
	for _, p := range n.waits {
		switch n.lead.Verdict(p.Pending) {
		case Wait:
			still = append(still, p)
		case Success:
			w.done |= 1 << p.val
			if bad := w.acknowledged(p.off, rec{p.Epoch, p.val}); bad != "" {
				return bad
			}
		case NotLeader:
			if w.rules.ackByOffset {
				still = append(still, p)
			}
		}
	}
	n.waits = still
	return w.show(n)
}

// answerByOffset is the broken rule ackByOffset.
func (w *world) answerByOffset(n *node) violation {
	if !w.rules.ackByOffset {
		return ""
	}
	for _, p := range n.waits {
		if n.high >= p.End {
			return w.acknowledged(p.off, rec{p.Epoch, p.val})
		}
	}
	return ""
}

// fail is a write or fsync that fails on the leader: k records are found when the tail is read again.
func (w *world) fail(i, k int) violation {
	n := &w.nodes[i]
	w.fails++
	n.log = slices.Clone(n.log[:k])
	n.durable = min(n.durable, k)
	if !w.rules.reuseOffset {
		w.resign(n)
		n.durable = k
		n.reconciled = Compared{}
	}
	n.waits = nil
	return w.outputs(i)
}

func (w *world) bounce(i, k int, snapshot vtop.ReplicaID) violation {
	n := &w.nodes[i]
	w.bounces++
	fresh := node{
		inc: n.inc + 1, log: slices.Clone(n.log[:k]), durable: k, rep: n.rep, bad: n.bad, view: n.view,
		promise: Promise{Epoch: n.promise.Epoch},
	}
	if w.rules.volatilePromise {
		fresh.promise = Promise{}
	}
	*n = fresh
	m := w.last()
	if w.rules.staleRestart {
		m = w.hist[snapshot]
	}
	return w.setView(i, m)
}

func (w *world) wipe(i int) violation {
	n := &w.nodes[i]
	w.wipes++
	old := n.rep
	*n = node{inc: n.inc + 1, view: n.view}
	if w.rules.countNodes {
		n.rep = old
		return w.setView(i, w.last())
	}
	return w.setView(i, w.loses(i, old))
}

func (w *world) propose(i int, c Change) violation {
	n := &w.nodes[i]
	n.lead = n.lead.Clone()
	w.changes++
	version, mark, err := n.lead.Begin(c, n.end(), w.settlement(n))
	if err != nil {
		return ""
	}
	w.send(msg{kind: msgChange, from: int8(i), epoch: n.lead.Epoch(), version: version, change: c, off: mark})
	if w.rules.oneSetInFlight {
		n.lead.voters.Next, n.flight = nil, version
	}
	return w.outputs(i)
}
