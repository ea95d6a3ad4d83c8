package group

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

func ptr[T any](v T) *T { return &v }

func ranges(id vtop.TopicID, indexes ...int32) []vtop.Range {
	out := []vtop.Range{}
	for _, i := range indexes {
		out = append(out, vtop.Range{Topic: id, Index: i})
	}
	return out
}

// TestConsumer_RevokedBeforeAssigned is the story of the KIP: a second member gets its half only when the first has let go of it.
func TestConsumer_RevokedBeforeAssigned(t *testing.T) {
	w := newConsumerWorld(t)
	id := w.topic("t", 4)
	a := w.must(join("a", "t"))
	if a.Epoch != 1 || !slices.Equal(a.Assigned, ranges(id, 0, 1, 2, 3)) || a.Interval != w.limits.ConsumerHeartbeat {
		t.Fatalf("the first member is told %+v", a)
	}
	b := w.must(join("b", "t"))
	if b.Epoch != 2 || b.Assigned == nil || len(b.Assigned) != 0 || b.Interval >= w.limits.ConsumerHeartbeat {
		t.Fatalf("the second member is told %+v: want nothing to read yet, and to come back soon", b)
	}
	if got := w.g.stateName(); got != "Reconciling" {
		t.Fatalf("the group is %s", got)
	}
	// Case: the first hears of it, stays in its epoch, and holds what it is to give up until it says so.
	if a = w.must(alive("a", 1)); a.Epoch != 1 || !slices.Equal(a.Assigned, ranges(id, 0, 1)) {
		t.Fatalf("told to revoke: %+v", a)
	}
	w.must(owning("a", 1, ranges(id, 0, 1, 2, 3)...))
	w.must(alive("a", 1))
	w.want("a", "epoch 1: [1/0 1/1] revoking [1/2 1/3] target [1/0 1/1]")
	if b = w.must(alive("b", 2)); b.Assigned != nil {
		t.Fatalf("the second was given %v, which the first still has", b.Assigned)
	}
	if a = w.must(owning("a", 1, ranges(id, 0, 1)...)); a.Epoch != 2 || a.Assigned != nil {
		t.Fatalf("after revoking: %+v, want the new epoch and nothing new", a)
	}
	if b = w.must(alive("b", 2)); !slices.Equal(b.Assigned, ranges(id, 2, 3)) || b.Epoch != 2 {
		t.Fatalf("the second is told %+v", b)
	}
	if got := w.g.stateName(); got != "Stable" {
		t.Fatalf("the group is %s", got)
	}
}

func TestConsumer_LeavesForGood(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 2)
	w.must(join("a", "t"))
	w.must(join("b", "t"))
	if a := w.must(alive("a", consumerLeaves)); a.Epoch != consumerLeaves || a.Assigned != nil {
		t.Fatalf("a leaving member is told %+v", a)
	}
	w.want("a", "gone")
	w.must(alive("b", 2))
	w.want("b", "epoch 3: [1/0 1/1] revoking [] target [1/0 1/1]")
	w.must(alive("b", consumerLeaves))
	if w.g.stateName() != "Empty" || w.header.EmptySince != w.now.UnixMilli() || len(w.members) != 0 {
		t.Fatalf("empty group: %s, stored %+v %v", w.g.stateName(), w.header, w.members)
	}
}

func TestConsumer_SessionEnds(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 2)
	w.must(join("a", "t"))
	w.must(join("b", "t"))
	w.pass(w.limits.ConsumerSession / 2)
	w.must(alive("b", 2))
	w.pass(w.limits.ConsumerSession/2 + time.Second)
	w.want("a", "gone")
	w.must(alive("b", 2))
	w.want("b", "epoch 3: [1/0 1/1] revoking [] target [1/0 1/1]")
	if _, err := w.beat(alive("a", 1)); !errors.Is(err, ErrUnknownMember) {
		t.Fatalf("the member that is gone is told %v", err)
	}
}

// TestConsumer_RebalanceTimeout: who does not give up in time what it was told to is taken out, though it goes on with its heartbeats.
func TestConsumer_RebalanceTimeout(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 2)
	h := join("a", "t")
	h.Rebalance = 20 * time.Second
	w.must(h)
	w.must(join("b", "t"))
	w.must(alive("a", 1))
	for range 3 {
		w.pass(6 * time.Second)
		w.must(alive("a", 1))
		w.must(alive("b", 2))
	}
	w.want("a", "epoch 1: [1/0] revoking [1/1] target [1/0]")
	w.pass(2 * time.Second)
	w.want("a", "gone")
	w.must(alive("b", 2))
	w.want("b", "epoch 3: [1/0 1/1] revoking [] target [1/0 1/1]")
}

