package protocol

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
)

// slowCommitted is the obvious twin of Set.Committed: try every offset, count the members that have it.
func slowCommitted(s Set, m map[vtop.ReplicaID]vtop.Offset, highest vtop.Offset) vtop.Offset {
	for o := highest; o >= 0; o-- {
		have := 0
		for _, id := range s {
			if end, ok := m[id]; ok && end >= o {
				have++
			}
		}
		if 2*have > len(s) {
			return o
		}
	}
	return NoOffset
}

func genSet(t *rapid.T, label string, atLeast int) Set {
	return NewSet(rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 9), func(i int) vtop.ReplicaID { return vtop.ReplicaID(i) }), atLeast, 9).Draw(t, label)...)
}

func genMarks(t *rapid.T) (Marks, map[vtop.ReplicaID]vtop.Offset) {
	twin := map[vtop.ReplicaID]vtop.Offset{}
	var m Marks
	for range rapid.IntRange(0, 20).Draw(t, "acks") {
		id := vtop.ReplicaID(rapid.IntRange(1, 9).Draw(t, "replica"))
		end := vtop.Offset(rapid.IntRange(0, 6).Draw(t, "end"))
		m.raise(id, end)
		if have, ok := twin[id]; !ok || have < end {
			twin[id] = end
		}
	}
	return m, twin
}

func TestSet_CommittedEqualsTheSlowTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSet(t, "set", 0)
		m, twin := genMarks(t)
		if got, want := s.Committed(m), slowCommitted(s, twin, 6); got != want {
			t.Fatalf("set %v marks %v: committed %d, want %d", s, m, got, want)
		}
	})
}

func TestVoters_CommittedNeedsBothSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := Voters{Present: genSet(t, "present", 1), Next: genSet(t, "next", 1)}
		m, twin := genMarks(t)
		want := min(slowCommitted(v.Present, twin, 6), slowCommitted(v.Next, twin, 6))
		if got := v.Committed(m); got != want {
			t.Fatalf("voters %v marks %v: committed %d, want %d", v, m, got, want)
		}
	})
}

// TestChange_QuorumsOfOneStepMeet: any majority before a change and any majority after it share a member; it is why
// one replica moves at a time. Two steps need not: that is what the settle mark is for.
func TestChange_QuorumsOfOneStepMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSet(t, "set", 1)
		c := Change{ChangeKind(rapid.IntRange(1, 2).Draw(t, "kind")), vtop.ReplicaID(rapid.IntRange(1, 9).Draw(t, "replica"))}
		next, err := c.Of(s)
		if err != nil {
			return
		}
		if s.Majority()+next.Majority() <= len(NewSet(append(slices.Clone(s), next...)...)) {
			t.Fatalf("majorities of %v and %v need not meet", s, next)
		}
		if len(next) != len(s)+1 && len(next) != len(s)-1 {
			t.Fatalf("%v to %v is not one step", s, next)
		}
	})
	if two := NewSet(1, 2, 3).Without(2).With(4).With(5); NewSet(1, 2, 3).Majority()+two.Majority() > 5 {
		t.Fatalf("three steps were expected to lose the intersection")
	}
}

// TestLeading_NeverGoesBack: whatever acknowledgements and changes come, the high watermark rises, the report's floor
// is never above it, nothing is reported while a change is in flight, and strangers, the lost and other epochs count
// for nothing (I1, I10).
func TestLeading_NeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Members{Version: 1, Voters: NewSet(1, 2, 3), Learners: NewSet(4, 5)}
		l, err := Lead(7, 2, 1, m, 0)
		if err != nil {
			t.Fatal(err)
		}
		set := Settlement{Mark: 2, Quorum: NoOffset}
		twin := map[vtop.ReplicaID]vtop.Offset{}
		high := l.HighWatermark()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				c := Change{ChangeKind(rapid.IntRange(1, 2).Draw(t, "kind")), vtop.ReplicaID(rapid.IntRange(1, 6).Draw(t, "replica"))}
				l.Begin(c, 20, set)
			case 1:
				if l.Voters().Joint() && rapid.Bool().Draw(t, "taken") {
					m.Version, m.Voters = m.Version+1, l.Voters().Next
					m.Learners = NewSet(4, 5)
					for _, id := range m.Voters {
						m.Learners = m.Learners.Without(id)
					}
					set = Settlement{Mark: 20, Quorum: NoOffset}
					l.Applied(m)
				} else {
					l.Refused(m.Version)
				}
			case 2:
				if p, ok := l.Position(); ok {
					if l.Voters().Joint() || p.Floor != l.HighWatermark() || p.Quorum > p.Floor {
						t.Fatalf("report %+v of %+v", p, l)
					}
					set.Quorum = max(set.Quorum, p.Quorum)
				}
			default:
				id := vtop.ReplicaID(rapid.IntRange(1, 7).Draw(t, "from"))
				end := vtop.Offset(rapid.IntRange(0, 20).Draw(t, "end"))
				epoch := vtop.Epoch(rapid.IntRange(6, 8).Draw(t, "epoch"))
				l.Acknowledge(epoch, id, end)
				if epoch == 7 && end >= twin[id] {
					twin[id] = end
				}
			}
			if l.HighWatermark() < high {
				t.Fatalf("high watermark went from %d to %d", high, l.HighWatermark())
			}
			if now := l.HighWatermark(); now > high {
				if slow := slowCommitted(l.Voters().Present, twin, 20); now > slow {
					t.Fatalf("high watermark %d, a majority of %v has %d", now, l.Voters().Present, slow)
				}
				high = now
			}
		}
	})
}
