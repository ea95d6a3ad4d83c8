package storage

import (
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// AppendLead appends one batch of a client as the leader under epoch e. Memory only: it returns before anything is
// written; OnDurable tells when the batch is synced. The caller has checked b (batch.Check); b is stamped in
// place with base offset and epoch, then copied. A batch that an idempotent producer sent before is not appended:
// dup names where it stands. Errors: vtop.ErrFenced, ErrNoSpace, ErrOverloaded, ErrNotReady (an operation has the
// log), ErrStorage, ErrReplicaLost, ErrOutOfOrderSequence, ErrStaleProducerEpoch, ErrBatchTooLarge.
func (l *Log) AppendLead(e vtop.Epoch, b batch.Batch) (base vtop.Offset, dup *Duplicate, err error) {
	if len(b) > l.store.opt.MaxBatchBytes {
		return 0, nil, fmt.Errorf("range %s: %w: %d bytes, at most %d are stored", l.rng, vtop.ErrBatchTooLarge, len(b), l.store.opt.MaxBatchBytes)
	}
	call := l.store.leadCalls.Get().(*leadCall)
	call.log, call.epoch, call.batch, call.base = l, e, b, 0
	err = l.store.opt.Fence.Hold(l.rng, e, vtop.FenceLead, call.fn)
	base, dup = call.base, call.dup
	call.log, call.batch, call.dup = nil, nil, nil
	l.store.leadCalls.Put(call)
	return base, dup, err
}

// leadCall carries an append through Fence.Hold without a new closure for each batch.
type leadCall struct {
	log   *Log
	epoch vtop.Epoch
	batch batch.Batch
	base  vtop.Offset
	dup   *Duplicate
	fn    func() error
}

func newLeadCall() any {
	c := &leadCall{}
	c.fn = c.run
	return c
}

// run is the critical section of an append (I3): the lease is pinned, and under mu everything is decided and done.
func (c *leadCall) run() error {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(c.epoch); err != nil {
		return err
	}
	if c.epoch <= l.bannedEpoch {
		return fmt.Errorf("range %s: %w: epoch %d ended here by a failure", l.rng, vtop.ErrStorage, c.epoch)
	}
	if c.batch.ProducerID() != batch.NoProducer {
		dup, err := l.producers.check(c.batch)
		if dup != nil || err != nil {
			c.dup = dup
			return err
		}
	}
	if err := l.admitLocked(len(c.batch)); err != nil {
		return err
	}
	if tail := l.tailLocked(); tail.size > 0 && tail.size+int64(len(c.batch)) > l.segLimit {
		l.rollLocked()
	}
	c.base = l.end
	c.batch.Stamp(l.end, c.epoch)
	l.ledEpoch = c.epoch
	l.putLocked(c.batch)
	l.wakeFlusherLocked()
	return nil
}

// writableLocked decides whether anything may be appended under epoch e now.
func (l *Log) writableLocked(e vtop.Epoch) error {
	if err := l.usableLocked(); err != nil {
		return err
	}
	if l.gate != nil {
		return l.gate
	}
	if e < l.promised {
		return &PromiseError{Range: l.rng, Asked: e, Promised: l.promised}
	}
	if last := l.lastEpochLocked(); e < last {
		return fmt.Errorf("range %s: %w: epoch %d asked, the log has records of epoch %d", l.rng, vtop.ErrFenced, e, last)
	}
	return nil
}

// admitLocked takes n bytes of the buffers (I13). What is admitted is appended, or given back by unadmitLocked.
func (l *Log) admitLocked(n int) error {
	if err := l.store.Admits(); err != nil {
		return err
	}
	size, opt := int64(n), &l.store.opt
	if l.buffered > 0 && l.buffered+size > opt.LogBufferBytes {
		return fmt.Errorf("range %s: %w: %d bytes wait for the disk, at most %d may", l.rng, vtop.ErrOverloaded, l.buffered, opt.LogBufferBytes)
	}
	if total := l.store.buffered.Add(size); total > opt.StoreBufferBytes && total > size {
		l.store.buffered.Add(-size)
		return fmt.Errorf("%w: %d bytes of all ranges wait for the disk, at most %d may", vtop.ErrOverloaded, total-size, opt.StoreBufferBytes)
	}
	l.buffered += size
	return nil
}

// unadmitLocked gives back what admitLocked took.
func (l *Log) unadmitLocked(n int) {
	l.buffered -= int64(n)
	l.store.buffered.Add(-int64(n))
}

// putLocked copies a stamped batch to the log end and moves the end. The bytes were admitted.
func (l *Log) putLocked(b batch.Batch) {
	tail := l.tailLocked()
	c := l.roomLocked(len(b))
	c.data = append(c.data, b...)
	base, next := l.end, b.LastOffset()+1
	tail.index.add(base, tail.size, b.MaxTimestamp())
	if epoch := b.Epoch(); l.lastEpochLocked() != epoch || len(l.runs) == 0 {
		l.runs = append(l.runs, vtop.EpochRun{Epoch: epoch, Start: base})
	}
	l.producers.add(b)
	tail.size += int64(len(b))
	l.bytes += int64(len(b))
	tail.end, c.end, l.end = next, next, next
}

// rollLocked closes the tail in memory; the flusher does it on disk before it writes beyond. The caller wakes it.
func (l *Log) rollLocked() {
	tail := l.tailLocked()
	tail.state = SegmentClosed
	tail.snapshot = l.producers.encode()
	l.closing = append(l.closing, tail)
	l.segs = append(l.segs, l.newSegment(l.end))
	l.tailSince = time.Time{}
}

// AppendFollow appends whole batches as they came from the leader of epoch e (mode FenceFollow), or from the voter
// with the longest log (FencePromote). All of them belong to the segment that begins at segmentBase: if that is the
// log end, the tail is closed there first. They are verified before they are believed: CRC32C, continuity of
// offset and epoch. Batches below the log end are skipped if their epochs agree. It returns the log end. Memory
// only but for the checksums. Errors as AppendLead, and *GapError, *BoundaryError, *DivergedError,
// vtop.ErrCorruptBatch. After an error the batches before the one that was refused may have been appended.
func (l *Log) AppendFollow(e vtop.Epoch, mode vtop.FenceMode, segmentBase vtop.Offset, batches []byte) (end vtop.Offset, err error) {
	if mode != vtop.FenceFollow && mode != vtop.FencePromote {
		return 0, fmt.Errorf("range %s: append in mode %s, want follow or promote", l.rng, mode)
	}
	if err := l.verifyBatches(e, batches); err != nil {
		return 0, err
	}
	err = l.store.opt.Fence.Hold(l.rng, e, mode, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		defer func() { end = l.end }()
		return l.followLocked(e, segmentBase, batches)
	})
	return end, err
}

