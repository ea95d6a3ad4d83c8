package harness

import (
	"context"
	"sync"
	"time"
)

// patience is the least that a wait is given: a limit is there to end a test that hangs, and a machine that is busy may need many
// times what it needs alone. What has to happen in time is measured by the test itself.
const patience = 2 * time.Minute

func patient(limit time.Duration) time.Duration { return max(limit, patience) }

// Nor does a limit measure the machine: where this process did not run, nothing else did that could have ended the wait.
const (
	tick = 100 * time.Millisecond
	// lateFrom is a gap between two ticks in which the machine was stopped, or had no processor for us.
	lateFrom = 500 * time.Millisecond
)

// stood measures for how long this process did not run, from the first limit on.
var stood = sync.OnceValue(func() *standstill {
	s := &standstill{}
	go s.watch(context.Background())
	return s
})

// standstill is the sum of all gaps.
type standstill struct {
	mu    sync.Mutex
	total time.Duration
}

func (s *standstill) watch(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
		gap := time.Since(last)
		if last = time.Now(); gap < lateFrom {
			continue
		}
		s.add(gap - tick)
	}
}

func (s *standstill) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += d
}

func (s *standstill) sum() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// StoodStill is for how long in all, since the first limit of this process began, the machine did not run it: it was suspended,
// all was stopped, or others had its processors.
func StoodStill() time.Duration { return stood().sum() }

// Limit is a time that runs only while the machine runs this process. Its methods are safe for concurrent use.
type Limit struct {
	deadline time.Time
	before   time.Duration
}

// NewLimit begins a limit.
func NewLimit(d time.Duration) Limit {
	before := stood().sum()
	return Limit{time.Now().Add(d), before}
}

// Over reports whether the limit has run out. It takes a moment before it says so, in which a standstill that ended just now
// comes to be known.
func (l Limit) Over() bool {
	over := func() bool { return time.Now().After(l.deadline.Add(stood().sum() - l.before)) }
	if !over() {
		return false
	}
	time.Sleep(2 * tick)
	return over()
}

// WithLimit gives a context that ends when the limit has run out.
func WithLimit(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	l := NewLimit(d)
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(tick):
				if l.Over() {
					cancel(context.DeadlineExceeded)
				}
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Within asks check until it returns nil, or gives its last error when the limit has run out.
func Within(d time.Duration, check func() error) error {
	for l := NewLimit(d); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return nil
		}
		if l.Over() {
			return err
		}
	}
}

// closed waits for a channel to be closed, false if the limit ran out first.
func closed(c <-chan struct{}, d time.Duration) bool {
	for l := NewLimit(d); ; {
		select {
		case <-c:
			return true
		case <-time.After(tick):
			if l.Over() {
				return false
			}
		}
	}
}
