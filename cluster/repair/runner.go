package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const chunkSize = manifest.ChunkSize

// Runner moves the repair jobs whose destination is this node. All methods are safe for concurrent use.
type Runner struct {
	// Set once.
	cfg     Config
	log     hclog.Logger
	ctx     context.Context
	cancel  context.CancelCauseFunc
	report  *reporter
	own     *budget
	buffers *buffers
	// wake has room for one: look at the jobs; sweep: look for stagings that no job wants.
	wake, sweep chan struct{}
	wg          sync.WaitGroup

	mu sync.Mutex
	// tasks are the active jobs, by id; ranges those of their ranges.
	tasks  map[fsm.RepairID]*task
	ranges map[vtop.Range]bool
	closed bool
	// sources are the budgets of the sources in use.
	sources map[vtop.NodeName]*sharedBudget
	counts  Counts

	budgetMu    sync.Mutex
	budgetUsers int
	budgetStop  chan struct{}
}

// errClosed ends what runs when the runner is closed.
var errClosed = fmt.Errorf("repair runner: %w", vtop.ErrClosed)

// New starts a runner. It does nothing before the node has caught up with the metadata. Close ends it.
func New(cfg Config) (*Runner, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runner{
		cfg: cfg, log: cfg.Log.Named("repair"), own: newBudget(), buffers: newBuffers(cfg.Chunks),
		wake: make(chan struct{}, 1), sweep: make(chan struct{}, 1),
		tasks: map[fsm.RepairID]*task{}, ranges: map[vtop.Range]bool{}, sources: map[vtop.NodeName]*sharedBudget{},
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.report = newReporter(r)
	cfg.Machine.Observe(r.observe)
	r.goroutine(r.loop)
	r.goroutine(r.report.run)
	r.goroutine(r.sweeper)
	poke(r.wake)
	return r, nil
}

// Close stops all work where it stands and waits for it: the jobs go on in the next life of the node. What was received
// stays. The store stays open.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(errClosed)
	r.wg.Wait()
}

// goroutine runs fn; Close waits for it. Nothing is started once Close was called.
func (r *Runner) goroutine(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(fn)
	return true
}

// Here reports whether an active job of the range brings a whole replica to this node and has not adopted it yet: nobody
// else is to make or move a directory for it meanwhile. It reads the applied state only and never waits.
func (r *Runner) Here(id vtop.Range) bool {
	job, ok := r.cfg.Machine.State().ActiveRepair(id, r.cfg.Self)
	return ok && !job.Holes && job.Step <= fsm.RepairAdopting
}

// observe runs on the apply goroutine.
func (r *Runner) observe(c fsm.Change) {
	if !c.Repairs && !c.Restored && !r.concerns(c.Ranges) {
		return
	}
	poke(r.wake)
}

func (r *Runner) concerns(ranges []vtop.Range) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ranges) > 0 && slices.ContainsFunc(ranges, func(id vtop.Range) bool { return r.ranges[id] })
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	// lookPause is the shortest time between two looks at the jobs.
	lookPause = 10 * time.Millisecond
	// catchUpPause is between two looks whether the metadata has caught up.
	catchUpPause = 50 * time.Millisecond
	longPause    = time.Hour
)

// loop starts what is due, and ends what nobody wants any more.
func (r *Runner) loop() {
	timer := time.NewTimer(longPause)
	defer timer.Stop()
	for caughtUp := false; ; {
		if !caughtUp {
			if caughtUp = r.cfg.CaughtUp(); caughtUp {
				poke(r.sweep)
			}
		}
		next := catchUpPause
		if caughtUp {
			next = r.look()
		}
		timer.Reset(max(next, lookPause))
		select {
		case <-r.wake:
			if sleep(r.ctx, lookPause) != nil {
				return
			}
		case <-timer.C:
		case <-r.ctx.Done():
			return
		}
	}
}

