package repair

import (
	"context"
	"errors"
	"testing"
	"time"
)

// drain takes as fast as the throttle lets it, for so long, and returns bytes a second.
func drain(t *testing.T, b *throttle, d time.Duration, each func()) float64 {
	t.Helper()
	began, total := time.Now(), 0
	for time.Since(began) < d {
		ok(t, b.take(context.Background(), chunkSize))
		total += chunkSize
		if each != nil {
			each()
		}
	}
	return float64(total) / time.Since(began).Seconds()
}

func TestThrottle_HoldsItsRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newThrottle(3 << 20)
		if rate := drain(t, b, 20*time.Second, nil); rate < 2.9*(1<<20) || rate > 3.2*(1<<20) {
			t.Errorf("rate %.0f", rate)
		}
		b.setRate(100 << 20)
		if rate := drain(t, b, 20*time.Second, nil); rate < 97*(1<<20) || rate > 103*(1<<20) {
			t.Errorf("rate %.0f", rate)
		}
		// Case: what is given back is there for others, and a wait that is ended takes nothing.
		b.setRate(1)
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("over")
		cancel(why)
		before := b.taken
		if err := b.take(ctx, chunkSize); !errors.Is(err, why) {
			t.Errorf("take: %v", err)
		}
		if b.taken != before {
			t.Errorf("%d bytes were taken for nothing", b.taken-before)
		}
	})
}

// L3: an idle node gives all it has within seconds, a busy one its floor, and one that was busy comes back gently.
func TestBudget_YieldsToClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBudget()
		pressure := 0
		look := func() { b.observe(pressure) }
		drain(t, b.throttle, 3*time.Second, look)
		if rate := b.current(); rate < 1<<30 {
			t.Errorf("after 3 s of idleness the rate is %.0f", rate)
		}
		pressure = 90
		drain(t, b.throttle, 10*time.Second, look)
		if rate := b.current(); rate != rateFloor {
			t.Errorf("after 10 s of pressure the rate is %.0f", rate)
		}
		pressure = 50
		drain(t, b.throttle, 5*time.Second, look)
		if rate := b.current(); rate != rateShared {
			t.Errorf("beside clients that are well the rate went to %.0f", rate)
		}
		pressure = 90
		drain(t, b.throttle, 10*time.Second, look)
		pressure = 10
		drain(t, b.throttle, time.Second, look)
		if rate := b.current(); rate < rateFloor+2*rateStep || rate > rateFloor+11*rateStep {
			t.Errorf("a second after the pressure the rate is %.0f", rate)
		}
		// Case: clients come where there were none.
		drain(t, b.throttle, 20*time.Second, look)
		pressure = 25
		look()
		if rate := b.current(); rate != rateShared {
			t.Errorf("the first client was met with a rate of %.0f", rate)
		}
		// Case: nobody knows.
		before := b.current()
		pressure = -1
		drain(t, b.throttle, 5*time.Second, look)
		if b.current() != before {
			t.Error("no information moved the rate")
		}
	})
}

// A rate that nothing uses up does not grow: pressure would have to bring it down from where nobody has been.
func TestBudget_GrowsOnlyWhileItHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBudget()
		for range 1000 {
			time.Sleep(100 * time.Millisecond) // 10 MiB/s, by something else
			ok(t, b.take(context.Background(), chunkSize))
			b.observe(0)
		}
		if rate := b.current(); rate != rateIdle {
			t.Errorf("the rate went to %.0f", rate)
		}
		b.observe(100)
		if rate := b.current(); rate > 0.7*10*(1<<20) {
			t.Errorf("pressure left a rate of %.0f, of 10 MiB/s that went through", rate)
		}
	})
}

func TestMeter_FollowsTheRate(t *testing.T) {
	var m meter
	now, total := time.Unix(1, 0), int64(0)
	for range 30 {
		total += 1 << 20
		m.look(total, now)
		now = now.Add(time.Second)
	}
	if rate := m.look(total, now); rate < 700<<10 || rate > 1<<20 {
		t.Errorf("rate %d of a MiB a second", rate)
	}
	for range 200 {
		now = now.Add(time.Second)
		m.look(total, now)
	}
	if rate := m.look(total, now); rate != 0 {
		t.Errorf("rate %d of nothing", rate)
	}
}
