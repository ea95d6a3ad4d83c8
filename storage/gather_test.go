package storage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// gathering has n syncs gathered, by a clock that stands still.
func gathering(n int) func(*Options) {
	return func(o *Options) { o.GatherSyncs, o.Clock = n, func() time.Duration { return 0 } }
}

// openGatherNow makes rounds possible before the first crowd.
func (s *Store) openGatherNow() {
	s.gather.wanted = true
	s.openGather()
	s.flushers.Wait()
}

// newLogs opens a store with n empty replicas.
func newLogs(t testing.TB, fsys vfs.FS, n int, change ...func(*Options)) (*Store, []*Log) {
	t.Helper()
	s := openStore(t, fsys, change...)
	var logs []*Log
	for i := range n {
		l, err := s.Create(testRange(i), vtop.ReplicaID(i+1), 0)
		ok(t, err)
		logs = append(logs, l)
	}
	return s, logs
}

// counter counts the calls of each kind.
type counter [32]atomic.Int64

func (c *counter) Hook(op vfs.Op) error {
	c[op.Kind].Add(1)
	return nil
}

func (c *counter) want(t *testing.T, kind vfs.OpKind, n int64) {
	t.Helper()
	if got := c[kind].Swap(0); got != n {
		t.Errorf("%d calls of %s, want %d", got, kind, n)
	}
}

// onKind matches one verb, and of files the tails.
func onKind(kind vfs.OpKind) vfs.Match {
	if kind == vfs.OpSyncFS {
		return vfs.On(kind, rangesDir)
	}
	return vfs.On(kind, "*.log")
}

// durableRecords is the end of each log that is on the disk, whatever the store believes.
func durableRecords(t *testing.T, fsys *vfs.CrashFS, logs int) []vtop.Offset {
	t.Helper()
	s := openStore(t, fsys.CrashClone(newRand(1), vfs.KeepNone()))
	var ends []vtop.Offset
	for i := range logs {
		l := s.Get(testRange(i))
		ok(t, l.Err())
		ends = append(ends, l.End())
	}
	return ends
}

// Logs that do not want to sync at the same time are not gathered; from the threshold on one sync serves all.
func TestGather_Threshold(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, logs := newLogs(t, fsys, 8, gathering(4), func(o *Options) { o.ZeroStepBytes = -1 })
	var calls counter
	fsys.SetHook(calls.Hook)
	for _, l := range logs {
		mustLead(t, l, 1, plainBatch(1, 50, 1))
		mustFlush(t, l)
	}
	calls.want(t, vfs.OpSyncFS, 0)
	calls.want(t, vfs.OpWriteOut, 0)
	calls.want(t, vfs.OpSyncData, 8)
	calls.want(t, vfs.OpWrite, 8)

	// Case: three sync for themselves, so the fourth is gathered, and the others come to a closed door.
	own := vfs.NewGate(onKind(vfs.OpSyncData))
	fsys.SetHook(vfs.Chain(calls.Hook, own.Hook))
	for i, l := range logs {
		mustLead(t, l, 1, plainBatch(1, 50, 2))
		if i < 3 {
			<-own.Arrived()
		}
		if i == 3 {
			waitFor(t, func() bool { return s.gather.state().members == 1 })
		}
	}
	waitFor(t, func() bool { return s.gather.state().atDoor == 4 })
	calls.want(t, vfs.OpSyncFS, 0) // not while anybody is inside
	calls.want(t, vfs.OpWrite, 4)
	own.Open()
	for _, l := range logs {
		mustFlush(t, l)
	}
	calls.want(t, vfs.OpSyncData, 3)
	calls.want(t, vfs.OpWriteOut, 5)
	calls.want(t, vfs.OpSyncFS, 2)
	for i, end := range durableRecords(t, fsys, 8) {
		if end != 2 {
			t.Errorf("log %d: %d records on disk, want 2", i, end)
		}
	}
}

