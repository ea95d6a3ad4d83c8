package protocol

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// violation says which invariant broke; empty means none.
type violation string

func violationf(format string, args ...any) violation { return violation(fmt.Sprintf(format, args...)) }

// wrote notes that a leader gave an offset to a value: (epoch, offset) names one record for ever (I5).
func (w *world) wrote(e vtop.Epoch, off vtop.Offset, val uint8) violation {
	for _, r := range w.written {
		if r.epoch == e && r.off == off && r.val != val {
			return violationf("I5: epoch %d offset %d names value %d and value %d", e, off, r.val, val)
		}
	}
	if r := (writtenRec{e, off, val}); !slices.Contains(w.written, r) {
		w.written = append(slices.Clip(w.written), r)
	}
	return ""
}

// commits notes what a leader's high watermark covers: one record per offset, for ever and for all (I2).
func (w *world) commits(n *node) violation {
	high := int(n.lead.HighWatermark())
	if high > len(n.log) {
		return violationf("I1: high watermark %d is above the leader's log end %d", high, len(n.log))
	}
	for o := range high {
		if o < len(w.committed) {
			if w.committed[o] != n.log[o] {
				return violationf("I2: offset %d was %v and is %v", o, w.committed[o], n.log[o])
			}
			continue
		}
		if bad := w.commit1(n.log[o]); bad != "" {
			return bad
		}
	}
	return ""
}

func (w *world) commit1(r rec) violation {
	for _, c := range w.committed {
		if c.val == r.val {
			return violationf("K4: value %d is committed twice", r.val)
		}
	}
	w.committed = append(slices.Clip(w.committed), r)
	return ""
}

// acknowledged notes a success sent to a producer: the record must be among the committed, now and for ever (I1).
func (w *world) acknowledged(off vtop.Offset, r rec) violation {
	if int(off) > len(w.committed) {
		return violationf("I1: offset %d acknowledged, %d records committed", off, len(w.committed))
	}
	if int(off) == len(w.committed) {
		return w.commit1(r) // check says whether a later leader can miss it
	}
	if have := w.committed[off]; have.val != r.val {
		return violationf("I1: success for value %d at offset %d, which holds %v", r.val, off, have)
	}
	return ""
}

// show lets a client ask for the end: no later epoch may answer less than an earlier one did (I7).
func (w *world) show(n *node) violation {
	end, ok := n.lead.EndOffset()
	if !ok && !w.rules.showEarly {
		return ""
	}
	e := n.lead.Epoch()
	for x, seen := range w.shown {
		if x <= int(e) && seen > end || x > int(e) && seen != NoOffset && seen < end {
			return violationf("I7: epoch %d shows end %d, epoch %d showed %d", e, end, x, seen)
		}
	}
	w.shown[e] = end
	return ""
}

// check is the strong form of I1 and of the floor: after every step, no majority of the present voters could promote
// a leader that misses a committed record. It holds a step or more before anything is really lost.
func (w *world) check() violation {
	m := w.last()
	if int(m.view.Floor) > len(w.committed) {
		return violationf("floor %d is above the committed end %d", m.view.Floor, len(w.committed))
	}
	need := len(w.committed)
	if need == 0 {
		return ""
	}
	lacking := 0
	for i := range w.lim.nodes {
		n := &w.nodes[i]
		if n.rep == 0 || !m.conf.Voters.Has(n.rep) || m.conf.Lost.Has(n.rep) || n.bad {
			continue
		}
		if w.holds(n, m) < need {
			lacking++
		}
	}
	if lacking >= m.conf.Voters.Majority() {
		return violationf("I1: %d voters, a majority, could promote without all of %v", lacking, w.committed)
	}
	return ""
}

// holds returns how many of the committed records the node has durable, and will still have after it reconciles.
func (w *world) holds(n *node, m *meta) int {
	log := n.log[:n.durable]
	if last, _ := m.view.Table.Last(); len(log) > 0 && log[len(log)-1].epoch > last.Epoch {
		return len(w.committed) // will be quarantined: cannot promote anybody
	}
	if cut, ok := m.view.Table.Cut(runsOf(log), vtop.Offset(len(log))); ok {
		log = log[:cut]
	}
	same := 0
	for same < len(log) && same < len(w.committed) && log[same] == w.committed[same] {
		same++
	}
	return same
}
