package repair

import (
	"sync"
	"time"
)

// A budget is a rate that yields to clients: additive increase, multiplicative decrease. Pressure is how busy a node is
// with its clients, 0 to 100, as that node says itself: the own one ten times a second, a source with each answer.
//
//	at the beginning              rateFirst, and rateIdle as soon as the node says that it has no clients
//	pressure below pressureLow    nobody is there: the rate doubles each stepTime until pressure was met once, and rises by
//	                              rateStep after that; only while the rate is what holds the transfer back
//	between                       clients are there, and well: at most rateShared, to which the rate rises by rateStep
//	pressure from pressureHigh    the rate falls to rateCut of what really went through, once in cutTime
//	not known                     the rate stays
//
// There is one for the node that receives, and one for each source, since each may be busy for itself. All jobs without
// a rate of their own share them; the budget goes when the last such job has gone.
const (
	pressureLow  = 20
	pressureHigh = 60

	rateFirst  = 32 << 20
	rateIdle   = 256 << 20
	rateShared = 40 << 20 // of each node that has clients: they keep their latencies (docs/performance.md)
	rateFloor  = 4 << 20
	rateTop    = 16 << 30
	rateStep   = 4 << 20
	rateCut    = 0.6

	stepTime = 100 * time.Millisecond
	cutTime  = 200 * time.Millisecond
)

// budget is a throttle whose rate follows pressure.
type budget struct {
	*throttle

	mu sync.Mutex
	// met says that there was pressure: from then on the rate rises slowly.
	met                bool
	stepped, cut, seen time.Time
	// flow is what went through, in bytes a second, measured at each look.
	flow float64
	told int
}

func newBudget() *budget {
	now := time.Now()
	return &budget{throttle: newThrottle(rateFirst), stepped: now, cut: now.Add(-cutTime), seen: now, flow: rateFirst, told: -1}
}

// reset begins anew.
func (b *budget) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.met, b.stepped, b.cut, b.seen, b.flow, b.told = false, now, now.Add(-cutTime), now, rateFirst, -1
	b.setRate(rateFirst)
}

// observe takes in how busy the node is; negative if it does not say.
func (b *budget) observe(pressure int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.told = pressure
	switch {
	case pressure >= pressureHigh && now.Sub(b.cut) >= cutTime:
		b.measureLocked(now)
		b.met, b.cut, b.stepped = true, now, now
		b.setRate(max(min(b.current(), b.flow)*rateCut, rateFloor))
	case pressure >= pressureLow && pressure < pressureHigh:
		b.met = true
		if b.current() > rateShared {
			b.setRate(rateShared)
		}
		b.stepLocked(now, rateShared)
	case pressure >= 0 && pressure < pressureLow && !b.met && b.current() < rateIdle:
		b.setRate(rateIdle)
	case pressure >= 0 && pressure < pressureLow:
		b.stepLocked(now, rateTop)
	}
}

// stepLocked raises the rate towards top, once in stepTime, if it is what holds the transfer back.
func (b *budget) stepLocked(now time.Time, top float64) {
	if now.Sub(b.stepped) < stepTime {
		return
	}
	held := b.measureLocked(now)
	b.stepped = now
	if !held {
		return
	}
	rate := b.current()
	if b.met {
		rate += rateStep
	} else {
		rate *= 2
	}
	b.setRate(min(rate, max(top, b.current())))
}

// measureLocked measures the flow since the last look, and says whether the rate held it back.
func (b *budget) measureLocked(now time.Time) (held bool) {
	span := now.Sub(b.seen).Seconds()
	b.throttle.mu.Lock()
	taken := b.throttle.taken
	held = b.throttle.waited
	b.throttle.taken, b.throttle.waited = 0, false
	b.throttle.mu.Unlock()
	if span > 0 {
		b.flow = float64(taken) / span
	}
	b.seen = now
	return held
}

// current is the rate in bytes a second.
func (b *budget) current() float64 {
	b.throttle.mu.Lock()
	defer b.throttle.mu.Unlock()
	return b.throttle.rate
}

// pressure is what was told last.
func (b *budget) pressure() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told
}

// meter is the rate of the last few seconds, for people. One goroutine uses it.
type meter struct {
	at    time.Time
	bytes int64
	rate  float64
}

// look takes in how many bytes there have been in all, and returns bytes a second.
func (m *meter) look(total int64, now time.Time) int64 {
	span := now.Sub(m.at).Seconds()
	if m.at.IsZero() || total < m.bytes {
		m.at, m.bytes = now, total
		return int64(m.rate)
	}
	if span < 0.5 {
		return int64(m.rate)
	}
	fresh := float64(total-m.bytes) / span
	if m.rate == 0 {
		m.rate = fresh
	} else {
		m.rate += (fresh - m.rate) * min(span/5, 1)
	}
	m.at, m.bytes = now, total
	if m.rate < 1 {
		m.rate = 0
	}
	return int64(m.rate)
}
