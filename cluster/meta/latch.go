package meta

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// latch is set once and never unset.
type latch struct {
	once sync.Once
	ch   chan struct{}
}

func newLatch() *latch { return &latch{ch: make(chan struct{})} }

func (l *latch) set() { l.once.Do(func() { close(l.ch) }) }

func (l *latch) isSet() bool {
	select {
	case <-l.ch:
		return true
	default:
		return false
	}
}

// wait returns nil once the latch is set, else the cause of whichever context ended.
func (l *latch) wait(ctx, owner context.Context) error {
	select {
	case <-l.ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-owner.Done():
		return context.Cause(owner)
	}
}

// sleep waits for d and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// complain says the same thing at most once in a while, and what is new at once. It belongs to one goroutine.
type complain struct {
	log   hclog.Logger
	every time.Duration
	last  string
	at    time.Time
}

func (c *complain) say(text string, args ...any) {
	key := text
	for _, a := range args {
		if s, ok := a.(string); ok {
			key += "\x00" + s
		}
	}
	if key == c.last && time.Since(c.at) < c.every {
		return
	}
	c.last, c.at = key, time.Now()
	c.log.Warn(text, args...)
}

// backoff doubles a pause up to a limit.
type backoff struct{ next, limit time.Duration }

func newBackoff(first, limit time.Duration) *backoff { return &backoff{next: first, limit: limit} }

func (b *backoff) pause() time.Duration {
	d := b.next
	b.next = min(b.next*2, b.limit)
	return d
}
