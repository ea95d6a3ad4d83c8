package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// task is one active job in this process. What it knows beyond the job can be asked again.
type task struct {
	// Set once.
	r   *Runner
	id  fsm.RepairID
	rng vtop.Range
	log hclog.Logger
	// limit holds the job to its own rate; nil if it has none.
	limit *throttle

	// Under Runner.mu. receives says that it holds a turn of those that receive.
	running, receives bool
	due               time.Time
	seen              view
	cancel            context.CancelCauseFunc

	// Used by the goroutine that runs it, one at a time.
	p       fsm.RepairProgress
	version uint64
	plan    *plan
	pin     pin
	// askAgain says that the leader is to be asked for a snapshot anew.
	askAgain bool
	// pinLost says how a pin ended, or a lease, while the job wanted it.
	pinLost string
	// gapBefore is the gap that an earlier life of the task had noted.
	gapBefore int64
	// used are the sources that gave something.
	used map[vtop.NodeName]bool
	// tookLocal says that the local directories were looked through.
	tookLocal bool
	failures  int
	// moved is when the job last brought something, read the log end seen last.
	moved time.Time
	read  vtop.Offset
	meter meter
}

// pin is the leader's pin that the task uses.
type pin struct {
	node    vtop.NodeName
	id      uint64
	idle    time.Duration
	touched time.Time
}

// stale says that the pin may have ended by now, or soon will have.
func (p pin) stale(now time.Time) bool { return p.id != 0 && now.Sub(p.touched) > p.idle/2 }

// view is what of a range a waiting task waits for, beside time.
type view struct {
	lease   vtop.Lease
	started bool
	config  uint64
}

func lookOf(st *fsm.State, id vtop.Range) view {
	rg, ok := st.Range(id)
	if !ok {
		return view{}
	}
	return view{rg.Lease, rg.Started, rg.ConfigVersion}
}

var errEnded = errors.New("the repair job has ended")

func newTask(r *Runner, job *fsm.RepairJob) *task {
	t := &task{r: r, id: job.ID, rng: job.Range, moved: time.Now(), used: map[vtop.NodeName]bool{}, log: r.log.With("repair", uint64(job.ID), "range", job.Name)}
	if job.MaxRate > 0 {
		t.limit = newThrottle(float64(job.MaxRate))
	}
	return t
}

// dueLocked says how long the task still waits; 0: it is due.
func (t *task) dueLocked(st *fsm.State, now time.Time) time.Duration {
	if lookOf(st, t.rng) != t.seen {
		return 0
	}
	return max(t.due.Sub(now), 0)
}

// awaitTurnLocked says that the job waits for others.
func (t *task) awaitTurnLocked(job *fsm.RepairJob, following bool) {
	why := fmt.Sprintf("waits for its turn: node %q receives at most %d replicas at a time", t.r.cfg.Self, t.r.cfg.Receiving)
	if following {
		why = fmt.Sprintf("waits for its turn: %d replicas on node %q wait to become voters", t.r.cfg.Following, t.r.cfg.Self)
	}
	if p := job.RepairProgress; p.Waiting != why { // there may be many that wait
		p.BytesPerSecond, p.ActiveSources, p.Waiting = 0, nil, why
		t.r.report.tell(job, p)
	}
}

// scene is the applied state that one step looks at.
type scene struct {
	st  *fsm.State
	job *fsm.RepairJob
	rg  *fsm.Range
}

// turn is what a step decided.
type turn struct {
	// step is where the job goes; 0: it stays.
	step fsm.RepairStep
	// Of a job that stays: why it is not moving, empty if it is; and when to look again, 0 for growing pauses.
	why   string
	pause time.Duration
	// Of a job that ends.
	outcome fsm.RepairOutcome
	cause   string
}

func to(step fsm.RepairStep) turn { return turn{step: step} }

func wait(format string, args ...any) turn { return turn{why: fmt.Sprintf(format, args...)} }

func fail(outcome fsm.RepairOutcome, format string, args ...any) turn {
	return turn{step: fsm.RepairFailed, outcome: outcome, cause: fmt.Sprintf(format, args...)}
}

// steps is one method for each step of a job. Each looks at the world on entry, and may be called again at any time.
var steps = map[fsm.RepairStep]func(*task, context.Context, scene) turn{
	fsm.RepairQueued:       (*task).queued,
	fsm.RepairSealing:      (*task).sealing,
	fsm.RepairTransferring: (*task).transferring,
	fsm.RepairAdopting:     (*task).adopting,
	fsm.RepairCatchingUp:   (*task).catchingUp,
	fsm.RepairPromoting:    (*task).promoting,
}

// run takes the job on until it has to wait, and says for how long.
func (t *task) run(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		s, ok := t.look()
		if !ok {
			return longPause // the loop sees the same
		}
		if s.job.StepVersion != t.version {
			t.resume(s.job)
		}
		next := steps[s.job.Step](t, ctx, s)
		if ctx.Err() != nil {
			break
		}
		if next.step == 0 || !t.advance(ctx, s.job, next) {
			return t.rest(s.job, next)
		}
		if receives(s.job) && next.step > fsm.RepairAdopting {
			break // another takes its turn
		}
	}
	return 0
}