// state is the round that forms or runs.
func (g *gather) state() (r gatherRound) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.round != nil {
		r.members, r.atDoor = g.round.members, g.round.atDoor
	}
	return r
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// A round is for those who were there when its sync began: who comes later is not acknowledged by it (I1), and
// does not even write while it runs.
func TestGather_LateIsNotCovered(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, logs := newLogs(t, fsys, 2, gathering(1))
	for i, l := range logs {
		l.OnDurable(func(end vtop.Offset, err error) {
			if got := durableRecords(t, fsys, 2)[i]; err != nil || got < end {
				t.Errorf("log %d is told to be durable up to %d, %v; on disk are %d", i, end, err, got)
			}
		})
	}
	first, second := vfs.NewGate(onKind(vfs.OpSyncFS)), vfs.NewGate(onKind(vfs.OpSyncFS))
	var calls counter
	defer first.Open()
	defer second.Open()
	fsys.SetHook(vfs.Chain(calls.Hook, first.Hook))
	mustLead(t, logs[0], 1, plainBatch(1, 50, 1))
	<-first.Arrived()
	calls.want(t, vfs.OpWrite, 1)
	mustLead(t, logs[1], 1, plainBatch(1, 50, 1))
	waitFor(t, func() bool { r := s.gather.state(); return r.atDoor == 1 || r.members == 2 })
	calls.want(t, vfs.OpWrite, 0)
	fsys.SetHook(second.Hook)
	first.Open()
	mustFlush(t, logs[0])
	waitFor(t, func() bool { return len(second.Arrived()) == 1 || logs[1].Durable() > 0 })
	if end := logs[1].Durable(); end != 0 {
		t.Fatalf("the late log is durable up to %d by a round that had begun", end)
	}
	if ends := durableRecords(t, fsys, 2); ends[0] != 1 || ends[1] != 0 {
		t.Fatalf("on disk %v, want 1 and 0", ends)
	}
	second.Open()
	mustFlush(t, logs[1])
	if ends := durableRecords(t, fsys, 2); ends[0] != 1 || ends[1] != 1 {
		t.Fatalf("on disk %v, want 1 and 1", ends)
	}
}

// A store asks its file system for such a sync at its first crowd, once, and beside the flushes.
func TestGather_OpensAtTheFirstCrowd(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, logs := newLogs(t, fsys, 3)
	s.gather.threshold = 2
	var calls counter
	own := vfs.NewGate(onKind(vfs.OpSyncData))
	fsys.SetHook(vfs.Chain(calls.Hook, own.Hook))
	mustLead(t, logs[0], 1, plainBatch(1, 50, 1))
	<-own.Arrived()
	if s.gather.wanted {
		t.Error("one flusher is a crowd")
	}
	mustLead(t, logs[1], 1, plainBatch(1, 50, 1))
	<-own.Arrived()
	waitFor(t, func() bool {
		s.gather.mu.Lock()
		defer s.gather.mu.Unlock()
		return s.gather.fs != nil
	})
	mustLead(t, logs[2], 1, plainBatch(1, 50, 1))
	waitFor(t, func() bool { return s.gather.state().members == 1 })
	own.Open()
	for _, l := range logs {
		mustFlush(t, l)
	}
	calls.want(t, vfs.OpSyncData, 2)
	calls.want(t, vfs.OpSyncFS, 1)
}

// A round whose sync fails fails each of its logs as its own failed sync would: no acknowledgement, no other sync of
// that file. Who was at the door syncs for itself, and nothing is gathered any more.
func TestGather_FailedSync(t *testing.T) {
	for _, mode := range []vfs.SyncFailure{vfs.KeepCache, vfs.DropCache} {
		fsys := vfs.NewCrashFS(1)
		fsys.SetSyncFailure(mode)
		s, logs := newLogs(t, fsys, 3, gathering(1))
		for _, l := range logs {
			mustLead(t, l, 1, plainBatch(1, 50, 1))
			mustFlush(t, l)
		}
		out, all := vfs.NewGate(onKind(vfs.OpWriteOut)), vfs.NewGate(onKind(vfs.OpSyncFS))
		var calls counter
		fsys.SetHook(vfs.Chain(calls.Hook, out.Hook, all.Hook, vfs.FailOnce(onKind(vfs.OpSyncFS), syscall.EIO)))
		for _, l := range logs[:2] {
			mustLead(t, l, 1, plainBatch(1, 50, 2))
			<-out.Arrived()
		}
		out.Open()
		<-all.Arrived()
		mustLead(t, logs[2], 1, plainBatch(1, 50, 2))
		waitFor(t, func() bool { return s.gather.state().atDoor == 1 })
		all.Open()
		mustFlush(t, logs[2])
		for _, l := range logs[:2] {
			wantErr(t, l.Flush(context.Background()), vtop.ErrStorage)
			wantErr(t, l.Err(), syscall.EIO)
			_, _, err := l.AppendLead(1, plainBatch(1, 50, 3))
			wantErr(t, err, vtop.ErrStorage)
		}
		calls.want(t, vfs.OpSyncFS, 1)
		calls.want(t, vfs.OpSyncData, 1)
		for _, l := range logs[:2] {
			reopenUnsynced(t, fsys, l)
		}
		fsys.SetHook(calls.Hook)
		for _, l := range logs {
			mustLead(t, l, 2, plainBatch(1, 50, 3))
			mustFlush(t, l)
		}
		calls.want(t, vfs.OpSyncFS, 0)
		if ends := durableRecords(t, fsys, 3); fmt.Sprint(ends) != "[2 2 3]" {
			t.Fatalf("on disk %v, want 2, 2 and 3", ends)
		}
	}
}

