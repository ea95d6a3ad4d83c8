package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// A sync that fails ends the epoch: whoever waits is told, nothing of it is acknowledged, the file is never synced
// again, and after Reopen the log is what was durable, on a new file (E10). Offsets are not given out again under
// the same epoch.
func TestLog_FailedSync(t *testing.T) {
	for _, mode := range []vfs.SyncFailure{vfs.KeepCache, vfs.DropCache} {
		fsys := vfs.NewCrashFS(1)
		fsys.SetSyncFailure(mode)
		_, l := newLogOn(t, fsys)
		mustLead(t, l, 1, plainBatch(2, 100, 1))
		mustFlush(t, l)
		durable := mustRead(t, l, 0, 2)
		told := make(chan error, 4)
		l.OnDurable(func(end vtop.Offset, err error) {
			if end != 2 {
				t.Errorf("told end %d, want 2", end)
			}
			told <- err
		})
		eio := errors.New("input/output error")
		fsys.SetHook(vfs.FailOnce(vfs.On(vfs.OpSyncData, "*.log"), eio))
		mustLead(t, l, 1, plainBatch(2, 100, 2))
		wantErr(t, <-told, vtop.ErrStorage)
		wantErr(t, l.Flush(context.Background()), vtop.ErrStorage)
		_, _, err := l.AppendLead(1, plainBatch(1, 10, 3))
		wantErr(t, err, vtop.ErrStorage)
		if got := mustRead(t, l, 0, 2); !bytes.Equal(got, durable) {
			t.Fatal("what was durable is not served by the failed log")
		}
		if got, _, _, err := l.Read(2, 100, 10, nil); err != nil || len(got) != 0 {
			t.Fatalf("%d bytes that are not durable are served: %v", len(got), err)
		}
		var rec vfs.Recorder
		fsys.SetHook(rec.Hook)
		ok(t, l.Reopen())
		for _, op := range rec.Take() {
			if op.Kind.IsSync() && op.Kind != vfs.OpSyncDir && op.Name == l.path(0, logSuffix) && op.N > 0 {
				t.Fatalf("the file whose sync failed is synced again: %s", op)
			}
		}
		checkLog(t, l)
		if l.End() != 2 || l.Durable() != 2 {
			t.Fatalf("end %d durable %d after reopening, want 2", l.End(), l.Durable())
		}
		_, _, err = l.AppendLead(1, plainBatch(1, 10, 3))
		wantErr(t, err, vtop.ErrStorage)
		b := plainBatch(1, 10, 4)
		l.OnDurable(nil) // its flush may be done before it is waited for
		mustLead(t, l, 2, b)
		wantErr(t, <-told2(l), nil)
		clone := fsys.CrashClone(newRand(1), vfs.KeepNone())
		l = openStore(t, clone).Get(testRange(0))
		ok(t, l.Err())
		if got := mustRead(t, l, 0, 3); !bytes.Equal(got, append(bytes.Clone(durable), b...)) {
			t.Fatal("another log after a power cut")
		}
	}
}

// told2 flushes and tells how it went.
func told2(l *Log) <-chan error {
	c := make(chan error, 1)
	l.OnDurable(nil)
	c <- l.Flush(context.Background())
	return c
}

// A full disk fails the epoch with a retryable answer, keeps reads and retention, and heals without a restart (E9).
func TestLog_DiskFull(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	for i := range 50 {
		mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
	}
	mustFlush(t, l)
	closedEnd := l.Closed()[0].End
	root, _, err := l.Root(0)
	ok(t, err)
	full := vfs.NewBudget(100)
	fsys.SetHook(func(op vfs.Op) error {
		if matchLog(op) {
			return full.Hook(op)
		}
		return nil
	})
	mustLead(t, l, 1, plainBatch(1, 300, 1))
	wantErr(t, l.Flush(context.Background()), syscall.ENOSPC)
	wantErr(t, l.Flush(context.Background()), vtop.ErrStorage)
	mustRead(t, l, 0, 50)
	ok(t, l.Seal(0, root))
	ok(t, l.SetLogStart(closedEnd))
	if first := l.Segments()[0].Base; first == 0 {
		t.Fatal("retention does not work on a full disk")
	}
	ok(t, l.Reopen())
	full.Add(1 << 20)
	mustLead(t, l, 2, producerBatch(1, 0, 50, 1))
	mustFlush(t, l)
	checkLog(t, l)
	// Case: under the reserve nothing is admitted, promises go on.
	fsys.SetCapacity(1 << 20)
	ok(t, s.Tick())
	_, _, err = l.AppendLead(2, plainBatch(1, 10, 2))
	wantErr(t, err, vtop.ErrNoSpace)
	_, err = l.AppendFollow(2, vtop.FenceFollow, l.tailBase(), stamped(plainBatch(1, 10, 2), l.End(), 2))
	wantErr(t, err, vtop.ErrNoSpace)
	ok(t, s.Promise([]Promise{{l.Range(), 1, 3}})[0])
	fsys.SetCapacity(1 << 30)
	ok(t, s.Probe(context.Background()))
	mustLead(t, l, 3, plainBatch(1, 10, 2))
}

func matchLog(op vfs.Op) bool { return vfs.On(vfs.OpWrite, "*.log")(op) }

func (l *Log) tailBase() vtop.Offset {
	segs := l.Segments()
	return segs[len(segs)-1].Base
}

