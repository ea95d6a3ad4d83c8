package storage

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// The tail is closed at its end; the answer counts its records; what comes next begins a segment there. Again, and over a
// sealed prefix, it is a success without records (G6).
func TestCloseTail_ClosesAndRepeats(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys)
	mustLead(t, l, 3, plainBatch(2, 50, 1))
	mustLead(t, l, 3, plainBatch(3, 50, 2))
	got, err := l.CloseTail(3)
	ok(t, err)
	if want := (ClosedTail{Base: 0, End: 5, Records: 5}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for range 2 {
		got, err := l.CloseTail(3)
		ok(t, err)
		if want := (ClosedTail{Base: 5, End: 5}); got != want {
			t.Fatalf("again: %+v, want %+v", got, want)
		}
	}
	if base := mustLead(t, l, 3, plainBatch(1, 50, 3)); base != 5 {
		t.Fatalf("offset %d after the close", base)
	}
	settle(t, l)
	checkLog(t, l)
	segs := l.Segments()
	if len(segs) != 2 || segs[0].End != 5 || segs[0].State != SegmentClosed || segs[1].Base != 5 {
		t.Fatalf("%+v", segs)
	}
	root, _, err := l.Root(0)
	ok(t, err)
	ok(t, l.Seal(0, root))
	got, err = l.CloseTail(3)
	ok(t, err)
	if want := (ClosedTail{Base: 5, End: 6, Records: 1}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	clone := fsys.CrashClone(newRand(1), vfs.KeepNone())
	ok(t, openStore(t, clone).Get(testRange(0)).Err())
}

// Who may not lead closes nothing: not a name, a size or a time on disk changes, nor anything in memory (I3).
func TestCloseTail_RefusedChangesNothing(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	fence := &testFence{}
	s, l := newLogOn(t, fsys, func(o *Options) { o.Fence = fence })
	mustLead(t, l, 3, plainBatch(2, 50, 1))
	mustFlush(t, l)
	before := listing(t, fsys, testDir)
	refuse := func(e vtop.Epoch) {
		t.Helper()
		_, err := l.CloseTail(e)
		wantErr(t, err, vtop.ErrFenced)
		if !errors.Is(l.Flush(context.Background()), nil) || listing(t, fsys, testDir) != before {
			t.Fatalf("I3: a refused close changed the disk:\n%s", listing(t, fsys, testDir))
		}
		if segs := l.Segments(); len(segs) != 1 || segs[0].State != SegmentTail {
			t.Fatalf("I3: a refused close changed the log: %+v", segs)
		}
	}
	fence.set(testRange(0), 4) // another lease is applied
	refuse(3)
	fence.set(testRange(0), 2) // one below the records that are here
	refuse(2)
	fence.set(testRange(0), 5)
	ok(t, s.Promise([]Promise{{testRange(0), 1, 6}})[0])
	before = listing(t, fsys, testDir)
	refuse(5) // I6
	fence.set(testRange(0), 6)
	_, err := l.CloseTail(6)
	ok(t, err)
}

// A range without a record, ever, has nothing to seal, and is told what to do; one whose records were all reclaimed, or
// that began anew above 0, was written.
func TestCloseTail_NeverWritten(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	_, err := l.CloseTail(1)
	wantErr(t, err, ErrNeverWritten)
	if !strings.Contains(err.Error(), "produce to the range") {
		t.Fatalf("%v", err)
	}
	mustLead(t, l, 1, plainBatch(2, 50, 1))
	_, err = l.CloseTail(1)
	ok(t, err)
	settle(t, l)
	root, _, err := l.Root(0)
	ok(t, err)
	ok(t, l.Seal(0, root))
	ok(t, l.SetLogStart(2))
	got, err := l.CloseTail(1)
	ok(t, err)
	if got != (ClosedTail{Base: 2, End: 2}) {
		t.Fatalf("%+v", got)
	}
	later, err := s.Create(testRange(1), 2, 10)
	ok(t, err)
	_, err = later.CloseTail(1)
	ok(t, err)
}

// What a leader closed and nobody catalogued is cut by what the next epoch's history says (I8).
func TestCloseTail_ClosedMayBeCut(t *testing.T) {
	_, l := newLogOn(t, vfs.NewCrashFS(1))
	mustLead(t, l, 1, plainBatch(2, 50, 1))
	mustLead(t, l, 1, plainBatch(2, 50, 2))
	_, err := l.CloseTail(1)
	ok(t, err)
	settle(t, l)
	cut, err := l.Reconcile(context.Background(), 2, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 2}}, 2)
	ok(t, err)
	if !cut.Done || cut.From != 2 || l.End() != 2 {
		t.Fatalf("%+v, end %d", cut, l.End())
	}
	mustLead(t, l, 2, plainBatch(1, 50, 3))
	mustFlush(t, l)
	checkLog(t, l)
}

// An epoch that ended by a failure closes nothing either.
func TestCloseTail_NotUnderAFailedEpoch(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys)
	mustLead(t, l, 1, plainBatch(2, 50, 1))
	mustFlush(t, l)
	fsys.SetHook(vfs.FailOnce(vfs.On(vfs.OpSyncData, "*.log"), errors.New("input/output error")))
	mustLead(t, l, 1, plainBatch(2, 50, 2))
	wantErr(t, l.Flush(context.Background()), vtop.ErrStorage)
	_, err := l.CloseTail(1)
	wantErr(t, err, vtop.ErrStorage)
	ok(t, l.Reopen())
	_, err = l.CloseTail(1)
	wantErr(t, err, vtop.ErrStorage)
	_, err = l.CloseTail(2)
	ok(t, err)
}
