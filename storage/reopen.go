package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Reopen is the way back from StateFailed: it drops the file handles, drops all that was not durable, and recovers
// the log from disk. Epochs under which this process handed out offsets before the failure stay refused. When it
// returns an error the log is still failed, and it may be called again later: a full disk heals so (E9); unless the directory
// or a file that it needs is gone: then the replica is lost (I10), and the error is vtop.ErrReplicaLost.
//
// A file whose sync has failed is never synced again: what is durable of it is copied into a new one.
func (l *Log) Reopen() error {
	l.opMu.Lock()
	defer l.opMu.Unlock()
	l.mu.Lock()
	state, durable, rewrite := l.state, l.durable, l.syncFailed
	reset, fresh := l.pendingReset != nil, l.neverOpened
	l.mu.Unlock()
	if state != StateFailed {
		return l.Err()
	}
	if err := l.takeAlone(context.Background()); err != nil {
		return err
	}
	defer l.leaveAlone()
	var err error
	switch {
	case fresh:
		err = l.recoverAgain()
	case reset:
		err = l.finishReset()
	default:
		err = l.cutTo(durable, rewrite)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // a disk that fails says otherwise: somebody took it away
		return l.forgotten(fmt.Sprintf("reopen at %d: %v", durable, err))
	case err != nil:
		return l.failOp(fmt.Errorf("reopen at %d: %w", durable, err))
	}
	l.log.Info("reopened after a failure", "end", durable)
	return nil
}

// recoverAgain does what open could not do.
func (l *Log) recoverAgain() error {
	meta, err := l.readMeta()
	if err != nil {
		return err
	}
	if err := l.reload(max(l.store.journal.get(l.key()).mark, meta.base)); err != nil {
		return err
	}
	l.mu.Lock()
	l.neverOpened = false
	l.mu.Unlock()
	return nil
}

// cutTo makes the log on disk end at offset at, and recovers it from there. The log is alone. rewrite is true if
// the file that at is in may not be synced again.
func (l *Log) cutTo(at vtop.Offset, rewrite bool) error {
	// The mark goes down first: a crash after it must not find records missing below the mark.
	if st := l.store.journal.get(l.key()); st.marked && st.mark > at {
		if err := l.store.journal.write([]entry{{entryMark, l.key(), uint64(at)}}); err != nil {
			return err
		}
	}
	l.mu.Lock()
	i := l.segmentAtLocked(at)
	if i > 0 && l.segs[i].base == at && !l.segs[i-1].finished {
		i--
	}
	keep := l.segs[i]
	dropped := slices.Clone(l.segs[i:])
	l.mu.Unlock()
	for _, s := range dropped {
		l.store.files.drop(s)
	}
	if err := l.removeAbove(keep.base, at); err != nil {
		return err
	}
	if err := l.shorten(keep, at, rewrite); err != nil {
		return err
	}
	return l.reload(at)
}

// reload recovers the log after its files were changed. Everything below mark is durable.
func (l *Log) reload(mark vtop.Offset) error {
	meta, err := l.readMeta()
	if err != nil {
		return err
	}
	r, err := l.recover(meta, mark)
	if err != nil {
		return err
	}
	l.mu.Lock()
	old := l.segs
	l.adoptLocked(r)
	lost := l.state == StateLost
	l.mu.Unlock()
	l.store.files.retire(old...) // all of them are new, also those that nothing was cut from
	if lost {
		l.keepDamage(r.end, false, r.lost)
	}
	return nil
}

// removeAbove removes the segments above keep, the highest first and each for good before the next: a crash must
// not leave a gap. What was derived from records at or above at goes with them.
func (l *Log) removeAbove(keep, at vtop.Offset) error {
	names, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	fsys := l.store.fs
	for _, name := range slices.Backward(names) {
		base, ok := parseFileName(name, logSuffix)
		if !ok || base <= keep {
			continue
		}
		if err := fsys.Remove(l.path(base, logSuffix)); err != nil {
			return err
		}
		if err := fsys.SyncDir(l.dir); err != nil {
			return err
		}
	}
	for _, name := range names {
		var derived bool
		if base, ok := parseFileName(name, producerSuffix); ok {
			derived = base > at
		}
		if base, ok := parseFileName(name, indexSuffix); ok {
			derived = base >= keep
		}
		if !derived {
			continue
		}
		if err := fsys.Remove(l.dir + "/" + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fsys.SyncDir(l.dir)
}

// shorten makes a segment's file end at an offset, durably.
func (l *Log) shorten(s *segment, at vtop.Offset, rewrite bool) error {
	pos, err := l.positionOf(s, at)
	if errors.Is(err, fs.ErrNotExist) && at == s.base {
		return nil // never created
	}
	if err != nil {
		return err
	}
	if rewrite {
		return l.copyShort(s, pos)
	}
	f, err := l.store.fs.OpenRW(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(pos); err != nil {
		return err
	}
	return f.Sync()
}

// copyShort puts a new file with the first size bytes in place of a segment's file.
func (l *Log) copyShort(s *segment, size int64) error {
	fsys := l.store.fs
	from, err := fsys.Open(s.path)
	if err != nil {
		return err
	}
	defer from.Close()
	name := s.path + vfs.TempSuffix
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := fsys.CreateNew(name)
	if err != nil {
		return err
	}
	if err := copyBytes(to, from, size); err != nil {
		return errors.Join(err, to.Close())
	}
	if err := errors.Join(to.Sync(), to.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(name, s.path); err != nil {
		return err
	}
	return fsys.SyncDir(l.dir)
}

func copyBytes(to, from vfs.File, size int64) error {
	buf := make([]byte, min(size, 1<<20))
	for pos := int64(0); pos < size; {
		n := min(size-pos, int64(len(buf)))
		if _, err := from.ReadAt(buf[:n], pos); err != nil {
			return err
		}
		if _, err := to.WriteAt(buf[:n], pos); err != nil {
			return err
		}
		pos += n
	}
	return nil
}

// errInsideBatch says that an offset is not the base of a batch.
var errInsideBatch = errors.New("the offset is inside a batch")

// errFound ends a walk.
var errFound = errors.New("found")

// positionOf reads a segment up to the batch that begins at an offset, or to the end of its records if that is
// the offset, and returns where it is. The batches before it are verified.
func (l *Log) positionOf(s *segment, at vtop.Offset) (int64, error) {
	f, err := l.store.fs.Open(s.path)
	if err != nil {
		if at == s.base && errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		return 0, err
	}
	defer f.Close()
	if at == s.base {
		return 0, nil
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	walked, err := manifest.Walk(f, size, s.base, func(_ int64, b batch.Batch) error {
		if b.BaseOffset() >= at {
			return errFound
		}
		return nil
	})
	if walked.End == at { // what follows may be anything
		return walked.Size, nil
	}
	if walked.End > at {
		return 0, fmt.Errorf("%w: %d", errInsideBatch, at)
	}
	return 0, fmt.Errorf("segment %d ends at %d, want %d: %w", s.base, walked.End, at, err)
}