// A file that hangs holds up nobody else, and nobody at all who only wants the lease of its own range (I4): appends
// to it go on until its buffer is full, and are then refused at once (I13).
func TestLog_HangingFileHoldsUpNobody(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	fence := &testFence{}
	s := openStore(t, fsys, func(o *Options) { o.Fence, o.LogBufferBytes = fence, 10_000 })
	a, err := s.Create(testRange(0), 1, 0)
	ok(t, err)
	b, err := s.Create(testRange(1), 2, 0)
	ok(t, err)
	gate := vfs.NewGate(func(op vfs.Op) bool {
		return op.Kind == vfs.OpSyncData && op.Name == a.path(0, logSuffix)
	})
	fsys.SetHook(gate.Hook)
	defer gate.Open()
	mustLead(t, a, 1, plainBatch(1, 100, 0))
	<-gate.Arrived()
	refused := 0
	for i := range 100 {
		_, _, err := a.AppendLead(1, plainBatch(1, 200, uint64(i)))
		if errors.Is(err, vtop.ErrOverloaded) {
			refused++
			continue
		}
		ok(t, err)
		mustRead(t, a, 0, a.End())
	}
	if refused == 0 || refused == 100 {
		t.Fatalf("%d of 100 appends refused with a buffer of 10 000 bytes", refused)
	}
	for e := vtop.Epoch(1); e < 20; e++ { // the leases of both move on
		fence.set(a.Range(), e)
		fence.set(b.Range(), e)
		mustLead(t, b, e, plainBatch(1, 200, 1))
		mustFlush(t, b)
		ok(t, s.Promise([]Promise{{b.Range(), 2, e}, {a.Range(), 1, e}})[0])
		ok(t, s.Tick())
	}
	// Case: whoever reads the state of the hanging log waits, and can give up.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantErr(t, a.Flush(ctx), context.Canceled)
	fence.set(a.Range(), 30)
	_, err = a.Reconcile(ctx, 30, vtop.EpochTable{{Epoch: 30, Start: 0}}, 0)
	wantErr(t, err, context.Canceled)
	gate.Open()
	mustFlush(t, a)
	checkLog(t, a)
}

// noLock is a file system whose last owner was killed: what it wrote is there, synced or not, and its lock is gone.
type noLock struct{ vfs.FS }

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

func (noLock) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

// After the end of a process what it had written is in the page cache: it is called durable only once recovery has
// synced it (I1).
func TestLog_RecoverySyncsWhatItReads(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s := openStore(t, noLock{fsys})
	l, err := s.Create(testRange(0), 1, 0)
	ok(t, err)
	gate := vfs.NewGate(vfs.On(vfs.OpSyncData, "*.log"))
	fsys.SetHook(gate.Hook)
	defer gate.Open()
	mustLead(t, l, 1, plainBatch(3, 100, 0))
	<-gate.Arrived()
	fsys.SetHook(nil)
	second := openStore(t, noLock{fsys}).Get(testRange(0))
	if second.Durable() != 3 {
		t.Fatalf("durable %d, want 3", second.Durable())
	}
	third := openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone())).Get(testRange(0))
	ok(t, third.Err())
	if third.End() != 3 {
		t.Fatalf("end %d after a power cut, durable was reported up to 3", third.End())
	}
}

// A journal whose sync failed is replaced by a new file with all that was ever promised (I6, E10).
func TestStore_FailedJournal(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, _ := newLogOn(t, fsys)
	promise := func(e vtop.Epoch) error { return s.Promise([]Promise{{testRange(0), 1, e}})[0] }
	ok(t, promise(3))
	fsys.SetHook(vfs.FailOnce(vfs.On(vfs.OpSyncData, journalName), errors.New("input/output error")))
	wantErr(t, promise(4), vtop.ErrStorage)
	ok(t, promise(4))
	clone := fsys.CrashClone(newRand(1), vfs.KeepNone())
	if got := openStore(t, clone).Get(testRange(0)).Promised(); got != 4 {
		t.Fatalf("promise is %d after a power cut, want 4", got)
	}
	// Case: the disk gives no new file either: refused, and healed by the next.
	fsys.SetHook(vfs.Fail(func(op vfs.Op) bool { return op.Kind.IsSync() }, errors.New("input/output error")))
	wantErr(t, promise(5), vtop.ErrStorage)
	wantErr(t, promise(6), vtop.ErrStorage)
	fsys.SetHook(nil)
	wantErr(t, promise(5), vtop.ErrFenced)
	ok(t, promise(6))
}

// A disk that answers only errors at start fails the replica without guessing, and Reopen recovers it.
func TestLog_UnreadableAtOpen(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	mustLead(t, l, 1, plainBatch(3, 100, 0))
	mustFlush(t, l)
	ok(t, s.Close())
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpOpen, "*.log"), syscall.EIO))
	s = openStore(t, fsys)
	l = s.Get(testRange(0))
	wantErr(t, l.Err(), vtop.ErrStorage)
	_, _, err := l.AppendLead(2, plainBatch(1, 10, 2))
	wantErr(t, err, vtop.ErrStorage)
	if err := l.Reopen(); err == nil {
		t.Fatal("reopened a log that cannot be read")
	}
	fsys.SetHook(nil)
	ok(t, l.Reopen())
	checkLog(t, l)
	if l.End() != 3 {
		t.Fatalf("end %d, want 3", l.End())
	}
}

// A probe that hangs answers with its context, costs one goroutine, and tells of the disk again when it is back.
func TestStore_Probe(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s := openStore(t, fsys)
	ok(t, s.Probe(context.Background()))
	gate := vfs.NewGate(vfs.On(vfs.OpSync, probeName))
	fsys.SetHook(gate.Hook)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 10 {
		wantErr(t, s.Probe(ctx), context.Canceled)
	}
	<-gate.Arrived()
	gate.Open()
	ok(t, s.Probe(context.Background()))
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpSync, probeName), syscall.EIO))
	wantErr(t, s.Probe(context.Background()), vtop.ErrStorage)
}
