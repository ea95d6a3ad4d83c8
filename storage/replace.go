package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// ReplaceSegment puts a staged, finished segment in the place of one that is damaged or missing: a hole of the range's
// replica. root is the catalogue's. The staged bytes are verified once more, and the file takes the place of the bad one
// atomically: a crash leaves the hole or the whole segment. When no hole is left the replica is StateHealthy. The log goes
// on meanwhile. Where the segment is sealed here with that root and no hole, nothing is done.
//
// Errors: vtop.ErrUnknownRange, ErrReplicaLost, ErrOffsetOutOfRange (retention took the segment: nothing is to be replaced),
// ErrNotReady (not staged whole, or not sealed here), ErrDamaged (the staged bytes are not those of root), a *BoundaryError
// (the hole does not hold the segment), ErrStorage.
func (s *Store) ReplaceSegment(r vtop.Range, base vtop.Offset, root [32]byte, from *Staging) error {
	l := s.Get(r)
	if l == nil {
		return fmt.Errorf("replace segment %d: %w: no replica of range %s here", base, vtop.ErrUnknownRange, r)
	}
	if from == nil || from.rng != r {
		return fmt.Errorf("replace segment %d of range %s: %w: the staging is of another range", base, r, vtop.ErrNotReady)
	}
	l.opMu.Lock()
	defer l.opMu.Unlock()
	seg, err := from.take(base, false)
	if err != nil {
		return err
	}
	defer seg.io.Unlock()
	if needed, err := l.holeFor(base, root, seg.info.End); !needed {
		return err
	}
	m, err := from.verifyWhole(seg, root)
	if err != nil {
		return fmt.Errorf("replace segment %d of range %s: %w", base, r, err)
	}
	if err := l.replaceFiles(from, m); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.Join(err, l.checkNames()) // its directory may be gone
		}
		return fmt.Errorf("replace segment %d of range %s: %w: %w", base, r, vtop.ErrStorage, err)
	}
	l.mu.Lock()
	old := l.fillHoleLocked(m)
	state := l.state
	l.mu.Unlock()
	s.files.retire(old)
	l.log.Info("a damaged segment is replaced", "segment", base, "end", m.End, "state", state)
	from.forget(seg)
	if err := errors.Join(from.removeStaged(base), s.fs.SyncDir(from.dir)); err != nil {
		l.log.Warn("what was staged of the replaced segment is not removed", "error", err)
	}
	return nil
}

// holeFor reports whether the log lacks the segment [base, end): false and nil if it has it.
func (l *Log) holeFor(base vtop.Offset, root [32]byte, end vtop.Offset) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return false, err
	}
	if base < l.segs[0].base {
		return false, fmt.Errorf("range %s: %w: segment %d was reclaimed, the first is %d", l.rng, vtop.ErrOffsetOutOfRange, base, l.segs[0].base)
	}
	s := l.segs[l.segmentAtLocked(base)]
	switch {
	case s.state == SegmentSealed && s.hole == "" && s.base == base && s.root == root:
		return false, nil
	case s.state == SegmentSealed && s.hole == "":
		return false, fmt.Errorf("range %s: segment %d: %w: here it is %d to %d with root %x", l.rng, base, ErrWrongRoot, s.base, s.end-1, s.root)
	case s.state != SegmentSealed:
		return false, fmt.Errorf("range %s: %w: segment %d is not sealed here", l.rng, vtop.ErrNotReady, base)
	case end > s.end:
		return false, &BoundaryError{Range: l.rng, Tail: s.base, End: s.end, Named: end}
	}
	return true, nil
}

// verifyWhole reads a staged segment that is whole against the root that is wanted. Its io is held for writing.
func (g *Staging) verifyWhole(seg *stagedSegment, root [32]byte) (*manifest.Manifest, error) {
	base := seg.info.Base
	if !seg.info.Whole || seg.info.Root != root {
		return nil, fmt.Errorf("%w: it is not staged whole with root %x", vtop.ErrNotReady, root)
	}
	m, err := g.wholeManifest(base)
	if err == nil && m.Root != root {
		err = fmt.Errorf("%w: the staged manifest has root %x, want %x", vtop.ErrDamaged, m.Root, root)
	}
	if err != nil {
		return nil, err
	}
	f, err := g.store.fs.Open(g.path(base, logSuffix))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	defer f.Close()
	if bad := m.Verify(f, m.Size); len(bad) > 0 {
		return nil, bad[0]
	}
	return m, nil
}

