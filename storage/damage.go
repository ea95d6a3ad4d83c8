package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

func holeReason(s *segment) string {
	return fmt.Sprintf("segment %d to %d: %s; it is fetched again from a whole replica by its root", s.base, s.end-1, s.hole)
}

func lostReason(cause string) string {
	return cause + "; the replica may have forgotten what it acknowledged and has to be repaired under a new replica id"
}

// foundDamage is called by a reader that met bytes which are not what was written. If the log was cut or reclaimed
// meanwhile it asks for another try; else it marks the segment or the replica, durably, tells the listener, and
// returns a vtop.ErrDamaged.
func (l *Log) foundDamage(plan *readPlan, at vtop.Offset, reason string) error {
	l.mu.Lock()
	if plan.seg.gone || plan.generation != l.generation {
		l.mu.Unlock()
		return fmt.Errorf("range %s: %w: the log was cut or reclaimed while it was read", l.rng, vtop.ErrNotReady)
	}
	reason = fmt.Sprintf("at offset %d: %s", at, reason)
	hole := plan.seg.state == SegmentSealed
	known := plan.seg.hole != "" || l.state == StateLost
	if hole {
		l.markHoleLocked(plan.seg, reason)
	} else {
		l.loseLocked(fmt.Sprintf("segment %d %s", plan.seg.base, reason))
	}
	l.mu.Unlock()
	if !known {
		l.keepDamage(plan.seg.base, hole, reason)
	}
	return fmt.Errorf("range %s segment %d: %w: %s", l.rng, plan.seg.base, vtop.ErrDamaged, reason)
}

func (l *Log) markHoleLocked(s *segment, reason string) {
	s.hole = reason
	if l.state == StateHealthy || l.state == StateHoles {
		l.state, l.reason = StateHoles, holeReason(s)
	}
}

func (l *Log) loseLocked(reason string) {
	l.state, l.reason = StateLost, lostReason(reason)
	l.broadcastLocked()
}

// Lose marks the replica lost (I10), durably.
func (l *Log) Lose(reason string) error {
	l.mu.Lock()
	l.loseLocked(reason)
	l.mu.Unlock()
	l.log.Error("the replica is lost", "reason", reason)
	return l.store.journal.write([]entry{{entryLost, l.key(), 0}})
}

func (l *Log) key() replicaKey { return replicaKey{l.rng, l.replicaID} }

// keepDamage makes known damage outlive a restart, as far as the disk lets it, and tells the listener.
func (l *Log) keepDamage(base vtop.Offset, hole bool, reason string) {
	l.log.Error("damaged data", "segment", base, "hole", hole, "reason", reason)
	var err error
	if hole {
		err = vfs.WriteFileAtomic(l.store.fs, l.path(base, holeSuffix), encodeSmall(magicHole, []byte(reason)))
	} else {
		err = l.store.journal.write([]entry{{entryLost, l.key(), 0}})
	}
	if err != nil {
		l.log.Error("the damage could not be noted and will have to be found again after a restart", "error", err)
	}
	if tell := l.store.opt.OnDamage; tell != nil {
		tell(Damage{Range: l.rng, ReplicaID: l.replicaID, Base: base, Hole: hole, Reason: reason})
	}
}

// readHole returns why a segment is a hole, as it was noted.
func (l *Log) readHole(base vtop.Offset) string {
	data, err := vfs.ReadFile(l.store.fs, l.path(base, holeSuffix), maxSmallFile)
	if err == nil {
		data, err = decodeSmall(magicHole, data)
	}
	if err != nil {
		return fmt.Sprintf("it was found damaged; the note of how cannot be read: %v", err)
	}
	return string(data)
}

// sealedIndex returns the index of a sealed segment: from its open file, from disk, or rebuilt from the segment.
func (l *Log) sealedIndex(plan *readPlan, h *handle) (*index, error) {
	if x := l.store.files.indexOf(h); x != nil {
		return x, nil
	}
	s := plan.seg
	x, err := l.loadIndex(s.base, plan.fileEnd)
	if err != nil {
		x = newIndex(l.store.opt.IndexBytes)
		_, err := manifest.Walk(h.file, plan.fileEnd, s.base, func(pos int64, b batch.Batch) error {
			x.add(b.BaseOffset(), pos, b.MaxTimestamp())
			return nil
		})
		if errors.Is(err, vtop.ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, l.foundDamage(plan, s.base, err.Error())
		}
		if err != nil {
			return nil, fmt.Errorf("range %s: %w: read %s: %w", l.rng, vtop.ErrStorage, s.path, err)
		}
		l.writeIndex(s.base, x.encode(s.base, plan.fileEnd))
	}
	l.store.files.setIndex(h, x)
	return x, nil
}

func (l *Log) loadIndex(base vtop.Offset, size int64) (*index, error) {
	data, err := vfs.ReadFile(l.store.fs, l.path(base, indexSuffix), maxSmallFile)
	if err != nil {
		return nil, err
	}
	return decodeIndex(data, l.store.opt.IndexBytes, base, size)
}
