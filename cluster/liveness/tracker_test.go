package liveness

import (
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

type handClock struct{ now time.Duration }

func (c *handClock) read() time.Duration { return c.now }

func newTestTracker() (*Tracker, *handClock) {
	c := &handClock{now: time.Hour}
	return NewTracker(Limits{Silence: 3 * time.Second, DiskStall: 2 * time.Second}, c.read), c
}

func TestTracker_SilenceIsJudgedByElapsedTime(t *testing.T) {
	tr, clock := newTestTracker()
	tr.Beat("n1", 1, Health{Incarnation: 4})
	clock.now += 3 * time.Second
	if v := tr.Verdict("n1"); !v.Alive {
		t.Fatalf("at the limit: %+v", v)
	}
	clock.now += time.Millisecond
	if v := tr.Verdict("n1"); v.Alive || v.Reason == "" {
		t.Fatalf("past the limit: %+v", v)
	}
	tr.Beat("n1", 2, Health{Incarnation: 4})
	if v := tr.Verdict("n1"); !v.Alive {
		t.Fatalf("after a new beat: %+v", v)
	}
}

func TestTracker_NodeNeverHeardOfGetsTheWholeLimit(t *testing.T) {
	tr, clock := newTestTracker()
	if !tr.Verdict("n1").Alive {
		t.Fatal("condemned at the first look")
	}
	clock.now += 4 * time.Second
	if tr.Verdict("n1").Alive {
		t.Fatal("still alive without a word for 4 s")
	}
}

func TestTracker_RefusedConnectionIsEvidenceAtOnce(t *testing.T) {
	tr, _ := newTestTracker()
	tr.Beat("n1", 1, Health{Incarnation: 4})
	tr.Lost("n1", 4, false)
	if !tr.Verdict("n1").Alive {
		t.Fatal("a broken connection alone condemned the node")
	}
	tr.Lost("n1", 4, true)
	if tr.Verdict("n1").Alive {
		t.Fatal("connection refused, and still alive")
	}
	tr.Beat("n1", 1, Health{Incarnation: 5})
	if !tr.Verdict("n1").Alive {
		t.Fatal("the next life inherits the death of the last")
	}
}

// A7: what was said of or by an earlier life does not touch the present one.
func TestTracker_WordsOfAnEarlierLifeAreIgnored(t *testing.T) {
	tr, _ := newTestTracker()
	tr.Beat("n1", 1, Health{Incarnation: 5})
	tr.Lost("n1", 4, true)
	if !tr.Verdict("n1").Alive {
		t.Fatal("the death of life 4 ended life 5")
	}
	if tr.Beat("n1", 99, Health{Incarnation: 4, Leaving: true}) {
		t.Fatal("a delayed beat of life 4 was taken")
	}
	if seq, life := tr.Seq("n1"); seq != 1 || life != 5 {
		t.Fatalf("seq %d of life %d", seq, life)
	}
}

func TestTracker_StalledDiskAndLeavingLoseLeasesNoSpaceOnlyRoom(t *testing.T) {
	tr, _ := newTestTracker()
	for name, c := range map[string]struct {
		health      Health
		alive, room bool
	}{
		"well":               {Health{}, true, true},
		"disk slow":          {Health{DiskStalled: 2 * time.Second}, true, true},
		"disk hung":          {Health{DiskStalled: 2*time.Second + 1}, false, false},
		"leaving":            {Health{Leaving: true}, false, false},
		"disk under reserve": {Health{NoSpace: true}, true, false},
	} {
		tr.Beat("n1", 1, c.health)
		if v := tr.Verdict("n1"); v.Alive != c.alive || v.HasRoom != c.room {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestTracker_AnotherDiskOfTheNameCountsItsStartsAnew(t *testing.T) {
	tr, _ := newTestTracker()
	old, young := vtop.StorageID{1}, vtop.StorageID{2}
	tr.Beat("n1", 7, Health{Storage: old, Incarnation: 3})
	tr.Lost("n1", 3, true)
	if !tr.Beat("n1", 1, Health{Storage: young, Incarnation: 1}) || !tr.Verdict("n1").Alive {
		t.Fatalf("the disk that took the name over is not heard: %+v", tr.Verdict("n1"))
	}
	if v := tr.Verdict("n1"); v.Incarnation != 1 {
		t.Fatalf("incarnation %d, want that of the new disk", v.Incarnation)
	}
}

// H4: who was not running itself condemns nobody for a silence that was its own; what was seen with own eyes stays.
func TestTracker_ResetGivesTheWholeLimitAgain(t *testing.T) {
	tr, clock := newTestTracker()
	for _, n := range []vtop.NodeName{"n1", "n2", "n3"} {
		tr.Beat(n, 1, Health{Incarnation: 4})
	}
	tr.Lost("n2", 4, true)
	tr.Beat("n3", 2, Health{Incarnation: 4, DiskStalled: time.Minute})
	clock.now += time.Hour
	tr.Reset()
	for name, alive := range map[vtop.NodeName]bool{"n1": true, "n2": false, "n3": false} {
		if v := tr.Verdict(name); v.Alive != alive {
			t.Errorf("after a pause of the observer: %s is %+v", name, v)
		}
	}
	clock.now += 4 * time.Second
	if v := tr.Verdict("n1"); v.Alive {
		t.Errorf("silent for the whole limit since: %+v", v)
	}
}
