package storage

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Appended batches read back the same, from memory, from the file, over segments, and after a restart (I1, I2).
func TestLog_AppendReadReopen(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	var want []byte
	for i := range 200 {
		b := plainBatch(1+i%3, 100, uint64(i))
		base := mustLead(t, l, 1, b)
		if base != b.BaseOffset() || b.Epoch() != 1 {
			t.Fatalf("batch is stamped %d in epoch %d, want %d in 1", b.BaseOffset(), b.Epoch(), base)
		}
		want = append(want, b...)
		if i%17 == 0 {
			mustFlush(t, l)
		}
	}
	if got := mustRead(t, l, 0, l.End()); !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes that differ from the %d appended", len(got), len(want))
	}
	mustFlush(t, l)
	checkLog(t, l)
	if n := len(l.Segments()); n < 5 {
		t.Fatalf("%d segments of 4 KiB for %d bytes", n, len(want))
	}
	end, runs := l.End(), l.Runs()
	ok(t, s.Close())

	l = openStore(t, fsys).Get(testRange(0))
	ok(t, l.Err())
	checkLog(t, l)
	if l.End() != end || l.Durable() != end || len(runs) != len(l.Runs()) {
		t.Fatalf("end %d durable %d runs %v, want %d and %v", l.End(), l.Durable(), l.Runs(), end, runs)
	}
	if got := mustRead(t, l, 0, end); !bytes.Equal(got, want) {
		t.Fatal("another log after a restart")
	}
	mustLead(t, l, 2, plainBatch(1, 10, 7))
	mustFlush(t, l)
}

// A read begins at the batch that holds the offset, stays below the limit, and gives one batch at least.
func TestLog_ReadBounds(t *testing.T) {
	_, l := newLogOn(t, vfs.NewCrashFS(1))
	for i := range 20 {
		mustLead(t, l, 1, plainBatch(3, 50, uint64(i)))
	}
	for _, flushed := range []bool{false, true} {
		if flushed {
			mustFlush(t, l)
		}
		for from := vtop.Offset(0); from < 60; from++ {
			for _, limit := range []vtop.Offset{0, 3, 30, 32, 60, 100} {
				got, next, _, err := l.Read(from, 1, limit, nil)
				ok(t, err)
				begin := from - from%3
				if begin+3 > min(limit, 60) {
					if len(got) != 0 || next != from {
						t.Fatalf("read at %d below %d gave %d bytes up to %d, want nothing", from, limit, len(got), next)
					}
					continue
				}
				if b := batch.Batch(got); b.BaseOffset() != begin || b.Size() != len(got) || next != begin+3 {
					t.Fatalf("read at %d below %d gave batch %d and next %d", from, limit, b.BaseOffset(), next)
				}
			}
		}
	}
	if _, _, _, err := l.Read(61, 1, 100, nil); err == nil {
		t.Fatal("a read above the log end was answered")
	} else {
		wantErr(t, err, vtop.ErrOffsetOutOfRange)
	}
}

// The last five batches of a producer are recognised, over a restart too (D1, D3); an unknown producer may begin
// anywhere (D4); a gap and an old epoch are refused.
func TestLog_IdempotentProducer(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	var bases []vtop.Offset
	for i := range int32(8) {
		bases = append(bases, mustLead(t, l, 1, producerBatch(7, 0, i*2, 2)))
	}
	check := func(e vtop.Epoch) {
		t.Helper()
		for i := int32(3); i < 8; i++ {
			_, dup, err := l.AppendLead(e, producerBatch(7, 0, i*2, 2))
			ok(t, err)
			if dup == nil || dup.Base != bases[i] || dup.Last != bases[i]+1 {
				t.Fatalf("batch %d sent again: %+v, want base %d", i, dup, bases[i])
			}
		}
		_, _, err := l.AppendLead(e, producerBatch(7, 0, 18, 1))
		wantErr(t, err, vtop.ErrOutOfOrderSequence)
		_, _, err = l.AppendLead(e, producerBatch(7, 0, 2, 2))
		wantErr(t, err, vtop.ErrOutOfOrderSequence)
	}
	check(1)
	mustFlush(t, l)
	ok(t, s.Close())
	s = openStore(t, fsys)
	l = s.Get(testRange(0))
	check(2)
	mustLead(t, l, 2, producerBatch(8, 0, 1234, 2))
	mustLead(t, l, 2, producerBatch(7, 1, 0, 1))
	_, _, err := l.AppendLead(2, producerBatch(7, 0, 16, 1))
	wantErr(t, err, vtop.ErrStaleProducerEpoch)
	_, _, err = l.AppendLead(2, producerBatch(7, 2, 5, 1))
	wantErr(t, err, vtop.ErrOutOfOrderSequence)
}