// replaceFiles puts the files of a staged segment in place. The manifest goes first: with it and without the bytes the
// segment is a hole to recovery; bytes without it could be taken for a segment that was never sealed.
func (l *Log) replaceFiles(from *Staging, m *manifest.Manifest) error {
	fsys := l.store.fs
	if err := vfs.WriteFileAtomic(fsys, l.path(m.Base, manifestSuffix), m.Encode()); err != nil {
		return err
	}
	if err := fsys.Rename(from.path(m.Base, logSuffix), l.path(m.Base, logSuffix)); err != nil {
		return err
	}
	if err := fsys.SyncDir(l.dir); err != nil {
		return err
	}
	for _, suffix := range []string{indexSuffix, holeSuffix} {
		if err := fsys.Remove(l.path(m.Base, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fsys.SyncDir(l.dir)
}

// fillHoleLocked makes a segment that is on disk now a part of the log. What it leaves of the hole, before and behind,
// stays one. It returns the hole, which is of the log no more.
func (l *Log) fillHoleLocked(m *manifest.Manifest) *segment {
	i := l.segmentAtLocked(m.Base)
	old := l.segs[i]
	old.gone = true
	fill := l.newSegment(m.Base)
	fill.end, fill.size, fill.durable, fill.root = m.End, m.Size, m.Size, m.Root
	fill.state, fill.finished, fill.exists, fill.index = SegmentSealed, true, true, nil
	segs := slices.Clone(l.segs[:i])
	if old.base < m.Base {
		segs = append(segs, l.restOfHole(old, old.base, m.Base))
	}
	segs = append(segs, fill)
	if m.End < old.end {
		segs = append(segs, l.restOfHole(old, m.End, old.end))
	}
	l.segs = append(segs, l.segs[i+1:]...)
	l.bytes += m.Size - old.size
	l.runs = mergeRuns(l.runs, m)
	if l.computed != nil && l.computed.Base == m.Base {
		l.computed = nil
	}
	l.seeHolesLocked()
	return old
}

// restOfHole is a part of a hole of which nothing is known but that it was sealed.
func (l *Log) restOfHole(old *segment, base, end vtop.Offset) *segment {
	s := l.newSegment(base)
	s.end, s.state, s.hole, s.finished = end, SegmentSealed, old.hole, true
	return s
}

// mergeRuns adds the epochs of a segment that was missing to the runs around it. Epochs never fall along the log, so of
// each the lowest start counts.
func mergeRuns(runs []vtop.EpochRun, m *manifest.Manifest) []vtop.EpochRun {
	all := append(slices.Clone(runs), m.Runs...)
	slices.SortStableFunc(all, func(a, b vtop.EpochRun) int {
		if a.Epoch != b.Epoch {
			return int(a.Epoch) - int(b.Epoch)
		}
		return int(a.Start - b.Start)
	})
	return slices.CompactFunc(all, func(a, b vtop.EpochRun) bool { return a.Epoch == b.Epoch })
}

// seeHolesLocked sets the state of a replica that may vote by the holes it has.
func (l *Log) seeHolesLocked() {
	if l.state != StateHealthy && l.state != StateHoles {
		return
	}
	l.state, l.reason = StateHealthy, ""
	for _, s := range l.segs {
		if s.hole != "" {
			l.state, l.reason = StateHoles, holeReason(s)
		}
	}
}

// Holes lists the segments that are not served, in order. A hole of which no file is left may stand for several segments
// of the catalogue.
func (l *Log) Holes() []SegmentInfo {
	var out []SegmentInfo
	for _, s := range l.Segments() {
		if s.Hole != "" {
			out = append(out, s)
		}
	}
	return out
}
