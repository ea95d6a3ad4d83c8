package storage

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// catchUp feeds a repaired replica the rest of the leader's log, as the live stream does.
func (ld *leader) catchUp(l *Log) error {
	for l.End() < ld.l.End() {
		got, _, base, err := ld.l.ReadPeer(l.End(), 1000, ld.l.End(), nil)
		if err != nil {
			return err
		}
		if _, err := l.AppendFollow(99, vtop.FenceFollow, base, got); err != nil {
			return err
		}
	}
	return l.Flush(bg)
}

// A staging becomes a whole replica: position, epochs, producer state, log start, promise. It follows the live stream at
// once, promises, leads, and recognises what producers send again, without having seen a write (G4, I6, D5).
func TestAdopt_WholePosition(t *testing.T) {
	for _, first := range []vtop.Offset{0, 60} {
		for _, old := range []string{"none", "lost", "set aside before"} {
			ld := newLeader(t, 250)
			fsys := vfs.NewCrashFS(2)
			s := openStore(t, fsys)
			if old != "none" {
				l := ld.follower(t, s, 3, 2)
				ok(t, s.Promise([]Promise{{testRange(0), 3, 8}})[0])
				ok(t, l.Lose("test"))
			}
			if old == "set aside before" {
				ok(t, s.SetAside(testRange(0), "test"))
			}
			ok(t, ld.l.SetLogStart(first))
			a := ld.adoption(t)
			l, err := ld.repair(s, 5, a)
			ok(t, err)
			info := l.Info()
			wantPromise := map[string]vtop.Epoch{"lost": 8}[old]
			if info.ReplicaID != 5 || info.State != StateHealthy || info.End != a.end() || info.Durable != info.End ||
				info.Start != ld.l.Start() || info.Promised != wantPromise {
				t.Fatalf("%s from %d: %+v, want end %d, start %d", old, first, info, a.end(), ld.l.Start())
			}
			ok(t, ld.holds(l))
			durable := fsys.CrashClone(newRand(1), vfs.KeepNone())
			if _, err := durable.Stat(l.dir); err != nil {
				t.Fatalf("not durable under its name: %v", err)
			}
			names, err := fsys.ReadDir(testDir + "/" + asideDir)
			if err != nil || len(names) != map[string]int{"none": 0, "lost": 2, "set aside before": 2}[old] { // and why
				t.Fatalf("%s: aside: %v, %v", old, names, err)
			}
			if again, err := s.Adopt(testRange(0), 5, a); again != l || err != nil {
				t.Fatalf("adopted again: %v", err)
			}
			if s.Get(testRange(0)) != l || len(s.List()) != 1 || len(s.Stagings()) != 0 {
				t.Fatalf("%+v, %+v", s.List(), s.Stagings())
			}
			for range 2 {
				base, producers, err := l.ResetPoint()
				if err != nil || base != a.Base || !bytes.Equal(producers, a.Producers) {
					t.Fatalf("reset point %d, %v", base, err)
				}
				ok(t, ld.catchUp(l))
				ok(t, ld.holds(l))
				_, dup, err := l.AppendLead(99, producerBatch(1, 0, 248, 1))
				if err != nil || dup == nil || dup.Base != 248 {
					t.Fatalf("D5: sent again: %+v, %v", dup, err)
				}
				clone := fsys.CrashClone(newRand(1), vfs.KeepNone())
				s = openStore(t, clone)
				if l = s.Get(testRange(0)); l == nil || l.Err() != nil || len(s.List()) != 1 {
					t.Fatalf("after a power cut: %+v", s.List())
				}
			}
			ok(t, s.Promise([]Promise{{testRange(0), 5, 100}})[0])
			mustLead(t, l, 100, producerBatch(1, 0, 250, 1))
			mustFlush(t, l)
		}
	}
}

// A log start inside the first segment is taken over; retention goes on from there as anywhere.
func TestAdopt_LogStartInsideASegment(t *testing.T) {
	ld := newLeader(t, 250)
	ok(t, ld.l.SetLogStart(ld.all[1].Base+5))
	s := openStore(t, vfs.NewCrashFS(2))
	l, err := ld.repair(s, 5, ld.adoption(t))
	ok(t, err)
	if l.Start() != ld.all[1].Base+5 || l.Segments()[0].Base != ld.all[1].Base {
		t.Fatalf("start %d, base %d", l.Start(), l.Segments()[0].Base)
	}
	_, _, _, err = l.Read(ld.all[1].Base, 100, l.End(), nil)
	wantErr(t, err, vtop.ErrOffsetOutOfRange)
	ok(t, l.SetLogStart(ld.all[2].End))
	ok(t, ld.l.SetLogStart(ld.all[2].End))
	ok(t, ld.holds(l))
	if base, _, err := l.ResetPoint(); err != nil || base != ld.all[3].Base {
		t.Fatalf("reset point %d, %v", base, err)
	}
}

