package group

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop"
)

// TestCoordinator_TellsAMemberNothingBeyondItsSession: whoever has its slots by now may have taken the member out, counted from the last
// word of the quorum to this process.
func TestCoordinator_TellsAMemberNothingBeyondItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or the sessions could end while the machine is held up
		w := newWorld(t, 1)
		c := w.start("n1")
		w.grant("g", "n1")
		w.grant("h", "n1")
		w.machine.Leases().Expire()
		w.machine.Leases().SetDeadline(10 * time.Second) // the quorum's last word came at 0
		short := joinRequest("h", "")
		short.Session = 6 * time.Second
		claims := map[string]Claim{"g": w.memberOf(c, joinRequest("g", "")), "h": w.memberOf(c, short)}
		for _, at := range []struct {
			silence time.Duration
			g, h    error
		}{{5 * time.Second, nil, nil}, {6 * time.Second, nil, ErrNotAvailable}, {9 * time.Second, nil, ErrNotAvailable}, {10 * time.Second, ErrNotAvailable, ErrNotAvailable}} {
			w.set(func() { w.clock = at.silence })
			for id, want := range map[string]error{"g": at.g, "h": at.h} {
				if err := c.Heartbeat(t.Context(), id, claims[id]); !errors.Is(err, want) {
					t.Errorf("heartbeat of a member of %s after %s without a word from the quorum: %v, want %v", id, at.silence, err, want)
				}
				if s := c.Sync(t.Context(), Sync{Group: id, Claim: claims[id]}); !errors.Is(s.Err, want) {
					t.Errorf("sync of a member of %s after %s without a word from the quorum: %v, want %v", id, at.silence, s.Err, want)
				}
			}
		}
		w.machine.Leases().SetDeadline(20 * time.Second)
		for id, claim := range claims {
			if err := c.Heartbeat(t.Context(), id, claim); err != nil {
				t.Errorf("heartbeat of a member of %s when the quorum has answered: %v", id, err)
			}
		}
	})
}

// TestLimits_LeaseTime: a coordinator that was replaced without hearing of it answers for a lease time.
func TestLimits_LeaseTime(t *testing.T) {
	l := DefaultLimits()
	if err := l.CheckLease(l.ConsumerSession); err != nil {
		t.Errorf("a lease of one session: %v", err)
	}
	if err := l.CheckLease(l.ConsumerSession + 1); err == nil || !strings.Contains(err.Error(), "45s") {
		t.Errorf("a lease that outlives sessions: %v", err)
	}
	w := newWorld(t, 1)
	_, err := New(Config{
		Self: "n1", Incarnation: 1, Machine: w.machine, Clock: func() time.Duration { return 0 }, Propose: w.propose, LeaseTime: time.Minute,
		CaughtUp: func() bool { return true }, Alive: func(vtop.NodeName) bool { return true },
	})
	if err == nil || !strings.Contains(err.Error(), "lease time") {
		t.Errorf("a coordinator with a lease of a minute: %v", err)
	}
}
