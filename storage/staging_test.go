package storage

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

func mustStage(t testing.TB, s *Store) *Staging {
	t.Helper()
	g, err := s.Stage(testRange(0))
	ok(t, err)
	return g
}

// begin puts a segment's manifest into a staging and returns the bytes of the segment.
func (ld *leader) begin(t testing.TB, g *Staging, w Want) ([]byte, *manifest.Manifest) {
	t.Helper()
	encoded, err := ld.s.ReadManifest(testRange(0), w.Base, w.Root, 0)
	ok(t, err)
	m, err := g.Begin(w.Base, w.Root, encoded)
	ok(t, err)
	data, err := readSealed(ld.s, w, 0)
	ok(t, err)
	return data, m
}

func chunkOf(m *manifest.Manifest, data []byte, i int) []byte {
	pos, length := m.ChunkRange(i)
	return data[pos : pos+int64(length)]
}

// A half received segment goes on where it was, after an orderly close and after a power cut: what is on disk is hashed
// anew, and only what does not verify is asked for again. What is staged is no replica to anyone (G2, I11).
func TestStaging_Resumes(t *testing.T) {
	ld := bigLeader(t, 9)
	w := ld.all[0]
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	g := mustStage(t, s)
	data, m := ld.begin(t, g, w)
	missing, err := g.Missing(w.Base)
	ok(t, err)
	if len(missing) != len(m.Chunks) || len(m.Chunks) < 3 {
		t.Fatalf("missing %v of %d", missing, len(m.Chunks))
	}
	ok(t, g.WriteChunk(w.Base, 1, chunkOf(m, data, 1)))
	ok(t, g.WriteChunk(w.Base, 1, chunkOf(m, data, 1)))
	wantErr(t, g.Finish(w.Base), vtop.ErrNotReady)
	if again := mustStage(t, s); again != g {
		t.Fatal("another staging of the same range")
	}
	kept := fsys.CrashClone(newRand(1), vfs.KeepAll())
	none := fsys.CrashClone(newRand(1), vfs.KeepNone())
	ok(t, g.Close())
	wantErr(t, g.WriteChunk(w.Base, 2, chunkOf(m, data, 2)), vtop.ErrClosed)
	_, err = g.Missing(w.Base)
	wantErr(t, err, vtop.ErrClosed)
	for name, fsys := range map[string]*vfs.CrashFS{"closed": fsys, "kept": kept, "lost": none} {
		if name == "closed" {
			ok(t, s.Close())
		}
		s := openStore(t, fsys)
		if len(s.List()) != 0 || s.Get(testRange(0)) != nil {
			t.Fatalf("I11: a staging is a replica: %+v", s.List())
		}
		wantErr(t, s.Promise([]Promise{{testRange(0), 5, 1}})[0], vtop.ErrUnknownRange)
		if infos := s.Stagings(); len(infos) != 1 || infos[0].Open || infos[0].Committed || infos[0].Segments != 1 {
			t.Fatalf("%s: %+v", name, infos)
		}
		g := mustStage(t, s)
		_, err := g.Missing(w.Base)
		wantErr(t, err, vtop.ErrNotReady)
		ld.begin(t, g, w)
		missing, err := g.Missing(w.Base)
		ok(t, err)
		if want := map[string]int{"closed": 2, "kept": 2, "lost": 3}[name]; len(missing) != want {
			t.Fatalf("%s: missing %v, want %d", name, missing, want)
		}
		for _, i := range missing {
			ok(t, g.WriteChunk(w.Base, i, chunkOf(m, data, i)))
		}
		ok(t, g.Finish(w.Base))
		ok(t, g.Finish(w.Base))
		after := fsys.CrashClone(newRand(3), vfs.KeepNone())
		segs := mustStage(t, openStore(t, after)).Segments()
		if len(segs) != 1 || !segs[0].Whole || segs[0].Root != w.Root || segs[0].Have != w.Bytes {
			t.Fatalf("%s: %+v", name, segs)
		}
		got, err := vfs.ReadFile(after, filepath.Join(s.stagePath(testRange(0)), fileName(w.Base, logSuffix)), 1<<30)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: other bytes are staged: %v", name, err)
		}
	}
}

