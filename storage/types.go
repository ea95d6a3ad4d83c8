package storage

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// State says what a replica may still do.
type State uint8

// The states of a replica, from whole to useless.
const (
	// StateHealthy: whole as far as was looked at.
	StateHealthy State = iota
	// StateHoles: a sealed segment is damaged or missing. The replica knows its position and keeps its vote and
	// its id; it serves nothing of the hole, is no source for it, and should hand over its lease.
	StateHoles
	// StateFailed: a write or sync failed, the epoch of the log has ended. Log.Reopen is the way back.
	StateFailed
	// StateQuarantined: the log contradicts the metadata in a way that no rule allows to cut (I8). Nothing is
	// changed and nothing is served until an operator has looked.
	StateQuarantined
	// StateLost: the replica may have forgotten what it held (I10). It does not vote, lead or serve.
	StateLost
)

// String names the state as operators see it.
func (s State) String() string {
	switch s {
	case StateHealthy:
		return "healthy"
	case StateHoles:
		return "holes"
	case StateFailed:
		return "failed"
	case StateQuarantined:
		return "quarantined"
	case StateLost:
		return "lost"
	}
	return "unknown"
}

// ReplicaInfo describes one replica of the store.
type ReplicaInfo struct {
	Range vtop.Range
	// ReplicaID is 0 if the directory no longer tells it.
	ReplicaID vtop.ReplicaID
	State     State
	// Reason says why the replica is not healthy, and what to do. Empty if it is.
	Reason string
	// Start, End and Durable are the log start, the log end and the end of what is synced.
	Start, End, Durable vtop.Offset
	// Promised is the highest epoch promised.
	Promised vtop.Epoch
	// Bytes is the size of all segments, without what is zeroed ahead.
	Bytes int64
}

// Damage tells of bytes at rest that are not what was written.
type Damage struct {
	Range     vtop.Range
	ReplicaID vtop.ReplicaID
	// Base is the base offset of the segment.
	Base vtop.Offset
	// Hole is true if the segment is sealed: the replica keeps its vote. Otherwise the replica is lost (I10).
	Hole   bool
	Reason string
}

// SegmentState says how far a segment is on its way.
type SegmentState uint8

// The states of a segment.
const (
	// SegmentTail is open for appends.
	SegmentTail SegmentState = iota
	// SegmentClosed takes no more, but may still be cut.
	SegmentClosed
	// SegmentSealed is in the catalogue and never changes (I9).
	SegmentSealed
)

// String names the state as operators see it.
func (s SegmentState) String() string {
	switch s {
	case SegmentTail:
		return "tail"
	case SegmentClosed:
		return "closed"
	case SegmentSealed:
		return "sealed"
	}
	return "unknown"
}

// SegmentInfo describes one segment of a log.
type SegmentInfo struct {
	// Base is the offset of the first record; End the one after the last.
	Base, End vtop.Offset
	// Bytes is the size of the batches, without what is zeroed ahead.
	Bytes int64
	State SegmentState
	// Root identifies the content of a sealed segment.
	Root [32]byte
	// Hole says why a sealed segment is not served; empty if it is whole as far as was looked at.
	Hole string
}

// Promise is the promise of one replica never again to accept anything of an epoch below Epoch (I6).
type Promise struct {
	Range     vtop.Range
	ReplicaID vtop.ReplicaID
	Epoch     vtop.Epoch
}

// Duplicate names the offsets at which a batch that was sent again already stands.
type Duplicate struct {
	Base, Last vtop.Offset
}

// Cut tells what Reconcile did.
type Cut struct {
	// Done is false if the table proved no divergence; then the other fields are zero.
	Done bool
	// From is the first offset that was cut; To the log end before.
	From, To vtop.Offset
	// Bytes is how much was cut.
	Bytes int64
}

// PromiseError says that a replica has promised a higher epoch. It is a vtop.ErrFenced.
type PromiseError struct {
	Range           vtop.Range
	Asked, Promised vtop.Epoch
}

// Error implements error.
func (e *PromiseError) Error() string {
	return fmt.Sprintf("range %s: epoch %d asked, epoch %d is promised", e.Range, e.Asked, e.Promised)
}

// Is makes errors.Is(err, vtop.ErrFenced) true.
func (e *PromiseError) Is(target error) bool { return target == vtop.ErrFenced }

// GapError says that batches sent to a follower do not begin at its log end: there is a gap, or a batch that
// begins below the end and ends above it. The sender goes on from End.
type GapError struct {
	Range vtop.Range
	// End is the log end of the follower; Base and Last are the offsets of the batch that did not fit.
	End, Base, Last vtop.Offset
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("range %s: batch %d to %d does not follow the log end %d", e.Range, e.Base, e.Last, e.End)
}

// BoundaryError says that a batch names a segment that the follower's log cannot put it into: the base is neither
// that of the tail nor the log end.
type BoundaryError struct {
	Range vtop.Range
	// Tail is the base of the follower's tail, End its log end, Named the base that came with the batch.
	Tail, End, Named vtop.Offset
}

// Error implements error.
func (e *BoundaryError) Error() string {
	return fmt.Sprintf("range %s: batch belongs to segment %d, the tail is %d and ends at %d", e.Range, e.Named, e.Tail, e.End)
}

// DivergedError says that a batch at an offset that the log already holds has another epoch there: the follower
// must reconcile before anything it says may count.
type DivergedError struct {
	Range      vtop.Range
	Base       vtop.Offset
	Have, Sent vtop.Epoch
}

// Error implements error.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("range %s: offset %d has epoch %d here, epoch %d was sent: reconcile first", e.Range, e.Base, e.Have, e.Sent)
}

// QuarantineError says that what the metadata demands would delete what must not be deleted (I8). Nothing was
// changed; the replica is in StateQuarantined.
type QuarantineError struct {
	Range  vtop.Range
	Reason string
}

// Error implements error.
func (e *QuarantineError) Error() string {
	return fmt.Sprintf("range %s is quarantined: %s", e.Range, e.Reason)
}

// Is makes errors.Is(err, vtop.ErrDamaged) true: the replica serves nothing.
func (e *QuarantineError) Is(target error) bool { return target == vtop.ErrDamaged }
