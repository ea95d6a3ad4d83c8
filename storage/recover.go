package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// recovery reads a replica's directory and says what the log is. It runs at open, after a cut, a reset and a
// reopening: there is one way to come by the state of a log. Nobody else touches the directory meanwhile.
//
// What it relies on: a segment's file is created only after the one before is durable, whole and without slack; a
// file is sealed only after all before it; files below meta.base count for nothing.
type recovery struct {
	log  *Log
	meta replicaMeta
	// mark is the durable mark: below it bad bytes are damage, above it they are a torn end.
	mark vtop.Offset

	logs, manifests, snapshots, holes map[vtop.Offset]bool
	// bases of all segments that have a log or a manifest.
	bases []vtop.Offset
	// lastSealed is the highest base that has a good manifest, -1 if none: all below it were sealed once.
	lastSealed vtop.Offset
	sealed     map[vtop.Offset]*manifest.Manifest

	segs      []*segment
	runs      []vtop.EpochRun
	producers *producerTable
	end       vtop.Offset
	// ahead is the size of the tail's file, all written.
	ahead   int64
	suspect vtop.Offset
	// lost says why the replica must not vote any more; empty if it may.
	lost string
}

// recover reads the directory. An error is one of I/O, and says nothing about the data.
func (l *Log) recover(meta replicaMeta, mark vtop.Offset) (*recovery, error) {
	r := &recovery{log: l, meta: meta, mark: mark, lastSealed: -1, suspect: -1, end: meta.base, sealed: map[vtop.Offset]*manifest.Manifest{}}
	if err := r.list(); err != nil {
		return nil, err
	}
	r.readManifests()
	for i, base := range r.bases {
		if err := r.segment(base, i == len(r.bases)-1); err != nil || r.lost != "" {
			return r, err
		}
	}
	if n := len(r.segs); n == 0 || r.segs[n-1].state != SegmentTail {
		if err := r.keepClosed(); err != nil || r.lost != "" {
			return r, err
		}
		r.segs = append(r.segs, l.newSegment(r.end))
		if err := r.needProducers(); err != nil || r.lost != "" {
			return r, err
		}
	}
	if r.end < r.mark {
		r.lost = fmt.Sprintf("records %d to %d were synced and are missing", r.end, r.mark-1)
	}
	return r, nil
}

// list sorts the names in the directory, and removes what a crash has left behind.
func (r *recovery) list() error {
	l := r.log
	names, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	kinds := map[string]map[vtop.Offset]bool{logSuffix: {}, manifestSuffix: {}, producerSuffix: {}, holeSuffix: {}, indexSuffix: {}}
	for _, name := range names {
		base, ok := parseFileName(name, filepath.Ext(name))
		kind := kinds[filepath.Ext(name)]
		leftover := strings.HasSuffix(name, vfs.TempSuffix) || name == stageName || ok && kind != nil && base < r.meta.base
		switch {
		case leftover:
			if err := l.store.fs.Remove(filepath.Join(l.dir, name)); err != nil {
				return err
			}
		case ok && kind != nil:
			kind[base] = true
		case name != metaName:
			l.log.Warn("unknown file in the replica's directory is left alone", "file", name)
		}
	}
	r.logs, r.manifests, r.snapshots, r.holes = kinds[logSuffix], kinds[manifestSuffix], kinds[producerSuffix], kinds[holeSuffix]
	for base := range r.logs {
		r.bases = append(r.bases, base)
	}
	for base := range r.manifests {
		if !r.logs[base] {
			r.bases = append(r.bases, base)
		}
	}
	slices.Sort(r.bases)
	return nil
}

// readManifests takes every good manifest. A damaged one is as good as none: the segment is read and sealed anew.
func (r *recovery) readManifests() {
	for base := range r.manifests {
		name := r.log.path(base, manifestSuffix)
		m, err := readManifest(r.log.store.fs, name, base)
		if err != nil {
			r.log.log.Warn("manifest is damaged; the segment is read again", "file", name, "error", err)
			continue
		}
		r.sealed[base] = m
		r.lastSealed = max(r.lastSealed, base)
	}
}

