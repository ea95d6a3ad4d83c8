package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Create makes the directory of a new replica, empty, with its log beginning at start. All is durable when it
// returns nil. If the replica is there under the same id it is returned as it is; under another id it is refused:
// see SetAside. Only for a range that never started an epoch, or for a new replica id, and only by a node that is
// caught up (I10): the caller sees to that. A replica that the journal knows and whose directory is gone is refused
// with vtop.ErrReplicaLost.
func (s *Store) Create(r vtop.Range, id vtop.ReplicaID, start vtop.Offset) (*Log, error) {
	logs, err := s.createAll([]replicaMeta{{rng: r, replicaID: id, base: start}})
	if err != nil {
		return nil, err
	}
	return logs[0], nil
}

// NewReplica names a replica to create.
type NewReplica struct {
	Range     vtop.Range
	ReplicaID vtop.ReplicaID
}

// CreateAll is Create for many replicas at once, all beginning at offset 0: their files are synced some at once,
// and the directory that holds them once. Those that could be made are made, even if an error is returned.
func (s *Store) CreateAll(replicas []NewReplica) error {
	metas := make([]replicaMeta, len(replicas))
	for i, n := range replicas {
		metas[i] = replicaMeta{rng: n.Range, replicaID: n.ReplicaID}
	}
	_, err := s.createAll(metas)
	return err
}

func (s *Store) createAll(metas []replicaMeta) ([]*Log, error) {
	cluster := s.Identity().Cluster
	logs, errs := make([]*Log, len(metas)), make([]error, len(metas))
	made := make([]bool, len(metas))
	slots := make(chan struct{}, openParallel)
	var wait sync.WaitGroup
	s.createMu.Lock()
	defer s.createMu.Unlock()
	for i := range metas {
		meta := &metas[i]
		meta.cluster = cluster
		if logs[i], errs[i] = s.existing(*meta); logs[i] != nil || errs[i] != nil {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = s.createDir(*meta)
			made[i] = errs[i] == nil
			<-slots
		})
	}
	wait.Wait()
	if err := s.fs.SyncDir(filepath.Join(s.dir, rangesDir)); err != nil {
		return nil, errors.Join(append(errs, fmt.Errorf("%w: create replicas: %w", vtop.ErrStorage, err))...)
	}
	if err := s.markNew(metas, made); err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	for i, meta := range metas {
		if made[i] {
			logs[i], errs[i] = s.addCreated(meta)
		}
	}
	return logs, errors.Join(errs...)
}

// markNew tells the journal of new replicas, with one sync: from now on a directory that is gone is missed, and a
// durable mark stands, be it at the log start.
func (s *Store) markNew(metas []replicaMeta, made []bool) error {
	var entries []entry
	for i, meta := range metas {
		if made[i] {
			entries = append(entries, entry{entryMark, replicaKey{meta.rng, meta.replicaID}, uint64(meta.base)})
		}
	}
	return s.journal.write(entries)
}

// existing returns the replica if it is there already.
func (s *Store) existing(meta replicaMeta) (*Log, error) {
	if meta.replicaID == 0 || meta.rng.Index < 0 || meta.base < 0 {
		return nil, fmt.Errorf("create replica %d of range %s at %d: not a replica", meta.replicaID, meta.rng, meta.base)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, vtop.ErrClosed
	}
	l := s.logs[meta.rng]
	switch reason, gone := s.missing[replicaKey{meta.rng, meta.replicaID}]; {
	case gone:
		return nil, fmt.Errorf("create replica %d of range %s: %w: %s", meta.replicaID, meta.rng, vtop.ErrReplicaLost, lostReason(reason))
	case l == nil:
		return nil, nil
	case l.replicaID != meta.replicaID:
		return nil, fmt.Errorf("create replica %d of range %s: replica %d is there: set it aside first", meta.replicaID, meta.rng, l.replicaID)
	}
	return l, nil
}

// createDir makes a whole directory under another name, and gives it its own: a directory of that name without
// the file `replica` is always damage.
func (s *Store) createDir(meta replicaMeta) error {
	root := filepath.Join(s.dir, rangesDir)
	tmp := filepath.Join(root, newPrefix+dirName(meta.rng))
	err := s.fs.RemoveAll(tmp)
	if err == nil {
		err = s.fs.MkdirAll(tmp)
	}
	if err == nil && meta.base > 0 {
		snapshot := encodeSnapshot(meta.rng, meta.base, nil)
		err = vfs.WriteFileAtomic(s.fs, filepath.Join(tmp, fileName(meta.base, producerSuffix)), snapshot)
	}
	if err == nil {
		err = vfs.WriteFileAtomic(s.fs, filepath.Join(tmp, metaName), meta.encode())
	}
	if _, missing := s.fs.Stat(filepath.Join(root, dirName(meta.rng))); err == nil && missing == nil {
		err = s.moveAside(dirName(meta.rng), "left by a creation that failed")
	}
	if err == nil {
		err = s.fs.Rename(tmp, filepath.Join(root, dirName(meta.rng)))
	}
	if err != nil {
		return fmt.Errorf("%w: create replica %d of range %s: %w", vtop.ErrStorage, meta.replicaID, meta.rng, err)
	}
	return nil
}

// addCreated opens a replica whose directory is durable.
func (s *Store) addCreated(meta replicaMeta) (*Log, error) {
	l := s.newLog(meta.rng, meta.replicaID)
	if l.open(""); l.Err() != nil {
		return nil, l.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[meta.rng] = l
	return l, nil
}
