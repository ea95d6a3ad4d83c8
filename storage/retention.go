package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// SetLogStart takes the log start over from the applied metadata. It never goes down. The log start moves at once;
// then segments that are closed and wholly below it are unlinked, while readers that have them open finish (F7). A
// start above the log end is refused with vtop.ErrOffsetOutOfRange: the log must be reset. It does I/O; it works on
// a failed log and a full disk too.
func (l *Log) SetLogStart(start vtop.Offset) error {
	l.mu.Lock()
	err := l.usableLocked()
	if l.state == StateFailed {
		err = nil
	}
	if err == nil && start > l.end {
		err = fmt.Errorf("range %s: %w: log start %d is above the log end %d: the log must be reset", l.rng, vtop.ErrOffsetOutOfRange, start, l.end)
	}
	if err == nil {
		l.start = max(l.start, start)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.opMu.Lock()
	defer l.opMu.Unlock()
	return l.reclaim()
}

// reclaim unlinks the closed and sealed segments wholly below the log start. Under opMu. The file `replica` is written first:
// from then on recovery removes what is below its base.
func (l *Log) reclaim() error {
	growing := l.store.pins.growing(l)
	l.mu.Lock()
	var victims []*segment
	for _, s := range l.segs {
		// A closed one goes too: the catalogue drops its entry with the log start, so that a replica which was away can
		// never seal it. A pin that grows still waits for it to be sealed.
		if s.state == SegmentTail || s.end > l.start || s.end > l.durable || slices.Contains(l.closing, s) ||
			s.state == SegmentClosed && growing {
			break
		}
		victims = append(victims, s)
	}
	busy := l.pendingReset != nil
	l.mu.Unlock()
	for i, s := range victims { // outside the lock: it asks the disk
		if s.state == SegmentClosed && !l.keptProducers(s.end) {
			victims = victims[:i]
			break
		}
	}
	if len(victims) == 0 || busy {
		return nil
	}
	last := victims[len(victims)-1]
	if err := l.keepProducers(last); err != nil {
		return fmt.Errorf("range %s: %w: keep the producer state at %d: %w", l.rng, vtop.ErrStorage, last.end, err)
	}
	if err := l.writeBase(last.end); err != nil {
		return fmt.Errorf("range %s: %w: move the base to %d: %w", l.rng, vtop.ErrStorage, last.end, err)
	}
	l.mu.Lock()
	for _, s := range victims {
		s.gone = true
		l.bytes -= s.size
	}
	l.segs = slices.Clone(l.segs[len(victims):])
	l.runs = runsFrom(l.runs, last.end, l.end)
	l.mu.Unlock()
	return l.unlink(victims)
}

// keptProducers reports whether there is a snapshot of the producer state at a segment's end.
func (l *Log) keptProducers(end vtop.Offset) bool {
	_, err := l.store.fs.Stat(l.path(end, producerSuffix))
	return err == nil
}

// keepProducers makes sure that the producer state at the end of a segment outlives its manifest.
func (l *Log) keepProducers(s *segment) error {
	if _, err := l.readSnapshot(s.end); !errors.Is(err, vtop.ErrDamaged) {
		return err
	}
	m, err := readManifest(l.store.fs, l.path(s.base, manifestSuffix), s.base)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(l.store.fs, l.path(s.end, producerSuffix), encodeSnapshot(l.rng, s.end, m.Producers))
}

// runsFrom returns the runs of what is left of a log that now begins at base.
func runsFrom(runs []vtop.EpochRun, base, end vtop.Offset) []vtop.EpochRun {
	if base >= end {
		return nil
	}
	drop := 0
	for drop+1 < len(runs) && runs[drop+1].Start <= base {
		drop++
	}
	out := slices.Clone(runs[drop:])
	if len(out) > 0 {
		out[0].Start = max(out[0].Start, base)
	}
	return out
}

// unlink removes the files of segments that no longer belong to the log. Open handles go on reading.
func (l *Log) unlink(victims []*segment) error {
	var errs []error
	l.store.files.retire(victims...)
	for _, s := range victims {
		for _, suffix := range []string{logSuffix, indexSuffix, manifestSuffix, producerSuffix, holeSuffix} {
			if err := l.store.fs.Remove(l.path(s.base, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	errs = append(errs, l.store.fs.SyncDir(l.dir))
	l.log.Debug("reclaimed segments below the log start", "segments", len(victims), "base", victims[len(victims)-1].end)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("range %s: %w: unlink what is below the log start: %w", l.rng, vtop.ErrStorage, err)
	}
	return nil
}