func readManifest(fsys vfs.FS, name string, base vtop.Offset) (*manifest.Manifest, error) {
	data, err := vfs.ReadFile(fsys, name, manifest.MaxEncodedSize)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Decode(data)
	if err == nil && m.Base != base {
		err = fmt.Errorf("%w: manifest of segment %d", vtop.ErrDamaged, m.Base)
	}
	return m, err
}

// segment takes the segment at base, which follows r.end.
func (r *recovery) segment(base vtop.Offset, last bool) error {
	if base < r.end {
		r.lost = fmt.Sprintf("segment %d begins below the end %d of the one before", base, r.end)
		return nil
	}
	if base > r.end && !r.gap(base) {
		return nil
	}
	if err := r.keepClosed(); err != nil || r.lost != "" {
		return err
	}
	if m := r.sealed[base]; m != nil {
		return r.sealedSegment(m)
	}
	if !r.logs[base] { // a damaged manifest alone
		if last && base >= r.mark {
			return nil
		}
		return r.badSegment(base, "its file is missing")
	}
	if err := r.needProducers(); err != nil || r.lost != "" {
		return err
	}
	r.keepSnapshot()
	return r.openSegment(base, last)
}

// gap handles a missing file between r.end and base: below a sealed segment it is a hole, else the replica has
// forgotten something.
func (r *recovery) gap(base vtop.Offset) bool {
	if base > r.lastSealed {
		r.lost = fmt.Sprintf("the segments that held records %d to %d are missing", r.end, base-1)
		return false
	}
	r.hole(r.end, base, "its files are missing")
	return true
}

// badSegment is for a segment that cannot be read and has no manifest to tell its end.
func (r *recovery) badSegment(base vtop.Offset, reason string) error {
	if base < r.lastSealed {
		r.hole(base, r.next(base), reason)
		return nil
	}
	r.lost = fmt.Sprintf("segment %d: %s", base, reason)
	return nil
}

// next returns the base that follows one that is not the last.
func (r *recovery) next(base vtop.Offset) vtop.Offset {
	i, _ := slices.BinarySearch(r.bases, base)
	return r.bases[i+1]
}

// hole adds a sealed segment of which nothing is served.
func (r *recovery) hole(base, end vtop.Offset, reason string) {
	s := r.log.newSegment(base)
	s.end, s.state, s.hole, s.finished = end, SegmentSealed, reason, true
	r.segs = append(r.segs, s)
	r.producers, r.end = nil, end
}

// sealedSegment takes a segment by its manifest. Its size is compared at once, its bytes when they are read, so
// that start-up time does not depend on them.
func (r *recovery) sealedSegment(m *manifest.Manifest) error {
	l := r.log
	s := l.newSegment(m.Base)
	s.end, s.size, s.durable, s.root = m.End, m.Size, m.Size, m.Root
	s.state, s.finished, s.index = SegmentSealed, true, nil
	info, err := l.store.fs.Stat(s.path)
	switch s.exists = err == nil; {
	case errors.Is(err, fs.ErrNotExist):
		s.hole = "its file is missing"
	case err != nil:
		return err
	case info.Size != m.Size:
		s.hole = fmt.Sprintf("its file has %d bytes, want %d", info.Size, m.Size)
	case r.holes[m.Base]:
		s.hole = l.readHole(m.Base)
	}
	r.segs = append(r.segs, s)
	for _, run := range m.Runs {
		r.addRun(run)
	}
	r.end = m.End
	r.producers = nil
	return nil
}

func (r *recovery) addRun(run vtop.EpochRun) {
	if n := len(r.runs); n == 0 || r.runs[n-1].Epoch != run.Epoch {
		r.runs = append(r.runs, run)
	}
}