// verifyBatches checks all that can be checked without the log: each batch by itself, and each against the next.
func (l *Log) verifyBatches(e vtop.Epoch, batches []byte) error {
	next, epoch := vtop.Offset(-1), vtop.NoEpoch
	for rest := batches; len(rest) > 0; {
		b, after, err := batch.Parse(rest, l.store.opt.MaxBatchBytes)
		if err != nil {
			return fmt.Errorf("range %s: batch at %d from a peer: %w", l.rng, next, err)
		}
		if err := b.Check(); err != nil {
			return fmt.Errorf("range %s: batch %d from a peer: %w", l.rng, b.BaseOffset(), err)
		}
		if b.BaseOffset() < 0 || next >= 0 && b.BaseOffset() != next {
			return fmt.Errorf("range %s: %w: batch %d from a peer follows offset %d", l.rng, vtop.ErrCorruptBatch, b.BaseOffset(), next-1)
		}
		if b.Epoch() < epoch || b.Epoch() > e || b.Epoch() <= vtop.NoEpoch {
			return fmt.Errorf("range %s: %w: batch %d from a peer has epoch %d after epoch %d, under epoch %d",
				l.rng, vtop.ErrCorruptBatch, b.BaseOffset(), b.Epoch(), epoch, e)
		}
		next, epoch, rest = b.LastOffset()+1, b.Epoch(), after
	}
	return nil
}

