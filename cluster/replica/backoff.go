package replica

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	shortestPause = 20 * time.Millisecond
	longestPause  = time.Second
)

// pauseAfter is how long to wait after n refusals or failures in a row: it doubles, is bounded, and is spread so that many
// do not come back at once.
func pauseAfter(n int) time.Duration {
	d := longestPause
	if n < 6 {
		d = min(shortestPause<<n, longestPause)
	}
	return d/2 + rand.N(d/2+1)
}

// backoff counts failures in a row.
type backoff struct{ failures int }

func (b *backoff) reset() { b.failures = 0 }

// wait pauses; false if ctx ended first.
func (b *backoff) wait(ctx context.Context) bool {
	t := time.NewTimer(pauseAfter(b.failures))
	defer t.Stop()
	b.failures++
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
