package repair

import (
	"context"
	"sync"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

// The process of the destination ends at each step; the next one goes on, and fetches nothing twice that was whole.
func TestRunner_CrashAtEveryStep(t *testing.T) {
	for step := fsm.RepairQueued; step <= fsm.RepairPromoting; step++ {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(3, 2_200_000)
				w.start()
				if step == fsm.RepairQueued {
					w.stop()
					id := w.submit(sealTail)
					w.crash()
					w.whole(w.finish(id))
					return
				}
				w.slowly(step)
				id := w.submit(sealTail)
				w.awaitStep(id, step)
				w.quick()
				w.crash()
				w.whole(w.finish(id))
			})
		})
	}
}

// The process ends again and again while segments are copied.
func TestRunner_CrashesWhileCopying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 3_200_000)
		var mu sync.Mutex
		requests, limit := 0, 0
		w.peers.before = func(ctx context.Context, _ vtop.NodeName, _ transport.SegmentRef, _ int64) error {
			mu.Lock()
			requests++
			stop := requests > limit
			mu.Unlock()
			if stop {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		w.start()
		id := w.submit()
		for range 5 {
			mu.Lock()
			limit = requests + 5
			mu.Unlock()
			w.await(id, "at its next limit", func(j *fsm.RepairJob) bool {
				mu.Lock()
				defer mu.Unlock()
				return requests > limit || j.Step >= fsm.RepairAdopting
			})
			w.crash()
		}
		w.peers.with(func() { w.peers.before = nil })
		w.whole(w.finish(id))
		total := 0
		for _, n := range w.peers.chunks {
			total += n
		}
		if job := w.job(id); total != 16 || job.BytesTotal < 12_800_000 {
			t.Errorf("%d chunks were fetched of 16, and the job says %d bytes", total, job.BytesTotal)
		}
	})
}

// A job that is cancelled at any step leaves nothing: no staging, no pin, no learner.
func TestRunner_CancelAtEveryStep(t *testing.T) {
	for step := fsm.RepairQueued; step <= fsm.RepairPromoting; step++ {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(3, 2_200_000)
				w.slowly(step)
				w.start()
				id := w.submit(sealTail)
				w.awaitStep(id, step)
				w.must(&fsm.CancelRepairs{IDs: []fsm.RepairID{id}, Reason: "not wanted"})
				w.quick()
				synctestWait()
				synctestWait()
				if left := w.dest.Stagings(); len(left) != 0 {
					t.Errorf("left in the staging: %+v", left)
				}
				if pins := w.source.Pins(); len(pins) != 0 {
					t.Errorf("pins are left: %+v", pins)
				}
				if n := len(w.state().Learners()); n != 0 {
					t.Errorf("%d learners are left", n)
				}
				if log := w.dest.Get(w.rng); log != nil { // the engine's to take away
					ok(t, w.dest.SetAside(w.rng, "no replica of it here"))
				}
				w.whole(w.finish(w.submit(sealTail)))
			})
		})
	}
}