// Nothing is written that was not verified: a bad chunk is refused and blamed on whoever sent it, and so is a manifest.
func TestStaging_RefusesWhatDoesNotVerify(t *testing.T) {
	ld := bigLeader(t, 9)
	w := ld.all[0]
	s := openStore(t, vfs.NewCrashFS(2))
	g := mustStage(t, s)
	encoded, err := ld.s.ReadManifest(testRange(0), w.Base, w.Root, 0)
	ok(t, err)
	for name, begin := range map[string]func() error{
		"another root": func() error { _, err := g.Begin(w.Base, [32]byte{1}, encoded); return err },
		"another base": func() error { _, err := g.Begin(w.Base+1, w.Root, encoded); return err },
		"cut short":    func() error { _, err := g.Begin(w.Base, w.Root, encoded[:len(encoded)-1]); return err },
		"flipped":      func() error { _, err := g.Begin(w.Base, w.Root, flip(60)(bytes.Clone(encoded))); return err },
	} {
		if err := begin(); !errors.Is(err, vtop.ErrDamaged) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	wantErr(t, g.WriteChunk(w.Base, 0, nil), vtop.ErrNotReady)
	data, m := ld.begin(t, g, w)
	for name, write := range map[string]func() error{
		"flipped":       func() error { return g.WriteChunk(w.Base, 0, flip(7)(bytes.Clone(chunkOf(m, data, 0)))) },
		"another chunk": func() error { return g.WriteChunk(w.Base, 0, chunkOf(m, data, 1)) },
		"cut short":     func() error { return g.WriteChunk(w.Base, 0, chunkOf(m, data, 0)[1:]) },
		"no chunk":      func() error { return g.WriteChunk(w.Base, 99, chunkOf(m, data, 0)) },
		"below 0":       func() error { return g.WriteChunk(w.Base, -1, chunkOf(m, data, 0)) },
	} {
		if err := write(); !errors.Is(err, vtop.ErrDamaged) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if segs := g.Segments(); segs[0].Have != 0 {
		t.Fatalf("%+v", segs)
	}
	got, err := vfs.ReadFile(s.fs, filepath.Join(g.dir, fileName(w.Base, partSuffix)), 1<<30)
	if err != nil || len(got) != 0 {
		t.Fatalf("%d bytes were written: %v", len(got), err)
	}
}

// The same segment under another root takes the place of what was staged, whole or half.
func TestStaging_AnotherRootReplaces(t *testing.T) {
	ld := newLeader(t, 100)
	for _, half := range []bool{true, false} {
		s := openStore(t, vfs.NewCrashFS(2))
		g := mustStage(t, s)
		w := ld.all[0]
		if half {
			ld.begin(t, g, w)
		} else {
			ok(t, ld.transfer(g, w, 0))
		}
		// another log: its first segment has other batches
		fresh := vfs.NewCrashFS(4)
		fs, fl := newLogOn(t, fresh)
		for i := range 100 {
			mustLead(t, fl, 1, plainBatch(1, 60, uint64(i)))
		}
		other := &leader{fs: fresh, s: fs, l: fl}
		other.seal(t)
		ok(t, other.transfer(g, other.all[0], 0))
		segs := g.Segments()
		if len(segs) != 1 || !segs[0].Whole || segs[0].Root != other.all[0].Root {
			t.Fatalf("%+v", segs)
		}
		ok(t, g.Drop(0))
		if names, _ := s.fs.ReadDir(g.dir); len(names) != 1 || len(g.Segments()) != 0 {
			t.Fatalf("left: %v", names)
		}
	}
}

// A failed sync is never repeated: the segment is gone and begins anew. A full disk is told as such and goes on later.
func TestStaging_FailingDisk(t *testing.T) {
	ld := bigLeader(t, 9)
	w := ld.all[0]
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	g := mustStage(t, s)
	data, m := ld.begin(t, g, w)
	fsys.SetHook(vfs.FailOnce(vfs.On(vfs.OpWrite, "*.part"), syscall.ENOSPC))
	wantErr(t, g.WriteChunk(w.Base, 0, chunkOf(m, data, 0)), vtop.ErrNoSpace)
	fsys.SetHook(vfs.FailOnce(vfs.On(vfs.OpSync, "*.part"), syscall.EIO))
	for i := range m.Chunks {
		ok(t, g.WriteChunk(w.Base, i, chunkOf(m, data, i)))
	}
	wantErr(t, g.Finish(w.Base), vtop.ErrStorage)
	if len(g.Segments()) != 0 {
		t.Fatalf("%+v", g.Segments())
	}
	wantErr(t, g.Finish(w.Base), vtop.ErrNotReady)
	ok(t, ld.transfer(g, w, 0))

	fsys.SetCapacity(3 << 20)
	ok(t, s.Tick())
	next := ld.all[1]
	encoded, err := ld.s.ReadManifest(testRange(0), next.Base, next.Root, 0)
	ok(t, err)
	_, err = g.Begin(next.Base, next.Root, encoded)
	wantErr(t, err, vtop.ErrNoSpace)
	fsys.SetCapacity(1 << 40)
	ok(t, s.Tick())
	ok(t, ld.transfer(g, next, 0))
}

// The half received segments of one staging are bounded (I13).
func TestStaging_Bounded(t *testing.T) {
	ld := newLeader(t, 200)
	s := openStore(t, vfs.NewCrashFS(2), func(o *Options) { o.StageFiles = 2 })
	g := mustStage(t, s)
	ld.begin(t, g, ld.all[0])
	ld.begin(t, g, ld.all[0])
	ld.begin(t, g, ld.all[1])
	encoded, err := ld.s.ReadManifest(testRange(0), ld.all[2].Base, ld.all[2].Root, 0)
	ok(t, err)
	_, err = g.Begin(ld.all[2].Base, ld.all[2].Root, encoded)
	wantErr(t, err, vtop.ErrOverloaded)
	ok(t, ld.transfer(g, ld.all[0], 0))
	ok(t, ld.transfer(g, ld.all[2], 0))
}

// What no job wants is swept; what a job wants stays; what cannot be a staging of this cluster and range begins anew.
func TestStaging_Sweep(t *testing.T) {
	ld := newLeader(t, 100)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	g := mustStage(t, s)
	ok(t, ld.transfer(g, ld.all[0], 0))
	_, err := s.Stage(testRange(1))
	ok(t, err)
	removed, err := s.SweepStaging(func(r vtop.Range) bool { return r == testRange(0) })
	ok(t, err)
	if len(removed) != 1 || removed[0] != testRange(1) || len(s.Stagings()) != 1 {
		t.Fatalf("%v, %+v", removed, s.Stagings())
	}
	_, err = s.SweepStaging(func(vtop.Range) bool { return false })
	ok(t, err)
	_, err = g.Begin(0, ld.all[0].Root, nil)
	if err == nil {
		t.Fatal("a swept staging goes on")
	}
	after := fsys.CrashClone(newRand(1), vfs.KeepNone())
	if infos := openStore(t, after).Stagings(); len(infos) != 0 {
		t.Fatalf("swept and there again: %+v", infos)
	}
	g = mustStage(t, s)
	ok(t, ld.transfer(g, ld.all[0], 0))
	ok(t, s.Close())
	edit(t, fsys, filepath.Join(g.dir, stageName), flip(20))
	s = openStore(t, fsys)
	if segs := mustStage(t, s).Segments(); len(segs) != 0 {
		t.Fatalf("a staging that does not say whose it is is believed: %+v", segs)
	}
	ok(t, ld.transfer(mustStage(t, s), ld.all[0], 0))
	ok(t, s.SetCluster(vtop.UUID{7}))
	ok(t, mustStage(t, s).Close())
	if segs := mustStage(t, s).Segments(); len(segs) != 0 {
		t.Fatalf("a staging of another cluster is believed: %+v", segs)
	}
	ok(t, mustStage(t, s).Discard())
	if infos := s.Stagings(); len(infos) != 0 {
		t.Fatalf("%+v", infos)
	}
}

// Whole segments of the lost replica, and of those set aside, are taken after they were verified; a rotten one, one of
// another size, and one that is not wanted are not. The old directories stay as they are.
func TestStaging_TakeLocal(t *testing.T) {
	for _, where := range []string{"lost", "aside", "aside without manifests"} {
		t.Run(where, func(t *testing.T) {
			ld := newLeader(t, 250)
			fsys := vfs.NewCrashFS(2)
			s := openStore(t, fsys)
			l := ld.follower(t, s, 3, 4)
			if where == "aside without manifests" {
				ok(t, fsys.Remove(l.path(ld.all[0].Base, manifestSuffix)))
			}
			flipInPlace(t, fsys, l.path(ld.all[1].Base, logSuffix), 100)
			edit(t, fsys, l.path(ld.all[2].Base, logSuffix), func(b []byte) []byte { return b[:len(b)-1] })
			ok(t, l.Lose("test"))
			if where != "lost" {
				ok(t, s.SetAside(testRange(0), "test"))
			}
			old := listing(t, fsys, testDir+"/aside") + listing(t, fsys, testDir+"/ranges")
			g := mustStage(t, s)
			taken, err := g.TakeLocal(bg, 0, ld.all)
			ok(t, err)
			if len(taken) != 2 || taken[0] != ld.all[0].Base || taken[1] != ld.all[3].Base {
				t.Fatalf("took %v", taken)
			}
			other := ld.all[0]
			other.Root[0]++
			if wrong, err := g.TakeLocal(bg, 0, []Want{other}); err != nil || len(wrong) != 0 {
				t.Fatalf("another root: took %v, %v", wrong, err)
			}
			again, err := g.TakeLocal(bg, 0, ld.all[:1])
			if err != nil || len(again) != 1 {
				t.Fatalf("again: %v, %v", again, err)
			}
			if again, err = g.TakeLocal(bg, 0, ld.all[:1]); err != nil || len(again) != 1 { // it is staged
				t.Fatalf("again: %v, %v", again, err)
			}
			if now := listing(t, fsys, testDir+"/aside") + listing(t, fsys, testDir+"/ranges"); now != old {
				t.Fatal("the old directory was changed")
			}
			for _, seg := range g.Segments() {
				if !seg.Whole {
					t.Fatalf("%+v", seg)
				}
			}
			for _, w := range ld.all {
				ok(t, ld.transfer(g, w, 0))
			}
			got, err := s.Adopt(testRange(0), 7, ld.adoption(t))
			ok(t, err)
			ok(t, ld.holds(got))
		})
	}
}

// The end of the context ends the search, and nothing half stays; where linking is not possible the bytes are copied.
func TestStaging_TakeLocalStopsAndCopies(t *testing.T) {
	ld := newLeader(t, 250)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	ok(t, ld.follower(t, s, 3, 4).Lose("test"))
	g := mustStage(t, s)
	ctx, cancel := context.WithCancelCause(bg)
	cause := errors.New("the job was cancelled")
	cancel(cause)
	_, err := g.TakeLocal(ctx, 0, ld.all)
	wantErr(t, err, cause)
	if names, _ := fsys.ReadDir(g.dir); strings.Join(names, " ") != stageName {
		t.Fatalf("left: %v", names)
	}
	// Closing ends a search that reads slowly; it does not wait for it.
	linked := vfs.NewGate(vfs.On(vfs.OpLink, "*"))
	fsys.SetHook(linked.Hook)
	ended := make(chan error)
	go func() {
		_, err := g.TakeLocal(bg, 1, ld.all)
		ended <- err
	}()
	<-linked.Arrived()
	linked.Open()
	ok(t, g.Close())
	wantErr(t, <-ended, vtop.ErrClosed)
	g = mustStage(t, s)
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpLink, "*"), syscall.EPERM))
	taken, err := g.TakeLocal(bg, 0, ld.all)
	if err != nil || len(taken) != 4 {
		t.Fatalf("took %v, %v", taken, err)
	}
}

// Chunks come from several sources at once while another segment is finished and the staging is listed.
func TestStaging_ManyAtOnce(t *testing.T) {
	ld := bigLeader(t, 14)
	s := openStore(t, vfs.NewCrashFS(2))
	g := mustStage(t, s)
	done := make(chan error)
	for _, w := range ld.all {
		data, m := ld.begin(t, g, w)
		for range 2 {
			go func() {
				var errs error
				for i := range m.Chunks {
					errs = errors.Join(errs, g.WriteChunk(w.Base, i, chunkOf(m, data, i)))
					g.Segments()
					s.Stagings()
				}
				err := g.Finish(w.Base)
				if errors.Is(err, vtop.ErrNotReady) {
					err = nil // the other one lags
				}
				done <- errors.Join(errs, err)
			}()
		}
	}
	for range 2 * len(ld.all) {
		ok(t, <-done)
	}
	for _, seg := range g.Segments() {
		if !seg.Whole {
			t.Fatalf("%+v", seg)
		}
	}
}
