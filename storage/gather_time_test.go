package storage

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop/storage/vfs"
)

// newGather is a gather of two files, without a store.
func newGather(t *testing.T, threshold int, clock *testClock) (*gather, *vfs.CrashFS, [2]*handle) {
	t.Helper()
	fsys := vfs.NewCrashFS(1)
	ok(t, fsys.MkdirAll("/"+rangesDir))
	all, err := fsys.SyncFS("/" + rangesDir)
	ok(t, err)
	g := &gather{threshold: threshold, clock: func() time.Duration { return clock.now }, log: hclog.NewNullLogger(), fs: all}
	var handles [2]*handle
	for i, name := range []string{"/a.log", "/b.log"} {
		f, err := fsys.Create(name)
		ok(t, err)
		handles[i] = &handle{file: f}
	}
	return g, fsys, handles
}

// A round that is slow, since others have left much to write, ends gathering for a while, and for longer while it is
// slow again.
func TestGather_PausesWhenSlow(t *testing.T) {
	clock := &testClock{}
	g, fsys, h := newGather(t, 1, clock)
	var calls counter
	takes := 2 * gatherSlow
	fsys.SetHook(vfs.Chain(calls.Hook, func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncFS {
			clock.now += takes
		}
		return nil
	}))
	flush := func(gathered int64) {
		t.Helper()
		g.enter()
		ok(t, g.sync(h[0]))
		calls.want(t, vfs.OpSyncFS, gathered)
		calls.want(t, vfs.OpSyncData, 1-gathered)
	}
	for pause := gatherMinPause; pause < 2*gatherMaxPause; pause *= 2 {
		flush(1)
		clock.now += min(pause, gatherMaxPause) - 1
		flush(0)
		clock.now++
	}
	takes = gatherSlow
	flush(1)
	flush(1)
	takes++
	flush(1)
	clock.now += gatherMinPause - 1
	flush(0)
	clock.now++
	flush(1)
}

// After a crowd a few are gathered too, for a moment.
func TestGather_StaysWarmAfterACrowd(t *testing.T) {
	clock := &testClock{now: time.Hour}
	g, fsys, h := newGather(t, 2, clock)
	var calls counter
	fsys.SetHook(calls.Hook)
	g.enter()
	g.enter()
	var wait sync.WaitGroup
	for _, h := range h {
		wait.Go(func() {
			if err := g.sync(h); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	calls.want(t, vfs.OpSyncFS, 1)
	for _, after := range []struct {
		time     time.Duration
		gathered int64
	}{{gatherWarm - 1, 1}, {1, 0}, {1, 0}} {
		clock.now += after.time
		g.enter()
		ok(t, g.sync(h[0]))
		calls.want(t, vfs.OpSyncFS, after.gathered)
	}
	if g.inside != 0 || g.demand != 0 || g.round != nil {
		t.Fatalf("inside %d, demand %d", g.inside, g.demand)
	}
}

// syncedFile costs nothing to sync.
type syncedFile struct{ vfs.File }

func (syncedFile) SyncData() error { return nil }

// Below the threshold the gather adds no allocation to a flush.
func TestGather_AllocatesNothing(t *testing.T) {
	g, _, _ := newGather(t, 2, &testClock{})
	h := &handle{file: syncedFile{}}
	n := testing.AllocsPerRun(1000, func() {
		g.enter()
		_ = g.sync(h)
	})
	if n != 0 {
		t.Fatalf("%v allocations for each flush", n)
	}
}

func goroutines(t *testing.T) int {
	t.Helper()
	runtime.Gosched()
	return runtime.NumGoroutine()
}
