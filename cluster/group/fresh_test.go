package group

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// TestReading_DeposedCoordinatorKnows (J6): a coordinator that was replaced, and whose applied state is old, answers no old offset.
func TestReading_DeposedCoordinatorKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.grant("g", "n1")
		// n1 has a state machine of its own, which stands still when n1 does.
		own := fsm.New(fsm.Options{})
		own.Replace(w.machine.State())
		own.Leases().SetDeadline(math.MaxInt64)
		one, err := New(Config{
			Self: "n1", Incarnation: 1, Machine: own, Propose: w.propose, Clock: func() time.Duration { return 0 },
			Fresh:    func(context.Context) error { own.Replace(w.machine.State()); return nil },
			CaughtUp: func() bool { return true }, Alive: func(vtop.NodeName) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		two := w.start("n2")
		if st, err := one.Read().Offsets(t.Context(), "g", nil, -1); err != nil || st == nil {
			t.Fatalf("while it holds the slot: %v", err)
		}
		w.grant("g", "n2")
		if err := w.commit(two, w.commitOf("g", 7)); err != nil {
			t.Fatal(err)
		}
		if l := own.State().CoordinatorOf("g"); l.Holder != "n1" {
			t.Fatalf("n1 knows already: %+v", l)
		}
		if _, err := one.Read().Offsets(t.Context(), "g", nil, -1); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("n1 answers: %v", err)
		}
		st, err := two.Read().Offsets(t.Context(), "g", nil, -1)
		if o, ok := st.Offset("g", vtop.Range{Topic: w.topic}); err != nil || !ok || o.Offset != 7 {
			t.Errorf("n2 answers %+v, %v", o, err)
		}
	})
}

// TestReading_QuestionsAreShared: many readings put few questions; each gets the answer to one that was put after it began.
func TestReading_QuestionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.grant("g", "n1")
		var mu sync.Mutex
		asked := 0
		fail := true
		c, err := New(Config{
			Self: "n1", Incarnation: 1, Machine: w.machine, Propose: w.propose, Clock: func() time.Duration { return 0 },
			Fresh: func(context.Context) error {
				time.Sleep(3 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if asked++; fail {
					fail = false
					return vtop.ErrNotReady // a Raft election, say: it is asked again
				}
				return nil
			},
			CaughtUp: func() bool { return true }, Alive: func(vtop.NodeName) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w.machine.Leases().SetDeadline(math.MaxInt64)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				r := c.Read()
				for range 3 {
					if _, err := r.Offsets(t.Context(), "g", nil, -1); err != nil {
						t.Errorf("reading %d: %v", i, err)
					}
				}
			}()
		}
		wg.Wait()
		if asked < 5 || asked > 20 {
			t.Errorf("%d questions for 1000 readings within 100 ms", asked)
		}
	})
}

// TestReading_WithoutQuorum: no offset is better than an old one, and what is answered is asked again.
func TestReading_WithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.grant("g", "n1")
		c, err := New(Config{
			Self: "n1", Incarnation: 1, Machine: w.machine, Propose: w.propose, Clock: func() time.Duration { return 0 },
			Fresh:    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			CaughtUp: func() bool { return true }, Alive: func(vtop.NodeName) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Read().Offsets(t.Context(), "g", nil, -1); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("reading: %v", err)
		}
	})
}