func TestConsumer_LostAnswers(t *testing.T) {
	w := newConsumerWorld(t)
	id := w.topic("t", 2)
	w.must(join("a", "t"))
	// Case: the answer to the join was lost: it joins again.
	if a := w.must(join("a", "t")); a.Epoch != 1 || len(a.Assigned) != 2 {
		t.Fatalf("joined again: %+v", a)
	}
	w.grow(id, 1)
	w.must(owning("a", 1, ranges(id, 0, 1)...)) // lost: epoch 2 with a third range
	// Case: its heartbeat in the epoch before is taken, and tells all again.
	if a := w.must(alive("a", 1)); a.Epoch != 2 || len(a.Assigned) != 3 {
		t.Fatalf("after a lost answer: %+v", a)
	}
	if a := w.must(owning("a", 1, ranges(id, 0, 1)...)); a.Epoch != 2 || len(a.Assigned) != 3 {
		t.Fatalf("after two lost answers: %+v", a)
	}
	// Case: but not if it has what it never was given, or comes with an epoch that it can't have.
	for _, h := range []ConsumerHeartbeat{owning("a", 1, ranges(id, 7)...), alive("a", 3), alive("a", 9)} {
		if _, err := w.beat(h); !errors.Is(err, ErrFencedMemberEpoch) {
			t.Fatalf("%+v: %v", h, err)
		}
	}
	w.must(alive("a", 2)) // now it has said that it knows epoch 2
	if _, err := w.beat(alive("a", 1)); !errors.Is(err, ErrFencedMemberEpoch) {
		t.Fatalf("an epoch that it left behind: %v", err)
	}
	// Case: after another coordinator took over, whatever the member was told last is told again, once.
	w.failover()
	if a := w.must(alive("a", 2)); len(a.Assigned) != 3 {
		t.Fatalf("after a failover: %+v", a)
	}
	if a := w.must(alive("a", 2)); a.Assigned != nil {
		t.Fatalf("told again: %+v", a)
	}
	// Case: a full heartbeat is answered in full.
	h := join("a", "t")
	h.Epoch, h.Owned = 2, ranges(id, 0)
	if a := w.must(h); len(a.Assigned) != 3 {
		t.Fatalf("full heartbeat: %+v", a)
	}
}

// TestConsumer_StaticMembers: away and back under another member id, with the same ranges and without a new group epoch.
func TestConsumer_StaticMembers(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 4)
	static := func(id string, epoch int32) ConsumerHeartbeat {
		h := join(id, "t")
		h.InstanceID, h.Epoch = ptr("i1"), epoch
		return h
	}
	w.must(static("a", 0))
	w.must(join("b", "t"))
	w.must(alive("a", 1))
	w.must(owning("a", 1, w.g.members["a"].target...))
	w.must(alive("b", 2))
	if _, err := w.beat(static("x", 0)); !errors.Is(err, ErrUnreleasedInstance) {
		t.Fatalf("a second process under the instance id is told %v", err)
	}
	had := w.g.members["a"].assigned
	if a := w.must(alive("a", consumerAway)); a.Epoch != consumerAway {
		t.Fatalf("away: %+v", a)
	}
	w.must(alive("b", 2))
	w.want("b", "epoch 2: [1/2 1/3] revoking [] target [1/2 1/3]")
	if a := w.must(static("c", 0)); a.Epoch != 2 || !slices.Equal(a.Assigned, had) {
		t.Fatalf("back: %+v, want epoch 2 with %v", a, had)
	}
	w.want("a", "gone")
	if _, err := w.beat(static("a", 2)); !errors.Is(err, ErrFencedInstance) {
		t.Fatalf("the old process is told %v", err)
	}
	if _, err := w.beat(alive("a", 2)); !errors.Is(err, ErrUnknownMember) {
		t.Fatalf("the old process without instance id is told %v", err)
	}
	// Case: who stays away longer than its session is gone.
	w.must(alive("c", consumerAway))
	for range 10 {
		w.pass(w.limits.ConsumerSession / 8)
		w.must(alive("b", w.g.members["b"].epoch))
	}
	w.want("c", "gone")
	w.want("b", "epoch 3: [1/0 1/1 1/2 1/3] revoking [] target [1/0 1/1 1/2 1/3]")
}

// TestConsumer_AwayHoldsOnlyItsTarget: nobody waits for a static member that is away.
func TestConsumer_AwayHoldsOnlyItsTarget(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 4)
	h := join("a", "t")
	h.InstanceID = ptr("i")
	w.must(h)
	w.must(alive("a", consumerAway))
	if b := w.must(join("b", "t")); len(b.Assigned) != 2 {
		t.Fatalf("the new member is told %+v", b)
	}
	w.want("a", "epoch -2: [1/0 1/1] revoking [] target [1/0 1/1]")
}

func TestConsumer_DynamicMemberThatIsAwayIsGone(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 1)
	w.must(join("a", "t"))
	w.must(alive("a", consumerAway))
	w.want("a", "gone")
}
