package storage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// checkAll opens a store on what a power cut left, holds it to the twins, and shows that it can go on.
func checkAll(fsys *vfs.CrashFS, twins map[vtop.Range]*twin, incarnation vtop.Incarnation, storage vtop.StorageID, opts []func(*Options)) error {
	for again := range 2 {
		s, err := tryOpen(fsys, opts...)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		id := s.Identity()
		if id.Incarnation <= incarnation || incarnation > 0 && id.Storage != storage {
			return fmt.Errorf("I5: storage %s incarnation %d after %s incarnation %d", id.Storage, id.Incarnation, storage, incarnation)
		}
		incarnation, storage = id.Incarnation, id.Storage
		for r, tw := range twins {
			if err := errors.Join(tw.check(s, r), goOn(s, r, tw)); err != nil {
				return fmt.Errorf("after %d restarts: %w", again+1, err)
			}
		}
		if err := s.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	return nil
}

// goOn appends to a recovered replica under a new epoch.
func goOn(s *Store, r vtop.Range, tw *twin) error {
	l := s.Get(r)
	if l == nil || l.Err() != nil {
		return nil
	}
	tw.epoch = max(tw.epoch, l.Promised()) + 1
	if base := l.ResetBase(); tw.resetting == base && base > 0 { // the reset took effect
		return nil
	}
	for len(tw.log) > 0 && tw.log[len(tw.log)-1].BaseOffset() >= l.End() {
		tw.log = tw.log[:len(tw.log)-1]
	}
	b := plainBatch(1, 40, uint64(tw.epoch))
	if _, _, err := l.AppendLead(tw.epoch, b); err != nil {
		return fmt.Errorf("append after recovery: %w", err)
	}
	tw.log = append(tw.log, b)
	if err := l.Flush(context.Background()); err != nil {
		return fmt.Errorf("flush after recovery: %w", err)
	}
	tw.durable, tw.resetting = l.End(), 0
	return nil
}

// ResetBase is the base of the first segment.
func (l *Log) ResetBase() vtop.Offset { return l.Segments()[0].Base }

var sweepSeeds = flag.Uint64("seeds", 4, "how many random histories the crash sweep cuts at every call")

// The centrepiece: a power cut at every call that changes the disk, in every kind of operation, torn at any byte,
// with names lost in any order; and another one during the recovery from it. What was reported durable is there
// byte for byte (I1, I2), promises hold (I6), nothing that was not cut by a table is missing and nothing that was
// comes back (I8), what is read is what was written (I9), and no replica is lost without damage (I10).
func TestCrashSweep(t *testing.T) {
	seeds := *sweepSeeds
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			sweep(t, seed)
		})
	}
}

// The same where every sync of a tail is one of the whole file system.
func TestCrashSweep_Gathered(t *testing.T) {
	seeds := (*sweepSeeds + 1) / 2
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			sweep(t, seed, gathering(1))
		})
	}
}

func sweep(t *testing.T, seed uint64, opts ...func(*Options)) {
	w := newWorld(t, vfs.NewCrashFS(seed), seed, opts...)
	cuts := newRand(seed + 1000)
	var failed error
	count := 0
	w.fs.SetHook(func(op vfs.Op) error {
		if !op.Kind.Changes() {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for range 2 {
			if failed != nil {
				return nil
			}
			count++
			twins := map[vtop.Range]*twin{}
			for r, tw := range w.twins {
				twins[r] = tw.clone()
			}
			clone := w.fs.CrashClone(cuts, vfs.AnyPolicy(cuts))
			if cuts.IntN(4) == 0 {
				clone = cutRecovery(clone, cuts, opts...)
			}
			if err := checkAll(clone, twins, w.incarnation, w.storage, opts); err != nil {
				failed = fmt.Errorf("power cut before %v, during %s: %w", op, w.step, err)
			}
		}
		return nil
	})
	w.open()
	for range 60 {
		w.do()
		w.mu.Lock()
		err := failed
		w.mu.Unlock()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	ok(t, w.s.Close())
	t.Logf("%d power cuts", count)
}

// cutRecovery opens the store and cuts the power again on the way.
func cutRecovery(fsys *vfs.CrashFS, rng *rand.Rand, opts ...func(*Options)) *vfs.CrashFS {
	at := fsys.Ops() + 1 + rng.Uint64N(12)
	fsys.SetHook(vfs.Fail(vfs.At(at), vfs.ErrPowerCut))
	if s, err := tryOpen(fsys, opts...); err == nil {
		_ = s.Close()
	}
	return fsys.CrashClone(rng, vfs.AnyPolicy(rng))
}
