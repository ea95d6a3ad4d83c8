package kafka

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// budget bounds bytes held by all connections together (I13). Waiters are served in their order, so a large
// request is not starved by small ones.
type budget struct {
	sem  *semaphore.Weighted
	size int64
	used atomic.Int64
}

func newBudget(size int64) *budget { return &budget{sem: semaphore.NewWeighted(size), size: size} }

// acquire waits until n bytes are free; more than the whole budget counts as the whole. It returns what release
// must be given, or ctx's error.
func (b *budget) acquire(ctx context.Context, n int64) (int64, error) {
	n = min(n, b.size)
	if n <= 0 {
		return 0, nil
	}
	if err := b.sem.Acquire(ctx, n); err != nil {
		return 0, err
	}
	b.used.Add(n)
	return n, nil
}

func (b *budget) release(n int64) {
	if n > 0 {
		b.used.Add(-n)
		b.sem.Release(n)
	}
}
