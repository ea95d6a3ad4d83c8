package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop/cluster/liveness"
)

// pause has the process not run for a time: its clock has jumped when it goes on. The goroutine that reads the beats of n3
// comes first, then the one that places leases; those of others are still in their sockets.
func (w *world) pause(d time.Duration) {
	w.jump.Add(int64(d))
	w.tracker.Beat("n3", 1, liveness.Health{Incarnation: 1})
	w.control.Wake()
	synctest.Wait()
}

// H4: a Raft leader that was not running itself, be it stopped or its machine asleep, takes nobody's lease for a silence or a
// lateness that was its own. It judges by its own time again when it goes on.
func TestController_OwnPauseCondemnsNobody(t *testing.T) {
	for _, silence := range []time.Duration{500 * time.Millisecond, 3 * time.Second} {
		for _, pause := range []time.Duration{silence + silence/4, time.Minute, 10 * time.Hour} {
			runJudging(t, silence, 0, func(w *world) {
				w.pass(2 * time.Second)
				w.started(0)
				before := w.rangeOf().Lease
				for range 3 {
					w.pause(pause)
					w.pass(time.Second)
				}
				if got := w.rangeOf().Lease; got != before {
					t.Errorf("silence limit %s, pause %s: the lease went from %+v to %+v", silence, pause, before, got)
				}
				w.set(func() { w.silent["n2"] = true })
				w.pass(2*silence + time.Second)
				if got := w.rangeOf().Lease; got.Holder == before.Holder {
					t.Errorf("silence limit %s, pause %s: a node that is silent since holds %+v", silence, pause, got)
				}
			})
		}
	}
}

// H4: no holder is late with its promotion for a time in which the Raft leader, which it needs for it, did not run.
func TestController_OwnPauseIsNobodysLateness(t *testing.T) {
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		before := w.rangeOf().Lease // granted, not started
		for range 3 {
			w.pause(time.Minute)
			w.pass(500 * time.Millisecond)
		}
		if got := w.rangeOf().Lease; before.Holder == "" || got != before {
			t.Errorf("the lease went from %+v to %+v", before, got)
		}
	})
}
