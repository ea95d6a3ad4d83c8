package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

var bg = context.Background()

// leader is a store whose one log others are repaired from.
type leader struct {
	fs *vfs.CrashFS
	s  *Store
	l  *Log
	// all are the segments that were ever sealed: the catalogue.
	all []Want
}

// newLeader makes a log of n batches of an idempotent producer, with every closed segment sealed.
func newLeader(t testing.TB, n int, change ...func(*Options)) *leader {
	t.Helper()
	fsys := vfs.NewCrashFS(9)
	s, l := newLogOn(t, fsys, change...)
	for i := range n {
		mustLead(t, l, 1+vtop.Epoch(i/40), producerBatch(1, 0, int32(i), 1))
	}
	ld := &leader{fs: fsys, s: s, l: l}
	ld.seal(t)
	return ld
}

// bigLeader makes segments of some chunks each.
func bigLeader(t testing.TB, n int) *leader {
	t.Helper()
	fsys := vfs.NewCrashFS(9)
	s, l := newLogOn(t, fsys, func(o *Options) { o.SegmentBytes, o.LogBufferBytes, o.StoreBufferBytes = 5<<19, 64<<20, 64<<20 })
	for i := range n {
		mustLead(t, l, 1, plainBatch(1, 600<<10, uint64(i)))
	}
	ld := &leader{fs: fsys, s: s, l: l}
	ld.seal(t)
	return ld
}

// seal flushes, and seals what is closed.
func (ld *leader) seal(t testing.TB) {
	t.Helper()
	settle(t, ld.l)
	for _, seg := range ld.l.Closed() {
		root, size, err := ld.l.Root(seg.Base)
		ok(t, err)
		ok(t, ld.l.Seal(seg.Base, root))
		ld.all = append(ld.all, Want{Base: seg.Base, End: seg.End, Bytes: size, Root: root})
	}
}

// settle waits until the flusher has finished everything.
func settle(t testing.TB, l *Log) {
	t.Helper()
	mustFlush(t, l)
	ok(t, l.takeAlone(t.Context()))
	l.leaveAlone()
}

func (ld *leader) want(base vtop.Offset) (root [32]byte, known bool) {
	for _, w := range ld.all {
		if w.Base == base {
			return w.Root, true
		}
	}
	return root, false
}

// adoption is all that is sealed.
func (ld *leader) adoption(t testing.TB) Adoption {
	t.Helper()
	base, producers, err := ld.l.ResetPoint()
	ok(t, err)
	a := Adoption{Base: base, Producers: producers, LogStart: ld.l.Start()}
	for _, w := range ld.all {
		if w.Base >= base {
			a.Segments = append(a.Segments, w)
		}
	}
	return a
}

// follower makes replica id of the range on a store, with the batches of the leader's first segments, sealed as they
// are, and the tail after them.
func (ld *leader) follower(t testing.TB, s *Store, id vtop.ReplicaID, segments int) *Log {
	t.Helper()
	l, err := s.Create(testRange(0), id, 0)
	ok(t, err)
	for _, w := range ld.all[:segments] {
		_, err := l.AppendFollow(9, vtop.FenceFollow, w.Base, mustRead(t, ld.l, w.Base, w.End))
		ok(t, err)
	}
	ok(t, l.CloseAt(l.End()))
	settle(t, l)
	for _, w := range ld.all[:segments] {
		ok(t, l.Seal(w.Base, w.Root))
	}
	return l
}

// transfer brings one segment into a staging, whatever is there of it.
func (ld *leader) transfer(g *Staging, w Want, pin PinID) error {
	encoded, err := ld.s.ReadManifest(testRange(0), w.Base, w.Root, pin)
	if err != nil {
		return err
	}
	m, err := g.Begin(w.Base, w.Root, encoded)
	if err != nil {
		return err
	}
	missing, err := g.Missing(w.Base)
	if err != nil {
		return err
	}
	from, err := ld.s.OpenSealed(testRange(0), w.Base, w.Root, pin)
	if err != nil {
		return err
	}
	defer from.Close()
	for _, i := range missing {
		pos, length := m.ChunkRange(i)
		chunk := make([]byte, length)
		if _, err := from.ReadAt(chunk, pos); err != nil {
			return err
		}
		if err := g.WriteChunk(w.Base, i, chunk); err != nil {
			return err
		}
	}
	return g.Finish(w.Base)
}

// repair does what a runner does, from whatever state a store is in, and adopts as replica id.
func (ld *leader) repair(s *Store, id vtop.ReplicaID, a Adoption) (*Log, error) {
	g, err := s.Stage(testRange(0))
	if errors.Is(err, vtop.ErrNotReady) {
		return s.Adopt(testRange(0), id, a)
	}
	if err != nil {
		return nil, err
	}
	if l := s.Get(testRange(0)); l != nil && l.ReplicaID() == id {
		return s.Adopt(testRange(0), id, a)
	}
	if _, err := g.TakeLocal(bg, 0, a.Segments); err != nil {
		return nil, err
	}
	for _, w := range a.Segments {
		if err := ld.transfer(g, w, 0); err != nil {
			return nil, err
		}
	}
	return s.Adopt(testRange(0), id, a)
}

// holds compares a replica with the leader from its base to its end: bytes, epochs, producer state.
func (ld *leader) holds(l *Log) error {
	l.mu.Lock()
	base, end, err := l.segs[0].base, l.end, l.checkLocked()
	runs, producers := bytesOf(l.runs), l.producers.encode()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	want, err := readAll(ld.l, max(base, ld.l.Segments()[0].Base), end)
	if err != nil {
		return err
	}
	got, err := readAll(l, max(base, ld.l.Segments()[0].Base), end)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("I9: other bytes from %d to %d", base, end)
	}
	ld.l.mu.Lock()
	kept := runsFrom(ld.l.runs, base, end)
	ld.l.mu.Unlock()
	for len(kept) > 0 && kept[len(kept)-1].Start >= end {
		kept = kept[:len(kept)-1]
	}
	wantRuns := bytesOf(kept)
	if !bytes.Equal(runs, wantRuns) {
		return fmt.Errorf("runs %s, want %s", runs, wantRuns)
	}
	table := newProducerTable(&ld.s.opt)
	for i := vtop.Offset(0); i < end; i++ { // newLeader: batch i is record i
		table.add(stamped(producerBatch(1, 0, int32(i), 1), i, 1))
	}
	if !bytes.Equal(producers, table.encode()) {
		return fmt.Errorf("D5: another producer state at %d", end)
	}
	return nil
}

func bytesOf(runs []vtop.EpochRun) []byte { return []byte(fmt.Sprint(runs)) }

// listing tells names, sizes and times of all files below a directory.
func listing(t testing.TB, fsys vfs.FS, dir string) string {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	out := ""
	for _, name := range names {
		info, err := fsys.Stat(dir + "/" + name)
		ok(t, err)
		if info.IsDir {
			out += listing(t, fsys, dir+"/"+name)
			continue
		}
		out += fmt.Sprintf("%s/%s %d %s\n", dir, name, info.Size, info.ModTime.Format(time.RFC3339Nano))
	}
	return out
}

// testClock is moved by hand.
type testClock struct{ now time.Duration }

func (c *testClock) use(o *Options) { o.Clock = func() time.Duration { return c.now } }
