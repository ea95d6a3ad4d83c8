package group

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func TestCoordinator_NextOneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		one, two := w.start("n1"), w.start("n2")
		w.grant("g", "n1")
		claim := w.member(one, "g")
		r := w.commitOf("g", 5)
		r.Claim = claim
		if err := w.commit(one, r); err != nil || w.offset("g", 0) != 5 {
			t.Fatalf("commit: %v, offset %d", err, w.offset("g", 0))
		}
		w.grant("g", "n2")
		synctest.Wait()
		if err := one.Heartbeat(t.Context(), "g", claim); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("heartbeat at the old coordinator: %v", err)
		}
		if err := w.commit(one, r); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("commit at the old coordinator: %v", err)
		}
		// Same member, same generation, and a whole session from now on.
		time.Sleep(9 * time.Second)
		if err := two.Heartbeat(t.Context(), "g", claim); err != nil {
			t.Errorf("heartbeat at the new coordinator: %v", err)
		}
		r.Offsets[0].Offset = 9
		if err := w.commit(two, r); err != nil || w.offset("g", 0) != 9 {
			t.Errorf("commit at the new coordinator: %v, offset %d", err, w.offset("g", 0))
		}
		// And a member that never comes ends, though nobody asked for the group.
		time.Sleep(time.Minute)
		synctest.Wait()
		if st, _ := w.machine.State().Group("g"); st.Members != 0 || st.Epoch != claim.Generation+1 || st.EmptySince == 0 {
			t.Errorf("after the session: %+v", st)
		}
		r.Claim.Generation = -1
		if err := w.commit(two, r); err != nil {
			t.Errorf("commit to a group without members: %v", err)
		}
	})
}

// TestCoordinator_UnknownOutcome (J6): a proposal that was applied though nobody heard of it, and one that is still on its way when newer
// ones are applied, take no offset back.
func TestCoordinator_UnknownOutcome(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				c := w.start("n1")
				w.grant("g", "n1")
				if err := w.commit(c, w.commitOf("g", 1)); err != nil {
					t.Fatal(err)
				}
				lost := fmt.Errorf("%w: test", vtop.ErrTimeout)
				w.set(func() {
					if applied {
						w.after = func(*fsm.UpdateGroups, fsm.Outcome) error { w.after = nil; return lost }
						return
					}
					w.before = func(cmd fsm.Command) error { w.before, w.late = nil, append(w.late, cmd); return lost }
				})
				if err := w.commit(c, w.commitOf("g", 2)); err != nil || w.offset("g", 0) != 2 {
					t.Fatalf("commit with a lost answer: %v, offset %d", err, w.offset("g", 0))
				}
				if err := w.commit(c, w.commitOf("g", 3)); err != nil {
					t.Fatal(err)
				}
				for _, out := range w.deliver() {
					if r := out.Items[0].Refusal; r == nil || r.Code != fsm.CodeOvertaken {
						t.Errorf("a proposal that came late: %v", r)
					}
				}
				if at := w.offset("g", 0); at != 3 {
					t.Errorf("the offset went back to %d", at)
				}
			})
		})
	}
}

// TestCoordinator_NothingIsToldBeforeItIsDurable: while the quorum does not answer, neither do JoinGroup and SyncGroup.
func TestCoordinator_NothingIsToldBeforeItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.start("n1")
		w.grant("g", "n1")
		hold := make(chan struct{})
		w.set(func() {
			w.before = func(fsm.Command) error {
				select {
				case <-hold:
					return nil
				default:
					return fmt.Errorf("%w: no quorum", vtop.ErrTimeout)
				}
			}
		})
		joined := make(chan Joined, 1)
		go func() { joined <- c.Join(t.Context(), joinRequest("g", "")) }()
		time.Sleep(time.Second)
		select {
		case j := <-joined:
			t.Fatalf("joined without a quorum: %+v", j)
		default:
		}
		if err := w.commit(c, w.commitOf("h", 1)); !errors.Is(err, ErrLoading) { // another slot, that nobody holds
			t.Errorf("commit to a group of another slot: %v", err)
		}
		close(hold)
		if j := <-joined; j.Err != nil || j.Generation != 1 {
			t.Fatalf("joined: %+v", j)
		}
		if st, ok := w.machine.State().Group("g"); !ok || st.Epoch != 1 || st.AssignmentEpoch != 0 {
			t.Errorf("stored: %+v", st)
		}
	})
}

// TestCoordinator_CommitWaitsBounded: a commit that the quorum does not take is answered with what clients retry.
func TestCoordinator_CommitWaitsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.start("n1")
		w.grant("g", "n1")
		w.set(func() { w.before = func(fsm.Command) error { return vtop.ErrNotReady } })
		if err := w.commit(c, w.commitOf("g", 1)); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("commit without a quorum: %v", err)
		}
		w.set(func() { w.before = nil })
		if err := w.commit(c, w.commitOf("g", 2)); err != nil || w.offset("g", 0) != 2 {
			t.Errorf("the next one: %v, offset %d", err, w.offset("g", 0))
		}
	})
}

