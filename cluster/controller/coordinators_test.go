package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
)

// held says how many slots each process holds, as "node:slots", those of lives that are over as "node!".
func (w *world) held() string {
	count := map[string]int{}
	state := w.machine.State()
	for c := range state.Coordinators() {
		n, ok := state.Node(c.Holder)
		switch {
		case !ok:
			count["nobody"]++
		case c.HeldBy(n.Name, n.Incarnation):
			count[string(n.Name)]++
		default:
			count[string(n.Name)+"!"]++
		}
	}
	var out []string
	for _, name := range []string{"n1", "n1!", "n2", "n2!", "n3", "n3!", "n4", "nobody"} {
		if n := count[name]; n > 0 {
			out = append(out, fmt.Sprintf("%s:%d", name, n))
		}
	}
	return strings.Join(out, " ")
}

func (w *world) wantHeld(want string) {
	w.t.Helper()
	if got := w.held(); got != want {
		w.t.Fatalf("slots are held as %q, want %q", got, want)
	}
}

// busy puts a group into every slot.
func (w *world) busy() {
	w.t.Helper()
	seen := map[fsm.Slot]bool{}
	for i := 0; len(seen) < fsm.GroupSlots; i++ {
		id := fmt.Sprint("g", i)
		slot := fsm.GroupSlot(id)
		if seen[slot] {
			continue
		}
		seen[slot] = true
		c := w.machine.State().Coordinator(slot)
		w.must(&fsm.UpdateGroups{
			Node: c.Holder, Incarnation: c.Incarnation, Sequence: 1,
			Items: []fsm.GroupItem{{Group: id, Epoch: c.Epoch, Header: &fsm.GroupHeader{Kind: fsm.GroupClassic}}},
		})
	}
}

func TestCoordinators_SpreadOverAllNodes(t *testing.T) {
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		w.wantHeld("n1:22 n2:21 n3:21")
	})
}

func TestCoordinators_OfASilentNodeMoveToTheOthers(t *testing.T) {
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		w.busy()
		before := w.machine.State()
		w.set(func() { w.silent["n2"] = true })
		w.pass(2 * time.Second)
		w.wantHeld("n1:22 n2:21 n3:21")
		w.pass(2 * time.Second)
		w.wantHeld("n1:32 n3:32")
		for c := range w.machine.State().Coordinators() {
			if old := before.Coordinator(c.Slot); old.Holder == "n2" != (c.Epoch == old.Epoch+1) {
				t.Errorf("slot %d went from epoch %d of %s to %d of %s", c.Slot, old.Epoch, old.Holder, c.Epoch, c.Holder)
			}
		}
	})
}

func TestCoordinators_LeaveANodeThatStopsDrainsOrRestarts(t *testing.T) {
	for name, leave := range map[string]func(w *world){
		"stops": func(w *world) {
			w.set(func() { w.silent["n2"] = true })
			w.tracker.Beat("n2", 9, liveness.Health{Incarnation: 1, Leaving: true})
		},
		"is full": func(w *world) {
			w.set(func() { w.silent["n2"] = true })
			w.tracker.Beat("n2", 9, liveness.Health{Incarnation: 1, NoSpace: true})
		},
		"drains":   func(w *world) { w.must(&fsm.UpdateNode{Name: "n2", State: fsm.NodeDraining}) },
		"restarts": func(w *world) { w.set(func() { w.silent["n2"] = true }); w.register("n2", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.pass(2 * time.Second)
				w.busy()
				leave(w)
				w.control.Wake()
				w.pass(300 * time.Millisecond)
				w.wantHeld("n1:32 n3:32")
			})
		})
	}
}

// Slots whose move would be noticed come back a few at a time, to a node that has been fit for a while; others at once.
func TestCoordinators_ReturnGently(t *testing.T) {
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		w.busy()
		w.set(func() { w.silent["n2"] = true })
		w.pass(4 * time.Second)
		w.wantHeld("n1:32 n3:32")
		w.set(func() { w.silent["n2"] = false })
		w.pass(25 * time.Second)
		w.wantHeld("n1:32 n3:32")
		w.pass(20 * time.Second)
		if got := w.held(); got == "n1:32 n3:32" || got == "n1:22 n2:21 n3:21" {
			t.Fatalf("after some looks slots are held as %q", got)
		}
		w.pass(2 * time.Minute)
		w.wantHeld("n1:22 n2:21 n3:21")
	})
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		w.set(func() { w.silent["n2"] = true })
		w.pass(4 * time.Second)
		w.wantHeld("n1:32 n3:32")
		w.set(func() { w.silent["n2"] = false })
		w.pass(time.Second)
		w.wantHeld("n1:22 n2:21 n3:21")
	})
}

