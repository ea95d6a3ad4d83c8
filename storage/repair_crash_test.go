package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// repairWorld repairs one replica from a leader and knows, at each moment, what a power cut may leave.
type repairWorld struct {
	t  testing.TB
	ld *leader
	a  Adoption
	fs *vfs.CrashFS
	s  *Store

	// mu guards what follows: the hook reads it from the goroutines of the flushers.
	mu sync.Mutex
	// step names what runs. old is the replica that is there before the adoption, with its promise.
	step     string
	old      vtop.ReplicaID
	promised vtop.Epoch
	// mayBeNew and mustBeNew say whether the adopted replica may, or must, be there; durable is what it must have.
	mayBeNew, mustBeNew bool
	durable             vtop.Offset
	// hole is true while a segment of the new replica may be a hole.
	hole bool
}

const adopted = vtop.ReplicaID(5)

func (w *repairWorld) update(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// check opens what a power cut left, holds it to what is allowed, and repairs it to the end.
func (w *repairWorld) check(fsys *vfs.CrashFS) error {
	for again := range 2 {
		s, err := tryOpen(fsys)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if err := errors.Join(w.checkStore(s), w.goOn(s)); err != nil {
			return fmt.Errorf("after %d restarts: %w", again+1, err)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (w *repairWorld) checkStore(s *Store) error {
	list := s.List()
	if len(list) > 1 {
		return fmt.Errorf("I11: more than one replica: %+v", list)
	}
	if len(list) == 0 {
		if w.old != 0 || w.mustBeNew {
			return errors.New("I11: neither the old replica nor the new one is there")
		}
		return nil
	}
	info := list[0]
	switch {
	case info.Promised < w.promised:
		return fmt.Errorf("I6: replica %d has promised %d, the range %d", info.ReplicaID, info.Promised, w.promised)
	case info.ReplicaID == adopted && w.mayBeNew:
		return w.checkNew(s, info)
	case info.ReplicaID == w.old && !w.mustBeNew && info.State == StateLost: // I10: as it was
		return nil
	}
	return fmt.Errorf("I11: replica %d is there, %s: %s", info.ReplicaID, info.State, info.Reason)
}

func (w *repairWorld) checkNew(s *Store, info ReplicaInfo) error {
	l := s.Get(testRange(0))
	if info.State != StateHealthy && !(w.hole && info.State == StateHoles) {
		return fmt.Errorf("I11: the new replica is %s: %s", info.State, info.Reason)
	}
	if info.End < max(w.a.end(), w.durable) {
		return fmt.Errorf("I1: the new replica ends at %d, want %d", info.End, max(w.a.end(), w.durable))
	}
	if w.hole { // what was not noted in time is found again
		if _, err := s.Scrub(bg, testRange(0), 0, w.ld.want); err != nil {
			return err
		}
		info = l.Info()
	}
	for _, hole := range l.Holes() { // served as damage, and known by its place
		if _, err := readAll(l, hole.Base, hole.End); !errors.Is(err, vtop.ErrDamaged) {
			return fmt.Errorf("I9: a hole is served: %w", err)
		}
	}
	if info.State == StateHoles {
		return nil
	}
	return w.ld.holds(l)
}

// goOn finishes the repair from there, as a runner does that finds its job after a restart.
func (w *repairWorld) goOn(s *Store) error {
	l, err := w.ld.repair(s, adopted, w.a)
	if err != nil {
		return fmt.Errorf("go on: %w", err)
	}
	for _, hole := range l.Holes() {
		for _, want := range w.a.Segments {
			if want.Base < hole.Base || want.End > hole.End {
				continue
			}
			if err := w.replace(s, want); err != nil {
				return fmt.Errorf("go on: %w", err)
			}
		}
	}
	if err := w.ld.catchUp(l); err != nil {
		return fmt.Errorf("catch up: %w", err)
	}
	info := l.Info()
	if info.State != StateHealthy || info.End != w.ld.l.End() || info.Promised < w.promised || len(s.List()) != 1 {
		return fmt.Errorf("the repair ended with %+v", info)
	}
	if err := w.ld.holds(l); err != nil {
		return err
	}
	if _, err := s.SweepStaging(func(vtop.Range) bool { return false }); err != nil || len(s.Stagings()) != 0 {
		return fmt.Errorf("staging is left: %+v, %w", s.Stagings(), err)
	}
	w.mayBeNew, w.mustBeNew, w.durable, w.hole = true, true, info.End, false // after the next start
	return nil
}

func (w *repairWorld) replace(s *Store, want Want) error {
	g, err := s.Stage(testRange(0))
	if err != nil {
		return err
	}
	if err := w.ld.transfer(g, want, 0); err != nil {
		return err
	}
	return s.ReplaceSegment(testRange(0), want.Base, want.Root, g)
}

// clone is what a check works on, while the world goes on.
func (w *repairWorld) clone() *repairWorld {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &repairWorld{
		ld: w.ld, a: w.a, step: w.step, old: w.old, promised: w.promised,
		mayBeNew: w.mayBeNew, mustBeNew: w.mustBeNew, durable: w.durable, hole: w.hole,
	}
}

// run is the whole road of a replica: lost, staged, adopted, following, damaged, replaced; with restarts on the way.
func (w *repairWorld) run(seed uint64) {
	t, rng := w.t, newRand(seed)
	restart := func() {
		if rng.IntN(3) == 0 {
			ok(t, w.s.Close())
			w.s = openStore(t, w.fs)
		}
	}
	w.update(func() { w.step = "stage" })
	g := mustStage(t, w.s)
	w.update(func() { w.step = "take local" })
	_, err := g.TakeLocal(bg, 0, w.a.Segments)
	ok(t, err)
	for i, want := range w.a.Segments {
		w.update(func() { w.step = fmt.Sprintf("transfer %d", i) })
		if rng.IntN(2) == 0 {
			w.ld.begin(t, g, want)
		}
		restart()
		g = mustStage(t, w.s)
		ok(t, w.ld.transfer(g, want, 0))
	}
	restart()
	w.update(func() { w.step, w.mayBeNew = "adopt", true })
	l, err := w.s.Adopt(testRange(0), adopted, w.a)
	ok(t, err)
	w.update(func() { w.step, w.mustBeNew = "follow", true })
	ok(t, w.ld.catchUp(l))
	w.update(func() { w.durable = l.End() })
	restart()
	l = w.s.Get(testRange(0))
	want := w.a.Segments[rng.IntN(len(w.a.Segments))]
	w.update(func() { w.step, w.hole = "damage", true })
	switch name := l.path(want.Base, logSuffix); rng.IntN(3) {
	case 0:
		ok(t, w.fs.Remove(name))
		ok(t, w.fs.SyncDir(filepath.Dir(name)))
	default:
		flipInPlace(t, w.fs, name, int64(rng.IntN(int(want.Bytes))))
	}
	w.s.files.drop(l.segs[l.segmentAtLocked(want.Base)])
	w.update(func() { w.step = "scrub" })
	_, err = w.s.Scrub(bg, testRange(0), 0, w.ld.want)
	ok(t, err)
	if len(l.Holes()) != 1 {
		t.Fatalf("holes %+v", l.Holes())
	}
	restart()
	w.update(func() { w.step = "replace" })
	ok(t, w.replace(w.s, want))
	w.update(func() { w.step, w.hole = "close", false })
	ok(t, w.s.Get(testRange(0)).Err())
	ok(t, w.s.Close())
}

// A power cut before every call that changes the disk, on the whole road of a repair, torn at any byte and with names in
// any order, and another one during the recovery from it: there is the old replica as it was, or the new one whole,
// never a half one and never both (I10, I11); no promise is lowered (I6); what is read is what the leader wrote (I9);
// and the repair goes on from there to its end without anybody removing a file.
func TestCrashSweep_Repair(t *testing.T) {
	seeds := *sweepSeeds
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for seed := range 2 * seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			sweepRepair(t, seed)
		})
	}
}

func newRepairWorld(t *testing.T, seed uint64) *repairWorld {
	ld := newLeader(t, 150)
	w := &repairWorld{t: t, ld: ld, fs: vfs.NewCrashFS(seed)}
	w.s = openStore(t, w.fs)
	if seed%4 > 0 {
		l := ld.follower(t, w.s, 3, 2)
		w.old, w.promised = 3, 8
		ok(t, w.s.Promise([]Promise{{testRange(0), 3, 8}})[0])
		ok(t, l.Lose("test"))
	}
	if seed%2 == 1 {
		ok(t, ld.l.SetLogStart(ld.all[0].End+3))
	}
	w.a = ld.adoption(t)
	return w
}

func sweepRepair(t *testing.T, seed uint64) {
	w := newRepairWorld(t, seed)
	cuts := newRand(seed + 2000)
	var hookMu sync.Mutex
	var failed error
	count := 0
	w.fs.SetHook(func(op vfs.Op) error {
		if !op.Kind.Changes() {
			return nil
		}
		hookMu.Lock()
		defer hookMu.Unlock()
		for range 2 {
			if failed != nil {
				return nil
			}
			count++
			clone := w.fs.CrashClone(cuts, vfs.AnyPolicy(cuts))
			if cuts.IntN(4) == 0 {
				clone = cutRecovery(clone, cuts)
			}
			c := w.clone()
			if w.step == "damage" {
				continue // the test's own writing
			}
			if err := c.check(clone); err != nil {
				failed = fmt.Errorf("power cut before %v, during %s: %w", op, c.step, err)
			}
		}
		return nil
	})
	w.run(seed)
	if failed != nil {
		t.Fatalf("seed %d: %v", seed, failed)
	}
	t.Logf("%d power cuts", count)
}
