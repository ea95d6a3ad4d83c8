package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/iolock"
	"github.com/vtop-log/vtop/storage/vfs"
)

const journalName = "journal"

// journalSlack is how much is appended to the journal, beyond twice its live content, before it is rewritten.
const journalSlack = 4 << 20

// journal keeps what a replica may never forget, promises, and what it may forget a little of, durable marks. One
// file serves all replicas of the node, so that a batch of promises costs one sync (I6).
type journal struct {
	fs   vfs.FS
	path string
	id   vtop.StorageID
	log  hclog.Logger

	// mu is held across the sync: promises and marks wait for one another, appends of records do not.
	mu   iolock.Mutex
	file vfs.File
	// size is where the next frame goes; synced is what is known durable of it; live the size after the last rewrite.
	size, synced, live int64
	// failed, if set, says why the file may not be used any more: the next write goes into a new one.
	failed error
	shut   bool
	state  map[replicaKey]*journalState
}

// journalState is what the journal says of one replica.
type journalState struct {
	promise vtop.Epoch
	// mark is the durable mark; marked is false if none was ever written.
	mark   vtop.Offset
	marked bool
	lost   bool
}

// openJournal reads the journal and rewrites it, so that all that was found is in its base section. The damage it
// returns is nil or says what can no longer be known; the journal is usable either way. mayBeMissing is true for a
// directory that has no identity yet, which is the only one that may have no journal.
func openJournal(fsys vfs.FS, dir string, id vtop.StorageID, mayBeMissing bool, log hclog.Logger) (*journal, error, error) {
	j := &journal{fs: fsys, path: filepath.Join(dir, journalName), id: id, log: log, state: map[replicaKey]*journalState{}}
	data, err := vfs.ReadFile(fsys, j.path, maxJournal)
	var damage error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !mayBeMissing {
			damage = &journalDamage{0, "the file is missing"}
		}
	case err != nil:
		return nil, nil, fmt.Errorf("read the journal: %w: %w", vtop.ErrStorage, err)
	default:
		entries, torn, err := parseJournal(data, id)
		if damage = err; torn > 0 {
			log.Warn("journal: cut a torn end that was never synced", "bytes", torn)
		}
		for _, e := range entries {
			j.apply(e)
		}
	}
	if damage != nil {
		if err := j.keepDamaged(dir); err != nil {
			return nil, nil, err
		}
	}
	if err := j.rewrite(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	return j, damage, nil
}

// keepDamaged gives a damaged journal another name, for whoever wants to look at it.
func (j *journal) keepDamaged(dir string) error {
	if _, err := j.fs.Stat(j.path); err != nil {
		return nil
	}
	name, err := freeName(j.fs, filepath.Join(dir, asideDir), journalName)
	if err != nil {
		return err
	}
	if err := j.fs.Rename(j.path, name); err != nil {
		return fmt.Errorf("set the damaged journal aside: %w: %w", vtop.ErrStorage, err)
	}
	return nil
}

func (j *journal) apply(e entry) {
	if e.kind == entryForget {
		delete(j.state, e.key)
		return
	}
	st := j.state[e.key]
	if st == nil {
		st = &journalState{}
		j.state[e.key] = st
	}
	switch e.kind {
	case entryPromise:
		st.promise = max(st.promise, vtop.Epoch(e.value))
	case entryMark:
		st.mark, st.marked = vtop.Offset(e.value), true
	case entryLost:
		st.lost = true
	}
}

// get returns what the journal says of a replica; zero if it has no entry.
func (j *journal) get(key replicaKey) journalState {
	j.mu.Lock()
	defer j.mu.Unlock()
	if st := j.state[key]; st != nil {
		return *st
	}
	return journalState{}
}

// keys returns the replicas that the journal knows.
func (j *journal) keys() []replicaKey {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]replicaKey, 0, len(j.state))
	for k := range j.state {
		out = append(out, k)
	}
	return out
}

// write appends entries and syncs them: one sync for all. When it fails, the entries may or may not be durable;
// the file is given up, and the next write makes a new one from all that was ever handed to this journal.
func (j *journal) write(entries []entry) error {
	return j.writeCollected(func() []entry { return entries })
}

// promise is write, but leaves out what is durable already.
func (j *journal) promise(entries []entry) error {
	return j.writeCollected(func() (fresh []entry) {
		for _, e := range entries {
			if st := j.state[e.key]; st == nil || uint64(st.promise) < e.value || j.failed != nil {
				fresh = append(fresh, e)
			}
		}
		return fresh
	})
}

// writeCollected is write for entries that are collected under the journal's lock.
func (j *journal) writeCollected(collect func() []entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.shut {
		return fmt.Errorf("journal: %w", vtop.ErrClosed)
	}
	entries := collect()
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		j.apply(e)
	}
	if j.failed != nil || j.size > 2*j.live+journalSlack {
		if err := j.rewrite(); err != nil {
			return fmt.Errorf("journal: %w: %w", vtop.ErrStorage, err)
		}
		return nil
	}
	if err := j.appendSynced(entries); err != nil {
		j.giveUp(err)
		return fmt.Errorf("journal: %w: %w", vtop.ErrStorage, err)
	}
	return nil
}

func (j *journal) appendSynced(entries []entry) error {
	frames := appendFrames(nil, uint64(j.synced), entries)
	if _, err := j.file.WriteAt(frames, j.size); err != nil {
		return err
	}
	j.size += int64(len(frames))
	if err := j.file.SyncData(); err != nil {
		return err
	}
	j.synced = j.size
	// Says that the frame above is durable, so that rot in it is told from a torn end. Needs no sync of its own.
	note := appendFrames(nil, uint64(j.synced), nil)
	if _, err := j.file.WriteAt(note, j.size); err != nil {
		j.giveUp(err)
		return nil
	}
	j.size += int64(len(note))
	return nil
}

// giveUp closes the file for good; nothing is ever synced again that failed once.
func (j *journal) giveUp(err error) {
	j.log.Error("journal: the file is given up, the next write makes a new one", "error", err)
	j.failed = err
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
}

// rewrite puts the whole state into a new file and the new file in place.
func (j *journal) rewrite() error {
	entries := make([]entry, 0, 2*len(j.state))
	for key, st := range j.state {
		if st.promise != vtop.NoEpoch {
			entries = append(entries, entry{entryPromise, key, uint64(st.promise)})
		}
		if st.marked {
			entries = append(entries, entry{entryMark, key, uint64(st.mark)})
		}
		if st.lost {
			entries = append(entries, entry{entryLost, key, 0})
		}
	}
	frames := appendFrames(nil, 0, entries)
	size := int64(journalHeader + len(frames))
	data := append(encodeJournalHeader(j.id, uint64(size)), frames...)
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
	j.failed = errors.New("rewrite of the journal was cut short")
	if err := vfs.WriteFileAtomic(j.fs, j.path, data); err != nil {
		j.failed = err
		return err
	}
	file, err := j.fs.OpenRW(j.path)
	if err != nil {
		j.failed = err
		return err
	}
	j.file, j.failed, j.size, j.synced, j.live = file, nil, size, size, size
	return nil
}

// close rewrites the journal if anything was appended, so that all of it is in the base section.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.failed != nil || j.size > j.live {
		err = j.rewrite()
	}
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
		j.file = nil
	}
	j.shut = true
	return err
}