// openSegment reads a segment that is not sealed, batch by batch.
func (r *recovery) openSegment(base vtop.Offset, last bool) error {
	l := r.log
	s := l.newSegment(base)
	s.exists = true
	f, err := l.store.fs.OpenRW(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	fileSize, err := f.Size()
	if err != nil {
		return err
	}
	walked, err := manifest.Walk(f, fileSize, base, func(pos int64, b batch.Batch) error {
		if n := len(r.runs); n > 0 && b.Epoch() < r.runs[n-1].Epoch {
			return &manifest.BadBatch{Pos: pos, Offset: b.BaseOffset(), Err: fmt.Errorf("epoch %d after epoch %d", b.Epoch(), r.runs[n-1].Epoch)}
		}
		s.index.add(b.BaseOffset(), pos, b.MaxTimestamp())
		r.addRun(vtop.EpochRun{Epoch: b.Epoch(), Start: b.BaseOffset()})
		r.producers.add(b)
		return nil
	})
	var bad *manifest.BadBatch
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	s.end, s.size, s.durable = walked.End, walked.Size, walked.Size
	r.segs = append(r.segs, s)
	r.end = s.end
	if r.holes[base] { // closed, and the catalogue has another root for it: see Log.Seal
		r.segs = r.segs[:len(r.segs)-1]
		r.hole(base, s.end, l.readHole(base))
		return nil
	}
	if !last {
		return r.closeSegment(s, f, fileSize, bad)
	}
	return r.closeTail(s, f, fileSize, bad)
}

// closeSegment judges a segment that another one follows: it was whole and synced before that one was created.
func (r *recovery) closeSegment(s *segment, f vfs.File, fileSize int64, bad *manifest.BadBatch) error {
	s.state, s.finished = SegmentClosed, true
	switch next := r.next(s.base); {
	case s.end == next && fileSize == s.size:
		return nil
	case s.end == next:
		return errors.Join(f.Truncate(s.size), f.Sync())
	case s.base < r.lastSealed:
		r.segs = r.segs[:len(r.segs)-1]
		r.hole(s.base, next, fmt.Sprintf("its records end at %d: %v", s.end, bad))
	default:
		r.lost = fmt.Sprintf("segment %d ends at %d, the next begins at %d: %v", s.base, s.end, next, bad)
	}
	return nil
}

// closeTail judges the last segment: above the durable mark the first bad byte ends the log, whatever valid bytes
// follow, since pages that were not synced reach the disk in any order. Below it, bad is damage, and the file is
// left as it is.
func (r *recovery) closeTail(s *segment, f vfs.File, fileSize int64, bad *manifest.BadBatch) error {
	l := r.log
	if s.end < r.mark {
		r.lost = fmt.Sprintf("records from %d on were synced up to %d and cannot be read: %v", s.end, r.mark, bad)
		return nil
	}
	r.ahead = fileSize
	if bad != nil {
		clean, err := zerosFrom(f, s.size, fileSize)
		if err != nil {
			return err
		}
		if !clean {
			l.log.Warn("cut a torn end that was never synced", "offset", s.end, "bytes", fileSize-s.size,
				"valid_batches_behind", validBehind(f, s.size, fileSize), "cause", bad.Err)
			r.suspect, r.ahead = s.end, s.size
			if err := f.Truncate(s.size); err != nil {
				return err
			}
		}
	}
	if s.end == r.mark && r.suspect < 0 {
		return nil
	}
	// What was read may be in the page cache only.
	if err := f.Sync(); err != nil {
		return &syncError{err}
	}
	if err := l.store.fs.SyncDir(l.dir); err != nil {
		return &syncError{err}
	}
	return nil
}

// zerosFrom reports whether a file holds nothing but zeros from pos to end.
func zerosFrom(f io.ReaderAt, pos, end int64) (bool, error) {
	buf := make([]byte, min(end-pos, 1<<20))
	for pos < end {
		n := min(end-pos, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], pos); err != nil {
			return false, err
		}
		for _, c := range buf[:n] {
			if c != 0 {
				return false, nil
			}
		}
		pos += n
	}
	return true, nil
}

// validBehind counts the whole batches behind a bad one, for the operator; it looks at 1 MiB at most.
func validBehind(f io.ReaderAt, pos, end int64) (count int) {
	buf := make([]byte, min(end-pos, 1<<20))
	if _, err := f.ReadAt(buf, pos); err != nil {
		return 0
	}
	for i := 0; i+batch.HeaderSize <= len(buf); i++ {
		if buf[i+16] != batch.Magic {
			continue
		}
		if b, _, err := batch.Parse(buf[i:], 0); err == nil && b.Check() == nil {
			count++
			i += len(b) - 1
		}
	}
	return count
}
