package storage

import (
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
)

// flushUntilZeroed appends small batches until the tail is zeroed ahead.
func flushUntilZeroed(t testing.TB, l *Log) {
	t.Helper()
	for i := range 100 {
		mustLead(t, l, 1, plainBatch(1, 50, uint64(i)))
		mustFlush(t, l)
		ok(t, l.takeAlone(t.Context())) // the flusher has ended
		l.mu.Lock()
		ahead := l.zero.ahead - l.tailLocked().size
		l.mu.Unlock()
		l.leaveAlone()
		if ahead > 0 {
			return
		}
	}
	t.Fatal("100 flushes and nothing was zeroed ahead")
}

// A tail that is flushed often is zeroed ahead, within the store's bound; an idle one is not. What was not used is
// given back.
func TestZero_FollowsTheWriteRate(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys, func(o *Options) { o.SegmentBytes = 1 << 20 })
	mustLead(t, l, 1, plainBatch(1, 50, 1))
	mustFlush(t, l)
	info, err := fsys.Stat(l.path(0, logSuffix))
	ok(t, err)
	if info.Size != l.Info().Bytes {
		t.Fatalf("the file has %d bytes for %d after one flush", info.Size, l.Info().Bytes)
	}
	flushUntilZeroed(t, l)
	if got := s.zeroAhead.Load(); got <= 0 || got > s.opt.ZeroStoreBytes {
		t.Fatalf("%d bytes are charged", got)
	}
	ok(t, s.Delete(testRange(0)))
	if got := s.zeroAhead.Load(); got != 0 {
		t.Fatalf("%d bytes are still charged after the log is gone", got)
	}
}

// A closed segment has no slack, durably, before it can be sealed: else a power cut would make it a hole (I9).
func TestZero_SealedSegmentHasNoSlack(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys, func(o *Options) { o.SegmentBytes = 1 << 20 })
	flushUntilZeroed(t, l)
	_, err := l.Roll(1, testTime(), 0)
	ok(t, err)
	mustLead(t, l, 1, plainBatch(1, 50, 1))
	mustFlush(t, l)
	root, size, err := l.Root(0)
	ok(t, err)
	ok(t, l.Seal(0, root))
	for seed := range uint64(20) {
		clone := fsys.CrashClone(newRand(seed), vfs.AnyPolicy(newRand(seed)))
		again := openStore(t, clone).Get(testRange(0))
		if info := again.Info(); info.State != StateHealthy {
			t.Fatalf("after a power cut: %s: %s", info.State, info.Reason)
		}
		stat, err := clone.Stat(again.path(0, logSuffix))
		ok(t, err)
		if stat.Size != size {
			t.Fatalf("the sealed segment has %d bytes, want %d", stat.Size, size)
		}
	}
}
