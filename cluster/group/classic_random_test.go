package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestClassic_RandomWalks drives a group with clients that behave, misbehave, die and come back, through coordinators that
// come and go. classicWorld checks the invariants after each event; at the end the clients stop, and nobody may be
// left waiting.
func TestClassic_RandomWalks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newClassicWorld(t)
		w.limits.MaxMembers = rapid.IntRange(1, 8).Draw(t, "max members")
		w.limits.InitialDelay = time.Duration(rapid.IntRange(0, 2).Draw(t, "initial delay")) * time.Second
		walk := &classicWalk{classicWorld: w, draw: t}
		t.Repeat(map[string]func(*rapid.T){
			"join":      walk.joins_,
			"join back": walk.joinsBack,
			"sync":      walk.syncs_,
			"beat":      func(t *rapid.T) { w.beat(walk.someID(), walk.someGeneration()) },
			"leave":     func(t *rapid.T) { w.leave(walk.someID()) },
			"abandon":   walk.abandons,
			"commit":    func(t *rapid.T) { walk.commits() },
			"time":      func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond) },
			"fail over": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
					w.failOver()
				}
			},
			"rearm": func(t *rapid.T) { w.g.rearm(w.now); w.check() },
		})
		w.pass(time.Hour)
		w.wantState(classicEmpty, w.g.generation, 0)
		for n := ticket(1); n <= w.tickets; n++ {
			if w.joins[n] == nil && w.syncs[n] == nil && !w.gone[n] {
				t.Fatalf("ticket %d was never answered", n)
			}
		}
		if len(w.members) > 0 || len(w.g.pending) > 0 || !w.g.idle() {
			t.Fatalf("left behind: %d members stored, %d ids pending", len(w.members), len(w.g.pending))
		}
	})
}

type classicWalk struct {
	*classicWorld
	draw *rapid.T
}

// someID is that of a member, of one that was, or of nobody.
func (w *classicWalk) someID() string {
	known := []string{"", "nobody"}
	known = append(known, slices.Sorted(maps.Keys(w.g.members))...)
	known = append(known, slices.Sorted(maps.Keys(w.g.pending))...)
	if w.ids > 0 {
		known = append(known, fmt.Sprintf("c-%d", rapid.IntRange(1, w.ids).Draw(w.draw, "old id")))
	}
	return rapid.SampledFrom(known).Draw(w.draw, "member")
}

func (w *classicWalk) someGeneration() int32 {
	return w.g.generation - int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(w.draw, "behind"))
}

func (w *classicWalk) protocols() []Protocol {
	return rapid.SampledFrom([][]Protocol{
		{{"range", []byte("r")}, {"sticky", []byte("s")}}, {{"sticky", []byte("s2")}, {"range", nil}}, {{"range", []byte("r2")}}, {{"sticky", nil}}, {{"own", nil}},
	}).Draw(w.draw, "protocols")
}

func (w *classicWalk) joins_(t *rapid.T) {
	w.join(func(r *Join) {
		if n := rapid.IntRange(0, 6).Draw(t, "instance"); n < 3 {
			name := fmt.Sprint("i", n)
			r.InstanceID = &name
		}
		r.NeedsID, r.SkipsAssignment = rapid.Bool().Draw(t, "needs id"), rapid.Bool().Draw(t, "skips")
		r.Protocols = w.protocols()
	})
}

func (w *classicWalk) joinsBack(t *rapid.T) {
	w.join(func(r *Join) {
		r.MemberID = w.someID()
		r.Protocols = w.protocols()
		if m, ok := w.g.members[r.MemberID]; ok && m.instance != "" && rapid.Bool().Draw(t, "as instance") {
			r.InstanceID = &m.instance
		}
	})
}

func (w *classicWalk) syncs_(t *rapid.T) {
	id, generation := w.someID(), w.someGeneration()
	var given []Assignment
	if id == w.g.leader {
		for _, m := range w.g.sorted() {
			given = append(given, Assignment{m.id, fmt.Appendf(nil, "%s at %d", m.id, generation)})
		}
	}
	n := w.sync(id, generation, given...)
	// An assignment is never one of another member's, and never of a generation to come.
	if s := w.syncs[n]; s != nil && s.Err == nil && len(s.Assignment) > 0 {
		var of string
		var at int32
		if fmt.Sscanf(string(s.Assignment), "%s at %d", &of, &at); at > generation || of != id && w.g.members[id].instance == "" {
			t.Fatalf("%q was assigned %q in generation %d", id, s.Assignment, generation)
		}
	}
}

func (w *classicWalk) abandons(t *rapid.T) {
	var open []ticket
	for n := ticket(1); n <= w.tickets; n++ {
		if w.joins[n] == nil && w.syncs[n] == nil && !w.gone[n] {
			open = append(open, n)
		}
	}
	if len(open) > 0 {
		w.abandon(rapid.SampledFrom(open).Draw(t, "ticket"))
	}
}

// commits: only a member of the present generation that may have read anything commits; or anybody while there are no members.
func (w *classicWalk) commits() {
	claim := Claim{MemberID: w.someID(), Generation: w.someGeneration()}
	err := w.g.checkCommit(w.now, claim)
	w.check()
	_, member := w.g.members[claim.MemberID]
	switch {
	case err == nil && !member && len(w.g.members) > 0:
		w.t.Fatalf("%q is no member and commits", claim.MemberID)
	case err == nil && member && claim.Generation != w.g.generation && claim.Generation != w.g.assigned:
		w.t.Fatalf("%q commits in generation %d, the group is at %d and assigned %d", claim.MemberID, claim.Generation, w.g.generation, w.g.assigned)
	case err == nil && w.g.state == classicSyncing:
		w.t.Fatalf("%q commits while nobody knows what is whose", claim.MemberID)
	}
}
