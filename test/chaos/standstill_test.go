//go:build cluster

package chaos

import (
	"context"
	"sync"
	"time"
)

// standstill measures for how long this process did not run, as when a machine is suspended or all its processes are stopped: then
// nothing could heal either, and no limit of this test may run out for it.
type standstill struct {
	mu    sync.Mutex
	total time.Duration
}

// stood is that of this process.
var stood standstill

const (
	standstillTick = 200 * time.Millisecond
	standstillFrom = 3 * time.Second // a gap between ticks that is none of a machine that is merely busy
)

// watch measures until ctx ends, and tells each standstill.
func (s *standstill) watch(ctx context.Context, tell func(time.Duration)) {
	last := time.Now()
	for ctx.Err() == nil {
		pause(ctx, standstillTick)
		gap := time.Since(last)
		if last = time.Now(); gap < standstillFrom {
			continue
		}
		s.mu.Lock()
		s.total += gap
		s.mu.Unlock()
		tell(gap)
	}
}

func (s *standstill) sum() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