// Nothing sealed yet: the replica begins where the leader does, with its producer state.
func TestAdopt_Empty(t *testing.T) {
	ld := newLeader(t, 250)
	ok(t, ld.l.SetLogStart(ld.all[len(ld.all)-1].End)) // the tail alone is left
	base, producers, err := ld.l.ResetPoint()
	ok(t, err)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	l, err := s.AdoptEmpty(testRange(0), 5, base, producers)
	ok(t, err)
	if info := l.Info(); base == 0 || info.Start != base || info.End != base || info.State != StateHealthy {
		t.Fatalf("%+v", info)
	}
	ok(t, ld.catchUp(l))
	ok(t, ld.holds(l))
	l = openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
	ok(t, l.Err())
	ok(t, ld.holds(l))
	_, err = s.AdoptEmpty(testRange(1), 6, 0, nil)
	ok(t, err)
}

// What is refused changes nothing: the replica that is there goes on, and the staging too.
func TestAdopt_Refusals(t *testing.T) {
	ld := newLeader(t, 250)
	good := ld.adoption(t)
	change := func(fn func(a *Adoption)) Adoption {
		a := good
		a.Segments = append([]AdoptSegment(nil), good.Segments...)
		fn(&a)
		return a
	}
	foreign := newProducerTable(&ld.s.opt)
	foreign.add(stamped(producerBatch(77, 0, 5, 1), 0, 1))
	for name, c := range map[string]struct {
		id   vtop.ReplicaID
		a    Adoption
		want error
	}{
		"a gap":                    {5, change(func(a *Adoption) { a.Segments = append(a.Segments[:1], a.Segments[2:]...) }), nil},
		"the first is missing":     {5, change(func(a *Adoption) { a.Segments = a.Segments[1:] }), nil},
		"another root":             {5, change(func(a *Adoption) { a.Segments[1].Root[0]++ }), vtop.ErrNotReady},
		"another size":             {5, change(func(a *Adoption) { a.Segments[1].Bytes++ }), vtop.ErrNotReady},
		"not staged":               {5, change(func(a *Adoption) { a.Segments = append(a.Segments, Want{Base: a.end(), End: a.end() + 1}) }), vtop.ErrNotReady},
		"half staged":              {5, good, vtop.ErrNotReady},
		"log start below":          {5, change(func(a *Adoption) { a.LogStart = -1 }), nil},
		"log start above":          {5, change(func(a *Adoption) { a.LogStart = a.end() + 1 }), nil},
		"producers at 0":           {5, change(func(a *Adoption) { a.Producers = foreign.encode() }), nil},
		"producers are no state":   {5, change(func(a *Adoption) { a.Producers = []byte{1} }), nil},
		"no id":                    {0, good, nil},
		"an older id":              {2, good, vtop.ErrFenced},
		"the id of what is there":  {3, good, nil},
		"a healthy one is there":   {5, good, nil},
		"another one is to be out": {5, change(func(a *Adoption) { a.Replaces = 4 }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewCrashFS(2)
			s := openStore(t, fsys)
			l := ld.follower(t, s, 3, 2)
			healthy := strings.HasPrefix(name, "a healthy") || strings.HasPrefix(name, "another one")
			if !healthy {
				ok(t, l.Lose("test"))
			}
			g := mustStage(t, s)
			for i, w := range ld.all {
				if name == "half staged" && i == 1 {
					ld.begin(t, g, w)
					continue
				}
				ok(t, ld.transfer(g, w, 0))
			}
			before := listing(t, fsys, testDir)
			_, err := s.Adopt(testRange(0), c.id, c.a)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if now := listing(t, fsys, testDir); now != before {
				t.Fatalf("a refused adoption changed the disk:\n%s\n%s", before, now)
			}
			if s.Get(testRange(0)) != l || errors.Is(l.Err(), vtop.ErrClosed) {
				t.Fatalf("a refused adoption ended the old replica: %v", l.Err())
			}
			if mustStage(t, s) != g || len(g.Segments()) != len(ld.all) {
				t.Fatal("a refused adoption ended the staging")
			}
			if healthy {
				_, err = s.Adopt(testRange(0), 5, change(func(a *Adoption) { a.Replaces = 3 }))
				ok(t, err)
				_, _, err = l.AppendLead(99, plainBatch(1, 10, 1))
				wantErr(t, err, vtop.ErrClosed)
			}
		})
	}
}

// A producer state that does not lead to the first segment's is not believed, although nobody has a checksum of it.
func TestAdopt_ProducersAreChecked(t *testing.T) {
	ld := newLeader(t, 250)
	ok(t, ld.l.SetLogStart(60))
	a := ld.adoption(t)
	s := openStore(t, vfs.NewCrashFS(2))
	g := mustStage(t, s)
	for _, w := range a.Segments {
		ok(t, ld.transfer(g, w, 0))
	}
	right := a.Producers
	table, err := decodeProducers(&s.opt, right)
	ok(t, err)
	table.add(stamped(producerBatch(77, 0, 5, 1), a.Base-1, 1))
	for _, wrong := range [][]byte{nil, table.encode()} {
		a.Producers = wrong
		_, err := s.Adopt(testRange(0), 5, a)
		wantErr(t, err, vtop.ErrDamaged)
	}
	a.Producers = right
	_, err = s.Adopt(testRange(0), 5, a)
	ok(t, err)
}

