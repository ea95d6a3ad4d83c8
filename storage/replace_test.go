package storage

import (
	"fmt"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// sealedFollower is a follower with everything that the leader has sealed, and some records beyond.
func sealedFollower(t *testing.T, fsys *vfs.CrashFS, ld *leader) (*Store, *Log) {
	t.Helper()
	s := openStore(t, fsys)
	l := ld.follower(t, s, 3, len(ld.all))
	ok(t, ld.catchUp(l))
	settle(t, l)
	return s, l
}

// One damaged segment is replaced by itself while the log goes on: the vote, the id, the promise and the position stay,
// and what is read is what was written, at once and after a power cut.
func TestReplaceSegment_Damaged(t *testing.T) {
	for _, at := range []int{0, 2} {
		ld := newLeader(t, 250)
		fsys := vfs.NewCrashFS(2)
		s, l := sealedFollower(t, fsys, ld)
		w := ld.all[at]
		flipInPlace(t, fsys, l.path(w.Base, logSuffix), 70)
		ok(t, s.Promise([]Promise{{testRange(0), 3, 120}})[0])
		wantErr(t, l.VerifySegment(bg, w.Base), vtop.ErrDamaged)
		g := mustStage(t, s)
		wantErr(t, s.ReplaceSegment(testRange(0), w.Base, w.Root, g), vtop.ErrNotReady)
		ld.begin(t, g, w)
		wantErr(t, s.ReplaceSegment(testRange(0), w.Base, w.Root, g), vtop.ErrNotReady)
		ok(t, ld.transfer(g, w, 0))
		wantErr(t, s.ReplaceSegment(testRange(0), w.Base, [32]byte{1}, g), vtop.ErrNotReady)
		mustLead(t, l, 120, plainBatch(1, 10, 1))
		ok(t, s.ReplaceSegment(testRange(0), w.Base, w.Root, g))
		ok(t, s.ReplaceSegment(testRange(0), w.Base, w.Root, g2(t, ld, g, w))) // whole already: nothing is done
		if info := l.Info(); info.State != StateHealthy || info.Reason != "" || info.Promised != 120 || len(l.Holes()) != 0 {
			t.Fatalf("%+v", info)
		}
		checkLog(t, l)
		mustFlush(t, l)
		want := append(mustRead(t, ld.l, 0, 250), mustRead(t, l, 250, 251)...)
		for range 2 {
			if string(mustRead(t, l, 0, l.End())) != string(want) {
				t.Fatal("I9: other bytes")
			}
			ok(t, l.VerifySegment(bg, w.Base))
			l = openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
			if info := l.Info(); info.State != StateHealthy {
				t.Fatalf("after a power cut: %+v", info)
			}
		}
		ok(t, g.Discard())
	}
}

// g2 stages the segment again.
func g2(t *testing.T, ld *leader, g *Staging, w Want) *Staging {
	t.Helper()
	ok(t, ld.transfer(g, w, 0))
	return g
}

// Missing segments come back one by one, in any order, manifests or not, although one hole stood for all of them; those
// that are still missing stay a hole.
func TestReplaceSegment_Missing(t *testing.T) {
	for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 1, 3}} {
		for _, manifests := range []bool{true, false} {
			ld := newLeader(t, 250)
			fsys := vfs.NewCrashFS(2)
			s, l := sealedFollower(t, fsys, ld)
			ok(t, s.Close())
			for _, i := range order {
				for _, suffix := range []string{logSuffix, indexSuffix, producerSuffix} {
					_ = fsys.Remove(l.path(ld.all[i].Base, suffix))
				}
				if !manifests {
					ok(t, fsys.Remove(l.path(ld.all[i].Base, manifestSuffix)))
				}
			}
			s = openStore(t, fsys)
			l = s.Get(testRange(0))
			if l.Info().State != StateHoles || len(l.Holes()) == 0 {
				t.Fatalf("%+v", l.Info())
			}
			for n, i := range order {
				w := ld.all[i]
				g := mustStage(t, s)
				ok(t, ld.transfer(g, w, 0))
				ok(t, s.ReplaceSegment(testRange(0), w.Base, w.Root, g))
				checkLog(t, l)
				if string(mustRead(t, l, w.Base, w.End)) != string(mustRead(t, ld.l, w.Base, w.End)) {
					t.Fatal("I9: other bytes")
				}
				wantState := StateHoles
				if n == len(order)-1 {
					wantState = StateHealthy
				}
				if got := l.Info().State; got != wantState {
					t.Fatalf("order %v: %s after %d", order, got, n+1)
				}
				for _, j := range order[n+1:] {
					_, err := readAll(l, ld.all[j].Base, ld.all[j].End)
					wantErr(t, err, vtop.ErrDamaged)
				}
				again := openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
				if again.Info().State != wantState || string(bytesOf(again.runs)) != string(bytesOf(l.runs)) {
					t.Fatalf("after a power cut: %+v, runs %v, were %v", again.Info(), again.runs, l.runs)
				}
			}
			ok(t, ld.holds(l))
		}
	}
}

