package protocol

import (
	"github.com/vtop-log/vtop"
)

// The commands of the metadata log, as far as the protocol needs them. The real ones are in package fsm.

func (w *world) grant(i int) {
	w.publish(func(m *meta) {
		epoch := max(m.view.Lease.Epoch, w.min) + 1
		m.view.Lease = vtop.Lease{Holder: nodeNames[i], Incarnation: w.nodes[i].inc, Epoch: epoch}
		m.view.Started = false
	})
}

func (m *meta) mayStart(p msg) bool {
	return m.view.Lease.Epoch == p.epoch && !m.view.Started && p.off >= m.view.Floor
}

func (w *world) applyStart(p msg) violation {
	var bad violation
	w.publish(func(m *meta) {
		table, err := w.tableWith(m.view.Table, p.epoch, p.off)
		if err != nil {
			bad = violationf("epochs rise: %v", err)
			return
		}
		m.view.Table, m.view.Started = table, true
		m.set = Settlement{Mark: p.off, Quorum: NoOffset}
	})
	if bad != "" {
		return bad
	}
	if int(p.off) < len(w.committed) {
		return violationf("I1: epoch %d starts at %d, %d records were committed", p.epoch, p.off, len(w.committed))
	}
	return ""
}

// tableWith is vtop.EpochTable.With, or the wrong rule in its place.
func (w *world) tableWith(t vtop.EpochTable, e vtop.Epoch, start vtop.Offset) (vtop.EpochTable, error) {
	if w.rules.nextStartDecides {
		return append(append(vtop.EpochTable(nil), t...), vtop.EpochStart{Epoch: e, Start: start}), nil
	}
	return t.With(e, start)
}

func (m *meta) mayReport(p msg) bool {
	return m.view.Lease.Epoch == p.epoch && m.view.Started && m.conf.Version == p.version &&
		(p.off > m.view.Floor || p.off2 > m.set.Quorum)
}

func (w *world) applyReport(p msg) violation {
	if int(p.off) > len(w.committed) {
		return violationf("floor %d is above what was committed (%d)", p.off, len(w.committed))
	}
	w.publish(func(m *meta) {
		m.view.Floor = max(m.view.Floor, p.off)
		m.set.Quorum = max(m.set.Quorum, p.off2)
	})
	return ""
}

// changeVerdict says what apply does with a change of voters.
func (m *meta) changeVerdict(p msg) (next Set, ok bool) {
	if m.view.Lease.Epoch != p.epoch || !m.view.Started || m.conf.Version != p.version || !m.set.Settled() {
		return nil, false
	}
	if p.change.Kind == AddVoter && (!m.conf.Learners.Has(p.change.Replica) || m.conf.Lost.Has(p.change.Replica)) {
		return nil, false
	}
	next, err := p.change.Of(m.conf.Voters)
	return next, err == nil
}

func (w *world) applyChange(p msg) violation {
	next, ok := w.last().changeVerdict(p)
	if !ok {
		w.send(msg{kind: msgRefused, from: p.from, epoch: p.epoch, version: p.version, change: p.change, grant: w.last().view.Index})
		return ""
	}
	w.publish(func(m *meta) {
		m.conf.Voters = next
		m.conf.Version++
		m.conf.Learners = m.conf.Learners.Without(p.change.Replica)
		m.set = Settlement{Mark: p.off, Quorum: NoOffset}
		for i := range m.reps {
			if p.change.Kind == RemoveVoter && m.reps[i] == p.change.Replica {
				m.reps[i] = 0
			}
		}
	})
	return ""
}

// loses is the entry that says that a node's replica is lost. That a restarted node registers its new incarnation
// makes no entry here: a grant to a dead incarnation leads nobody, and is not modelled.
func (w *world) loses(i int, lost vtop.ReplicaID) *meta {
	return w.publish(func(m *meta) {
		m.conf.Lost = m.conf.Lost.With(lost)
		m.conf.Learners = m.conf.Learners.Without(lost)
		m.reps[i] = 0
	})
}

func (w *world) addLearner(i int) {
	w.publish(func(m *meta) {
		m.reps[i] = m.next
		m.conf.Learners = m.conf.Learners.With(m.next)
		m.next++
	})
}

// rewind is a recovery of metadata that lost its quorum: entries after index k are gone, for ever, and a new cluster
// generation begins. It never loses a change of replicas: what a lost set acknowledged cannot be proven by anybody.
func (w *world) rewind(k int) {
	w.hist = w.hist[: k+1 : k+1]
	w.gen++
	w.publish(func(*meta) {})
}

func (w *world) mayRewind(k int) bool {
	a, b := w.hist[k], w.last()
	return a.conf.Version == b.conf.Version && a.next == b.next && a.conf.Lost.Equal(b.conf.Lost) && a.reps == b.reps
}