// Promises refuse lower epochs from then on, and after a restart (I6).
func TestStore_PromiseOutlivesRestart(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	before := fsys.Ops()
	var syncs int
	fsys.SetHook(func(op vfs.Op) error {
		if op.Kind.IsSync() {
			syncs++
		}
		return nil
	})
	ok(t, s.CreateAll([]NewReplica{{testRange(1), 2}, {testRange(2), 3}}))
	syncs = 0
	errs := s.Promise([]Promise{{testRange(0), 1, 5}, {testRange(1), 2, 6}, {testRange(2), 9, 7}, {testRange(9), 1, 1}})
	if syncs != 1 || errs[0] != nil || errs[1] != nil {
		t.Fatalf("%d syncs, errors %v, want one sync", syncs, errs)
	}
	wantErr(t, errs[2], vtop.ErrReplicaLost)
	wantErr(t, errs[3], vtop.ErrUnknownRange)
	_ = before
	_, _, err := l.AppendLead(4, plainBatch(1, 10, 1))
	wantErr(t, err, vtop.ErrFenced)
	_, err = l.AppendFollow(4, vtop.FenceFollow, 0, stamped(plainBatch(1, 10, 1), 0, 4))
	wantErr(t, err, vtop.ErrFenced)
	fsys.SetHook(nil)
	clone := fsys.CrashClone(newRand(1), vfs.KeepNone())
	s = openStore(t, clone)
	if got := s.Get(testRange(0)).Promised(); got != 5 {
		t.Fatalf("promise is %d after a power cut, want 5", got)
	}
	var refused *PromiseError
	if err := s.Promise([]Promise{{testRange(0), 1, 4}})[0]; !asErr(err, &refused) || refused.Promised != 5 {
		t.Fatalf("lower promise: %v", err)
	}
	_, _, err = s.Get(testRange(0)).AppendLead(4, plainBatch(1, 10, 1))
	wantErr(t, err, vtop.ErrFenced)
}

// The table cuts a divergent suffix, durably, with all derived state, and never below the floor (I8, B7).
func TestLog_Reconcile(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	for i := range 40 {
		mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
	}
	for i := range 60 {
		mustLead(t, l, 3, producerBatch(2, 0, int32(i), 1))
	}
	mustFlush(t, l)
	ok(t, s.Tick())
	table := vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 35}}
	ctx := context.Background()
	_, err := l.Reconcile(ctx, 2, table, 0)
	var quarantine *QuarantineError
	if !asErr(err, &quarantine) {
		t.Fatalf("records above the lease's epoch: %v", err)
	}
	ok(t, s.Close())
	s = openStore(t, fsys)
	l = s.Get(testRange(0))
	cut, err := l.Reconcile(ctx, 4, table, 35)
	ok(t, err)
	if !cut.Done || cut.From != 35 || cut.To != 100 || l.End() != 35 || l.Durable() != 35 || l.LastEpoch() != 1 {
		t.Fatalf("cut %+v, end %d, durable %d, last epoch %d", cut, l.End(), l.Durable(), l.LastEpoch())
	}
	checkLog(t, l)
	// Case: the producer state is that of the log: producer 2 is not known, producer 1 goes on at 35.
	mustLead(t, l, 4, producerBatch(2, 0, 500, 1))
	mustLead(t, l, 4, producerBatch(1, 0, 35, 1))
	mustFlush(t, l)
	// Case: after a power cut the log is what it was, above the old durable mark's reach.
	l = openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
	ok(t, l.Err())
	if l.End() != 37 {
		t.Fatalf("end %d after a power cut, want 37", l.End())
	}
	// Case: below the floor.
	_, err = l.Reconcile(ctx, 5, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 5, Start: 20}}, 35)
	if !asErr(err, &quarantine) || l.End() != 37 {
		t.Fatalf("cut below the floor: %v, end %d", err, l.End())
	}
}

// Seal publishes the same manifest on every replica; another root is a hole (I9). Retention takes whole sealed
// segments below the log start, and readers keep what they have open (F4, F7).
func TestLog_SealAndRetention(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	for i := range 100 {
		mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
	}
	mustFlush(t, l)
	closed := l.Closed()
	if len(closed) < 2 {
		t.Fatalf("closed %v", closed)
	}
	root, size, err := l.Root(closed[0].Base)
	ok(t, err)
	if size != closed[0].Bytes {
		t.Fatalf("%d bytes, want %d", size, closed[0].Bytes)
	}
	ok(t, l.Seal(closed[0].Base, root))
	ok(t, l.Seal(closed[0].Base, root))
	ok(t, l.VerifySegment(context.Background(), closed[0].Base))
	// Case: a log start inside a batch's segment moves at once and unlinks nothing.
	ok(t, l.SetLogStart(3))
	_, _, _, err = l.Read(2, 1, 100, nil)
	wantErr(t, err, vtop.ErrOffsetOutOfRange)
	if got := mustRead(t, l, 0, 100); len(got) == 0 {
		t.Fatal("a peer is not served below the log start")
	}
	// Case: wholly below: unlinked; not sealed: kept.
	ok(t, l.SetLogStart(90))
	if segs := l.Segments(); segs[0].Base != closed[1].Base {
		t.Fatalf("first segment is %d, want %d", segs[0].Base, closed[1].Base)
	}
	checkLog(t, l)
	root, _, err = l.Root(closed[1].Base)
	ok(t, err)
	root[0] ^= 1
	wantErr(t, l.Seal(closed[1].Base, root), vtop.ErrDamaged)
	if info := l.Info(); info.State != StateHoles || info.Reason == "" {
		t.Fatalf("state %s: %s", info.State, info.Reason)
	}
	ok(t, s.Close())
	s = openStore(t, fsys)
	l = s.Get(testRange(0))
	ok(t, l.Err())
	if info := l.Info(); info.State != StateHoles || info.Start != closed[1].Base || info.End != 100 {
		t.Fatalf("after a restart: %+v", info)
	}
	_, _, _, err = l.Read(closed[1].Base, 1, 100, nil)
	wantErr(t, err, vtop.ErrDamaged)
	if err := l.SetLogStart(101); err == nil {
		t.Fatal("a log start above the log end was taken")
	}
}

