package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/iolock"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Names in the data directory.
const (
	lockName   = "lock"
	probeName  = "probe"
	rangesDir  = "ranges"
	stagingDir = "staging"
	asideDir   = "aside"
	trashDir   = "trash"
)

// Store is one data directory. All methods may be called by many goroutines at once.
type Store struct {
	// Set once.
	fs      vfs.FS
	dir     string
	opt     Options
	log     hclog.Logger
	lock    io.Closer
	journal *journal
	files   *fileCache
	chunks  chunkPool
	pins    *pinTable
	// pieces pools buffers of one manifest chunk.
	pieces sync.Pool
	// leadCalls pools leadCall.
	leadCalls sync.Pool
	// ioSlots bounds the flushes inside the kernel.
	ioSlots chan struct{}
	gather  gather
	// flushers counts the flushers that run; background the store's own goroutines.
	flushers, background sync.WaitGroup
	stop                 context.CancelFunc
	stopped              context.Context

	// Atomic. buffered is what all logs have admitted and not synced; zeroAhead what they have zeroed and not used.
	buffered, zeroAhead atomic.Int64
	// free is the free space seen last, reserve what must stay.
	free, reserve atomic.Uint64

	identityMu sync.Mutex
	identity   Identity

	// probeMu is held while the disk is being probed.
	probeMu sync.Mutex
	probing chan struct{}
	probed  error

	// createMu is held while replicas are created, adopted or taken out.
	createMu iolock.Mutex

	// stageMu is held while stagings are opened or removed. It comes after createMu.
	stageMu  iolock.Mutex
	stagings map[vtop.Range]*Staging

	// mu guards the map, not the logs in it.
	mu     sync.Mutex
	logs   map[vtop.Range]*Log
	closed bool
	// missing are replicas that the journal knows and that have no directory.
	missing map[replicaKey]string
}

// Open locks the data directory, makes it if it is missing, counts the incarnation up, reads the journal and
// recovers every replica. It fails only for what concerns the whole directory (the lock, or an identity or journal
// that cannot be written); a damaged replica is opened as StateLost and the others start (E7).
func Open(fsys vfs.FS, dir string, opt Options) (*Store, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		fs: fsys, dir: dir, opt: opt, log: opt.Log.Named("storage"),
		files: &fileCache{fs: fsys, limit: opt.OpenFiles}, ioSlots: make(chan struct{}, opt.FlushParallel),
		logs: map[vtop.Range]*Log{}, missing: map[replicaKey]string{}, stagings: map[vtop.Range]*Staging{},
	}
	s.pins = newPinTable(&s.opt)
	s.gather.threshold, s.gather.clock, s.gather.log = opt.GatherSyncs, opt.Clock, s.log
	if opt.GatherSyncs > 0 {
		s.gather.open = s.openGather
	}
	s.pieces.New = func() any { return new([manifest.ChunkSize]byte) }
	s.leadCalls.New = newLeadCall
	s.stopped, s.stop = context.WithCancel(context.Background())
	if err := s.open(); err != nil {
		s.stop()
		if s.lock != nil {
			err = errors.Join(err, s.lock.Close())
		}
		return nil, fmt.Errorf("open data directory %s: %w", dir, err)
	}
	if opt.TickInterval > 0 {
		s.background.Add(1)
		go s.tickLoop()
	}
	return s, nil
}

