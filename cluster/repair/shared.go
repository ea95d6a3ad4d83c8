package repair

import (
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Counts are totals of this process.
type Counts struct {
	// Chunks and Bytes were received and verified.
	Chunks, Bytes int64
	// DroppedSources sent something that did not verify.
	DroppedSources int64
}

// Status is what the runner does now, for people. What matters of a job is in the job itself.
type Status struct {
	// Running are the jobs at work, Waiting those in a pause or waiting for their turn.
	Running, Waiting []fsm.RepairID
	// Budget is the rate in bytes a second that this node allows its transfers now, and Pressure what it followed; -1 if it
	// is not known.
	Budget   int64
	Pressure int
	// Sources are the nodes that give bytes now.
	Sources []SourceStatus
	Counts  Counts
}

// SourceStatus is one source in use.
type SourceStatus struct {
	Node     vtop.NodeName
	Budget   int64
	Pressure int
}

// Status tells what the runner does now.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Status{Budget: int64(r.own.current()), Pressure: r.own.pressure(), Counts: r.counts}
	for job := range r.cfg.Machine.State().RepairsTo(r.cfg.Self) {
		if t := r.tasks[job.ID]; t != nil && t.running {
			out.Running = append(out.Running, job.ID)
		} else {
			out.Waiting = append(out.Waiting, job.ID)
		}
	}
	for name, s := range r.sources {
		out.Sources = append(out.Sources, SourceStatus{name, int64(s.current()), s.pressure()})
	}
	return out
}

func (r *Runner) count(fn func(*Counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(&r.counts)
}

// sharedBudget is the budget of one source for as long as a transfer uses it.
type sharedBudget struct {
	*budget
	users int
}

// budgetOf returns the budget of a source, to be released with releaseBudget.
func (r *Runner) budgetOf(node vtop.NodeName) *budget {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sources[node]
	if s == nil {
		s = &sharedBudget{budget: newBudget()}
		r.sources[node] = s
	}
	s.users++
	return s.budget
}

func (r *Runner) releaseBudget(node vtop.NodeName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sources[node]; s != nil {
		if s.users--; s.users == 0 {
			delete(r.sources, node)
		}
	}
}

// useBudget has this node's budget follow its pressure until the answer is called; when nobody uses it any more it begins
// anew, and the buffers' memory goes.
func (r *Runner) useBudget() (end func()) {
	r.budgetMu.Lock()
	defer r.budgetMu.Unlock()
	if r.budgetUsers++; r.budgetUsers == 1 {
		r.own.observe(r.cfg.Pressure())
		stop := make(chan struct{})
		r.budgetStop = stop
		r.goroutine(func() { r.followPressure(stop) })
	}
	return func() {
		r.budgetMu.Lock()
		defer r.budgetMu.Unlock()
		if r.budgetUsers--; r.budgetUsers == 0 {
			close(r.budgetStop)
			r.own.reset()
			r.buffers.drop()
		}
	}
}

func (r *Runner) followPressure(stop <-chan struct{}) {
	tick := time.NewTicker(stepTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.own.observe(r.cfg.Pressure())
		case <-stop:
			return
		case <-r.ctx.Done():
			return
		}
	}
}
