package repair

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

// lineCount counts the lines of a log, and those that a node writes by default.
type lineCount struct {
	mu       sync.Mutex
	all, out int
}

// Write implements io.Writer.
func (c *lineCount) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := bytes.Count(p, []byte("\n"))
	c.all += lines
	c.out += lines - bytes.Count(p, []byte("[DEBUG]"))
	return len(p), nil
}

func (c *lineCount) counts() (all, out int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all, c.out
}

// G5: all sources are gone, for ten minutes and then for good. The job tries again with pauses, says so in its state and not in
// the log, proposes little, and ends.
func TestRunner_SaysLittleWhileSourcesAreGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, lines := newWorld(t, "d"), new(lineCount)
		w.tune = func(c *Config) {
			c.Patience = 40 * time.Minute
			c.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: lines})
		}
		w.segments(2, 200_000)
		var asked atomic.Int64
		w.peers.before = func(context.Context, vtop.NodeName, transport.SegmentRef, int64) error {
			asked.Add(1)
			return transport.ErrUnreachable
		}
		w.start()
		id := w.submit()
		w.await(id, "waiting", func(j *fsm.RepairJob) bool { return j.Waiting != "" })
		var seen struct{ asked, all, out, updates int }
		look := func() {
			seen.asked = int(asked.Load())
			seen.all, seen.out = lines.counts()
			w.mu.Lock()
			seen.updates = w.updates
			w.mu.Unlock()
		}
		look()
		before := seen
		const minutes = 10
		for range minutes * 60 {
			time.Sleep(time.Second)
			if job := w.job(id); job.Waiting == "" || job.LastError == "" {
				t.Fatalf("it says that it is moving: %+v", job.RepairProgress)
			}
		}
		look()
		t.Logf("in %d minutes: sources asked %d times, %d lines, of them %d not at debug, %d updates of the metadata",
			minutes, seen.asked-before.asked, seen.all-before.all, seen.out-before.out, seen.updates-before.updates)
		if n := seen.asked - before.asked; n < minutes || n > minutes*100 {
			t.Errorf("sources were asked %d times in %d minutes", n, minutes)
		}
		if n := seen.all - before.all; n > minutes*100 {
			t.Errorf("%d lines in %d minutes", n, minutes)
		}
		if n := seen.out - before.out; n > minutes {
			t.Errorf("%d lines above debug in %d minutes", n, minutes)
		}
		if n := seen.updates - before.updates; n > minutes+10 { // a few while the pauses grow
			t.Errorf("%d updates of the metadata in %d minutes", n, minutes)
		}
		if job := w.finish(id); job.Outcome != fsm.OutcomeFailed {
			t.Errorf("it ended as %+v", job)
		}
		if _, out := lines.counts(); out > 30 {
			t.Errorf("%d lines above debug in all", out)
		}
	})
}
