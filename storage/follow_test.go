package storage

import (
	"bytes"
	"context"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// A follower takes batches over as they are, closes its tail where the leader did, skips what it has, and refuses
// gaps, overlaps, other epochs and damage (I2, I9).
func TestLog_Follow(t *testing.T) {
	_, leader := newLogOn(t, vfs.NewCrashFS(1))
	_, l := newLogOn(t, vfs.NewCrashFS(2))
	for i := range 60 {
		mustLead(t, leader, 1+vtop.Epoch(i/30), producerBatch(1, 0, int32(i*3), 3))
	}
	mustFlush(t, leader)
	for from := vtop.Offset(0); from < leader.End(); {
		got, next, base, err := leader.ReadPeer(from, 2000, leader.End(), nil)
		ok(t, err)
		end, err := l.AppendFollow(3, vtop.FenceFollow, base, got)
		ok(t, err)
		if end != next {
			t.Fatalf("follower ends at %d, want %d", end, next)
		}
		end, err = l.AppendFollow(3, vtop.FenceFollow, base, got)
		ok(t, err)
		if end != next {
			t.Fatalf("the same batches again moved the end to %d, want %d", end, next)
		}
		from = next
	}
	mustFlush(t, l)
	checkLog(t, l)
	a, b := leader.Segments(), l.Segments()
	if len(a) != len(b) || len(a) < 3 {
		t.Fatalf("%d segments, the leader has %d", len(b), len(a))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("segment %d is %+v, the leader's %+v", i, b[i], a[i])
		}
	}
	end, tail := l.End(), b[len(b)-1].Base
	next := plainBatch(2, 10, 5)
	var gap *GapError
	_, err := l.AppendFollow(3, vtop.FenceFollow, tail, stamped(next, end+1, 3))
	if !asErr(err, &gap) || gap.End != end {
		t.Fatalf("gap: %v", err)
	}
	_, err = l.AppendFollow(3, vtop.FenceFollow, tail, stamped(next, end-1, 3))
	if !asErr(err, &gap) || gap.End != end {
		t.Fatalf("overlap: %v", err)
	}
	var boundary *BoundaryError
	_, err = l.AppendFollow(3, vtop.FenceFollow, tail-1, stamped(next, end, 3))
	if !asErr(err, &boundary) {
		t.Fatalf("other segment: %v", err)
	}
	var diverged *DivergedError
	_, err = l.AppendFollow(3, vtop.FenceFollow, tail, stamped(producerBatch(1, 0, 0, 3), end-3, 3))
	if !asErr(err, &diverged) {
		t.Fatalf("same offsets, other epoch: %v", err)
	}
	_, err = l.AppendFollow(3, vtop.FenceFollow, tail, stamped(next, end, 4))
	wantErr(t, err, vtop.ErrCorruptBatch)
	bad := stamped(next, end, 3)
	bad[len(bad)-1] ^= 1
	_, err = l.AppendFollow(3, vtop.FenceFollow, tail, bad)
	wantErr(t, err, vtop.ErrCorruptBatch)
	if l.End() != end {
		t.Fatalf("refused batches moved the end from %d to %d", end, l.End())
	}
}

