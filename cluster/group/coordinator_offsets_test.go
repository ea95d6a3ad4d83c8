package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// TestCoordinator_CommitsGather: a thousand consumers that commit every five seconds are few entries; one that commits after each record
// waits for nobody.
func TestCoordinator_CommitsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.start("n1")
		const groups = 500
		for i := range groups {
			if id := fmt.Sprint("g", i); !w.machine.State().CoordinatorOf(id).HeldBy("n1", 1) {
				w.grant(id, "n1")
			}
			if err := w.commit(c, w.commitOf(fmt.Sprint("g", i), 0)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		w.set(func() { w.entries = 0 })
		start := time.Now()
		for i := range 100 {
			if err := w.commit(c, w.commitOf("g0", vtop.Offset(i))); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("a lone consumer waited %s for others", took)
		}
		time.Sleep(time.Minute)
		w.set(func() { w.entries = 0 })
		for round := range 4 {
			for i := range groups {
				go func() {
					if err := w.commit(c, w.commitOf(fmt.Sprint("g", i), vtop.Offset(round))); err != nil {
						t.Errorf("commit: %v", err)
					}
				}()
				time.Sleep(5 * time.Second / groups)
			}
		}
		time.Sleep(time.Second)
		var entries int
		w.set(func() { entries = w.entries })
		if entries > 25*20 {
			t.Errorf("%d entries for %d commits within 20 s", entries, 4*groups)
		}
	})
}

// TestCoordinator_OffsetsExpire (J6): only of groups without members, by the cluster's own time.
func TestCoordinator_OffsetsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.retention = time.Hour
		c := w.start("n1")
		ids := []string{"alive", "left", "simple", "old and new"}
		for _, id := range ids {
			if !w.machine.State().CoordinatorOf(id).HeldBy("n1", 1) {
				w.grant(id, "n1")
			}
		}
		alive, left := w.member(c, "alive"), w.member(c, "left")
		for _, id := range ids {
			r := w.commitOf(id, 1)
			switch id {
			case "alive":
				r.Claim = alive
			case "left":
				r.Claim = left
			}
			if err := w.commit(c, r); err != nil {
				t.Fatal(err)
			}
		}
		lives := func(d time.Duration, also ...Claim) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(3 * time.Second) {
				if err := c.Heartbeat(t.Context(), "alive", alive); err != nil {
					t.Fatalf("heartbeat: %v", err)
				}
				for _, claim := range also {
					if err := c.Heartbeat(t.Context(), "left", claim); err != nil {
						t.Fatalf("heartbeat: %v", err)
					}
				}
			}
		}
		lives(50*time.Minute, left)
		if out, err := c.Leave(t.Context(), "left", []Leaver{{MemberID: left.MemberID}}); err != nil || out[0].Err != nil {
			t.Fatalf("leave: %v, %v", out, err)
		}
		r := w.commitOf("old and new", 2)
		r.Offsets[0].Range.Index = 1
		if err := w.commit(c, r); err != nil {
			t.Fatal(err)
		}
		lives(20 * time.Minute)
		st := w.machine.State()
		var have []string
		for g := range st.Groups() {
			have = append(have, fmt.Sprintf("%s %d", g.ID, g.Offsets))
		}
		slices.Sort(have)
		if want := []string{"alive 1", "left 1", "old and new 1"}; !slices.Equal(have, want) {
			t.Errorf("after an hour and ten minutes: %v, want %v", have, want)
		}
		lives(time.Hour)
		if n := w.machine.State().GroupCount(); n != 1 || w.offset("alive", 0) != 1 {
			t.Errorf("after two hours: %d groups, offset %d", n, w.offset("alive", 0))
		}
		if s := c.Stats(); s.Expired != 4 || s.Groups != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestCoordinator_RefusedUpdateIsForgotten: what the state machine does not take is not in memory either.
func TestCoordinator_RefusedUpdateIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.start("n1")
		w.grant("g", "n1")
		claim := w.member(c, "g")
		w.set(func() {
			w.before = func(fsm.Command) error { w.before = nil; return &fsm.Refusal{Code: fsm.CodeLimit, Message: "test"} }
		})
		if j := c.Join(t.Context(), joinRequest("g", claim.MemberID)); !errors.Is(j.Err, ErrGroupFull) {
			t.Fatalf("join: %+v", j)
		}
		if err := c.Heartbeat(t.Context(), "g", claim); err != nil {
			t.Errorf("the member of before: %v", err)
		}
		if st, _ := w.machine.State().Group("g"); st.Epoch != claim.Generation {
			t.Errorf("stored %+v", st)
		}
	})
}