// TestCoordinator_DeposedMidway: what a deposed coordinator still has under way is refused, and whoever waits is sent away.
func TestCoordinator_DeposedMidway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		one, two := w.start("n1"), w.start("n2")
		w.grant("g", "n1")
		claim := w.member(one, "g")
		// A second member joins: it waits for the first.
		joined := make(chan Joined, 1)
		go func() { joined <- one.Join(t.Context(), joinRequest("g", "")) }()
		synctest.Wait()
		w.set(func() {
			w.before = func(fsm.Command) error {
				w.before = nil
				slot := fsm.GroupSlot("g")
				w.applyLocked(&fsm.GrantCoordinators{Items: []fsm.CoordinatorGrant{{Slot: slot, Holder: "n2", Incarnation: 1, Expected: w.machine.State().Coordinator(slot).Epoch}}})
				return nil
			}
		})
		r := w.commitOf("g", 5)
		r.Claim = claim
		if err := w.commit(one, r); !errors.Is(err, ErrNotCoordinator) || w.offset("g", 0) != -1 {
			t.Errorf("commit of the deposed: %v, offset %d", err, w.offset("g", 0))
		}
		if j := <-joined; !errors.Is(j.Err, ErrNotCoordinator) {
			t.Errorf("who waited: %+v", j)
		}
		if err := w.commit(two, r); err != nil || w.offset("g", 0) != 5 {
			t.Errorf("commit at the next: %v, offset %d", err, w.offset("g", 0))
		}
	})
}

// TestCoordinator_SessionsStandStillWhileItCannotServe: members are not thrown out for heartbeats that nobody could take.
func TestCoordinator_SessionsStandStillWhileItCannotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.start("n1")
		w.grant("g", "n1")
		claim := w.member(c, "g")
		w.set(func() { w.asleep = true })
		if err := c.Heartbeat(t.Context(), "g", claim); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("heartbeat with the deadline passed: %v", err)
		}
		time.Sleep(5 * time.Minute)
		w.set(func() { w.asleep = false })
		time.Sleep(9 * time.Second)
		if err := c.Heartbeat(t.Context(), "g", claim); err != nil {
			t.Errorf("heartbeat: %v", err)
		}
	})
}

func TestCoordinator_CallerThatIsGoneHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.limits.InitialDelay = time.Second
		c := w.start("n1")
		w.grant("g", "n1")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan Joined, 1), make(chan Joined, 1)
		go func() { first <- c.Join(t.Context(), joinRequest("g", "")) }()
		go func() { second <- c.Join(ctx, joinRequest("g", "")) }()
		synctest.Wait()
		cancel()
		if j := <-second; !errors.Is(j.Err, context.Canceled) {
			t.Errorf("the one that is gone: %+v", j)
		}
		start := time.Now()
		if j := <-first; j.Err != nil || len(j.Members) != 1 || time.Since(start) > 2*time.Second {
			t.Errorf("the other: %+v after %s", j, time.Since(start))
		}
	})
}

func TestCoordinator_KindsDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.start("n1")
		w.grant("g", "n1")
		claim := w.member(c, "g")
		asks := func(member string, epoch int32) (ConsumerAnswer, error) {
			return c.ConsumerHeartbeat(t.Context(), ConsumerHeartbeat{Group: "g", MemberID: member, Epoch: epoch, Rebalance: time.Minute, Topics: []string{"t"}, Owned: []vtop.Range{}})
		}
		if _, err := asks("new", 0); !errors.Is(err, ErrNotConsumerGroup) {
			t.Errorf("a consumer in a classic group with members: %v", err)
		}
		if out, err := c.Leave(t.Context(), "g", []Leaver{{MemberID: claim.MemberID}}); err != nil || out[0].Err != nil {
			t.Fatalf("leave: %v, %v", out, err)
		}
		a, err := asks("new", 0)
		if err != nil || a.Epoch <= claim.Generation {
			t.Fatalf("a consumer in a classic group without members: %+v, %v", a, err)
		}
		if j := c.Join(t.Context(), joinRequest("g", "")); !errors.Is(j.Err, ErrInconsistentProtocol) {
			t.Errorf("join of a consumer group with members: %+v", j)
		}
		if err := c.Heartbeat(t.Context(), "g", claim); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("heartbeat of a member of before: %v", err)
		}
		if out, err := c.Leave(t.Context(), "g", []Leaver{{MemberID: "new"}}); err != nil || out[0].Err != nil {
			t.Fatalf("leave: %v, %v", out, err)
		}
		if j := c.Join(t.Context(), joinRequest("g", "")); j.Err != nil || j.Generation <= a.Epoch {
			t.Errorf("join of a consumer group without members: %+v, its epoch was %d", j, a.Epoch)
		}
	})
}

// TestCoordinator_RestartedNodeNamesNobody: what it has applied may be of before its restart, and name itself; it waits until it knows.
func TestCoordinator_RestartedNodeNamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.grant("g", "n1") // to the process before
		caughtUp := false
		c, err := New(Config{
			Self: "n1", Incarnation: 2, Machine: w.machine, Propose: w.propose, Clock: func() time.Duration { return 0 },
			CaughtUp: func() bool { return caughtUp }, Alive: func(vtop.NodeName) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if name, err := c.Holder(t.Context(), "g"); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("before it has caught up: %q, %v", name, err)
		}
		if err := w.commit(c, w.commitOf("g", 1)); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("a commit before it has caught up: %v", err)
		}
		caughtUp = true
		if name, err := c.Holder(t.Context(), "g"); !errors.Is(err, ErrNotAvailable) {
			t.Errorf("while the slot is another process's: %q, %v", name, err)
		}
		if err := w.commit(c, w.commitOf("g", 1)); !errors.Is(err, ErrLoading) {
			t.Errorf("a commit to a slot that nobody holds: %v", err)
		}
		w.grant("g", "n2")
		if name, err := c.Holder(t.Context(), "g"); name != "n2" || err != nil {
			t.Errorf("after the grant: %q, %v", name, err)
		}
	})
}
