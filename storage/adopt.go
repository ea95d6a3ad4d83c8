package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// AdoptSegment names one segment of an Adoption.
type AdoptSegment = Want

// Adoption says what a new replica is to begin with.
type Adoption struct {
	// Base is where the log begins: the base of the first segment; where none is sealed yet, the base of the leader's
	// first one. Producers is the encoded producer state there (Pinned has both, and so has Log.ResetPoint).
	Base      vtop.Offset
	Producers []byte
	// LogStart is the leader's: from Base to the end of the last segment, or Base if there is none.
	LogStart vtop.Offset
	// Segments are in order and continuous from Base, each whole in the staging. Other staged segments are dropped.
	Segments []AdoptSegment
	// Replaces, if not 0, is a replica of the range here that may be set aside though it is not lost.
	Replaces vtop.ReplicaID
}

// end is where the adopted log ends.
func (a *Adoption) end() vtop.Offset {
	if n := len(a.Segments); n > 0 {
		return a.Segments[n-1].End
	}
	return a.Base
}

func (a *Adoption) check(opt *Options) error {
	at := a.Base
	for _, seg := range a.Segments {
		if seg.Base != at || seg.End <= seg.Base {
			return fmt.Errorf("segment %d to %d does not follow offset %d", seg.Base, seg.End, at)
		}
		at = seg.End
	}
	if a.Base < 0 || a.LogStart < a.Base || a.LogStart > at {
		return fmt.Errorf("log start %d is not from %d to %d", a.LogStart, a.Base, at)
	}
	if a.Base == 0 && len(a.Producers) > 0 {
		return errors.New("there is a producer state at offset 0")
	}
	_, err := decodeProducers(opt, a.Producers)
	return err
}

// Adopt makes the staging of a range the replica id of it, in one step (I11): segments, epochs, producer state, log start.
// Before its commit point a crash leaves the staging and whatever replica was there; after it, the new replica. A
// replica that was there is set aside in the same step; its promise is taken over (I6), and the durable mark of the new one
// is the adopted end. The log is returned open, with its end at the end of the last segment. Where the disk fails on the
// way, the same call goes on later; so does the next start.
//
// It is refused, with nothing changed, if a replica is there that is neither lost nor named by Replaces, or whose id is
// not below; if the segments are not continuous or not whole (vtop.ErrNotReady); if Producers does not lead to the first
// segment's manifest (vtop.ErrDamaged). Adopting the replica that is there already returns it.
func (s *Store) Adopt(r vtop.Range, id vtop.ReplicaID, a Adoption) (*Log, error) {
	l, err := s.adopt(r, id, &a)
	if err != nil {
		return l, fmt.Errorf("adopt replica %d of range %s: %w", id, r, err)
	}
	s.log.Info("adopted", "range", r.String(), "replica", uint64(id), "base", a.Base, "end", a.end(), "segments", len(a.Segments))
	return l, nil
}

// AdoptEmpty is Adopt for a range of which nothing is sealed yet.
func (s *Store) AdoptEmpty(r vtop.Range, id vtop.ReplicaID, base vtop.Offset, producers []byte) (*Log, error) {
	return s.Adopt(r, id, Adoption{Base: base, LogStart: base, Producers: producers})
}

