package repair

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

const (
	// reportPause is the time between two reports of what moved; a new step goes at once.
	reportPause = time.Second
	// wordsPause is the longest time between two reports of a job that does not move, however often it says something else: each is
	// written to the disks of all Raft voters. It begins with reportPause and doubles.
	wordsPause = time.Minute
)

// reporter tells the state machine how the jobs stand: all of them in one command, about once a second, and at each
// change of a step.
type reporter struct {
	r *Runner
	// now has room for one: something is urgent.
	now chan struct{}

	mu      sync.Mutex
	entries map[fsm.RepairID]*entry
}

// entry is what is to be told of one job. Under reporter.mu.
type entry struct {
	update fsm.RepairUpdate
	// told is the progress that the state machine has, as far as is known here.
	told fsm.RepairProgress
	// done takes the answer to a change of the step; nil if there is none under way.
	done chan error
	// words counts the reports since the job moved; due is when the next of that kind may go.
	words int
	due   time.Time
}

// moved reports whether a job's progress is another, beyond what it says of why it moves or does not. The floor moves without the job.
func moved(a, b fsm.RepairProgress) bool {
	for _, p := range []*fsm.RepairProgress{&a, &b} {
		p.LastError, p.Waiting, p.ActiveSources, p.BytesPerSecond, p.Floor = "", "", nil, 0, 0
	}
	return !reflect.DeepEqual(a, b)
}

// errMoved says that the job is not what the task believes: it is to be read again.
var errMoved = errors.New("the repair job has moved")

func newReporter(r *Runner) *reporter {
	return &reporter{r: r, now: make(chan struct{}, 1), entries: map[fsm.RepairID]*entry{}}
}

// tell notes the progress of a job, for the next report.
func (p *reporter) tell(job *fsm.RepairJob, progress fsm.RepairProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entryLocked(job)
	if e.done == nil {
		e.update = fsm.RepairUpdate{ID: job.ID, StepVersion: job.StepVersion, Step: job.Step, Progress: progress}
	}
}

func (p *reporter) entryLocked(job *fsm.RepairJob) *entry {
	e := p.entries[job.ID]
	if e == nil {
		e = &entry{told: job.RepairProgress}
		p.entries[job.ID] = e
	}
	return e
}

// advance takes a job to another step. It returns nil once the state machine has taken it, errMoved if the job was changed
// by somebody else, or what else it was refused for. An error of the way is not one of these: it is tried again until ctx
// ends.
func (p *reporter) advance(ctx context.Context, job *fsm.RepairJob, step fsm.RepairStep, progress fsm.RepairProgress) error {
	done := make(chan error, 1)
	p.mu.Lock()
	e := p.entryLocked(job)
	e.update = fsm.RepairUpdate{ID: job.ID, StepVersion: job.StepVersion, Step: step, Progress: progress}
	e.done = done
	p.mu.Unlock()
	poke(p.now)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		if e.done == done {
			e.done = nil
			e.update.StepVersion = 0
		}
		p.mu.Unlock()
		return context.Cause(ctx)
	}
}

// forget drops a job that has ended.
func (p *reporter) forget(id fsm.RepairID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[id]; e != nil && e.done == nil {
		delete(p.entries, id)
	}
}

func (p *reporter) run() {
	tick := time.NewTicker(reportPause)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-p.now:
		case <-tick.C:
		case <-p.r.ctx.Done():
			return
		}
		if p.flush(); !p.urgent() {
			failures = 0
			continue
		}
		if sleep(p.r.ctx, pauseAfter(failures)) != nil {
			return
		}
		failures++
		poke(p.now)
	}
}

func (p *reporter) urgent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.done != nil {
			return true
		}
	}
	return false
}

// pending collects what is to be told.
func (p *reporter) pending() (items []fsm.RepairUpdate, entries []*entry, waits []chan error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, e := range p.entries {
		if e.update.StepVersion == 0 || e.done == nil && reflect.DeepEqual(e.update.Progress, e.told) {
			continue
		}
		if e.done == nil && now.Before(e.due) && !moved(e.update.Progress, e.told) {
			continue
		}
		items, entries, waits = append(items, e.update), append(entries, e), append(waits, e.done)
		if len(items) == maxReport {
			break
		}
	}
	return items, entries, waits
}

// maxReport bounds the jobs in one command; what is left goes with the next one.
const maxReport = 1000

// flush proposes what is to be told, once.
func (p *reporter) flush() {
	items, entries, waits := p.pending()
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.r.ctx, proposeTimeout)
	defer cancel()
	cfg := &p.r.cfg
	out, err := cfg.Propose(ctx, &fsm.UpdateRepairs{Node: cfg.Self, Incarnation: cfg.Incarnation, Items: items, At: cfg.Now().UnixMilli()})
	if err == nil && out.Refusal == nil && len(out.Items) != len(items) {
		err = errors.New("the answer has another number of items")
	}
	if err != nil {
		p.r.log.Debug("progress is told later", "jobs", len(items), "error", err)
		p.lookWhetherTaken(entries, items, waits)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range entries {
		refusal := out.Refusal
		if refusal == nil {
			refusal = out.Items[i].Refusal
		}
		p.answerLocked(e, items[i], waits[i], refusal)
	}
}

// lookWhetherTaken answers the changes of a step that the applied state shows to be decided, though their answer was lost.
func (p *reporter) lookWhetherTaken(entries []*entry, items []fsm.RepairUpdate, waits []chan error) {
	st := p.r.cfg.Machine.State()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range entries {
		job, ok := st.Repair(items[i].ID)
		if waits[i] == nil || waits[i] != e.done || ok && job.Active() && job.StepVersion == items[i].StepVersion {
			continue
		}
		e.done, e.update.StepVersion = nil, 0
		waits[i] <- errMoved
	}
}

func (p *reporter) answerLocked(e *entry, item fsm.RepairUpdate, wait chan error, refusal *fsm.Refusal) {
	if moved(item.Progress, e.told) {
		e.words, e.due = 0, time.Time{}
	} else {
		e.due = time.Now().Add(min(reportPause<<min(e.words, 10), wordsPause))
		e.words++
	}
	e.told = item.Progress // refused or not, it is not told again
	var err error
	if refusal != nil {
		err = refusal
		if refusal.Code == fsm.CodeStaleStep || refusal.Code == fsm.CodeRepairEnded || refusal.Code == fsm.CodeUnknownRepair {
			err = errors.Join(errMoved, refusal)
		} else {
			p.r.log.Warn("the metadata refuses the progress of a repair", "repair", uint64(item.ID), "step", item.Step, "reason", refusal.Message)
		}
	}
	if wait != nil && wait == e.done {
		e.done = nil
		e.update.StepVersion = 0 // the task tells under the new one
		wait <- err
	}
}

// pauseAfter is how long to wait after n failures in a row.
func pauseAfter(n int) time.Duration {
	return spread(min(100*time.Millisecond<<min(n, 10), 30*time.Second))
}
