package vtop

import (
	"errors"
	"fmt"
)

// Sentinel errors that more than one package raises or answers for. They travel wrapped, with the values
// expected and found; callers use errors.Is. Whether a retry is right stands beside each.
var (
	// ErrFenced: the epoch, holder or incarnation of the caller is not the applied one. Retry elsewhere.
	ErrFenced = errors.New("fenced")
	// ErrNotLeader: this node does not lead the range now. Retry after refreshing metadata.
	ErrNotLeader = errors.New("not the leader")
	// ErrNotReady: the node has not caught up with the metadata yet, or the range is in promotion. Retry.
	ErrNotReady = errors.New("not ready")
	// ErrEpochFenced: the client named a leader epoch older than the range's. Refresh metadata, then retry.
	ErrEpochFenced = errors.New("leader epoch is too old")
	// ErrEpochUnknown: the client named a leader epoch newer than this node knows. Retry.
	ErrEpochUnknown = errors.New("leader epoch is not known here yet")
	// ErrOffsetOutOfRange: below the log start or above the log end. Final for that offset.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrOffsetNotAvailable: a new leader does not know its high watermark yet. Retry.
	ErrOffsetNotAvailable = errors.New("offset not available yet")
	// ErrUnknownRange: no such topic or range in the applied state. Retry only if it was just created.
	ErrUnknownRange = errors.New("unknown topic or range")
	// ErrCorruptBatch: a record batch failed its checks. Final for those bytes.
	ErrCorruptBatch = errors.New("corrupt record batch")
	// ErrBatchTooLarge: a record batch exceeds max.message.bytes. Final.
	ErrBatchTooLarge = errors.New("record batch too large")
	// ErrUnsupportedBatch: a record batch of a format that is not taken (magic below 2, control, transactional). Final.
	ErrUnsupportedBatch = errors.New("unsupported record batch")
	// ErrOutOfOrderSequence: an idempotent producer's batch does not follow its last. Final for that batch.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrStaleProducerEpoch: a newer epoch of the same producer id has written. Final.
	ErrStaleProducerEpoch = errors.New("producer epoch is too old")
	// ErrNoSpace: the disk is under its reserve. Retry; it heals when space is freed.
	ErrNoSpace = errors.New("no space on the data disk")
	// ErrStorage: the disk failed under this range; its epoch ends. Retry elsewhere.
	ErrStorage = errors.New("storage failed")
	// ErrDamaged: bytes at rest do not match their checksums. Never served; repair.
	ErrDamaged = errors.New("damaged data")
	// ErrReplicaLost: this replica may have forgotten and does not vote (I10). Repair.
	ErrReplicaLost = errors.New("replica may have forgotten what it held")
	// ErrOverloaded: a bounded queue or buffer is full (I13). Retry after a pause.
	ErrOverloaded = errors.New("overloaded")
	// ErrTimeout: the outcome is unknown. Retry if the operation is idempotent.
	ErrTimeout = errors.New("timed out, outcome unknown")
	// ErrClosed: the component was closed. Final in this process.
	ErrClosed = errors.New("closed")
)

// FencedError says who asked to act under which lease and which lease the applied state holds.
type FencedError struct {
	Range Range
	// Claimed is the epoch under which the caller wanted to act.
	Claimed Epoch
	// Applied is the lease of the applied state; zero if the range has none.
	Applied Lease
	// Reason is a short phrase: "lease moved", "not started", "deadline passed", "never granted".
	Reason string
}

// Error implements error.
func (e *FencedError) Error() string {
	return fmt.Sprintf("fenced: range %s claimed epoch %d, lease is epoch %d of %q incarnation %d: %s",
		e.Range, e.Claimed, e.Applied.Epoch, e.Applied.Holder, e.Applied.Incarnation, e.Reason)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }
