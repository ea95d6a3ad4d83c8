package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// newPrefix begins the name of a replica's directory until it is whole.
const newPrefix = ".new-"

// dirName returns the name of a range's directory: topic id and index.
func dirName(r vtop.Range) string { return r.Topic.String() + "-" + strconv.Itoa(int(r.Index)) }

func parseDirName(name string) (vtop.Range, bool) {
	if len(name) < 38 || name[36] != '-' {
		return vtop.Range{}, false
	}
	topic, err := vtop.ParseUUID(name[:36])
	if err != nil {
		return vtop.Range{}, false
	}
	index, err := strconv.ParseInt(name[37:], 10, 32)
	r := vtop.Range{Topic: topic, Index: int32(index)}
	return r, err == nil && index >= 0 && dirName(r) == name
}

// openReplicas recovers all replicas, some at once. lost, if not empty, says why none may vote.
func (s *Store) openReplicas(lost string) error {
	root := filepath.Join(s.dir, rangesDir)
	names, err := s.fs.ReadDir(root)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, openParallel)
	var wait sync.WaitGroup
	for _, name := range names {
		r, ok := parseDirName(name)
		switch {
		case strings.HasPrefix(name, newPrefix): // never whole, never used
			if err := s.fs.RemoveAll(filepath.Join(root, name)); err != nil {
				return err
			}
			continue
		case !ok:
			if err := s.moveAside(name, "the name is not that of a range"); err != nil {
				return err
			}
			continue
		}
		l := s.newLog(r, 0)
		s.logs[r] = l
		slots <- struct{}{}
		wait.Go(func() {
			l.open(lost)
			<-slots
		})
	}
	wait.Wait()
	return s.noteLost()
}

func (s *Store) newLog(r vtop.Range, id vtop.ReplicaID) *Log {
	dir := filepath.Join(s.dir, rangesDir, dirName(r))
	return &Log{
		store: s, rng: r, replicaID: id, dir: dir, log: s.log.With("range", r.String()),
		segLimit: s.opt.SegmentBytes, suspect: -1,
	}
}

