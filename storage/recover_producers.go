package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// needProducers makes sure that r.producers is the state at r.end, where the next segment begins. It takes the
// nearest snapshot at or below that is good, and replays from there (D5): a snapshot is trusted only for its own
// range and offset.
func (r *recovery) needProducers() error {
	if r.producers != nil {
		return nil
	}
	from := len(r.segs)
	var state *producerTable
	for ; state == nil; from-- {
		at := r.end
		if from < len(r.segs) {
			at = r.segs[from].base
		}
		var err error
		if state, err = r.savedProducers(at); err != nil {
			return err
		}
		if state != nil {
			break
		}
		if from == 0 || r.segs[from-1].hole != "" {
			r.lost = fmt.Sprintf("the producer state at offset %d is missing and cannot be rebuilt from the log", at)
			return nil
		}
	}
	for _, s := range r.segs[from:] {
		if err := r.replay(s, state); err != nil || r.lost != "" {
			return err
		}
	}
	r.producers = state
	return nil
}

// keepClosed makes sure that the last segment so far can be sealed if it is not: a lost manifest takes the producer state with it, and there
// may be no snapshot beside it.
func (r *recovery) keepClosed() error {
	if n := len(r.segs); n == 0 || r.segs[n-1].state != SegmentClosed {
		return nil
	}
	if err := r.needProducers(); err != nil || r.lost != "" {
		return err
	}
	r.keepSnapshot()
	return nil
}

// keepSnapshot makes sure that the snapshot at r.end is the state there: sealing the segment that ends there needs
// it. Where the disk does not take it, the next start tries again.
func (r *recovery) keepSnapshot() {
	l := r.log
	if r.end == 0 {
		return
	}
	state := r.producers.encode()
	if have, err := l.readSnapshot(r.end); err == nil && (bytes.Equal(have, state) || len(have) == 0 && len(r.producers.byID) == 0) {
		return
	}
	l.log.Warn("producer snapshot is missing or not what the log gives; written again", "offset", r.end)
	if err := vfs.WriteFileAtomic(l.store.fs, l.path(r.end, producerSuffix), encodeSnapshot(l.rng, r.end, state)); err != nil {
		l.log.Warn("producer snapshot is not written", "offset", r.end, "error", err)
	}
}

// savedProducers returns the state at an offset from its snapshot or from the manifest of the segment that ends
// there; nil if neither is good.
func (r *recovery) savedProducers(at vtop.Offset) (*producerTable, error) {
	l := r.log
	if at == 0 {
		return newProducerTable(&l.store.opt), nil
	}
	for _, m := range r.sealed {
		if m.End == at {
			if t, err := decodeProducers(&l.store.opt, m.Producers); err == nil {
				return t, nil
			}
		}
	}
	if !r.snapshots[at] {
		return nil, nil
	}
	state, err := l.readSnapshot(at)
	if errors.Is(err, vtop.ErrDamaged) {
		l.log.Warn("producer snapshot is damaged; the state is rebuilt from the log", "offset", at, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := decodeProducers(&l.store.opt, state)
	if err != nil {
		l.log.Warn("producer snapshot is damaged; the state is rebuilt from the log", "offset", at, "error", err)
		return nil, nil
	}
	return t, nil
}

// readSnapshot returns the encoded producer state at an offset.
func (l *Log) readSnapshot(at vtop.Offset) ([]byte, error) {
	data, err := vfs.ReadFile(l.store.fs, l.path(at, producerSuffix), maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: no producer snapshot at %d", vtop.ErrDamaged, at)
	}
	if err != nil {
		return nil, err
	}
	return decodeSnapshot(data, l.rng, at)
}

// replay adds the batches of a segment to a producer state.
func (r *recovery) replay(s *segment, state *producerTable) error {
	f, err := r.log.store.fs.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = manifest.Walk(f, s.size, s.base, func(_ int64, b batch.Batch) error {
		state.add(b)
		return nil
	})
	if errors.Is(err, vtop.ErrDamaged) {
		if s.state == SegmentSealed {
			s.hole = err.Error()
		}
		r.lost = fmt.Sprintf("the producer state at offset %d cannot be rebuilt: segment %d: %v", r.end, s.base, err)
		return nil
	}
	return err
}

// adoptLocked makes what recovery found the state of the log. Everything that is derived from the log is set here,
// so that nothing of the old state outlives a cut (B7).
func (l *Log) adoptLocked(r *recovery) {
	for _, s := range l.segs {
		s.gone = true
	}
	if l.generation++; len(r.segs) == 0 || r.segs[len(r.segs)-1].state != SegmentTail {
		r.segs = append(r.segs, l.newSegment(r.end)) // a lost replica: never written to
	}
	if r.producers == nil {
		r.producers = newProducerTable(&l.store.opt)
	}
	l.segs, l.runs, l.producers = r.segs, r.runs, r.producers
	l.end, l.durable, l.suspect = r.end, r.end, r.suspect
	l.start = max(min(l.start, l.end), l.segs[0].base)
	l.dropChunksLocked(len(l.chunks))
	l.undone = nil
	l.closing, l.tailSince, l.hints, l.computed = nil, time.Time{}, readHints{}, nil
	l.forgetZerosLocked()
	l.zero.seg, l.zero.ahead = l.tailLocked(), r.ahead
	l.failure, l.syncFailed, l.bytes = nil, false, 0
	lost := l.state == StateLost // while the files were changed; that stays
	if !lost {
		l.state, l.reason = StateHealthy, ""
	}
	for _, s := range l.segs {
		if l.bytes += s.size; s.hole != "" && !lost {
			l.state, l.reason = StateHoles, holeReason(s)
		}
	}
	if r.lost != "" && !lost {
		l.state, l.reason = StateLost, lostReason(r.lost)
	}
	l.broadcastLocked()
}
