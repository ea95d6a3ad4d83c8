package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Names in a staging beside those of a replica's directory: what it is, and a segment that is not whole yet with the
// manifest it is held to. A segment is whole if it has the names that it has in a replica's directory, both.
const (
	stageName  = "stage"
	partSuffix = ".part"
	wantSuffix = ".want"
)

// Staging is what a node has received of a replica, or of single segments, that is not one yet. It has a directory of
// its own, survives a restart, is never opened as a replica, never served and never listed as one (I11). Every byte in it
// was verified against a manifest whose root the caller gave. All methods may be called by many goroutines at once.
type Staging struct {
	// Set once.
	store *Store
	rng   vtop.Range
	dir   string
	log   hclog.Logger
	// stopped ends with the staging, and with it whoever reads for long.
	stopped context.Context
	stop    context.CancelFunc

	// mu is never held across I/O. It comes after stagedSegment.io.
	mu     sync.Mutex
	closed bool
	segs   map[vtop.Offset]*stagedSegment
}

// stagedSegment is one segment of a staging. Its fields are under the staging's mu; file and want are changed only while
// io is held for writing, too.
type stagedSegment struct {
	// io is held across I/O: for reading by those who write chunks, for writing by whoever begins, finishes or drops.
	io sync.RWMutex

	info StagedSegment
	// file and want are there while the segment is half received; have tells its chunks.
	file vfs.File
	want *manifest.Manifest
	have []bool
}

// StagedSegment describes one segment of a staging.
type StagedSegment struct {
	Base, End vtop.Offset
	Bytes     int64
	Root      [32]byte
	// Whole is true once all of it is durable. Have counts the bytes that are verified, durable or not.
	Whole bool
	Have  int64
}

// StagingInfo describes a staging as operators see it: a replica that is being received.
type StagingInfo struct {
	Range vtop.Range
	// Segments and Bytes are what is on disk, whole or not.
	Segments int
	Bytes    int64
	// Open is true while somebody works on it; Committed once it is to become a replica whatever happens.
	Open, Committed bool
}

func (s *Store) stagePath(r vtop.Range) string { return filepath.Join(s.dir, stagingDir, dirName(r)) }

// Stage opens the staging of a range, or makes it. Opening one that is open returns the same. What an earlier life has
// left is kept: a finished segment is believed as a sealed one is, a half one is hashed anew chunk by chunk when Begin
// names it. Errors: vtop.ErrStorage, ErrNotReady (its adoption was committed: call Adopt again), ErrClosed.
func (s *Store) Stage(r vtop.Range) (*Staging, error) {
	s.stageMu.Lock()
	defer s.stageMu.Unlock()
	if s.isClosed() {
		return nil, vtop.ErrClosed
	}
	if g := s.stagings[r]; g != nil && !g.isClosed() {
		return g, nil
	}
	g := &Staging{store: s, rng: r, dir: s.stagePath(r), log: s.log.With("staging", r.String()), segs: map[vtop.Offset]*stagedSegment{}}
	if _, err := s.fs.Stat(filepath.Join(g.dir, metaName)); err == nil {
		return nil, fmt.Errorf("staging of range %s: %w: its adoption was committed and is to be finished first", r, vtop.ErrNotReady)
	}
	g.stopped, g.stop = context.WithCancel(context.Background())
	if err := g.open(); err != nil {
		g.stop()
		return nil, fmt.Errorf("staging of range %s: %w: %w", r, vtop.ErrStorage, err)
	}
	s.stagings[r] = g
	return g, nil
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (g *Staging) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// open reads the directory, or makes it. One that does not say that it is of this range and cluster is removed: all of
// it can be had again.
func (g *Staging) open() error {
	fsys := g.store.fs
	meta := stageMeta{cluster: g.store.Identity().Cluster, rng: g.rng}
	data, err := vfs.ReadFile(fsys, filepath.Join(g.dir, stageName), maxSmallFile)
	if err == nil {
		var have stageMeta
		if have, err = decodeStageMeta(data); err == nil && have == meta {
			return g.load()
		}
	}
	if _, missing := fsys.Stat(g.dir); missing == nil {
		g.log.Warn("a staging that cannot be used is removed", "directory", g.dir, "error", err)
	}
	if err := fsys.RemoveAll(g.dir); err != nil {
		return err
	}
	if err := vfs.MkdirAllSync(fsys, g.dir); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(g.dir, stageName), meta.encode())
}

// load takes what is there.
func (g *Staging) load() error {
	fsys := g.store.fs
	names, err := fsys.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, vfs.TempSuffix) {
			if err := fsys.Remove(filepath.Join(g.dir, name)); err != nil {
				return err
			}
			continue
		}
		base, ok := parseFileName(name, filepath.Ext(name))
		if !ok || g.segs[base] != nil {
			continue
		}
		if g.segs[base], err = g.loadSegment(base, names); err != nil {
			return err
		}
	}
	return nil
}