// Rolling by age counts on the leader's clock.
func TestLog_RollByAge(t *testing.T) {
	_, l := newLogOn(t, vfs.NewCrashFS(1))
	now := time.UnixMilli(1e12)
	roll := func(at time.Duration, want bool) {
		t.Helper()
		rolled, err := l.Roll(1, now.Add(at), time.Hour)
		ok(t, err)
		if rolled != want {
			t.Fatalf("rolled %v after %s, want %v", rolled, at, want)
		}
	}
	roll(0, false)
	roll(2*time.Hour, false)
	mustLead(t, l, 1, plainBatch(1, 10, 1))
	roll(3*time.Hour, false)
	roll(3*time.Hour+59*time.Minute, false)
	roll(4*time.Hour, true)
	roll(9*time.Hour, false)
	mustFlush(t, l)
	if segs := l.Segments(); len(segs) != 2 || segs[0].State != SegmentClosed {
		t.Fatalf("segments %+v", segs)
	}
}

// Offsets by time come from the index and are exact.
func TestLog_OffsetForTime(t *testing.T) {
	_, l := newLogOn(t, vfs.NewCrashFS(1))
	for i := range 100 { // times 1000 i to 1000 i + 2
		mustLead(t, l, 1, plainBatch(3, 30, uint64(i)))
	}
	mustFlush(t, l)
	for _, seg := range l.Closed()[:3] {
		root, _, err := l.Root(seg.Base)
		ok(t, err)
		ok(t, l.Seal(seg.Base, root))
	}
	for _, c := range []struct {
		ts    int64
		want  vtop.Offset
		found bool
	}{{-1, 0, true}, {0, 0, true}, {1, 1, true}, {3, 3, true}, {1002, 5, true}, {50_001, 151, true}, {99_002, 299, true}, {99_003, 0, false}} {
		got, _, found, err := l.OffsetForTime(c.ts, 300)
		ok(t, err)
		if found != c.found || got != c.want && found {
			t.Fatalf("time %d is at %d (%v), want %d (%v)", c.ts, got, found, c.want, c.found)
		}
	}
	if _, _, found, _ := l.OffsetForTime(50_000, 100); found {
		t.Fatal("found above the limit")
	}
	ok(t, l.SetLogStart(200))
	if got, _, _, err := l.OffsetForTime(0, 300); err != nil || got != 200 {
		t.Fatalf("below the log start: %d, %v", got, err)
	}
}

// Open files are bounded: those of idle segments are closed, and opened again when they are read (I13).
func TestLog_OpenFilesAreBounded(t *testing.T) {
	s, l := newLogOn(t, vfs.NewCrashFS(1))
	for i := range 300 {
		mustLead(t, l, 1, plainBatch(1, 300, uint64(i)))
	}
	mustFlush(t, l)
	if n := len(l.Segments()); n < 3*s.opt.OpenFiles {
		t.Fatalf("%d segments", n)
	}
	for range 2 {
		mustRead(t, l, 0, 300)
		s.files.mu.Lock()
		open, idle := s.files.open, s.files.idle.Len()
		s.files.mu.Unlock()
		if open > s.opt.OpenFiles || idle > open {
			t.Fatalf("%d files are open, %d of them idle, want at most %d", open, idle, s.opt.OpenFiles)
		}
	}
}

// The budget of all logs together refuses, and gives back what was synced (I13).
func TestLog_StoreBudget(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, a := newLogOn(t, fsys, func(o *Options) { o.StoreBufferBytes = 3000 })
	b, err := s.Create(testRange(1), 2, 0)
	ok(t, err)
	gate := vfs.NewGate(vfs.On(vfs.OpSyncData, "*.log"))
	fsys.SetHook(gate.Hook)
	defer gate.Open()
	mustLead(t, a, 1, plainBatch(1, 2000, 1))
	_, _, err = b.AppendLead(1, plainBatch(1, 2000, 1))
	wantErr(t, err, vtop.ErrOverloaded)
	mustLead(t, b, 1, plainBatch(1, 500, 1))
	gate.Open()
	mustFlush(t, a)
	mustFlush(t, b)
	if n := s.buffered.Load(); n != 0 {
		t.Fatalf("%d bytes are still counted", n)
	}
	mustLead(t, b, 1, plainBatch(1, 5000, 1)) // larger than the budget, but alone
	mustFlush(t, b)
}
