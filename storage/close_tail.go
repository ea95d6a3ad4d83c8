package storage

import (
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
)

// ErrNeverWritten says that a range has no record and never had one, so that there is nothing to seal or to repair from.
var ErrNeverWritten = errors.New("range was never written: produce to the range before repairing from it")

// ClosedTail tells what CloseTail did.
type ClosedTail struct {
	// Base and End bound the segment that this call closed. They are equal, and the log end, if the tail was empty.
	Base, End vtop.Offset
	// Records are those of that segment: 0 if the tail was empty.
	Records int64
}

// CloseTail closes the tail at its end as the leader of epoch e (FenceLead): whatever is appended next opens a successor
// there. Lease and log are checked and changed in one critical section (I3), in memory only (I4): the flusher finishes the
// file, Closed has the segment then, Root and Seal follow once the catalogue has it. An empty tail is left as it is, which
// is a success. What was closed may still be cut by a later epoch.
//
// Errors: vtop.ErrFenced, and then nothing has changed, in memory or on disk; ErrNeverWritten; vtop.ErrNotReady (an
// operation has the log), ErrStorage, ErrReplicaLost, ErrDamaged, ErrClosed.
func (l *Log) CloseTail(e vtop.Epoch) (ClosedTail, error) {
	var out ClosedTail
	err := l.store.opt.Fence.Hold(l.rng, e, vtop.FenceLead, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.writableLocked(e); err != nil {
			return err
		}
		if e <= l.bannedEpoch {
			return fmt.Errorf("range %s: %w: epoch %d ended here by a failure", l.rng, vtop.ErrStorage, e)
		}
		if l.end == 0 {
			return fmt.Errorf("range %s: %w", l.rng, ErrNeverWritten)
		}
		tail := l.tailLocked()
		out = ClosedTail{Base: tail.base, End: tail.end, Records: int64(tail.end - tail.base)}
		if tail.size > 0 {
			l.rollLocked()
			l.wakeFlusherLocked()
		}
		return nil
	})
	return out, err
}
