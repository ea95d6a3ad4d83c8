package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/vtop-log/vtop"
)

// CheckNames looks whether the directory still holds what the log has open: somebody may have removed it, or put something
// else in its place, and an open file goes on taking writes then that no restart will find. It is cheap, reads no records,
// and may be called every few seconds. If the directory, the file that bears the replica's identity, or a segment that is not
// sealed is gone, the replica is lost (I10): that is noted, the listener told, and the error is vtop.ErrReplicaLost. What
// cannot be looked at now says nothing, and so does a log that cannot be used anyway.
func (l *Log) CheckNames() error {
	if !l.opMu.TryLock() {
		return nil // names are being changed: next time
	}
	defer l.opMu.Unlock()
	return l.checkNames()
}

// checkNames is CheckNames, under opMu.
func (l *Log) checkNames() error {
	if l.Err() != nil {
		return nil
	}
	missing, err := l.missingName()
	if err != nil {
		return fmt.Errorf("range %s: %w: %w", l.rng, vtop.ErrStorage, err)
	}
	if missing == "" {
		return nil
	}
	return l.forgotten(missing)
}

// forgotten marks the replica lost, durably, tells the listener, and returns the error as callers see it.
func (l *Log) forgotten(why string) error {
	l.mu.Lock()
	l.loseLocked(why)
	base, err := l.tailLocked().base, l.usableLocked()
	l.mu.Unlock()
	l.keepDamage(base, false, why)
	return err
}

// missingName says what is gone of the files that the log cannot do without; empty if nothing is. opMu is held.
func (l *Log) missingName() (why string, err error) {
	if why, err = l.missingIdentity(); why != "" || err != nil {
		return why, err
	}
	l.mu.Lock()
	segs := slices.DeleteFunc(slices.Clone(l.segs), func(s *segment) bool {
		return s.state == SegmentSealed || s.durable == 0 // a file that was never made
	})
	l.mu.Unlock()
	for _, s := range segs {
		why, err := l.missingFile(s)
		if err != nil {
			return "", err
		}
		l.mu.Lock()
		still := slices.Contains(l.segs, s) // an empty tail may have been given up meanwhile
		l.mu.Unlock()
		if why != "" && still {
			return fmt.Sprintf("segment %d: %s", s.base, why), nil
		}
	}
	return "", nil
}

// missingIdentity looks at the file `replica`, and reads it where it is not the one that was read last.
func (l *Log) missingIdentity() (why string, err error) {
	name := filepath.Join(l.dir, metaName)
	info, err := l.store.fs.Stat(name)
	if err == nil && info == l.identity {
		return "", nil
	}
	var meta replicaMeta
	if err == nil {
		meta, err = l.readMeta()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := l.store.fs.Stat(l.dir); errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("its directory %s is gone", l.dir), nil
		}
		return fmt.Sprintf("the file %s is gone", name), nil
	case errors.Is(err, vtop.ErrDamaged):
		return fmt.Sprintf("the file %s: %v", name, err), nil
	case err != nil:
		return "", err
	case meta.rng != l.rng || meta.replicaID != l.replicaID:
		return fmt.Sprintf("its directory is now that of replica %d of range %s", meta.replicaID, meta.rng), nil
	}
	l.identity = info
	return "", nil
}

// missingFile says what is wrong with the name of a segment; empty if it is the file that is open, or would be opened.
func (l *Log) missingFile(s *segment) (why string, err error) {
	same := true
	if h := l.store.files.borrow(s); h != nil {
		same, err = l.store.fs.SameFile(s.path, h.file)
		l.store.files.release(h)
	} else {
		_, err = l.store.fs.Stat(s.path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its file is missing", nil
	case err != nil:
		return "", err
	case !same:
		return "its name is that of another file than the one that was written", nil
	}
	return "", nil
}

// sameName is for a sealed segment whose file is open: vtop.ErrDamaged, and a hole, if its name is gone or another's.
func (r *SealedReader) sameName() error {
	l, s := r.log, r.plan.seg
	why, err := l.missingFile(s)
	if err != nil {
		return fmt.Errorf("range %s: %w: look for segment %d: %w", l.rng, vtop.ErrStorage, s.base, err)
	}
	if why == "" {
		return nil
	}
	return r.damaged(why)
}

// borrow returns the open file of a segment, or nil if it is not open. It needs one release.
func (c *fileCache) borrow(s *segment) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.handle != nil {
		c.useLocked(s.handle)
	}
	return s.handle
}
