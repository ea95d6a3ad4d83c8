package liveness

import (
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

type handClock struct{ now time.Duration }

func (c *handClock) read() time.Duration { return c.now }

// pass lets time go by in steps in which the tracker is used, as it is in a process that runs.
func (c *handClock) pass(tr *Tracker, d time.Duration) {
	for ; d > time.Second; d -= time.Second {
		c.now += time.Second
		tr.Now()
	}
	c.now += d
}

func newTestTracker() (*Tracker, *handClock) {
	c := &handClock{now: time.Hour}
	return NewTracker(Limits{Silence: 3 * time.Second, DiskStall: 2 * time.Second}, c.read), c
}

func TestTracker_SilenceIsJudgedByElapsedTime(t *testing.T) {
	tr, clock := newTestTracker()
	tr.Beat("n1", 1, Health{Incarnation: 4})
	clock.pass(tr, 3*time.Second)
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
	clock.pass(tr, 4*time.Second)
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

// H4: who was not running itself condemns nobody for a silence that was its own, whoever looks first; what was seen with own
// eyes stays.
func TestTracker_OwnPauseGivesTheWholeLimitAgain(t *testing.T) {
	tr, clock := newTestTracker()
	for _, n := range []vtop.NodeName{"n1", "n2", "n3"} {
		tr.Beat(n, 1, Health{Incarnation: 4})
	}
	clock.pass(tr, 2900*time.Millisecond)
	tr.Lost("n2", 4, true)
	tr.Beat("n3", 2, Health{Incarnation: 4, DiskStalled: time.Minute})
	before, _ := tr.Now()
	clock.now += time.Hour
	for name, alive := range map[vtop.NodeName]bool{"n1": true, "n2": false, "n3": false} {
		if v := tr.Verdict(name); v.Alive != alive {
			t.Errorf("after a pause of the observer: %s is %+v", name, v)
		}
	}
	if now, slept := tr.Now(); now != before || slept != time.Hour {
		t.Errorf("awake for %s, asleep for %s", now-before, slept)
	}
	clock.pass(tr, 3*time.Second)
	if v := tr.Verdict("n1"); !v.Alive {
		t.Errorf("silent for the limit since: %+v", v)
	}
	clock.pass(tr, time.Millisecond)
	if v := tr.Verdict("n1"); v.Alive {
		t.Errorf("silent for more than the whole limit since: %+v", v)
	}
}

// H4: what is shorter than half the silence limit is no pause, or a slow look at others would keep the dead alive.
func TestTracker_ShortGapsCount(t *testing.T) {
	tr, clock := newTestTracker()
	tr.Beat("n1", 1, Health{Incarnation: 4})
	for range 2 {
		clock.now += 1500 * time.Millisecond
		tr.Now()
	}
	clock.now += time.Millisecond
	if v := tr.Verdict("n1"); v.Alive {
		t.Errorf("silent for more than the limit: %+v", v)
	}
}

// E9, I7: who beats and takes up no metadata does not hear that its lease went. It is unfit once it lacks for the whole limit what was known here, by its own word and
// not by the age of that word, and fit again when it has it.
func TestTracker_WhoTakesUpNoMetadataIsUnfit(t *testing.T) {
	clock := &handClock{}
	tr := NewTracker(Limits{Silence: 3 * time.Second, DiskStall: 2 * time.Second, Behind: 10 * time.Second}, clock.read)
	beat := func(applied uint64) Verdict {
		tr.Beat("n1", 1, Health{Incarnation: 1, Applied: applied})
		return tr.Verdict("n1")
	}
	for i := range uint64(10) { // from 0 s to 9 s this node applies 100 to 109
		tr.Applied(100 + i)
		if v := beat(5); !v.Alive {
			t.Fatalf("after %d s: %+v", i, v)
		}
		clock.now += time.Second
	}
	if v := beat(99); v.Alive || v.HasRoom || v.Reason != "does not take up the metadata: has applied 99, and 100 was known 10s before" {
		t.Errorf("at 10 s with 99: %+v", v)
	}
	if v := beat(100); !v.Alive {
		t.Errorf("at 10 s with 100: %+v", v)
	}
	clock.pass(tr, 2*time.Second)
	if v := tr.Verdict("n1"); !v.Alive {
		t.Errorf("what it had applied when it spoke was enough: %+v", v)
	}
	if v := beat(101); v.Alive {
		t.Errorf("at 12 s with 101: %+v", v)
	}
	tr.Beat("n1", 1, Health{Incarnation: 1, NoSpace: true})
	if v := tr.Verdict("n1"); v.Alive || !strings.HasPrefix(v.Reason, "no space on the data disk; ") {
		t.Errorf("without room: %+v", v)
	}
	clock.now += time.Hour
	if v := beat(0); !v.Alive {
		t.Errorf("after a pause of the observer: %+v", v)
	}
	clock.pass(tr, time.Minute)
	tr.Applied(200)
	if v := beat(0); !v.Alive {
		t.Errorf("what is known for a moment only is asked of nobody: %+v", v)
	}
}