// followLocked appends verified batches.
func (l *Log) followLocked(e vtop.Epoch, segmentBase vtop.Offset, batches []byte) error {
	if err := l.writableLocked(e); err != nil {
		return err
	}
	for rest := batches; len(rest) > 0; {
		b, after, _ := batch.Parse(rest, 0)
		rest = after
		skip, err := l.skipLocked(b)
		if err != nil {
			return err
		}
		if skip {
			continue
		}
		if err := l.admitLocked(len(b)); err != nil {
			return err
		}
		if err := l.boundaryLocked(segmentBase); err != nil {
			l.unadmitLocked(len(b))
			return err
		}
		l.putLocked(b)
		l.wakeFlusherLocked()
	}
	return nil
}

// skipLocked decides whether the log already has a batch. It is compared by epoch: under a reconciled log the same
// epoch at the same offset is the same record (I2).
func (l *Log) skipLocked(b batch.Batch) (bool, error) {
	base, last := b.BaseOffset(), b.LastOffset()
	switch {
	case base == l.end:
		if have := l.lastEpochLocked(); b.Epoch() < have {
			return false, &DivergedError{Range: l.rng, Base: base, Have: have, Sent: b.Epoch()}
		}
		return false, nil
	case last >= l.end:
		return false, &GapError{Range: l.rng, End: l.end, Base: base, Last: last}
	case base < l.segs[0].base: // reclaimed here; nothing to compare with
		return true, nil
	}
	if have := epochAt(l.runs, base); have != b.Epoch() {
		return false, &DivergedError{Range: l.rng, Base: base, Have: have, Sent: b.Epoch()}
	}
	return true, nil
}

// boundaryLocked puts the log end where a batch of segment named can be appended.
func (l *Log) boundaryLocked(named vtop.Offset) error {
	tail := l.tailLocked()
	switch {
	case tail.base == named:
		return nil
	case named == l.end && tail.size > 0:
		l.rollLocked()
		return nil
	case tail.size == 0 && len(l.segs) > 1 && l.segs[len(l.segs)-2].base == named:
		return l.unrollLocked()
	}
	return &BoundaryError{Range: l.rng, Tail: tail.base, End: l.end, Named: named}
}

// unrollLocked opens the last closed segment again and gives the empty tail up: the leader that closed it here died
// before a record of the next segment was safe anywhere, and the present one never closed it. The flusher removes
// the empty file before it writes to the segment: recovery must not find a second file at an offset inside it.
func (l *Log) unrollLocked() error {
	n := len(l.segs)
	last, tail := l.segs[n-2], l.segs[n-1]
	if last.state != SegmentClosed || last.sealing {
		return &BoundaryError{Range: l.rng, Tail: tail.base, End: l.end, Named: last.base}
	}
	if !last.finished {
		return fmt.Errorf("range %s: %w: segment %d is being closed", l.rng, vtop.ErrNotReady, last.base)
	}
	tail.gone = true
	last.state, last.finished = SegmentTail, false
	l.segs = slices.Clone(l.segs[:n-1])
	l.undone = append(l.undone, tail)
	l.tailSince, l.computed = time.Time{}, nil
	l.forgetZerosLocked()
	return nil
}

// epochAt returns the epoch of the record at offset o in runs, NoEpoch below the first.
func epochAt(runs []vtop.EpochRun, o vtop.Offset) vtop.Epoch {
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].Start <= o {
			return runs[i].Epoch
		}
	}
	return vtop.NoEpoch
}
