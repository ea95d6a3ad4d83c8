package repair

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// snapshotOf has segments of 10 records from segment first to before last; the log start is in the first.
func snapshotOf(first, last int) *transport.Snapshot {
	s := &transport.Snapshot{Epoch: 1, Pin: 7, LogStart: vtop.Offset(10 * first), SealedEnd: vtop.Offset(10 * last), Producers: []byte{byte(first)}}
	for i := first; i < last; i++ {
		s.Segments = append(s.Segments, transport.SealedSegment{Base: vtop.Offset(10 * i), End: vtop.Offset(10 * (i + 1)), Bytes: 1, Root: [32]byte{byte(i + 1)}})
	}
	return s
}

func TestPlan(t *testing.T) {
	whole := func(bases ...vtop.Offset) func(vtop.Offset) bool {
		return func(base vtop.Offset) bool {
			for _, b := range bases {
				if b == base {
					return true
				}
			}
			return false
		}
	}
	rows := map[string]struct {
		snapshots []*transport.Snapshot
		whole     func(vtop.Offset) bool
		giveUp    bool
		want      string
	}{
		"one snapshot":                    {[]*transport.Snapshot{snapshotOf(0, 3)}, whole(), false, "[0 30) from state 0, gap 0 "},
		"the next leader knows more":      {[]*transport.Snapshot{snapshotOf(0, 3), snapshotOf(0, 5)}, whole(), false, "[0 50) from state 0, gap 0 "},
		"retention went on":               {[]*transport.Snapshot{snapshotOf(0, 3), snapshotOf(2, 5)}, whole(), false, "[0 50) from state 0, gap 0 "},
		"what it took is given up":        {[]*transport.Snapshot{snapshotOf(0, 3), snapshotOf(2, 5)}, whole(0), true, "[20 50) from state 2, gap 10 [10, 20)"},
		"all it took was here":            {[]*transport.Snapshot{snapshotOf(0, 3), snapshotOf(2, 5)}, whole(0, 10), true, "[20 50) from state 2, gap 0 "},
		"beyond what was promised":        {[]*transport.Snapshot{snapshotOf(0, 1), snapshotOf(0, 4), snapshotOf(3, 5)}, whole(), true, "[30 50) from state 3, gap 10 [0, 10)"},
		"beyond all that was sealed":      {[]*transport.Snapshot{snapshotOf(0, 3), {Epoch: 1, LogStart: 35, SealedEnd: 35}}, whole(0), false, "nothing, gap 20 [10, 30)"},
		"exactly all that was sealed":     {[]*transport.Snapshot{snapshotOf(0, 3), {Epoch: 1, LogStart: 30, SealedEnd: 30}}, whole(0, 10, 20), false, "[0 30) from state 0, gap 0 "},
		"what is lost is lost in parts":   {[]*transport.Snapshot{snapshotOf(0, 4), snapshotOf(3, 4)}, whole(10), true, "[30 40) from state 3, gap 20 [0, 10), [20, 30)"},
		"nothing sealed, and nothing yet": {[]*transport.Snapshot{{Epoch: 1}}, whole(), false, "nothing, gap 0 "},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			var p plan
			for _, s := range row.snapshots {
				p.take(s, row.whole)
			}
			if row.giveUp {
				p.giveUp(row.whole)
			}
			gap, names := p.gap()
			got := fmt.Sprintf("nothing, gap %d %s", gap, names)
			if n := len(p.segments); n > 0 {
				got = fmt.Sprintf("[%d %d) from state %d, gap %d %s", p.segments[0].Base, p.end(), p.producers[0], gap, names)
			}
			if got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

// Whatever the leaders answer, a plan is continuous, has the producer state of its base, reaches the newest snapshot's end,
// and counts as lost exactly what was promised, is not in it, and was not whole.
func TestPlan_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p plan
		here := map[vtop.Offset]bool{}
		whole := func(base vtop.Offset) bool { return here[base] }
		first, last := rapid.IntRange(0, 3).Draw(t, "first"), 0
		last = first + rapid.IntRange(1, 6).Draw(t, "sealed")
		promised := span{vtop.Offset(10 * first), vtop.Offset(10 * last)}
		p.take(snapshotOf(first, last), whole)
		for range rapid.IntRange(0, 6).Draw(t, "turns") {
			for _, seg := range p.segments {
				if rapid.Bool().Draw(t, "arrives") {
					here[seg.Base] = true
				}
			}
			last += rapid.IntRange(0, 2).Draw(t, "more sealed")
			first = min(first+rapid.IntRange(0, 3).Draw(t, "reclaimed"), last)
			p.take(snapshotOf(first, last), whole)
			if rapid.Bool().Draw(t, "give up") {
				p.giveUp(whole)
			}
			checkPlan(t, &p, promised, here, first, last)
		}
	})
}

