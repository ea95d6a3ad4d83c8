package repair

import (
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// segment is one sealed segment that a job wants.
type segment struct {
	transport.SealedSegment
	// pinned says that the leader's pin holds it, whatever retention does.
	pinned bool
}

// span is [from, to).
type span struct{ from, to vtop.Offset }

func (s span) length() int64 { return int64(max(s.to-s.from, 0)) }

// plan is what a job is to bring: the sealed segments of the snapshots that the leaders gave, and what became of the
// promise of the first one. It is pure.
type plan struct {
	// segments are in order and continuous.
	segments []segment
	// producers is the producer state at the base of the first.
	producers []byte
	// newest is the last snapshot.
	newest *transport.Snapshot
	// promised is the sealed prefix of the first snapshot; lost are the parts of it that were not delivered, in order.
	promised span
	lost     []span
}

// take takes in a snapshot: the first, or one that another leader gave, or the same after its pin had gone. Segments of
// earlier ones that it does not have any more, because retention has taken them, stay wanted: another source may still
// have them. whole says what is here already.
func (p *plan) take(s *transport.Snapshot, whole func(base vtop.Offset) bool) {
	if p.newest == nil {
		p.promised = span{s.LogStart, s.SealedEnd}
	}
	first := s.SealedEnd
	if len(s.Segments) > 0 {
		first = s.Segments[0].Base
	}
	var keep []segment
	for _, seg := range p.segments {
		if seg.End <= first {
			seg.pinned = false
			keep = append(keep, seg)
		}
	}
	if len(keep) > 0 && keep[len(keep)-1].End != first { // the log start went beyond all that was sealed
		p.loseUnlessWhole(keep, whole)
		keep = nil
	}
	if len(keep) == 0 {
		p.producers = s.Producers
	}
	for _, seg := range s.Segments {
		keep = append(keep, segment{SealedSegment: seg, pinned: s.Pin != 0})
	}
	p.segments, p.newest = keep, s
}

// base is where the newest snapshot begins.
func (p *plan) base() vtop.Offset {
	if len(p.newest.Segments) > 0 {
		return p.newest.Segments[0].Base
	}
	return p.newest.SealedEnd
}

// end is where the plan's segments end.
func (p *plan) end() vtop.Offset {
	if n := len(p.segments); n > 0 {
		return p.segments[n-1].End
	}
	return p.newest.SealedEnd
}

// giveUp gives up what the newest snapshot does not have: a log has no holes, so the adoption begins with the newest
// snapshot. What of it is not whole here, and was promised, is lost.
func (p *plan) giveUp(whole func(base vtop.Offset) bool) {
	old := 0
	for old < len(p.segments) && p.segments[old].Base < p.base() {
		old++
	}
	p.loseUnlessWhole(p.segments[:old], whole)
	p.segments, p.producers = p.segments[old:], p.newest.Producers
}

func (p *plan) loseUnlessWhole(segments []segment, whole func(base vtop.Offset) bool) {
	for _, seg := range segments {
		if !whole(seg.Base) {
			p.lose(span{seg.Base, seg.End})
		}
	}
}

// lose notes that a part was not delivered, as far as it was promised.
func (p *plan) lose(s span) {
	s = span{max(s.from, p.promised.from), min(s.to, p.promised.to)}
	if s.length() == 0 {
		return
	}
	if n := len(p.lost); n > 0 && p.lost[n-1].to == s.from {
		p.lost[n-1].to = s.to
		return
	}
	p.lost = append(p.lost, s)
}

// gap counts the offsets that were promised and not delivered, and names them; none: 0.
func (p *plan) gap() (offsets int64, names string) {
	for i, s := range p.lost {
		offsets += s.length()
		if i > 0 {
			names += ", "
		}
		names += fmt.Sprintf("[%d, %d)", s.from, s.to)
	}
	return offsets, names
}

// snapshotAgrees compares a snapshot with the catalogue as this node has applied it: each segment above the log start must be
// there, with that root. behind says that the catalogue here ends before the snapshot does.
func snapshotAgrees(s *transport.Snapshot, logStart vtop.Offset, known func(base vtop.Offset) (end vtop.Offset, root [32]byte, ok bool)) (behind bool, err error) {
	for _, seg := range s.Segments {
		end, root, ok := known(seg.Base)
		switch {
		case seg.End <= logStart: // no longer in the catalogue: the leader's word, and the chain of the log, must do
		case !ok:
			behind = true
		case end != seg.End || root != seg.Root:
			return false, fmt.Errorf("%w: the leader lists segment %d to %d with root %x, the catalogue has %d to %d with root %x",
				transport.ErrInvalid, seg.Base, seg.End, seg.Root, seg.Base, end, root)
		}
	}
	return behind, nil
}
