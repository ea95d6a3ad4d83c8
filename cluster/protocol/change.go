package protocol

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// ChangeKind is the direction of a change of voters.
type ChangeKind uint8

const (
	// AddVoter makes a learner a voter.
	AddVoter ChangeKind = iota + 1
	// RemoveVoter takes a voter out of the set; its replica is no longer asked, told or counted.
	RemoveVoter
)

// Change is one step: one replica in or out. The zero Change is none.
type Change struct {
	Kind    ChangeKind
	Replica vtop.ReplicaID
}

// Of returns the set that the change makes of voters; it refuses what changes nothing and what leaves nobody.
func (c Change) Of(voters Set) (Set, error) {
	switch {
	case c.Kind == AddVoter && !voters.Has(c.Replica) && c.Replica != 0:
		return voters.With(c.Replica), nil
	case c.Kind == RemoveVoter && voters.Has(c.Replica) && len(voters) > 1:
		return voters.Without(c.Replica), nil
	}
	return nil, fmt.Errorf("change kind %d of replica %d in voters %v: %w", c.Kind, c.Replica, voters, ErrChange)
}

// Settlement is the applied state's account of the last change of voters, per range.
type Settlement struct {
	// Mark is the leader's log end when it proposed the last change, or the start of the present epoch, whichever
	// was applied later.
	Mark vtop.Offset
	// Quorum is the highest quorum position reported under the present epoch and configuration version; NoOffset if
	// none was. A start of an epoch and a change of voters set it back to NoOffset.
	Quorum vtop.Offset
}

// Settled reports whether the next change may be taken: a majority of the present voters has acknowledged, under
// this epoch, all that any earlier set can have committed.
func (s Settlement) Settled() bool { return s.Quorum != NoOffset && s.Quorum >= s.Mark }

// Begin opens a change: from now on both sets must acknowledge, and no floor is reported. logEnd is the leader's
// log end, under the same lock that admits appends; it is the settle mark to propose. applied is what this node's
// own applied state says.
//
// A change that is not settled is not even proposed: then every refusal that a leader can get is final for the
// epoch and version it named, and one refused copy proves that no other copy can be taken later.
func (l *Leading) Begin(c Change, logEnd vtop.Offset, applied Settlement) (expected uint64, mark vtop.Offset, err error) {
	switch {
	case l.voters.Joint():
		return 0, 0, fmt.Errorf("replica %d: %w", l.change.Replica, ErrChangeInFlight)
	case c.Kind == RemoveVoter && c.Replica == l.self:
		return 0, 0, fmt.Errorf("a leader never removes itself: %w", ErrChange)
	case c.Kind == AddVoter && !l.learners.Has(c.Replica):
		return 0, 0, fmt.Errorf("replica %d is no learner: %w", c.Replica, ErrChange)
	case c.Kind == AddVoter && l.marks.Of(c.Replica) < l.high:
		return 0, 0, fmt.Errorf("replica %d has acknowledged %d, high watermark is %d: %w", c.Replica, l.marks.Of(c.Replica), l.high, ErrChange)
	case !applied.Settled():
		return 0, 0, fmt.Errorf("quorum position %d, settle mark %d: %w", applied.Quorum, applied.Mark, ErrNotSettled)
	}
	next, err := c.Of(l.voters.Present)
	if err != nil {
		return 0, 0, err
	}
	l.voters.Next, l.change = next, c
	return l.version, logEnd, nil
}

// Refused closes the change in flight because the applied state refused it under this epoch and the version given.
// The caller has taken over, by Applied, this node's own applied state at the refused entry or later. Otherwise a
// second copy of a change that was *taken* could close it: that copy is refused because the first one moved the
// version, and the answer may arrive before the leader has applied either. A timeout is no refusal: the proposal may
// still be taken, so the book stays joint. What only the set that never came about held back is committed now: it reports whether
// the high watermark moved.
func (l *Leading) Refused(version uint64) bool {
	if version != l.version {
		return false
	}
	l.voters.Next, l.change = nil, Change{}
	return l.advance()
}

// Applied takes over what the applied state says. A higher version closes the change in flight: it was taken, since
// only the leader proposes changes. Marks of replicas that are gone or lost are dropped. It reports whether the high
// watermark moved.
func (l *Leading) Applied(m Members) bool {
	if m.Version < l.version {
		return false
	}
	if m.Version > l.version {
		l.voters, l.change, l.version = Voters{Present: m.Voters}, Change{}, m.Version
	}
	l.learners, l.lost = m.Learners, m.Lost
	l.marks = slices.DeleteFunc(l.marks, func(k Mark) bool { return !l.counts(k.Replica) })
	return l.advance()
}
