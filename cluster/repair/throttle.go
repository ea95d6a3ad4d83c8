package repair

import (
	"context"
	"sync"
	"time"
)

// throttle is a token bucket, in bytes. Who takes more than there is waits until the debt is paid, so that requests of
// any size pass at the rate. Its burst is what the rate gives in burstTime, and at least one chunk.
type throttle struct {
	mu     sync.Mutex
	rate   float64 // bytes a second
	tokens float64 // negative: owed
	at     time.Time
	// taken counts what was taken and not given back; waited says that somebody had to wait since it was last asked.
	taken  int64
	waited bool
}

const burstTime = 50 * time.Millisecond

func newThrottle(rate float64) *throttle {
	return &throttle{rate: rate, tokens: chunkSize, at: time.Now()}
}

func (b *throttle) refillLocked(now time.Time) {
	b.tokens += b.rate * now.Sub(b.at).Seconds()
	b.tokens = min(b.tokens, max(b.rate*burstTime.Seconds(), chunkSize))
	b.at = now
}

// setRate changes the rate from now on.
func (b *throttle) setRate(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked(time.Now())
	b.rate = rate
}

// take takes n bytes and waits until they are there; if ctx ends first they are given back, and the cause is returned.
func (b *throttle) take(ctx context.Context, n int) error {
	b.mu.Lock()
	b.refillLocked(time.Now())
	b.tokens -= float64(n)
	b.taken += int64(n)
	pause := time.Duration(0)
	if b.tokens < 0 {
		pause, b.waited = time.Duration(-b.tokens/b.rate*float64(time.Second)), true
	}
	b.mu.Unlock()
	if pause == 0 {
		return context.Cause(ctx)
	}
	if err := sleep(ctx, pause); err != nil {
		b.giveBack(n)
		return err
	}
	return nil
}

// giveBack returns what was taken and not used.
func (b *throttle) giveBack(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens += float64(n)
	b.taken -= int64(n)
}

// sleep waits; it returns the cause if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
