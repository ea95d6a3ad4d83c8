package storage

import (
	"context"
	"io"
	"sync"
	"time"
)

// pacer holds background reading to a number of bytes in a second.
type pacer struct {
	rate  int64
	began time.Time
	mu    sync.Mutex
	taken int64
}

// newPacer returns a pacer; 0 or less is unbounded.
func newPacer(bytesPerSecond int64) *pacer { return &pacer{rate: bytesPerSecond, began: time.Now()} }

// take waits until n bytes more may be read, or for the end of ctx. What was not used in time is not made up for beyond
// a second.
func (p *pacer) take(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.rate <= 0 {
		return nil
	}
	wait := p.due(n, time.Now())
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// due counts n bytes and says how long to wait for them at a moment.
func (p *pacer) due(n int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	passed := now.Sub(p.began)
	if allowed := float64(p.rate) * passed.Seconds(); float64(p.taken) < allowed-float64(p.rate) {
		p.began, p.taken, passed = now.Add(-time.Second), 0, time.Second
	}
	p.taken += int64(n)
	return time.Duration(float64(p.taken)/float64(p.rate)*float64(time.Second)) - passed
}

// pacedReader reads at a pace, until its context ends.
type pacedReader struct {
	ctx  context.Context
	pace *pacer
	io.ReaderAt
}

func (r pacedReader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.pace.take(r.ctx, len(p)); err != nil {
		return 0, err
	}
	return r.ReaderAt.ReadAt(p, off)
}