func (t *task) look() (s scene, ok bool) {
	s.st = t.r.cfg.Machine.State()
	if s.job, ok = s.st.Repair(t.id); !ok || !s.job.Active() {
		return s, false
	}
	s.rg, ok = s.st.Range(t.rng)
	return s, ok
}

// resume takes over where the job stands.
func (t *task) resume(job *fsm.RepairJob) {
	t.p, t.version = job.RepairProgress, job.StepVersion
	for _, node := range t.p.ActiveSources {
		t.used[node] = true // in an earlier life of the task
	}
	t.p.ActiveSources, t.p.BytesPerSecond, t.p.Waiting = t.sourcesAt(job.Step), 0, ""
	t.p.DroppedSources = slices.Clone(t.p.DroppedSources)
	if job.Step == fsm.RepairQueued {
		t.plan, t.tookLocal = nil, false
	}
}

// advance takes the job to another step; false if it could not, and is to wait.
func (t *task) advance(ctx context.Context, job *fsm.RepairJob, next turn) bool {
	p := t.p
	p.Waiting, p.Outcome, p.ActiveSources = "", next.outcome, t.sourcesAt(next.step)
	if next.cause != "" {
		p.Cause = clip(next.cause)
	}
	if !next.step.Active() {
		p.BytesPerSecond = 0
		t.log.Info("repair ends", "step", next.step, "outcome", next.outcome, "cause", p.Cause, "log_end", p.LogEnd, "floor", p.Floor)
	} else {
		t.log.Info("repair", "step", next.step)
	}
	err := t.r.report.advance(ctx, job, next.step, p)
	switch {
	case err == nil:
		t.failures, t.moved = 0, time.Now()
	case errors.Is(err, errMoved):
		t.version = 0
	case ctx.Err() == nil:
		t.p.LastError = clip(err.Error())
		return false
	}
	return true
}

// sourcesAt are the sources that a job of this step tells while nothing flows: none before the transfer, afterwards those
// that bytes came from.
func (t *task) sourcesAt(step fsm.RepairStep) []vtop.NodeName {
	if step <= fsm.RepairTransferring {
		return nil
	}
	nodes := slices.Sorted(maps.Keys(t.used))
	return nodes[:min(len(nodes), fsm.MaxRepairSources)]
}

// rest says why the job waits, and returns for how long.
func (t *task) rest(job *fsm.RepairJob, next turn) time.Duration {
	t.p.Waiting = clip(next.why)
	if next.step != 0 {
		t.p.Waiting = clip(fmt.Sprintf("the metadata does not let it become %s: %s", next.step, t.p.LastError))
	}
	t.p.ActiveSources, t.p.BytesPerSecond = t.sourcesAt(job.Step), 0
	t.r.report.tell(job, t.p)
	if next.pause > 0 {
		t.failures = 0
		return next.pause
	}
	pause := pauseAfter(t.failures)
	t.failures++
	t.log.Debug("repair waits", "step", job.Step, "why", t.p.Waiting, "pause", pause)
	return pause
}

// outOfPatience ends a job that has brought nothing for long.
func (t *task) outOfPatience(next turn) turn {
	if next.step == 0 && next.why != "" && time.Since(t.moved) > t.r.cfg.Patience {
		return fail(fsm.OutcomeFailed, "nothing came for %s: %s", t.r.cfg.Patience, next.why)
	}
	return next
}

// leader is the node that leads the range now; the text says why there is none.
func (t *task) leader(s scene) (leader vtop.NodeName, why string) {
	switch lease := s.rg.Lease; {
	case lease.Holder == "":
		return "", "the range has no leader"
	case !s.rg.Started:
		return "", fmt.Sprintf("node %q is being promoted under epoch %d", lease.Holder, lease.Epoch)
	case lease.Holder == t.r.cfg.Self:
		return "", "this node leads the range"
	default:
		return lease.Holder, ""
	}
}

// failed is what a call that failed leads to: an end, where no repeat can help; else a wait.
func (t *task) failed(what string, node vtop.NodeName, err error) turn {
	text := fmt.Sprintf("%s at node %q: %v", what, node, err)
	t.p.LastError = clip(text)
	switch {
	case errors.Is(err, transport.ErrNeverWritten):
		return fail(fsm.OutcomeRefused, "%s: produce to the range before repairing from it", text)
	case errors.Is(err, transport.ErrNotAllowed):
		return fail(fsm.OutcomeRefused, "%s: put node %q on the transfer allowlist of the cluster's nodes", text, t.r.cfg.Self)
	}
	return turn{why: text}
}

// clip keeps a text within what the metadata takes.
func clip(s string) string {
	const limit = fsm.MaxText - 8
	if len(s) > limit {
		return validUTF8(s[:limit]) + "…"
	}
	return validUTF8(s)
}

// spread takes a pause to between a half and the whole of it, so that many do not come back at once.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func rangeTo(r vtop.Range) *peerpb.Range { return transport.RangeTo(r) }