// look compares the tasks with the jobs, once, and says when the next one is due.
func (r *Runner) look() time.Duration {
	st := r.cfg.Machine.State()
	jobs := slices.Collect(st.RepairsTo(r.cfg.Self))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return longPause
	}
	r.matchLocked(jobs)
	receiving, following := 0, 0
	for _, job := range jobs {
		t := r.tasks[job.ID]
		if t.running && t.receives {
			receiving++
		}
		if !receives(job) {
			following++
		}
	}
	now, next := time.Now(), longPause
	for _, job := range jobs {
		t := r.tasks[job.ID]
		if t.running {
			continue
		}
		if due := t.dueLocked(st, now); due > 0 {
			next = min(next, due)
			continue
		}
		if t.receives = receives(job); t.receives {
			if receiving >= r.cfg.Receiving || following >= r.cfg.Following {
				t.awaitTurnLocked(job, following >= r.cfg.Following)
				continue
			}
			receiving++
		}
		r.startLocked(t, st)
	}
	return next
}

// receives says that a job is, or soon will be, at work on the disk and the network.
func receives(job *fsm.RepairJob) bool { return job.Step <= fsm.RepairAdopting }

// matchLocked makes the tasks those of the jobs.
func (r *Runner) matchLocked(jobs []*fsm.RepairJob) {
	active := make(map[fsm.RepairID]bool, len(jobs))
	clear(r.ranges)
	for _, job := range jobs {
		active[job.ID], r.ranges[job.Range] = true, true
		if r.tasks[job.ID] == nil {
			r.tasks[job.ID] = newTask(r, job)
		}
	}
	for id, t := range r.tasks {
		if active[id] {
			continue
		}
		if t.running {
			t.cancel(errEnded) // it is looked at again when it has stopped
			continue
		}
		r.forgetLocked(t)
	}
}

// forgetLocked lets go of a task whose job has ended.
func (r *Runner) forgetLocked(t *task) {
	delete(r.tasks, t.id)
	r.report.forget(t.id)
	poke(r.sweep)
	r.cfg.Wake(t.rng)
	if pin := t.pin; pin.id != 0 {
		r.wg.Go(func() { r.releasePin(t.rng, pin) })
	}
}

func (r *Runner) releasePin(rng vtop.Range, pin pin) {
	ctx, cancel := context.WithTimeout(r.ctx, releaseTimeout)
	defer cancel()
	_, err := r.cfg.Peers.ReleasePin(ctx, pin.node, &peerpb.ReleasePinRequest{Range: rangeTo(rng), Pin: pin.id})
	if err != nil {
		r.log.Debug("a pin is left to end by itself", "range", r.cfg.Machine.State().RangeName(rng), "node", pin.node, "pin", pin.id, "error", err)
	}
}

func (r *Runner) startLocked(t *task, st *fsm.State) {
	t.running = true
	t.seen = lookOf(st, t.rng)
	ctx, cancel := context.WithCancelCause(r.ctx)
	t.cancel = cancel
	r.wg.Go(func() {
		defer cancel(nil)
		pause := t.run(ctx)
		r.mu.Lock()
		t.running = false
		t.due = time.Now().Add(pause)
		r.mu.Unlock()
		poke(r.wake)
	})
}

// sweeper removes the stagings that no job wants any more: of jobs that ended otherwise, in this life or in another.
func (r *Runner) sweeper() {
	for {
		select {
		case <-r.sweep:
		case <-r.ctx.Done():
			return
		}
		removed, err := r.cfg.Store.SweepStaging(func(id vtop.Range) bool {
			_, wanted := r.cfg.Machine.State().ActiveRepair(id, r.cfg.Self)
			return wanted
		})
		if len(removed) > 0 {
			r.log.Info("removed what was received for repairs that have ended", "ranges", len(removed))
		}
		if err != nil && !errors.Is(err, vtop.ErrClosed) {
			r.log.Warn("cannot remove what was received for repairs that have ended", "error", err)
		}
	}
}