// Where the disk refuses a step, the same call goes on later, whichever step it was, and the replica is whole then; its
// promise is never below the old one's (I6, I11).
func TestAdopt_FailsAndGoesOn(t *testing.T) {
	for step := uint64(1); ; step++ {
		ld := newLeader(t, 130)
		fsys := vfs.NewCrashFS(2)
		s := openStore(t, fsys)
		l := ld.follower(t, s, 3, 1)
		ok(t, s.Promise([]Promise{{testRange(0), 3, 8}})[0])
		ok(t, l.Lose("test"))
		g := mustStage(t, s)
		a := ld.adoption(t)
		for _, w := range a.Segments {
			ok(t, ld.transfer(g, w, 0))
		}
		at := fsys.Ops() + step
		fsys.SetHook(vfs.Fail(vfs.At(at), syscall.EIO))
		_, err := s.Adopt(testRange(0), 5, a)
		fsys.SetHook(nil)
		if err == nil && fsys.Ops() < at {
			if step < 15 {
				t.Fatalf("only %d steps", step)
			}
			return
		}
		if err != nil {
			wantErr(t, err, vtop.ErrStorage)
			if infos := s.Stagings(); len(infos) == 1 && infos[0].Committed { // nobody takes it away now
				removed, err := s.SweepStaging(func(vtop.Range) bool { return false })
				if _, staged := s.Stage(testRange(0)); err != nil || len(removed) != 0 || !errors.Is(staged, vtop.ErrNotReady) {
					t.Fatalf("step %d: removed %v, %v, staged %v", step, removed, err, staged)
				}
			}
			for _, info := range s.List() {
				if info.State == StateHealthy {
					t.Fatalf("step %d: %+v after a refused adoption", step, info)
				}
			}
		}
		got, err := s.Adopt(testRange(0), 5, a)
		if err != nil {
			t.Fatalf("step %d: again: %v", step, err)
		}
		if info := got.Info(); info.State != StateHealthy || info.Promised != 8 || info.End != a.end() {
			t.Fatalf("step %d: %+v", step, info)
		}
		if infos := s.List(); len(infos) != 1 || len(s.Stagings()) != 0 {
			t.Fatalf("step %d: %+v", step, infos)
		}
		ok(t, ld.holds(got))
		s = openStore(t, fsys.CrashClone(newRand(step), vfs.KeepNone()))
		if got = s.Get(testRange(0)); got == nil || got.Err() != nil || got.Promised() != 8 || len(s.List()) != 1 {
			t.Fatalf("step %d: after a power cut: %+v", step, s.List())
		}
		ok(t, ld.holds(got))
	}
}

// Names that only a staging has are no part of a replica, and a replica's file in ranges/ that came with one is removed.
func TestAdopt_LeavesNoStageFile(t *testing.T) {
	ld := newLeader(t, 130)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	l, err := ld.repair(s, 5, ld.adoption(t))
	ok(t, err)
	names, err := fsys.ReadDir(l.dir)
	ok(t, err)
	for _, name := range names {
		if name == stageName || strings.HasSuffix(name, partSuffix) || strings.HasSuffix(name, wantSuffix) {
			t.Fatalf("left: %v", names)
		}
	}
}

// What is staged beyond the adoption, whole or half, is no part of it.
func TestAdopt_OnlyWhatIsNamed(t *testing.T) {
	ld := newLeader(t, 250)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	g := mustStage(t, s)
	a := ld.adoption(t)
	for _, w := range ld.all[:4] {
		ok(t, ld.transfer(g, w, 0))
	}
	ld.begin(t, g, ld.all[4])
	a.Segments = a.Segments[:2]
	l, err := s.Adopt(testRange(0), 5, a)
	ok(t, err)
	names, err := fsys.ReadDir(l.dir)
	ok(t, err)
	for _, name := range names {
		if base, ok := parseFileName(name, logSuffix); ok && base >= a.end() {
			t.Fatalf("left: %v", names)
		}
		if base, ok := parseFileName(name, manifestSuffix); ok && base >= a.end() {
			t.Fatalf("left: %v", names)
		}
	}
	if l.End() != a.end() {
		t.Fatalf("end %d, want %d", l.End(), a.end())
	}
	ok(t, ld.catchUp(l))
	l = openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
	ok(t, l.Err())
	ok(t, ld.holds(l))
}

// The durable mark is the adopted end from the first moment: an adopted segment that vanishes with its manifest is missed
// (I10).
func TestAdopt_MarkIsTheEnd(t *testing.T) {
	ld := newLeader(t, 130)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	l, err := ld.repair(s, 5, ld.adoption(t))
	ok(t, err)
	after := fsys.CrashClone(newRand(1), vfs.KeepNone())
	last := ld.all[len(ld.all)-1]
	for _, suffix := range []string{logSuffix, manifestSuffix} {
		ok(t, after.Remove(l.path(last.Base, suffix)))
	}
	wantErr(t, openStore(t, after).Get(testRange(0)).Err(), vtop.ErrReplicaLost)
}