// open recovers one replica. It never fails: what is wrong is told by its state.
func (l *Log) open(lost string) {
	meta, err := l.readMeta()
	if err == nil && meta.rng != l.rng {
		err = fmt.Errorf("%w: it is of range %s", vtop.ErrDamaged, meta.rng)
	}
	if err != nil {
		l.openLost(0, fmt.Sprintf("the file %s: %v", filepath.Join(l.dir, metaName), err))
		return
	}
	l.replicaID = meta.replicaID
	known := l.store.journal.get(l.key())
	l.promised, l.marked, l.unmarked = known.promise, known.mark, !known.marked
	if lost == "" && known.lost {
		lost = "it was found lost before"
	}
	if lost != "" {
		l.openLost(meta.base, lost)
		return
	}
	r, err := l.recover(meta, max(known.mark, meta.base))
	if err != nil {
		l.openFailed(meta.base, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.adoptLocked(r); l.state != StateHealthy {
		l.log.Error("the replica is not whole", "state", l.state, "reason", l.reason)
	}
}

// openLost opens a replica of which nothing is read.
func (l *Log) openLost(base vtop.Offset, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adoptLocked(&recovery{log: l, end: base, lost: reason, suspect: -1})
	l.log.Error("the replica is lost", "reason", reason)
}

// openFailed opens a replica whose directory the disk does not give: Reopen tries again.
func (l *Log) openFailed(base vtop.Offset, err error) {
	l.mu.Lock()
	l.adoptLocked(&recovery{log: l, end: max(base, l.marked), suspect: -1})
	l.failLocked(fmt.Errorf("recovery: %w", err))
	l.neverOpened = true
	durable := l.durable
	l.mu.Unlock()
	l.logFailure(durable, err)
}

// noteLost makes what recovery has found lost stay lost, with one sync, and finds the replicas whose directory is
// gone altogether.
func (s *Store) noteLost() error {
	var entries []entry
	known := map[replicaKey]bool{}
	for _, l := range s.allLogs() {
		known[l.key()] = true
		if l.state == StateLost && l.replicaID != 0 && !s.journal.get(l.key()).lost {
			entries = append(entries, entry{entryLost, l.key(), 0})
		}
	}
	for _, key := range s.journal.keys() {
		l := s.logs[key.rng]
		switch {
		case known[key], l != nil && l.replicaID == 0:
			continue
		case l != nil && l.replicaID > key.id: // set aside for this one
			entries = append(entries, entry{entryForget, key, 0})
			continue
		}
		s.missing[key] = fmt.Sprintf("the directory %s of replica %d is missing", filepath.Join(s.dir, rangesDir, dirName(key.rng)), key.id)
		s.log.Error("the replica is lost", "range", key.rng.String(), "reason", s.missing[key])
	}
	return s.journal.write(entries)
}

// Delete removes the replica of a range for ever; nothing to do is no error. Only for a tombstone that was
// committed (E4): the caller sees to that. The directory leaves its place at once and durably; its files are
// removed then, and by the next start if that fails.
func (s *Store) Delete(r vtop.Range) error {
	return s.takeOut(r, func(from string) error {
		to, err := freeName(s.fs, filepath.Join(s.dir, trashDir), dirName(r))
		if err != nil {
			return err
		}
		if err := s.move(from, to); err != nil {
			return err
		}
		if err := s.fs.RemoveAll(to); err != nil {
			s.log.Warn("a deleted replica is removed at the next start", "directory", to, "error", err)
		}
		return nil
	})
}

// SetAside moves the directory of a replica to aside/, where nothing touches it any more, and forgets it: its
// promise and mark too, so that the range can have a replica under a new id.
func (s *Store) SetAside(r vtop.Range, why string) error {
	return s.takeOut(r, func(string) error { return s.moveAside(dirName(r), why) })
}

// takeOut ends a replica: no operation on it is running when its directory moves, and none begins after.
func (s *Store) takeOut(r vtop.Range, move func(from string) error) error {
	s.createMu.Lock()
	defer s.createMu.Unlock()
	var forget []entry
	if l := s.Get(r); l != nil {
		if err := l.shutDown(); err != nil {
			return err
		}
		_, err := s.fs.Stat(l.dir)
		if errors.Is(err, fs.ErrNotExist) { // moved by an attempt that failed after it
			err = s.fs.SyncDir(filepath.Dir(l.dir))
		} else if err == nil {
			err = move(l.dir)
		}
		if err != nil {
			return fmt.Errorf("%w: take out range %s: %w", vtop.ErrStorage, r, err)
		}
		s.mu.Lock()
		delete(s.logs, r)
		s.mu.Unlock()
		forget = append(forget, entry{entryForget, l.key(), 0})
	}
	s.mu.Lock()
	for key := range s.missing {
		if key.rng == r {
			delete(s.missing, key)
			forget = append(forget, entry{entryForget, key, 0})
		}
	}
	s.mu.Unlock()
	return s.journal.write(forget)
}

// shutDown ends a log for good: appends are refused, the flusher has ended, the files are closed.
func (l *Log) shutDown() error {
	l.opMu.Lock()
	l.mu.Lock()
	l.shut = true
	for l.flusherOn {
		if err := l.waitLocked(l.store.stopped); err != nil {
			l.mu.Unlock()
			l.opMu.Unlock()
			return err
		}
	}
	l.mu.Unlock()
	l.opMu.Unlock()
	l.close()
	return nil
}

// moveAside moves a directory out of ranges/, with a note beside it that says why.
func (s *Store) moveAside(name, why string) error {
	to, err := freeName(s.fs, filepath.Join(s.dir, asideDir), name)
	if err != nil {
		return err
	}
	s.log.Warn("set aside", "directory", name, "to", to, "reason", why)
	if err := vfs.WriteFileAtomic(s.fs, to+".why", []byte(why+"\n")); err != nil {
		s.log.Warn("the reason is not noted", "error", err)
	}
	return s.move(filepath.Join(s.dir, rangesDir, name), to)
}

// move renames a directory from one parent to another, durably. The new parent is synced first: a crash leaves it
// in one of the two.
func (s *Store) move(from, to string) error {
	if err := s.fs.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(s.fs.SyncDir(filepath.Dir(to)), s.fs.SyncDir(filepath.Dir(from)))
}

// sweepTrash removes what deletions have left.
func (s *Store) sweepTrash() {
	dir := filepath.Join(s.dir, trashDir)
	names, err := s.fs.ReadDir(dir)
	for _, name := range names {
		err = errors.Join(err, s.fs.RemoveAll(filepath.Join(dir, name)))
	}
	if err != nil {
		s.log.Warn("trash is not swept", "error", err)
	}
}

// freeName returns a path in dir, made of name and a number, that is not taken.
func freeName(fsys vfs.FS, dir, name string) (string, error) {
	for i := 1; i < 1<<20; i++ {
		path := filepath.Join(dir, name+"."+strconv.Itoa(i))
		if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", fmt.Errorf("%w: %w", vtop.ErrStorage, err)
		}
	}
	return "", fmt.Errorf("%w: too many names like %s in %s", vtop.ErrStorage, name, dir)
}