// loadSegment tells a whole segment from a half one. The two renames that make a segment whole may have come to the disk
// in any order: one of the two names alone is undone.
func (g *Staging) loadSegment(base vtop.Offset, names []string) (*stagedSegment, error) {
	fsys := g.store.fs
	has := func(suffix string) bool { _, ok := slices.BinarySearch(names, fileName(base, suffix)); return ok }
	seg := &stagedSegment{info: StagedSegment{Base: base}}
	if has(logSuffix) && has(manifestSuffix) {
		m, err := readManifest(fsys, g.path(base, manifestSuffix), base)
		info, missing := fsys.Stat(g.path(base, logSuffix))
		if err == nil && missing == nil && info.Size == m.Size {
			seg.info = StagedSegment{Base: base, End: m.End, Bytes: m.Size, Root: m.Root, Whole: true, Have: m.Size}
			return seg, nil
		}
	}
	if has(logSuffix) {
		if err := fsys.Rename(g.path(base, logSuffix), g.path(base, partSuffix)); err != nil {
			return nil, err
		}
	}
	if has(manifestSuffix) {
		if err := fsys.Rename(g.path(base, manifestSuffix), g.path(base, wantSuffix)); err != nil {
			return nil, err
		}
	}
	if m, err := readManifest(fsys, g.path(base, wantSuffix), base); err == nil {
		seg.info.End, seg.info.Bytes, seg.info.Root = m.End, m.Size, m.Root
	}
	return seg, nil
}

func (g *Staging) path(base vtop.Offset, suffix string) string {
	return filepath.Join(g.dir, fileName(base, suffix))
}

// Stagings describes all stagings on disk, ordered by range.
func (s *Store) Stagings() []StagingInfo {
	names, err := s.fs.ReadDir(filepath.Join(s.dir, stagingDir))
	if err != nil {
		return nil
	}
	var out []StagingInfo
	for _, name := range names {
		if r, ok := parseDirName(name); ok {
			out = append(out, s.stagingInfo(r))
		}
	}
	slices.SortFunc(out, func(a, b StagingInfo) int { return a.Range.Compare(b.Range) })
	return out
}

func (s *Store) stagingInfo(r vtop.Range) StagingInfo {
	out := StagingInfo{Range: r}
	s.stageMu.Lock()
	out.Open = s.stagings[r] != nil && !s.stagings[r].isClosed()
	s.stageMu.Unlock()
	names, _ := s.fs.ReadDir(s.stagePath(r))
	for _, name := range names {
		switch ext := filepath.Ext(name); {
		case name == metaName:
			out.Committed = true
		case ext == logSuffix || ext == partSuffix:
			if info, err := s.fs.Stat(filepath.Join(s.stagePath(r), name)); err == nil {
				out.Segments++
				out.Bytes += info.Size
			}
		}
	}
	return out
}

// SweepStaging removes the stagings for which keep is false, because no job wants them any more; one that is open is
// closed first. Those whose adoption was committed stay. It returns what it removed.
func (s *Store) SweepStaging(keep func(vtop.Range) bool) (removed []vtop.Range, err error) {
	names, err := s.fs.ReadDir(filepath.Join(s.dir, stagingDir))
	if err != nil {
		return nil, fmt.Errorf("sweep stagings: %w: %w", vtop.ErrStorage, err)
	}
	var errs []error
	for _, name := range names {
		r, ok := parseDirName(name)
		if !ok || keep(r) {
			continue
		}
		if gone, err := s.discard(r); err != nil {
			errs = append(errs, err)
		} else if gone {
			removed = append(removed, r)
		}
	}
	return removed, errors.Join(errs...)
}

// discard closes and removes the staging of a range; false if its adoption was committed.
func (s *Store) discard(r vtop.Range) (bool, error) {
	s.createMu.Lock() // against its adoption
	defer s.createMu.Unlock()
	s.stageMu.Lock()
	defer s.stageMu.Unlock()
	if _, err := s.fs.Stat(filepath.Join(s.stagePath(r), metaName)); err == nil {
		return false, nil
	}
	if g := s.stagings[r]; g != nil {
		g.close()
		delete(s.stagings, r)
	}
	err := s.fs.RemoveAll(s.stagePath(r))
	if err == nil {
		err = s.fs.SyncDir(filepath.Join(s.dir, stagingDir))
	}
	if err != nil {
		return false, fmt.Errorf("remove the staging of range %s: %w: %w", r, vtop.ErrStorage, err)
	}
	return true, nil
}

// Range returns the range.
func (g *Staging) Range() vtop.Range { return g.rng }

// Segments lists what is staged, in order: also half segments of an earlier life that Begin has not named yet, of which
// Have is 0 then.
func (g *Staging) Segments() []StagedSegment {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]StagedSegment, 0, len(g.segs))
	for _, seg := range g.segs {
		out = append(out, seg.info)
	}
	slices.SortFunc(out, func(a, b StagedSegment) int { return int(a.Base - b.Base) })
	return out
}

// Close lets go of the files; what is staged stays. It may be called more than once.
func (g *Staging) Close() error {
	g.close()
	return nil
}

// close waits for whoever writes. Nothing of the staging changes after it.
func (g *Staging) close() {
	g.mu.Lock()
	g.closed = true
	g.stop()
	segs := make([]*stagedSegment, 0, len(g.segs))
	for _, seg := range g.segs {
		segs = append(segs, seg)
	}
	g.mu.Unlock()
	for _, seg := range segs {
		seg.io.Lock()
		if seg.file != nil {
			_ = seg.file.Close() // what was not finished is hashed anew
			seg.file = nil
		}
		seg.io.Unlock()
	}
}

func (s *Store) closeStagings() {
	s.stageMu.Lock()
	defer s.stageMu.Unlock()
	for _, g := range s.stagings {
		g.close()
	}
}

// Discard closes the staging and removes all of it. Of one that was adopted nothing is left to remove.
func (g *Staging) Discard() error {
	_, err := g.store.discard(g.rng)
	return err
}

// removeStaged removes the files of a segment.
func (g *Staging) removeStaged(base vtop.Offset) error {
	for _, suffix := range []string{manifestSuffix, wantSuffix, logSuffix, partSuffix} {
		if err := g.store.fs.Remove(g.path(base, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