func (s *Store) open() error {
	if err := vfs.MkdirAllSync(s.fs, s.dir); err != nil {
		return err
	}
	lock, err := s.fs.Lock(filepath.Join(s.dir, lockName))
	if err != nil {
		return err
	}
	s.lock = lock
	for _, name := range []string{rangesDir, stagingDir, asideDir, trashDir} {
		if err := s.fs.MkdirAll(filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	if err := s.look(); err != nil {
		return err
	}
	lost, err := s.openIdentity()
	if err != nil {
		return err
	}
	s.sweepTrash()
	s.finishAdoptions()
	return s.openReplicas(lost)
}

// openIdentity reads the identity and the journal, or makes them, and counts the incarnation up, durably, before
// anything else is used. lost says why every replica has to count as lost; empty if none has.
//
// The journal is made before the identity: a directory that has an identity has a journal, or has lost it.
func (s *Store) openIdentity() (lost string, err error) {
	id, missing, err := readIdentity(s.fs, s.dir)
	if err != nil {
		return "", err
	}
	if missing != nil {
		if id.Storage, err = newStorageID(); err != nil {
			return "", err
		}
		if err := s.setIdentityAside(); err != nil {
			return "", err
		}
	}
	journal, damage, err := openJournal(s.fs, s.dir, id.Storage, missing != nil, s.log)
	if err != nil {
		return "", err
	}
	s.journal = journal
	id.Incarnation++
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, identityName), id.encode()); err != nil {
		return "", fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	s.identity = id
	switch {
	case damage != nil:
		return damage.Error() + ": promises may be forgotten", nil
	case missing != nil:
		return missing.Error() + ": this is a new storage", nil
	}
	return "", nil
}

// setIdentityAside keeps a damaged identity, for whoever wants to look at it.
func (s *Store) setIdentityAside() error {
	from := filepath.Join(s.dir, identityName)
	if _, err := s.fs.Stat(from); err != nil {
		return nil
	}
	to, err := freeName(s.fs, filepath.Join(s.dir, asideDir), identityName)
	if err != nil {
		return err
	}
	return s.fs.Rename(from, to)
}

// Close refuses new appends, flushes every log, writes the durable marks and gives the lock up. It waits for the
// disk. A log that has failed is closed as it is. After it, every method returns vtop.ErrClosed or nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	logs := s.sortedLocked()
	s.mu.Unlock()
	s.stop()
	s.background.Wait()
	for _, p := range s.pins.all() {
		s.pins.end(p, "the store was closed")
	}
	s.closeStagings()
	for _, l := range logs {
		l.mu.Lock()
		l.shut = true
		l.broadcastLocked()
		l.mu.Unlock()
	}
	s.flushers.Wait()
	for _, l := range logs {
		l.close()
	}
	err := errors.Join(s.writeMarks(), s.journal.close(), s.gather.close())
	return errors.Join(err, s.lock.Close())
}

// close lets go of the files. Nothing is left to flush.
func (l *Log) close() {
	l.opMu.Lock()
	defer l.opMu.Unlock()
	l.mu.Lock()
	segs := l.segs
	l.forgetZerosLocked()
	l.dropChunksLocked(len(l.chunks))
	l.shut = true
	l.broadcastLocked()
	l.mu.Unlock()
	l.store.files.retire(segs...)
}

// sortedLocked returns the logs by range.
func (s *Store) sortedLocked() []*Log {
	out := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *Log) int { return a.rng.Compare(b.rng) })
	return out
}

func (s *Store) allLogs() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sortedLocked()
}

// Get returns the replica of a range, also a lost one (see Log.Err), or nil if there is none.
func (s *Store) Get(r vtop.Range) *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[r]
}

// List describes all replicas, also those of which only the journal knows (StateLost), ordered by range.
func (s *Store) List() []ReplicaInfo {
	var out []ReplicaInfo
	for _, l := range s.allLogs() {
		out = append(out, l.Info())
	}
	s.mu.Lock()
	for key, reason := range s.missing {
		out = append(out, ReplicaInfo{Range: key.rng, ReplicaID: key.id, State: StateLost, Reason: lostReason(reason)})
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b ReplicaInfo) int { return a.Range.Compare(b.Range) })
	return out
}

// LoseAll marks every replica lost (I10), durably, with one sync: the data directory may have forgotten.
func (s *Store) LoseAll(reason string) error {
	var entries []entry
	for _, l := range s.allLogs() {
		l.mu.Lock()
		l.loseLocked(reason)
		l.mu.Unlock()
		entries = append(entries, entry{entryLost, l.key(), 0})
	}
	s.log.Error("all replicas are lost", "reason", reason, "replicas", len(entries))
	return s.journal.write(entries)
}

// tickLoop runs Tick until Close.
func (s *Store) tickLoop() {
	defer s.background.Done()
	ticker := time.NewTicker(s.opt.TickInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stopped.Done():
			return
		case <-ticker.C:
			if err := s.Tick(); err != nil {
				s.log.Error("tick", "error", err)
			}
		}
	}
}

// Tick writes the durable marks of all logs that moved, with one sync, looks at the free space, and ends pins that are
// over. The store calls it every TickInterval.
func (s *Store) Tick() error {
	err := errors.Join(s.look(), s.writeMarks())
	s.ExpirePins()
	return err
}

// writeMarks writes the durable end of every log that moved since. The journal collects under its own lock: a cut
// lowers its mark in the journal after it lowered the durable end, so no higher one can follow.
func (s *Store) writeMarks() error {
	logs := s.allLogs()
	return s.journal.writeCollected(func() (entries []entry) {
		for _, l := range logs {
			l.mu.Lock()
			if l.durable != l.marked && l.replicaID != 0 && l.state != StateLost {
				l.marked = l.durable
				entries = append(entries, entry{entryMark, l.key(), uint64(l.durable)})
			}
			l.mu.Unlock()
		}
		return entries
	})
}