// A segment that was sealed with another root than the catalogue's becomes the catalogue's.
func TestReplaceSegment_WrongRoot(t *testing.T) {
	ld := newLeader(t, 250)
	fsys := vfs.NewCrashFS(2)
	s := openStore(t, fsys)
	l := ld.follower(t, s, 3, 2)
	third := ld.all[2]
	_, err := l.AppendFollow(99, vtop.FenceFollow, third.Base, stamped(plainBatch(int(third.End-third.Base), 50, 1), third.Base, 3))
	ok(t, err)
	ok(t, l.CloseAt(third.End))
	settle(t, l)
	wantErr(t, l.Seal(third.Base, third.Root), vtop.ErrDamaged)
	g := mustStage(t, s)
	ok(t, ld.transfer(g, third, 0))
	ok(t, s.ReplaceSegment(testRange(0), third.Base, third.Root, g))
	if string(mustRead(t, l, third.Base, third.End)) != string(mustRead(t, ld.l, third.Base, third.End)) || l.Info().State != StateHealthy {
		t.Fatalf("%+v", l.Info())
	}
	again := openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
	if again.Info().State != StateHealthy {
		t.Fatalf("%+v", again.Info())
	}
}

// What is no hole, or cannot hold the segment, is left alone.
func TestReplaceSegment_Refusals(t *testing.T) {
	ld := newLeader(t, 250)
	fsys := vfs.NewCrashFS(2)
	s, l := sealedFollower(t, fsys, ld)
	g := mustStage(t, s)
	ok(t, ld.transfer(g, ld.all[0], 0))
	ok(t, ld.transfer(g, ld.all[1], 0))
	wantErr(t, s.ReplaceSegment(testRange(1), 0, ld.all[0].Root, g), vtop.ErrUnknownRange)
	wantErr(t, s.ReplaceSegment(testRange(0), 0, ld.all[1].Root, g), ErrWrongRoot)
	wantErr(t, s.ReplaceSegment(testRange(0), l.tailBase(), ld.all[0].Root, g), vtop.ErrNotReady)
	ok(t, l.SetLogStart(ld.all[0].End))
	wantErr(t, s.ReplaceSegment(testRange(0), 0, ld.all[0].Root, g), vtop.ErrOffsetOutOfRange)
	// Rot in the staging is found before the segment is replaced.
	flipInPlace(t, fsys, l.path(ld.all[1].Base, logSuffix), 70)
	wantErr(t, l.VerifySegment(bg, ld.all[1].Base), vtop.ErrDamaged)
	flipInPlace(t, fsys, g.path(ld.all[1].Base, logSuffix), 90)
	wantErr(t, s.ReplaceSegment(testRange(0), ld.all[1].Base, ld.all[1].Root, g), vtop.ErrDamaged)
	ok(t, l.Lose("test"))
	wantErr(t, s.ReplaceSegment(testRange(0), ld.all[1].Base, ld.all[1].Root, g), vtop.ErrReplicaLost)
}

// Adjacent segments are missing with their manifests, so that nothing is known of the producer state between them: a power
// cut at any call of the replacement leaves holes, never a lost replica (I10), and the rest can be replaced from there.
func TestCrashSweep_ReplaceMissing(t *testing.T) {
	ld := newLeader(t, 250)
	missing := ld.all[1:4]
	for seed := range uint64(4) {
		fsys := vfs.NewCrashFS(seed)
		s, l := sealedFollower(t, fsys, ld)
		ok(t, s.Close())
		for _, w := range missing {
			for _, suffix := range []string{logSuffix, indexSuffix, producerSuffix, manifestSuffix} {
				_ = fsys.Remove(l.path(w.Base, suffix))
			}
		}
		ok(t, fsys.Remove(l.path(missing[len(missing)-1].End, producerSuffix)))
		ok(t, fsys.SyncDir(l.dir))
		s = openStore(t, fsys)
		l = s.Get(testRange(0))
		rng := newRand(seed)
		var failed error
		fsys.SetHook(func(op vfs.Op) error {
			if failed == nil && op.Kind.Changes() {
				if err := fillAll(ld, fsys.CrashClone(rng, vfs.AnyPolicy(rng)), missing); err != nil {
					failed = fmt.Errorf("power cut before %v: %w", op, err)
				}
			}
			return nil
		})
		for _, i := range rng.Perm(len(missing)) {
			g := mustStage(t, s)
			ok(t, ld.transfer(g, missing[i], 0))
			ok(t, s.ReplaceSegment(testRange(0), missing[i].Base, missing[i].Root, g))
		}
		fsys.SetHook(nil)
		if failed != nil {
			t.Fatalf("seed %d: %v", seed, failed)
		}
		ok(t, ld.holds(l))
	}
}

// fillAll opens what a power cut left and replaces what is missing.
func fillAll(ld *leader, fsys vfs.FS, missing []Want) error {
	s, err := tryOpen(fsys)
	if err != nil {
		return err
	}
	defer s.Close()
	l := s.Get(testRange(0))
	if err := l.Err(); err != nil {
		return err
	}
	for _, w := range missing {
		g, err := s.Stage(testRange(0))
		if err != nil {
			return err
		}
		if err := ld.transfer(g, w, 0); err != nil {
			return err
		}
		if err := s.ReplaceSegment(testRange(0), w.Base, w.Root, g); err != nil {
			return err
		}
	}
	if info := l.Info(); info.State != StateHealthy {
		return fmt.Errorf("%+v", info)
	}
	return ld.holds(l)
}
