package protocol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// Errors of the leader's book. They are answers to the code that leads, and never travel.
var (
	// ErrChangeInFlight: a change of voters was proposed and is neither taken nor refused.
	ErrChangeInFlight = errors.New("a change of voters is in flight")
	// ErrNotSettled: the quorum position under the present voters has not been reported at the settle mark yet.
	ErrNotSettled = errors.New("the last change of voters has not settled")
	// ErrChange: the change makes no sense for the present voters.
	ErrChange = errors.New("invalid change of voters")
)

// Leading is a leader's book of one range for one epoch, from the moment its StartEpoch is applied. A new epoch
// has a new book: marks of an earlier epoch say nothing (the log may have been cut between). Not safe for
// concurrent use; copy it with Clone.
type Leading struct {
	epoch    vtop.Epoch
	start    vtop.Offset
	self     vtop.ReplicaID
	version  uint64
	voters   Voters
	learners Set
	lost     Set
	change   Change
	marks    Marks
	high     vtop.Offset
}

// Members is the applied state's word on who holds a replica.
type Members struct {
	// Version is the configuration version.
	Version uint64
	// Voters and Learners are disjoint.
	Voters, Learners Set
	// Lost are those of both that may have forgotten what they held: still in the set until a change removes them,
	// but their acknowledgements, also earlier ones, count for nothing (I10).
	Lost Set
}

// Lead opens the book of an epoch that started at start. known is the highest high watermark that this replica
// knows for sure: the committed floor, or what an earlier leader told this process. It may not exceed start: all
// that was committed is in the log that the epoch started with (I1).
func Lead(epoch vtop.Epoch, start vtop.Offset, self vtop.ReplicaID, m Members, known vtop.Offset) (*Leading, error) {
	switch {
	case known > start:
		return nil, fmt.Errorf("epoch %d starts at %d, below the known high watermark %d: %w", epoch, start, known, vtop.ErrDamaged)
	case !m.Voters.Has(self):
		return nil, fmt.Errorf("replica %d leads epoch %d but is no voter of %v: %w", self, epoch, m.Voters, ErrChange)
	}
	return &Leading{
		epoch: epoch, start: start, self: self, version: m.Version,
		voters: Voters{Present: m.Voters}, learners: m.Learners, lost: m.Lost, high: known,
	}, nil
}

// Clone returns an independent copy.
func (l *Leading) Clone() *Leading {
	c := *l
	c.marks = slices.Clone(l.marks)
	return &c
}

// Epoch returns the epoch of the book; Start its first offset.
func (l *Leading) Epoch() vtop.Epoch  { return l.epoch }
func (l *Leading) Start() vtop.Offset { return l.start }

// Voters returns who counts now, and Version the configuration version of the present set.
func (l *Leading) Voters() Voters  { return l.voters }
func (l *Leading) Version() uint64 { return l.version }

// Marks returns a copy of the acknowledgements, for the operator's view and for Plan.
func (l *Leading) Marks() Marks { return slices.Clone(l.marks) }

// Acknowledge records that a replica has fsynced all below end, after it reconciled under this epoch. The leader's
// own durable end comes in by the same door. Acknowledgements of another epoch, and of replicas that are lost or that
// the applied state does not name, count for nothing. It reports whether the high watermark moved.
func (l *Leading) Acknowledge(epoch vtop.Epoch, id vtop.ReplicaID, end vtop.Offset) bool {
	if epoch != l.epoch || !l.counts(id) {
		return false
	}
	return l.marks.raise(id, end) && l.advance()
}

func (l *Leading) counts(id vtop.ReplicaID) bool {
	return (l.voters.Has(id) || l.learners.Has(id)) && !l.lost.Has(id)
}

// advance moves the high watermark. It never goes back, whatever happens to the set of voters.
func (l *Leading) advance() bool {
	end := l.voters.Committed(l.marks)
	if end <= l.high {
		return false
	}
	l.high = end
	return true
}

// HighWatermark returns the offset below which all is durable on a majority of voters. Records of earlier epochs
// count only once a majority has acknowledged them under this epoch.
func (l *Leading) HighWatermark() vtop.Offset { return l.high }

// EndOffset returns what a client may be told as the end. Until the high watermark has reached the epoch's start
// ok is false, and the answer is vtop.ErrOffsetNotAvailable: an earlier leader may have shown a higher one (I7).
func (l *Leading) EndOffset() (end vtop.Offset, ok bool) { return l.high, l.high >= l.start }

// Position is what a floor report carries.
type Position struct {
	Epoch   vtop.Epoch
	Version uint64
	// Floor is the high watermark.
	Floor vtop.Offset
	// Quorum is the quorum position: what the present voters have acknowledged under this epoch, counted anew. It
	// may be below Floor after a change of voters, and only it can settle one.
	Quorum vtop.Offset
}

// Position returns the report that may be sent now; ok is false while a change is in flight, or before a majority
// has acknowledged anything under this epoch.
func (l *Leading) Position() (p Position, ok bool) {
	quorum := l.voters.Present.Committed(l.marks)
	if l.voters.Joint() || quorum == NoOffset {
		return Position{}, false
	}
	return Position{l.epoch, l.version, l.high, quorum}, true
}

// Verdict is the fate of a produce request that waits for its records to be committed.
type Verdict uint8

const (
	// Wait: not committed yet.
	Wait Verdict = iota + 1
	// Success: committed under the epoch that admitted it.
	Success
	// NotLeader: the epoch is over. The record may survive or not; the client asks again and is deduplicated.
	NotLeader
)

// Pending is a produce request in wait: bound to the epoch and to the offset after its last record. A recognised
// duplicate waits in the same way, with the offset of its *original* and the *present* epoch: it stands in the
// table of producers because it was appended, not because it was committed.
type Pending struct {
	Epoch vtop.Epoch
	End   vtop.Offset
}

// Verdict says whether the request may be answered. l is nil when the node does not lead the range.
func (l *Leading) Verdict(p Pending) Verdict {
	switch {
	case l == nil || l.epoch != p.Epoch:
		return NotLeader
	case l.high >= p.End:
		return Success
	}
	return Wait
}