// A boundary that only a dead leader has made is undone: the closed segment goes on, and a power cut at any call
// leaves one of the two.
func TestLog_FollowUndoesARoll(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys)
	first := stamped(plainBatch(5, 50, 1), 0, 1)
	_, err := l.AppendFollow(1, vtop.FenceFollow, 0, first)
	ok(t, err)
	// The old leader's boundary at 5, and a record beyond it that is cut.
	_, err = l.AppendFollow(1, vtop.FenceFollow, 5, stamped(plainBatch(1, 50, 2), 5, 1))
	ok(t, err)
	mustFlush(t, l)
	_, err = l.Reconcile(context.Background(), 2, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 5}}, 5)
	ok(t, err)
	if segs := l.Segments(); len(segs) != 2 {
		t.Fatalf("segments %+v", segs)
	}
	count := 0
	fsys.SetHook(func(op vfs.Op) error {
		for range 5 {
			count++
			again := openStore(t, fsys.CrashClone(newRand(uint64(count)), vfs.AnyPolicy(newRand(uint64(count))))).Get(testRange(0))
			if info := again.Info(); info.State != StateHealthy || info.End < 5 {
				t.Errorf("power cut before %s: %+v", op, info)
			}
		}
		return nil
	})
	next := stamped(plainBatch(2, 50, 3), 5, 2)
	_, err = l.AppendFollow(2, vtop.FenceFollow, 0, next)
	ok(t, err)
	mustFlush(t, l)
	fsys.SetHook(nil)
	checkLog(t, l)
	if segs := l.Segments(); len(segs) != 1 || segs[0].End != 7 {
		t.Fatalf("segments %+v", segs)
	}
	l = openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
	ok(t, l.Err())
	if got := mustRead(t, l, 0, 7); !bytes.Equal(got, append(first, next...)) {
		t.Fatal("another log after a power cut")
	}
}

// A follower that is too old begins anew at the leader's first segment (F3), and only with proof (B8).
func TestLog_ResetTo(t *testing.T) {
	_, leader := newLogOn(t, vfs.NewCrashFS(1))
	fsys := vfs.NewCrashFS(2)
	s, l := newLogOn(t, fsys)
	for i := range 100 {
		mustLead(t, leader, 1, producerBatch(1, 0, int32(i), 1))
	}
	mustFlush(t, leader)
	for i := range 10 {
		mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
	}
	mustFlush(t, l)
	for _, seg := range leader.Closed() {
		root, _, err := leader.Root(seg.Base)
		ok(t, err)
		ok(t, leader.Seal(seg.Base, root))
	}
	ok(t, leader.SetLogStart(70))
	base, producers, err := leader.ResetPoint()
	ok(t, err)
	// Case: the producer state there outlives the segments below, even if its snapshot was lost before.
	twice := openStore(t, vfs.NewCrashFS(3))
	other, err := twice.Create(testRange(0), 1, 0)
	ok(t, err)
	for i := range 100 {
		mustLead(t, other, 1, producerBatch(1, 0, int32(i), 1))
	}
	mustFlush(t, other)
	first := other.Closed()[0]
	root, _, err := other.Root(first.Base)
	ok(t, err)
	ok(t, other.Seal(first.Base, root))
	ok(t, twice.fs.Remove(other.path(first.End, producerSuffix)))
	ok(t, other.SetLogStart(first.End))
	if at, state, err := other.ResetPoint(); err != nil || at != first.End || len(state) == 0 {
		t.Fatalf("reset point %d with %d bytes: %v", at, len(state), err)
	}
	ok(t, err)
	if base < 40 || base > 70 {
		t.Fatalf("reset point %d of a log that starts at 70", base)
	}
	ctx := context.Background()
	if err := l.ResetTo(ctx, 1, 10, producers); err == nil {
		t.Fatal("reset to the log end was taken")
	}
	ok(t, l.ResetTo(ctx, 1, base, producers))
	checkLog(t, l)
	for from := base; from < leader.End(); {
		got, next, seg, err := leader.ReadPeer(from, 500, leader.End(), nil)
		ok(t, err)
		_, err = l.AppendFollow(1, vtop.FenceFollow, seg, got)
		ok(t, err)
		from = next
	}
	mustFlush(t, l)
	ok(t, s.Close())
	l = openStore(t, fsys).Get(testRange(0))
	if !bytes.Equal(mustRead(t, l, base, 100), mustRead(t, leader, base, 100)) {
		t.Fatal("another log than the leader's")
	}
	_, dup, err := l.AppendLead(2, producerBatch(1, 0, 99, 1))
	ok(t, err)
	if dup == nil || dup.Base != 99 {
		t.Fatalf("the reset replica does not know the producer: %+v", dup)
	}
}
