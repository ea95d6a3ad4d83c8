package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Appends, reads, syncs, seals, retention, marks and cuts at once. No append takes effect under a lease that has
// moved on (I3), every offset has one batch (I2), what a reader gets is what was appended (I9), and what is not cut
// stays.
func TestRace_EverythingAtOnce(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	fence := &testFence{}
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys, func(o *Options) { o.Fence, o.TickInterval = fence, time.Millisecond })
	var epoch atomic.Int32
	epoch.Store(1)
	fence.set(l.Range(), 1)
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	var problem atomic.Value
	fail := func(format string, args ...any) { problem.CompareAndSwap(nil, fmt.Sprintf(format, args...)); stop() }
	loop := func(fn func(i int)) {
		wait.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				fn(i)
			}
		})
	}
	for range 2 {
		loop(func(i int) {
			e := vtop.Epoch(epoch.Load())
			b := plainBatch(1+i%3, 50, uint64(e))
			base, _, err := l.AppendLead(e, b)
			if err == nil && (b.BaseOffset() != base || b.Epoch() != e) {
				fail("batch at %d in epoch %d is stamped %d and %d", base, e, b.BaseOffset(), b.Epoch())
			}
			if err != nil && !expected(err) {
				fail("append: %v", err)
			}
		})
	}
	for range 2 {
		loop(func(i int) { readSome(l, fail) })
	}
	loop(func(int) { sealAll(l, fail) })
	loop(func(int) {
		if err := l.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, vtop.ErrNotReady) {
			fail("flush: %v", err)
		}
		if _, err := l.Roll(vtop.Epoch(epoch.Load()), testTime(), 0); err != nil && !expected(err) {
			fail("roll: %v", err)
		}
		time.Sleep(time.Millisecond)
	})
	for range rounds {
		if ctx.Err() != nil {
			break
		}
		moveLease(ctx, l, fence, &epoch, fail)
	}
	stop()
	wait.Wait()
	if p := problem.Load(); p != nil {
		t.Fatal(p)
	}
	checkLog(t, l)
	end := l.End()
	ok(t, s.Close())
	l = openStore(t, fsys).Get(testRange(0))
	ok(t, l.Err())
	if l.End() != end {
		t.Fatalf("end %d after a restart, want %d", l.End(), end)
	}
	mustRead(t, l, l.Segments()[0].Base, end)
}

func expected(err error) bool {
	for _, e := range []error{vtop.ErrFenced, vtop.ErrNotReady, vtop.ErrOverloaded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// moveLease grants the next epoch, and cuts the log somewhere above what is sealed, as another leader would have.
func moveLease(ctx context.Context, l *Log, fence *testFence, epoch *atomic.Int32, fail func(string, ...any)) {
	e := vtop.Epoch(epoch.Load() + 1)
	fence.set(l.Range(), e)
	_, _, runs := l.Position()
	floor, at := l.Start(), l.End()
	for _, seg := range l.Segments() {
		if seg.State == SegmentSealed {
			floor = seg.End
		}
		if seg.Base >= floor {
			at = seg.Base // between two batches
		}
	}
	var table vtop.EpochTable
	for _, run := range runs {
		if run.Start < at {
			table = append(table, vtop.EpochStart(run))
		}
	}
	table = append(table, vtop.EpochStart{Epoch: e, Start: at})
	cut, err := l.Reconcile(context.Background(), e, table, floor)
	var quarantine *QuarantineError
	if errors.As(err, &quarantine) { // sealed meanwhile: not what a real cluster does
		fail("cut at %d, floor %d: %v", at, floor, err)
	} else if err != nil && !expected(err) {
		fail("cut: %v", err)
	} else if cut.Done && cut.From < at {
		fail("cut at %d, want %d", cut.From, at)
	}
	epoch.Store(int32(e))
	for l.End() < at+20 && err == nil && ctx.Err() == nil {
		time.Sleep(100 * time.Microsecond)
	}
}

func readSome(l *Log, fail func(string, ...any)) {
	from := l.Start()
	for range 50 {
		got, next, _, err := l.Read(from, 500, l.End(), nil)
		if errors.Is(err, vtop.ErrNotReady) || errors.Is(err, vtop.ErrOffsetOutOfRange) {
			return
		}
		if err != nil {
			fail("read at %d: %v", from, err)
			return
		}
		for b, err := range batch.All(got) {
			if err != nil || b.Check() != nil {
				fail("read at %d: a bad batch", from)
				return
			}
		}
		if next == from {
			return
		}
		from = next
	}
}

// sealAll seals what is closed and below the first half, and reclaims some of it.
func sealAll(l *Log, fail func(string, ...any)) {
	closed := l.Closed()
	if len(closed) < 6 {
		time.Sleep(time.Millisecond)
		return
	}
	root, _, err := l.Root(closed[0].Base)
	if errors.Is(err, vtop.ErrNotReady) {
		return
	}
	if err == nil {
		err = l.Seal(closed[0].Base, root)
	}
	if err == nil && closed[0].Base%3 == 0 {
		err = l.SetLogStart(closed[0].Base)
	}
	if err != nil && !errors.Is(err, vtop.ErrNotReady) {
		fail("seal: %v", err)
	}
}

// The same on a real disk.
func TestStore_OnARealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	opt := testOptions()
	opt.Reserve, opt.SegmentBytes = 1, 64<<10
	s, err := Open(vfs.OS(), dir, opt)
	ok(t, err)
	l, err := s.Create(testRange(0), 1, 0)
	ok(t, err)
	for i := range 300 {
		mustLead(t, l, 1, plainBatch(2, 300, uint64(i)))
		if i%7 == 0 {
			mustFlush(t, l)
		}
	}
	mustFlush(t, l)
	want := mustRead(t, l, 0, 600)
	ok(t, s.Probe(context.Background()))
	ok(t, s.Close())
	s, err = Open(vfs.OS(), dir, opt)
	ok(t, err)
	l = s.Get(testRange(0))
	ok(t, l.Err())
	if string(mustRead(t, l, 0, 600)) != string(want) {
		t.Fatal("another log after a restart")
	}
	cut, err := l.Reconcile(context.Background(), 5, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 5, Start: 500}}, 0)
	ok(t, err)
	if cut.From != 500 || l.End() != 500 {
		t.Fatalf("%+v, end %d", cut, l.End())
	}
	ok(t, s.Delete(testRange(0)))
	ok(t, s.Close())
}