// The last node that runs goes on, even if it is to be drained; and released slots find a holder again.
func TestCoordinators_StayWhereNobodyElseIs(t *testing.T) {
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		w.set(func() { w.silent["n2"], w.silent["n3"] = true, true })
		w.pass(5 * time.Second)
		w.wantHeld("n1:64")
		w.must(&fsm.UpdateNode{Name: "n1", State: fsm.NodeDraining})
		w.pass(10 * time.Second)
		w.wantHeld("n1:64")
		w.must(&fsm.UpdateNode{Name: "n1", State: fsm.NodeActive})
		w.must(&fsm.ReleaseCoordinators{Node: "n1", Incarnation: 1})
		w.pass(time.Second)
		w.wantHeld("n1:64")
	})
}

func TestCoordinators_ADeposedLeaderGrantsNothing(t *testing.T) {
	run(t, func(w *world) {
		w.pass(2 * time.Second)
		w.set(func() { w.deposed = true })
		w.pass(time.Second)
		w.must(&fsm.ReleaseCoordinators{Node: "n2", Incarnation: 1})
		w.pass(10 * time.Second)
		w.wantHeld("n1:22 n3:21 nobody:21")
	})
}

// Whatever the nodes and slots are like: a slot moves once at most in a look, to a node that is fit; none stays lost where one is fit; what
// nobody notices is even at once; and few that are noticed move.
func TestSpread_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &spread{}
		for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
			fit := rapid.IntRange(0, 3).Draw(t, "fit") > 0
			room := fit && rapid.IntRange(0, 3).Draw(t, "room") > 0
			s.sites = append(s.sites, &site{
				Node: placement.Node{Name: vtop.NodeName(fmt.Sprint("n", i)), Incarnation: 1, Fit: fit, HasRoom: room},
				home: room && rapid.Bool().Draw(t, "home"),
			})
		}
		for i := range fsm.GroupSlots {
			h := &slotHolder{lease: &fsm.Coordinator{Slot: fsm.Slot(i), Epoch: 1}, busy: rapid.Bool().Draw(t, "busy")}
			n := s.sites[rapid.IntRange(0, len(s.sites)-1).Draw(t, "holder")]
			h.lease.Holder, h.lives = n.Name, n.Fit
			if !n.Fit || rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
				h.lost = "lost"
			} else {
				n.hold(h, 1)
			}
			s.slots = append(s.slots, h)
		}
		checkSpread(t, s)
	})
}

func checkSpread(t *rapid.T, s *spread) {
	slots := s.slots
	s.place()
	placed := len(s.grants)
	s.even()
	evened := len(s.grants)
	for _, h := range s.slots { // those that are left did not move
		for _, to := range s.sites {
			if from := siteOf(s, h.lease.Holder); h.lost == "" && !h.busy && to.HasRoom && from.slots-to.slots > 1 {
				t.Fatalf("%s holds %d slots, one of them without groups, %s holds %d", from.Name, from.slots, to.Name, to.slots)
			}
		}
	}
	s.evenBusy(slotMoves)
	if moved := len(s.grants) - evened; moved > slotMoves {
		t.Fatalf("%d slots with groups moved", moved)
	}
	sites := map[vtop.NodeName]*site{}
	anyFit, anyRoom := false, false
	for _, n := range s.sites {
		sites[n.Name] = n
		anyFit, anyRoom = anyFit || n.Fit, anyRoom || n.HasRoom
	}
	seen := map[fsm.Slot]bool{}
	for i, g := range s.grants {
		if to := sites[g.Holder]; seen[g.Slot] || !to.Fit || anyRoom && !to.HasRoom || g.Incarnation != 1 || g.Expected != 1 || i >= evened && !to.home {
			t.Fatalf("grant %d: %+v", i, g)
		}
		seen[g.Slot] = true
	}
	for _, h := range slots {
		if h.lost != "" && seen[h.lease.Slot] != anyFit {
			t.Fatalf("slot %d is lost, granted: %t, somebody is fit: %t", h.lease.Slot, seen[h.lease.Slot], anyFit)
		}
		if h.lost == "" && h.busy && moves(s.grants[placed:evened], h.lease.Slot) {
			t.Fatalf("slot %d has groups and moved at once", h.lease.Slot)
		}
	}
	if anyFit == (s.homeless > 0) {
		t.Fatalf("%d slots are homeless, somebody is fit: %t", s.homeless, anyFit)
	}
}

func siteOf(s *spread, name vtop.NodeName) *site {
	for _, n := range s.sites {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func moves(grants []fsm.CoordinatorGrant, slot fsm.Slot) bool {
	for _, g := range grants {
		if g.Slot == slot {
			return true
		}
	}
	return false
}