// reopenUnsynced reopens a failed log, which may not sync the file whose sync failed.
func reopenUnsynced(t *testing.T, fsys *vfs.CrashFS, l *Log) {
	t.Helper()
	var rec vfs.Recorder
	fsys.SetHook(rec.Hook)
	ok(t, l.Reopen())
	for _, op := range rec.Take() {
		if op.Kind.IsSync() && op.Name == l.path(0, logSuffix) {
			t.Fatalf("the file whose sync failed is synced again: %s", op)
		}
	}
	checkLog(t, l)
}

// What is wrong with one file alone is told to its log alone.
func TestGather_FailedWriteOut(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, logs := newLogs(t, fsys, 2, gathering(1))
	out := vfs.NewGate(onKind(vfs.OpWriteOut))
	fsys.SetHook(vfs.Chain(out.Hook, func(op vfs.Op) error {
		if op.Kind == vfs.OpWriteOut && op.Name == logs[0].path(0, logSuffix) {
			return syscall.ENOSPC
		}
		return nil
	}))
	for _, l := range logs {
		mustLead(t, l, 1, plainBatch(1, 50, 1))
		<-out.Arrived()
	}
	out.Open()
	mustFlush(t, logs[1])
	wantErr(t, logs[0].Flush(context.Background()), syscall.ENOSPC)
	reopenUnsynced(t, fsys, logs[0])
	if ends := durableRecords(t, fsys, 2); ends[0] != 0 || ends[1] != 1 {
		t.Fatalf("on disk %v, want 0 and 1", ends)
	}
}

// While a round hangs appends are admitted (I4) up to the bound (I13), a wait ends with its context, and Close waits for
// the disk; all goroutines end.
func TestGather_Hang(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	before := goroutines(t)
	s, logs := newLogs(t, fsys, 3, gathering(1), func(o *Options) { o.LogBufferBytes = 64 << 10 })
	gate := vfs.NewGate(onKind(vfs.OpSyncFS))
	fsys.SetHook(gate.Hook)
	for _, l := range logs {
		mustLead(t, l, 1, plainBatch(1, 50, 1))
	}
	<-gate.Arrived()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for _, l := range logs {
		wantErr(t, l.Flush(ctx), context.DeadlineExceeded)
		var err error
		for i := 0; err == nil && i < 100; i++ {
			_, _, err = l.AppendLead(1, plainBatch(1, 1000, 2))
		}
		wantErr(t, err, vtop.ErrOverloaded)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed while a sync hangs: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	ends := []vtop.Offset{logs[0].End(), logs[1].End(), logs[2].End()}
	gate.Open()
	ok(t, <-closed)
	if got := durableRecords(t, fsys, 3); fmt.Sprint(got) != fmt.Sprint(ends) {
		t.Fatalf("on disk %v after Close, want %v", got, ends)
	}
	waitFor(t, func() bool { return goroutines(t) <= before+1 }) // the clone's store ends with the test
}

// Where the file system has no such sync, or it is not for a file, each log syncs for itself; the first is logged once.
func TestGather_NotPossible(t *testing.T) {
	told := &countingSink{level: hclog.Debug, text: "syncs of many logs are not gathered"}
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off})
	log.RegisterSink(told)
	for _, covers := range []bool{false, true} {
		fsys := vfs.NewCrashFS(1)
		_, logs := newLogs(t, plainFS{fsys, covers}, 2, gathering(1), func(o *Options) { o.Log = log })
		var calls counter
		fsys.SetHook(calls.Hook)
		for _, l := range append(logs, logs...) {
			mustLead(t, l, 1, plainBatch(1, 50, 1))
			mustFlush(t, l)
		}
		calls.want(t, vfs.OpSyncFS, 0)
		calls.want(t, vfs.OpSyncData, 4)
	}
	if n := told.n.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// plainFS has no SyncFS, or one that covers no file.
type plainFS struct {
	*vfs.CrashFS
	coversNone bool
}

func (p plainFS) SyncFS(name string) (vfs.Syncer, error) {
	s, err := p.CrashFS.SyncFS(name)
	if err != nil || p.coversNone {
		return noneCovered{s}, err
	}
	return nil, fmt.Errorf("%w here", errors.ErrUnsupported)
}

type noneCovered struct{ vfs.Syncer }

func (noneCovered) Covers(vfs.File) bool { return false }

// countingSink counts log lines.
type countingSink struct {
	level hclog.Level
	text  string
	n     atomic.Int64
}

func (c *countingSink) Accept(_ string, level hclog.Level, msg string, _ ...any) {
	if level == c.level && msg == c.text {
		c.n.Add(1)
	}
}
