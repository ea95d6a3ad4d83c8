package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// roundWatch checks from below that nobody writes to a tail while a round runs, and that all that was written to
// tails was written out before.
type roundWatch struct {
	t       *testing.T
	mu      sync.Mutex
	running bool
	rounds  int
	pending map[string]bool
}

func (w *roundWatch) Hook(op vfs.Op) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch tail := strings.HasSuffix(op.Name, logSuffix); {
	case op.Kind == vfs.OpWrite && tail:
		if w.running {
			w.t.Errorf("%s while a round runs", op)
		}
		w.pending[op.Name] = true
	case op.Kind == vfs.OpWriteOut:
		delete(w.pending, op.Name)
	case op.Kind == vfs.OpSyncData:
		delete(w.pending, op.Name)
		w.mu.Unlock()
		time.Sleep(200 * time.Microsecond) // a disk takes its time, or no crowd forms on a quick machine
		w.mu.Lock()
	case op.Kind == vfs.OpSyncFS:
		if len(w.pending) > 0 || w.running {
			w.t.Errorf("a round begins beside another (%v) or before %v", w.running, w.pending)
		}
		w.rounds++
		w.running = true
		w.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		w.mu.Lock()
		w.running = false
	}
	return nil
}

// Many logs at once, more than may flush at once: appends, syncs, rolls, cuts, failures and reopenings. Every record
// that was acknowledged is on disk when it is.
func TestRace_GatheredLogs(t *testing.T) {
	const logs = 16
	for _, parallel := range []int{2, 6, 128} {
		t.Run(fmt.Sprintf("parallel=%d", parallel), func(t *testing.T) {
			fsys := vfs.NewCrashFS(1)
			watch := &roundWatch{t: t, pending: map[string]bool{}}
			s, all := newLogs(t, fsys, logs, func(o *Options) {
				o.GatherSyncs, o.FlushParallel, o.ZeroStepBytes, o.SegmentBytes = 5, parallel, -1, 16<<10
			})
			fsys.SetHook(watch.Hook)
			var wait sync.WaitGroup
			for i, l := range all {
				wait.Go(func() { gatheredLog(t, l, i) })
			}
			wait.Wait()
			if watch.rounds == 0 {
				t.Error("nothing was gathered")
			}
			ends := durableRecords(t, fsys, logs)
			for i, l := range all {
				checkLog(t, l)
				if ends[i] != l.End() {
					t.Errorf("log %d: %d on disk, end %d", i, ends[i], l.End())
				}
			}
			ok(t, s.Close())
		})
	}
}

// gatheredLog is one of many: its own leader.
func gatheredLog(t *testing.T, l *Log, seed int) {
	rng := newRand(uint64(seed))
	epoch := vtop.Epoch(1)
	for i := range 40 {
		if _, _, err := l.AppendLead(epoch, plainBatch(1+rng.IntN(3), 10+rng.IntN(2000), uint64(i))); err != nil {
			t.Errorf("append: %v", err)
			return
		}
		switch rng.IntN(12) {
		case 0:
			if _, err := l.Roll(epoch, testTime(), 0); err != nil {
				t.Errorf("roll: %v", err)
			}
		case 1: // a failure on the way, and back
			mustFlush(t, l)
			l.fail(errors.New("test"))
			if err := l.Reopen(); err != nil {
				t.Errorf("reopen: %v", err)
			}
			epoch++
		case 2, 3:
		default:
			if err := l.Flush(context.Background()); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
	}
	mustFlush(t, l)
}

// The same on a real disk, where it has such a sync; and all is there after the store was closed.
func TestStore_GatheredOnARealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	fsys := vfs.NewFaultFS(vfs.OS())
	opt := testOptions()
	opt.Reserve, opt.SegmentBytes, opt.GatherSyncs = 1, 64<<10, 4
	s, err := Open(fsys, dir, opt)
	ok(t, err)
	s.openGatherNow()
	possible := s.gather.fs != nil
	var calls counter
	fsys.SetHook(calls.Hook)
	var ends []vtop.Offset
	var all []*Log
	for i := range 16 {
		l, err := s.Create(testRange(i), vtop.ReplicaID(i+1), 0)
		ok(t, err)
		all = append(all, l)
	}
	var wait sync.WaitGroup
	for i, l := range all {
		wait.Go(func() { gatheredLog(t, l, i) })
	}
	wait.Wait()
	if rounds := calls[vfs.OpSyncFS].Load(); possible != (rounds > 0) {
		t.Errorf("%d rounds, possible: %v", rounds, possible)
	}
	for _, l := range all {
		ends = append(ends, l.End())
	}
	ok(t, s.Close())
	s, err = Open(fsys, dir, opt)
	ok(t, err)
	for i := range all {
		l := s.Get(testRange(i))
		ok(t, l.Err())
		if l.End() != ends[i] {
			t.Errorf("log %d ends at %d, want %d", i, l.End(), ends[i])
		}
		mustRead(t, l, l.Start(), l.End())
	}
	ok(t, s.Close())
}
