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

func TestStaleEnds_AreThoseOfADeposedLeaderAlone(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	l := &load{}
	acks := []harness.Ack{{Offset: 0, At: at(10)}, {Offset: 1, At: at(20)}}
	for i, c := range []struct {
		epoch int32
		asked int
		stale int
	}{{1, 15, 0}, {1, 25, 1}, {2, 25, 0}, {1, 5, 0}} {
		l.ends[0] = []end{{offset: 1, epoch: c.epoch, asked: at(c.asked), answered: at(c.asked + 1)}}
		if got := l.staleEnds(0, acks, []int32{1, 2}, func(end) {}); got != c.stale {
			t.Errorf("case %d: %d stale, want %d", i, got, c.stale)
		}
	}
}
