package repair

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop/fsm"
)

// A job that does not move is told at a slow rate, whatever it says and however often; what moves is told every second, and at once.
func TestReporter_WordsAloneAreToldSlowly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told atomic.Int64
		var last atomic.Pointer[fsm.RepairProgress]
		r := &Runner{log: hclog.NewNullLogger(), cfg: Config{Now: time.Now}}
		r.ctx, r.cancel = context.WithCancelCause(t.Context())
		r.cfg.Propose = func(_ context.Context, cmd fsm.Command) (fsm.Outcome, error) {
			told.Add(1)
			u := cmd.(*fsm.UpdateRepairs).Items[0]
			last.Store(&u.Progress)
			return fsm.Outcome{Items: []fsm.Item{{Repair: u.ID}}}, nil
		}
		report := newReporter(r)
		r.wg.Go(report.run)
		defer r.wg.Wait()
		defer r.cancel(errClosed)

		job := &fsm.RepairJob{ID: 1, Step: fsm.RepairCatchingUp, StepVersion: 1, RepairProgress: fsm.NewRepairProgress()}
		p := job.RepairProgress
		time.Sleep(reportPause / 2) // between two reports
		say := func(seconds int, change func(i int)) (n int64) {
			before := told.Load()
			for i := range seconds {
				change(i)
				report.tell(job, p)
				time.Sleep(time.Second)
			}
			return told.Load() - before
		}
		words := func(i int) {
			p.Waiting, p.LastError = fmt.Sprintf("for %d", i%3), fmt.Sprintf("at %d", i%2)
			p.Floor++ // clients go on
		}
		if n := say(1200, words); n < 20 || n > 30 {
			t.Errorf("%d reports in 20 minutes of a job that does not move, want one a minute", n)
		}
		if n := say(10, func(i int) { words(i); p.LogEnd++ }); n < 9 {
			t.Errorf("%d reports in 10 s of a job that moves", n)
		}
		// Case: it stops; what it says first is told at once.
		if say(2, func(int) { p.Waiting = "new" }); last.Load().Waiting != "new" {
			t.Errorf("told %q", last.Load().Waiting)
		}
	})
}
