//go:build cluster

package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// The checks that are made here can fail.
func TestLeaseWatch_TwoHoldersOfOneEpoch(t *testing.T) {
	l := newLeaseWatch(nil)
	lease := func(holder string, epoch int32) []harness.Lease {
		return []harness.Lease{{Topic: "t", Range: 1, Holder: holder, Epoch: epoch}}
	}
	l.saw("n1", lease("n1", 4))
	l.saw("n2", lease("", 4))
	l.saw("n2", lease("n2", 5))
	l.saw("n3", lease("n1", 4)) // behind, and right
	if breaches, epochs := l.found(); len(breaches) != 0 || epochs != 2 {
		t.Fatalf("%d epochs, breaches %v", epochs, breaches)
	}
	l.saw("n3", lease("n3", 5))
	if breaches, _ := l.found(); len(breaches) != 1 || !strings.Contains(breaches[0].Error(), "K6") {
		t.Errorf("two holders of one epoch: %v", breaches)
	}
}

func TestWhole_SaysWhatIsMissing(t *testing.T) {
	good := func() harness.Lease {
		l := harness.Lease{Topic: "t", State: "serving", Floor: 9, HighWatermark: 9, LogEnd: 9}
		for _, state := range []string{"leading", "following", "following"} {
			l.Replicas = append(l.Replicas, harness.Replica{Role: "voter", State: state, LogEnd: 9})
		}
		return l
	}
	if err := wholeLeases([]harness.Lease{good()}); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(l *harness.Lease){
		"two replicas":   func(l *harness.Lease) { l.Replicas = l.Replicas[:2] },
		"a learner":      func(l *harness.Lease) { l.Replicas[1].Role = "learner" },
		"a lost replica": func(l *harness.Lease) { l.Replicas[2].State = "lost" },
		"one behind":     func(l *harness.Lease) { l.Replicas[2].LogEnd = 8 },
		"no floor":       func(l *harness.Lease) { l.Floor = 8 },
		"not served":     func(l *harness.Lease) { l.State = "promoting" },
	} {
		l := good()
		if spoil(&l); wholeLeases([]harness.Lease{l}) == nil {
			t.Errorf("%s: taken for whole", name)
		}
	}
}

func TestDeposed_IsWhoWasAskedBehindTheNextGrant(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	grants := []grant{{3, at(30)}, {2, at(20)}, {1, at(10)}}
	for i, c := range []struct {
		epoch   int32
		asked   int64
		deposed bool
	}{{1, 15, false}, {1, 20, true}, {1, 35, true}, {2, 25, false}, {2, 31, true}, {3, 99, false}} {
		if got := deposed(end{epoch: c.epoch, asked: at(c.asked)}, grants); got != c.deposed {
			t.Errorf("case %d: %v", i, got)
		}
	}
}

func TestJustGranted_IsALeaseTimeBehindAGrant(t *testing.T) {
	granted := time.UnixMilli(1000)
	last := leaseTime + grantSlack
	for _, c := range []struct {
		after, stood time.Duration
		want         bool
	}{{-1, 0, false}, {0, 0, true}, {leaseTime, 0, true}, {last, 0, false}, {last, time.Second, true}, {last + time.Second, time.Second, false}} {
		if got := justGranted([]grant{{2, granted}}, granted.Add(c.after), c.stood); got != c.want {
			t.Errorf("%s behind the grant, the machine stood still for %s: %v", c.after, c.stood, got)
		}
	}
}

func TestUnstepped_IsTheTimeOfAClockThatWasNotStepped(t *testing.T) {
	for _, by := range []time.Duration{6 * time.Hour, -12 * time.Hour} {
		w := &world{began: time.Now().Add(-time.Hour)}
		w.stepped.Store(by.Milliseconds())
		for _, ago := range []time.Duration{0, time.Minute, time.Hour} {
			moment := time.Now().Add(-ago)
			for _, stamp := range []time.Time{moment, moment.Add(by)} {
				if got := w.unstepped(stamp); !got.Equal(moment) {
					t.Errorf("a clock stepped by %s: %s is taken for %s, want %s", by, stamp, got, moment)
				}
			}
		}
	}
}
