package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

const (
	// watchEvery is how often jobs are looked at, watchPause the longest pause while nobody answers.
	watchEvery = 200 * time.Millisecond
	watchPause = 5 * time.Second
	// lateNode is how long a node may not know a job that another one knew: its metadata may be behind.
	lateNode = 15 * time.Second
)

// watcher follows jobs until all have ended, from whichever node answers.
type watcher struct {
	fleet    *fleet
	patience time.Duration
	show     progress
}

// wait returns the jobs as they ended. The end of ctx and silence of all nodes stop the waiting alone; the error says
// that the jobs go on.
func (w *watcher) wait(ctx context.Context, jobs []adminapi.Repair) ([]adminapi.Repair, error) {
	defer w.show.close()
	pause, missing := watchEvery, map[uint64]time.Time{}
	var silent time.Time
	for {
		w.show.update(jobs)
		if allEnded(jobs) {
			return jobs, nil
		}
		select {
		case <-ctx.Done():
			return nil, goesOn(exitInterrupted, jobs, errors.New("stopped waiting"))
		case <-time.After(pause):
		}
		err := w.look(ctx, jobs, missing)
		switch {
		case err == nil:
			pause, silent = watchEvery, time.Time{}
			continue
		case ctx.Err() != nil:
			continue
		case !elsewhere(err):
			return nil, err
		}
		if silent.IsZero() {
			silent = time.Now()
			w.show.note("no node answers, asking on: " + err.Error())
		}
		if time.Since(silent) > w.patience {
			return nil, goesOn(exitUsage, jobs, fmt.Errorf("no node answered for %s: %w", w.patience, err))
		}
		pause = min(2*pause, watchPause)
	}
}

// look brings the jobs up to date.
func (w *watcher) look(ctx context.Context, jobs []adminapi.Repair, missing map[uint64]time.Time) error {
	known := map[uint64]adminapi.Repair{}
	if len(jobs) > 1 {
		active, err := ask(ctx, w.fleet, askTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Repair, error) { return c.Repairs(ctx, false) })
		if err != nil {
			return err
		}
		for _, j := range active {
			known[j.ID] = j
		}
	}
	for i := range jobs {
		j := &jobs[i]
		if ended(j) {
			continue
		}
		if now, ok := known[j.ID]; ok {
			*j = follows(*j, now)
			continue
		}
		now, err := ask(ctx, w.fleet, askTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.Repair, error) { return c.Repair(ctx, j.ID) })
		switch {
		case hasCode(err, adminapi.CodeNotFound):
			if since, ok := missing[j.ID]; !ok {
				missing[j.ID] = time.Now()
			} else if time.Since(since) > lateNode {
				return fmt.Errorf("repair %d of %s is not known any more: was its topic deleted? %w", j.ID, j.Range, err)
			}
		case err != nil:
			return err
		default:
			delete(missing, j.ID)
			*j = follows(*j, *now)
		}
	}
	return nil
}

// follows is the newer picture of a job, with every source that bytes were seen to come from: the job itself names those
// of the moment.
func follows(before, now adminapi.Repair) adminapi.Repair {
	for _, s := range before.Sources {
		if !slices.Contains(now.Sources, s) {
			now.Sources = append(now.Sources, s)
		}
	}
	slices.Sort(now.Sources)
	return now
}

// ended reports whether there is nothing to wait for; what has no number was never a job.
func ended(j *adminapi.Repair) bool { return j.ID == 0 || j.Ended() }

func allEnded(jobs []adminapi.Repair) bool {
	for i := range jobs {
		if !ended(&jobs[i]) {
			return false
		}
	}
	return true
}

// goesOn says that the jobs do without vtopctl.
func goesOn(code int, jobs []adminapi.Repair, err error) error {
	var ids []string
	for i := range jobs {
		if !ended(&jobs[i]) {
			ids = append(ids, strconv.FormatUint(jobs[i].ID, 10))
		}
	}
	what, one := "repair "+strings.Join(ids, ", ")+" goes on", strings.Join(ids, " ")
	if len(ids) > 1 {
		what = fmt.Sprintf("%d repairs (%s) go on", len(ids), strings.Join(ids, ", "))
	}
	return &exitError{code, fmt.Errorf("%w; %s without vtopctl: `vtopctl repair watch %s` waits for it again, `vtopctl repair cancel %s` ends it", err, what, one, one)}
}
