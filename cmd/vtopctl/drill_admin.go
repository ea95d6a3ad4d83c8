package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vtop-log/vtop/drill"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// lookTime bounds a question that is asked over and over while nodes die: another one is asked soon.
const lookTime = 4 * time.Second

// drillAdmin implements drill.Admin through whichever node answers.
type drillAdmin struct{ fleet *fleet }

func (a *drillAdmin) Status(ctx context.Context) (*adminapi.Status, error) {
	return ask(ctx, a.fleet, askTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.Status, error) { return c.Status(ctx) })
}

func (a *drillAdmin) Nodes(ctx context.Context) ([]adminapi.Node, error) {
	return ask(ctx, a.fleet, lookTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Node, error) { return c.Nodes(ctx) })
}

// CreateTopic may be asked of a second node after the first one did it and could not say so.
func (a *drillAdmin) CreateTopic(ctx context.Context, req adminapi.CreateTopic) (*adminapi.TopicDetail, error) {
	tries := 0
	return ask(ctx, a.fleet, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.TopicDetail, error) {
		tries++
		t, err := c.CreateTopic(ctx, req)
		if tries > 1 && hasCode(err, adminapi.CodeExists) {
			return c.Topic(ctx, req.Name)
		}
		return t, err
	})
}

func (a *drillAdmin) DeleteTopic(ctx context.Context, name string) error {
	_, err := ask(ctx, a.fleet, askLong, func(ctx context.Context, c *adminapi.Client) (struct{}, error) {
		return struct{}{}, c.DeleteTopic(ctx, name)
	})
	return err
}

func (a *drillAdmin) Leases(ctx context.Context, topic string) ([]adminapi.Lease, error) {
	return ask(ctx, a.fleet, lookTime, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Lease, error) { return c.Leases(ctx, topic) })
}

func (a *drillAdmin) Lease(ctx context.Context, topic string, n int32) (*adminapi.LeaseDetail, error) {
	return ask(ctx, a.fleet, askTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.LeaseDetail, error) {
		return c.Lease(ctx, topic, n)
	})
}

func (a *drillAdmin) TransferLease(ctx context.Context, topic string, n int32, to string) (*adminapi.LeaseDetail, error) {
	return ask(ctx, a.fleet, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.LeaseDetail, error) {
		return c.TransferLease(ctx, topic, n, to)
	})
}

func (a *drillAdmin) SafeToStop(ctx context.Context, node string) (*adminapi.SafeToStop, error) {
	return ask(ctx, a.fleet, lookTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.SafeToStop, error) {
		return c.SafeToStop(ctx, node)
	})
}

// Drill goes to the node itself: it strikes its own process.
func (a *drillAdmin) Drill(ctx context.Context, node adminapi.Node, req adminapi.DrillRequest) (*adminapi.DrillResult, error) {
	if node.AdminAddr == "" {
		return nil, adminapi.Errorf(adminapi.CodeUnreachable, "node %s advertises no admin address", node.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return a.fleet.client(node.AdminAddr).Drill(ctx, req)
}

func (a *drillAdmin) SubmitRepairs(ctx context.Context, req adminapi.RepairRequest) ([]adminapi.Repair, error) {
	return ask(ctx, a.fleet, askLong, func(ctx context.Context, c *adminapi.Client) ([]adminapi.Repair, error) {
		return c.SubmitRepairs(ctx, req)
	})
}

func (a *drillAdmin) Repair(ctx context.Context, id uint64) (*adminapi.Repair, error) {
	return ask(ctx, a.fleet, lookTime, func(ctx context.Context, c *adminapi.Client) (*adminapi.Repair, error) { return c.Repair(ctx, id) })
}

func (a *drillAdmin) CancelRepair(ctx context.Context, id uint64) (*adminapi.Repair, error) {
	return ask(ctx, a.fleet, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.Repair, error) {
		return c.CancelRepair(ctx, id)
	})
}

func (a *drillAdmin) Seal(ctx context.Context, topic string, n int32, req adminapi.SealRequest) (*adminapi.SealResult, error) {
	return ask(ctx, a.fleet, askLong, func(ctx context.Context, c *adminapi.Client) (*adminapi.SealResult, error) {
		return c.Seal(ctx, topic, n, req)
	})
}

// Scrub is asked of one node that answers, once: verdicts that were told are not told again by another one.
func (a *drillAdmin) Scrub(ctx context.Context, req adminapi.ScrubRequest, found func(adminapi.ScrubVerdict) error) (*adminapi.ScrubSummary, error) {
	if _, err := a.Status(ctx); err != nil {
		return nil, err
	}
	endpoints, at := a.fleet.order()
	return a.fleet.client(endpoints[at]).Scrub(ctx, req, found)
}

// tellEvery is the pause between two lines of a drill to which nothing happens.
const tellEvery = 10 * time.Second

// drillLines writes a line for all that happens. On a terminal the last line is the present moment, elsewhere that is
// written now and then.
type drillLines struct {
	live bool

	mu    sync.Mutex
	out   io.Writer
	told  time.Duration
	drawn bool
}

// Tell implements drill.Progress.
func (l *drillLines) Tell(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wipe()
	fmt.Fprintln(l.out, text)
}

// Tick implements drill.Progress.
func (l *drillLines) Tick(s drill.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p99 := "?"
	if s.P99MS >= 0 {
		p99 = fmt.Sprintf("%.0fms", s.P99MS)
	}
	line := fmt.Sprintf("%s of %s  %d/s  p99 %s  %d acknowledged  %d blows  leases %s  %s",
		s.Elapsed.Round(time.Second), s.Duration, s.Acked, p99, s.Total, s.Blows, orDash(s.Leases), s.Phase)
	switch {
	case l.live:
		l.wipe()
		fmt.Fprint(l.out, "\x1b[?7l"+line+"\x1b[?7h") // cut at the edge, not wrapped: only one line can be wiped
		l.drawn = true
	case s.Elapsed >= l.told+tellEvery:
		l.told = s.Elapsed
		fmt.Fprintln(l.out, line)
	}
}

// wipe clears the line that is the present moment.
func (l *drillLines) wipe() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
		l.drawn = false
	}
}

func (l *drillLines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wipe()
	if l.live {
		fmt.Fprintln(l.out)
	}
}