func checkPlan(t *rapid.T, p *plan, promised span, here map[vtop.Offset]bool, first, last int) {
	wanted := map[vtop.Offset]bool{}
	for i, seg := range p.segments {
		wanted[seg.Base] = true
		if i > 0 && seg.Base != p.segments[i-1].End {
			t.Fatalf("segment %d does not follow %d", seg.Base, p.segments[i-1].End)
		}
		if seg.pinned != (seg.Base >= vtop.Offset(10*first)) {
			t.Fatalf("segment %d pinned: %t, the snapshot begins at %d", seg.Base, seg.pinned, 10*first)
		}
	}
	if len(p.segments) > 0 && (p.end() != vtop.Offset(10*last) || p.producers[0] != byte(p.segments[0].Base/10)) {
		t.Fatalf("plan from %d to %d with state %v", p.segments[0].Base, p.end(), p.producers)
	}
	lost := int64(0)
	for at := promised.from; at < promised.to; at += 10 {
		if !wanted[at] && !here[at] {
			lost += 10
		}
	}
	if gap, names := p.gap(); gap != lost {
		t.Fatalf("gap of %d (%s), %d are lost", gap, names, lost)
	}
}

// What the leader lists must be what the catalogue has.
func TestSnapshotAgrees(t *testing.T) {
	s := snapshotOf(1, 4)
	known := func(edit func(base vtop.Offset, end *vtop.Offset, root *[32]byte) bool) func(vtop.Offset) (vtop.Offset, [32]byte, bool) {
		return func(base vtop.Offset) (vtop.Offset, [32]byte, bool) {
			end, root := base+10, [32]byte{byte(base/10 + 1)}
			ok := edit(base, &end, &root)
			return end, root, ok
		}
	}
	same := func(vtop.Offset, *vtop.Offset, *[32]byte) bool { return true }
	if behind, err := snapshotAgrees(s, 10, known(same)); behind || err != nil {
		t.Errorf("the same: %t, %v", behind, err)
	}
	if behind, err := snapshotAgrees(s, 10, known(func(base vtop.Offset, _ *vtop.Offset, _ *[32]byte) bool { return base < 30 })); !behind || err != nil {
		t.Errorf("not applied yet: %t, %v", behind, err)
	}
	if behind, err := snapshotAgrees(s, 20, known(func(base vtop.Offset, _ *vtop.Offset, _ *[32]byte) bool { return base >= 20 })); behind || err != nil {
		t.Errorf("reclaimed: %t, %v", behind, err)
	}
	for name, edit := range map[string]func(base vtop.Offset, end *vtop.Offset, root *[32]byte) bool{
		"another root": func(_ vtop.Offset, _ *vtop.Offset, root *[32]byte) bool { root[9] ^= 1; return true },
		"another end":  func(_ vtop.Offset, end *vtop.Offset, _ *[32]byte) bool { *end++; return true },
	} {
		if _, err := snapshotAgrees(s, 10, known(edit)); !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