func (s *Store) adopt(r vtop.Range, id vtop.ReplicaID, a *Adoption) (*Log, error) {
	if err := a.check(&s.opt); err != nil {
		return nil, err
	}
	if id == 0 || r.Index < 0 {
		return nil, errors.New("not a replica")
	}
	s.createMu.Lock()
	defer s.createMu.Unlock()
	if s.isClosed() {
		return nil, vtop.ErrClosed
	}
	committed, err := s.committedAdoption(r)
	if err != nil {
		return nil, err
	}
	if committed.replicaID == 0 && s.movedAdoption(r, id) {
		committed.replicaID = id
	}
	if committed.replicaID == 0 {
		if old, err := s.adoptable(r, id, a); old != nil || err != nil {
			return old, err
		}
		if err := s.commitAdoption(r, id, a); err != nil {
			return nil, err
		}
		committed.replicaID = id
	}
	if err := s.finishAdoption(r, committed.replicaID); err != nil {
		return nil, fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	l := s.newLog(r, committed.replicaID)
	l.open("")
	s.mu.Lock()
	s.logs[r] = l
	s.mu.Unlock()
	if committed.replicaID != id {
		return nil, fmt.Errorf("%w: replica %d was committed before and is there now: stage again", vtop.ErrNotReady, committed.replicaID)
	}
	l.startAt(a.LogStart)
	return l, l.Err()
}

// startAt takes the log start over that came with an adoption.
func (l *Log) startAt(start vtop.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = min(max(start, l.start), l.end)
}

// adoptable decides whether a new replica may take the place of what is there. It returns the replica itself if it was
// adopted before.
func (s *Store) adoptable(r vtop.Range, id vtop.ReplicaID, a *Adoption) (*Log, error) {
	old := s.Get(r)
	if old == nil {
		return nil, nil
	}
	info := old.Info()
	if info.ReplicaID == id && info.State == StateFailed { // adopted, and then the disk did not give it
		if err := old.Reopen(); err != nil {
			return nil, err
		}
		old.startAt(a.LogStart)
		info = old.Info()
	}
	switch {
	case info.ReplicaID == id && old.Err() == nil && info.End >= a.end():
		return old, nil
	case info.ReplicaID == id:
		return nil, fmt.Errorf("it is there already, %s, from %d to %d, and not what is to be adopted", info.State, info.Start, info.End)
	case info.ReplicaID > id:
		return nil, fmt.Errorf("%w: the later replica %d is there", vtop.ErrFenced, info.ReplicaID)
	case info.State != StateLost && (a.Replaces == 0 || a.Replaces != info.ReplicaID):
		return nil, fmt.Errorf("replica %d is there and %s: it must be lost, or named as the one to replace", info.ReplicaID, info.State)
	}
	return nil, nil
}

// commitAdoption makes a staging into all that the replica's directory has to hold, and then commits it by the file
// `replica`, which nothing else puts there. Until that file is durable nothing but the staging has changed.
func (s *Store) commitAdoption(r vtop.Range, id vtop.ReplicaID, a *Adoption) error {
	g, err := s.Stage(r)
	if err != nil {
		return err
	}
	staged := map[vtop.Offset]StagedSegment{}
	for _, seg := range g.Segments() {
		staged[seg.Base] = seg
	}
	for _, want := range a.Segments {
		got := staged[want.Base]
		if !got.Whole || got.End != want.End || got.Bytes != want.Bytes || got.Root != want.Root {
			return fmt.Errorf("%w: segment %d to %d with root %x is not staged whole", vtop.ErrNotReady, want.Base, want.End, want.Root)
		}
		delete(staged, want.Base)
	}
	if err := g.checkProducers(a); err != nil {
		return err
	}
	g.close()
	for base := range staged {
		if err := g.removeStaged(base); err != nil {
			return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
		}
	}
	if a.Base > 0 {
		snapshot := encodeSnapshot(r, a.Base, a.Producers)
		if err := vfs.WriteFileAtomic(s.fs, g.path(a.Base, producerSuffix), snapshot); err != nil {
			return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
		}
	}
	if err := s.fs.SyncDir(g.dir); err != nil {
		return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	meta := replicaMeta{cluster: s.Identity().Cluster, rng: r, replicaID: id, base: a.Base}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(g.dir, metaName), meta.encode()); err != nil {
		return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	return nil
}

// checkProducers replays the first segment from the producer state that came with it: it must lead to the state that
// the manifest has at its end. What cannot be checked so is trusted as a reset trusts the leader.
func (g *Staging) checkProducers(a *Adoption) error {
	if len(a.Segments) == 0 {
		return nil
	}
	first := a.Segments[0]
	m, err := g.wholeManifest(first.Base)
	if err != nil {
		return err
	}
	state, err := decodeProducers(&g.store.opt, a.Producers)
	if err != nil {
		return err
	}
	f, err := g.store.fs.Open(g.path(first.Base, logSuffix))
	if err != nil {
		return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	defer f.Close()
	if _, err := manifest.Walk(f, m.Size, first.Base, func(_ int64, b batch.Batch) error {
		state.add(b)
		return nil
	}); err != nil {
		return fmt.Errorf("segment %d: %w", first.Base, err)
	}
	if !bytes.Equal(state.encode(), m.Producers) && (len(state.byID) > 0 || len(m.Producers) > 0) {
		return fmt.Errorf("%w: the producer state at %d does not lead to that of segment %d", vtop.ErrDamaged, a.Base, first.Base)
	}
	return nil
}

// committedAdoption reads the file `replica` of a staging. Zero if there is none; one that cannot be read never became
// durable, since it is put there by a rename.
func (s *Store) committedAdoption(r vtop.Range) (replicaMeta, error) {
	data, err := vfs.ReadFile(s.fs, filepath.Join(s.stagePath(r), metaName), maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return replicaMeta{}, nil
	}
	if err != nil {
		return replicaMeta{}, fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	meta, err := decodeReplicaMeta(data)
	if err == nil && (meta.rng != r || meta.replicaID == 0) {
		err = fmt.Errorf("%w: it is of replica %d of range %s", vtop.ErrDamaged, meta.replicaID, meta.rng)
	}
	return meta, err
}

// finishAdoptions does what was committed before a crash.
func (s *Store) finishAdoptions() {
	names, err := s.fs.ReadDir(filepath.Join(s.dir, stagingDir))
	if err != nil {
		s.log.Error("the stagings cannot be listed", "error", err)
		return
	}
	for _, name := range names {
		r, ok := parseDirName(name)
		if !ok {
			s.log.Warn("unknown name among the stagings is left alone", "name", name)
			continue
		}
		meta, err := s.committedAdoption(r)
		if err == nil && meta.replicaID != 0 {
			s.log.Info("an adoption that was cut short is finished", "range", r.String(), "replica", uint64(meta.replicaID))
			err = s.finishAdoption(r, meta.replicaID)
		}
		if err != nil {
			s.log.Error("an adoption is not finished", "range", r.String(), "error", err)
		}
	}
}

// movedAdoption reports whether an earlier attempt put the replica in its place and failed after it.
func (s *Store) movedAdoption(r vtop.Range, id vtop.ReplicaID) bool {
	if old := s.Get(r); old != nil && old.replicaID == id {
		return false
	}
	meta, err := s.newLog(r, id).readMeta()
	return err == nil && meta.rng == r && meta.replicaID == id
}

// finishAdoption does what a committed adoption still lacks. Each step may have been done before.
func (s *Store) finishAdoption(r vtop.Range, id vtop.ReplicaID) error {
	_, older := s.promisesOf(r, id)
	committed, err := s.committedAdoption(r)
	if err == nil && committed.replicaID == id { // else it was moved
		err = s.moveAdoption(r, id)
	}
	if err != nil {
		return err
	}
	for _, parent := range []string{rangesDir, stagingDir} {
		if err := s.fs.SyncDir(filepath.Join(s.dir, parent)); err != nil {
			return err
		}
	}
	s.stageMu.Lock()
	delete(s.stagings, r)
	s.stageMu.Unlock()
	s.mu.Lock()
	delete(s.logs, r)
	delete(s.missing, replicaKey{r, id})
	for _, old := range older {
		delete(s.missing, old.key)
	}
	s.mu.Unlock()
	return s.journal.write(older)
}

// moveAdoption puts a committed staging in the place of the replica: promise and mark of the new replica go to the
// journal, the old replica ends and is set aside, and the staging gets its name.
func (s *Store) moveAdoption(r vtop.Range, id vtop.ReplicaID) error {
	from, to := s.stagePath(r), filepath.Join(s.dir, rangesDir, dirName(r))
	if err := s.fs.SyncDir(from); err != nil { // the commit itself may have failed in that
		return err
	}
	if old := s.Get(r); old != nil {
		if err := old.shutDown(); err != nil {
			return err
		}
	}
	end, err := s.adoptedEnd(r)
	if err != nil {
		return err
	}
	promised, _ := s.promisesOf(r, id)
	key := replicaKey{r, id}
	entries := []entry{{entryMark, key, uint64(end)}}
	if promised != vtop.NoEpoch {
		entries = append(entries, entry{entryPromise, key, uint64(promised)})
	}
	if err := s.journal.write(entries); err != nil {
		return err
	}
	if _, err := s.fs.Stat(to); err == nil {
		if err := s.moveAside(dirName(r), fmt.Sprintf("replaced by the repaired replica %d", id)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fs.Rename(from, to)
}

// adoptedEnd reads where the log of a committed staging ends.
func (s *Store) adoptedEnd(r vtop.Range) (vtop.Offset, error) {
	meta, err := s.committedAdoption(r)
	if err != nil {
		return 0, err
	}
	names, err := s.fs.ReadDir(s.stagePath(r))
	if err != nil {
		return 0, err
	}
	last := ""
	for _, name := range names {
		if strings.HasSuffix(name, manifestSuffix) {
			last = name
		}
	}
	base, ok := parseFileName(last, manifestSuffix)
	if !ok {
		return meta.base, nil
	}
	m, err := readManifest(s.fs, filepath.Join(s.stagePath(r), last), base)
	if err != nil {
		return 0, err
	}
	return m.End, nil
}

// promisesOf returns the highest promise that any replica of a range has made here, and what makes the journal forget
// the older ones.
func (s *Store) promisesOf(r vtop.Range, id vtop.ReplicaID) (promised vtop.Epoch, forget []entry) {
	for _, key := range s.journal.keys() {
		if key.rng != r {
			continue
		}
		promised = max(promised, s.journal.get(key).promise)
		if key.id < id {
			forget = append(forget, entry{entryForget, key, 0})
		}
	}
	if old := s.Get(r); old != nil {
		promised = max(promised, old.Promised())
	}
	return promised, forget
}
