package group

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
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

func TestConsumer_Refused(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 1)
	with := func(h ConsumerHeartbeat, edit func(*ConsumerHeartbeat)) ConsumerHeartbeat { edit(&h); return h }
	w.must(with(join("s", "t"), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("i") }))
	for _, row := range []struct {
		name string
		h    ConsumerHeartbeat
		want error
	}{
		{"no member id", join("", "t"), ErrInvalidRequest},
		{"member epoch below -2", alive("s", -3), ErrInvalidRequest},
		{"joining without a rebalance timeout", with(join("a", "t"), func(h *ConsumerHeartbeat) { h.Rebalance = -1 }), ErrInvalidRequest},
		{"joining with ranges", with(join("a", "t"), func(h *ConsumerHeartbeat) { h.Owned = ranges(topicN(1), 0) }), ErrInvalidRequest},
		{"joining without saying what it has", with(join("a", "t"), func(h *ConsumerHeartbeat) { h.Owned = nil }), ErrInvalidRequest},
		{"joining without a subscription", with(join("a"), func(h *ConsumerHeartbeat) { h.Topics = nil }), ErrInvalidRequest},
		{"empty instance id", with(join("a", "t"), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("") }), ErrInvalidRequest},
		{"empty rack", with(join("a", "t"), func(h *ConsumerHeartbeat) { h.Rack = ptr("") }), ErrInvalidRequest},
		{"another instance id for the same member id", with(join("s", "t"), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("j") }), ErrInvalidRequest},
		{"an assignor that is none", with(join("a", "t"), func(h *ConsumerHeartbeat) { h.Assignor = ptr("fair") }), ErrUnsupportedAssignor},
		{"an expression that is none", with(join("a"), func(h *ConsumerHeartbeat) { h.Regex = ptr("a(") }), ErrInvalidRegex},
		{"an expression that RE2 has not", with(join("a"), func(h *ConsumerHeartbeat) { h.Regex = ptr(`(a)\1`) }), ErrInvalidRegex},
		{"an expression too long", with(join("a"), func(h *ConsumerHeartbeat) { h.Regex = ptr(strings.Repeat("a", consumerMaxPattern+1)) }), ErrInvalidRegex},
		{"an expression too large", with(join("a"), func(h *ConsumerHeartbeat) { h.Regex = ptr(strings.Repeat("[ab]{900}", 100)) }), ErrInvalidRegex},
		{"too many names", with(join("a"), func(h *ConsumerHeartbeat) { h.Topics = []string{strings.Repeat("a", consumerMaxNames)} }), ErrInvalidRequest},
		{"nobody's heartbeat", alive("x", 1), ErrUnknownMember},
		{"nobody leaves", alive("x", consumerLeaves), ErrUnknownMember},
		{"nobody's instance id", with(alive("s", 1), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("j") }), ErrUnknownMember},
		{"another's instance id", with(alive("x", 1), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("i") }), ErrFencedInstance},
		{"another's instance id leaves", with(alive("x", consumerAway), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("i") }), ErrFencedInstance},
		{"an epoch to come", alive("s", 2), ErrFencedMemberEpoch},
	} {
		if _, err := w.beat(row.h); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
	if len(w.g.members) != 1 || w.g.epoch != 1 {
		t.Errorf("the refusals changed the group: %d members, epoch %d", len(w.g.members), w.g.epoch)
	}
	// Case: a group that is full takes back who is in it, and nobody else.
	w.limits.MaxMembers = 1
	if _, err := w.beat(join("a", "t")); !errors.Is(err, ErrGroupFull) {
		t.Errorf("one more than the limit: %v", err)
	}
	w.must(with(join("s", "t"), func(h *ConsumerHeartbeat) { h.InstanceID = ptr("i") }))
}

func TestConsumer_RegularExpressions(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("orders-eu", 1)
	w.topic("old-orders-eu", 1)
	h := join("a")
	h.Topics, h.Regex = nil, ptr("orders-(eu|us)")
	w.must(h)
	w.want("a", "epoch 1: [1/0] revoking [] target [1/0]") // the whole name has to match
	w.topic("orders-us", 2)
	w.topic("orders-asia", 2)
	w.must(alive("a", 1))
	w.want("a", "epoch 2: [1/0 3/0 3/1] revoking [] target [1/0 3/0 3/1]")
	if !w.g.subscribes("orders-us") || w.g.subscribes("orders-asia") {
		t.Error("subscribes is wrong")
	}
	// Case: names beside it, and then names alone.
	h = alive("a", 2)
	h.Topics = []string{"old-orders-eu", "not-there"}
	w.must(h)
	w.want("a", "epoch 3: [1/0 2/0 3/0 3/1] revoking [] target [1/0 2/0 3/0 3/1]")
	h = owning("a", 3, w.g.members["a"].assigned...)
	h.Regex = ptr("")
	w.must(h)
	w.want("a", "epoch 3: [2/0] revoking [1/0 3/0 3/1] target [2/0]")
	// Case: a heartbeat without names or expression keeps both.
	w.must(owning("a", 3, ranges(topicN(2), 0)...))
	w.want("a", "epoch 4: [2/0] revoking [] target [2/0]")
}

func TestConsumer_TopicsComeGrowAndGo(t *testing.T) {
	w := newConsumerWorld(t)
	w.must(join("a", "t"))
	w.want("a", "epoch 1: [] revoking [] target []")
	id := w.topic("t", 1)
	w.must(alive("a", 1))
	w.want("a", "epoch 2: [1/0] revoking [] target [1/0]")
	w.grow(id, 2)
	w.must(alive("a", 2))
	w.want("a", "epoch 3: [1/0 1/1 1/2] revoking [] target [1/0 1/1 1/2]")
	w.drop(id)
	w.must(alive("a", 3))
	w.want("a", "epoch 3: [] revoking [1/0 1/1 1/2] target []")
	again := w.topic("t", 1)
	w.must(owning("a", 3))
	w.want("a", "epoch 5: [2/0] revoking [] target [2/0]")
	if _, ok := w.g.holders[vtop.Range{Topic: again}]; !ok {
		t.Error("another life of the topic is another topic")
	}
	// Case: a change of another topic changes nothing.
	w.topic("u", 1)
	if w.g.epoch != 5 {
		t.Errorf("the group epoch is %d", w.g.epoch)
	}
}

// TestConsumer_TopicsChangedWhileNobodyLooked: the next coordinator notices.
func TestConsumer_TopicsChangedWhileNobodyLooked(t *testing.T) {
	w := newConsumerWorld(t)
	id := w.topic("t", 1)
	w.must(join("a", "t"))
	w.apply(&fsm.CreateRanges{Topic: id, Expected: 1, Ranges: onOne(1)})
	old, members := w.stored()
	g, err := loadConsumerGroup(old, members, w.view(), &w.limits)
	if err != nil {
		t.Fatal(err)
	}
	w.g = g
	if !g.deadline().Equal(w.now) {
		t.Fatalf("the new coordinator wants to look at %s", g.deadline())
	}
	w.tick()
	if a := w.must(alive("a", 1)); a.Epoch != 2 || len(a.Assigned) != 2 {
		t.Fatalf("told %+v", a)
	}
}

func TestConsumer_AssignorByVote(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 4)
	vote := func(id, assignor string) {
		h := join(id, "t")
		h.Assignor = ptr(assignor)
		w.must(h)
	}
	vote("a", AssignorRange)
	if w.g.assignor != AssignorRange {
		t.Fatalf("one member asks for range, the group has %s", w.g.assignor)
	}
	vote("b", AssignorUniform)
	if w.g.assignor != AssignorUniform {
		t.Fatalf("one each, the group has %s", w.g.assignor)
	}
	vote("c", AssignorRange)
	if w.g.assignor != AssignorRange {
		t.Fatalf("two to one, the group has %s", w.g.assignor)
	}
	// Case: another vote that decides makes new targets, one that does not changes nothing.
	epoch := w.g.epoch
	h := alive("b", w.g.members["b"].epoch)
	h.Assignor = ptr(AssignorRange)
	w.must(h)
	if w.g.epoch != epoch {
		t.Fatal("a vote that decides nothing made a new epoch")
	}
	h = alive("a", w.g.members["a"].epoch)
	h.Assignor = ptr(AssignorUniform)
	w.must(h)
	h = alive("b", w.g.members["b"].epoch)
	h.Assignor = ptr("")
	w.must(h)
	if w.g.assignor != AssignorUniform || w.g.epoch == epoch {
		t.Fatalf("the group has %s in epoch %d", w.g.assignor, w.g.epoch)
	}
}

func TestConsumer_CommitsAndFetches(t *testing.T) {
	w := newConsumerWorld(t)
	id := w.topic("t", 3)
	w.must(join("a", "t"))
	w.grow(id, 1)
	w.must(alive("a", 1)) // epoch 2; the fourth range is new in it
	old, fresh := vtop.Range{Topic: id}, vtop.Range{Topic: id, Index: 3}
	for _, row := range []struct {
		name   string
		member string
		epoch  int32
		r      vtop.Range
		want   error
	}{
		{"in its epoch", "a", 2, fresh, nil},
		{"in its epoch, of a range that it has not", "a", 2, vtop.Range{Topic: id, Index: 9}, nil},
		{"in the epoch before, of what it had then", "a", 1, old, nil},
		{"in the epoch before, of what it had not", "a", 1, fresh, ErrStaleMemberEpoch},
		{"in an epoch to come", "a", 3, old, ErrStaleMemberEpoch},
		{"without an epoch", "a", -1, old, ErrStaleMemberEpoch},
		{"of nobody", "b", 2, old, ErrUnknownMember},
		{"without a name", "", -1, old, ErrUnknownMember},
	} {
		if err := w.g.checkCommitOf(row.member, nil, row.epoch, row.r); !errors.Is(err, row.want) {
			t.Errorf("commit %s: %v, want %v", row.name, err, row.want)
		}
	}
	for _, row := range []struct {
		name   string
		member *string
		epoch  int32
		want   error
	}{
		{"in its epoch", ptr("a"), 2, nil},
		{"in the epoch before", ptr("a"), 1, ErrStaleMemberEpoch},
		{"of nobody", ptr("b"), 2, ErrUnknownMember},
		{"of no member", nil, -1, nil},
		{"of no member, spelt out", ptr(""), -1, nil},
	} {
		if err := w.g.checkFetch(row.member, row.epoch); !errors.Is(err, row.want) {
			t.Errorf("fetch %s: %v, want %v", row.name, err, row.want)
		}
	}
	// Case: what is being revoked may be committed in the epoch in which it was read.
	w.must(join("b", "t"))
	w.must(alive("a", 2))
	for _, r := range w.g.members["a"].revoking {
		if err := w.g.checkCommitOf("a", nil, 2, r); err != nil {
			t.Errorf("commit of %s, which is being revoked: %v", r, err)
		}
	}
	// Case: once another has it, the old epoch is worth nothing.
	gone := w.g.members["a"].revoking[0]
	w.must(owning("a", 2, w.g.members["a"].assigned...))
	if err := w.g.checkCommitOf("a", nil, 2, gone); !errors.Is(err, ErrStaleMemberEpoch) {
		t.Errorf("commit of %s, which was given up: %v", gone, err)
	}
}

func TestConsumer_TakenOutByOthers(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 1)
	h := join("a", "t")
	h.InstanceID = ptr("i")
	w.must(h)
	w.must(join("b", "t"))
	if _, err := w.g.leave(w.view(), "", ptr("j")); !errors.Is(err, ErrUnknownMember) {
		t.Fatalf("an instance id that is none: %v", err)
	}
	item, err := w.g.leave(w.view(), "", ptr("i"))
	if err != nil {
		t.Fatal(err)
	}
	w.took(item)
	w.want("a", "gone")
	if item, err = w.g.leave(w.view(), "b", nil); err != nil {
		t.Fatal(err)
	}
	w.took(item)
	if w.g.memberCount() != 0 {
		t.Fatalf("%d members", w.g.memberCount())
	}
}

// TestConsumer_TooMuchToAssign: a group whose targets would not fit stays as it is, says so, and gets on when they do.
func TestConsumer_TooMuchToAssign(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 2)
	w.limits.MaxGroupBytes = 4000
	w.must(join("a", "t"))
	big := w.topic("u", 400)
	h := alive("a", 1)
	h.Topics = []string{"t", "u"}
	w.must(h)
	w.want("a", "epoch 1: [1/0 1/1] revoking [] target [1/0 1/1]")
	if got := w.g.stateName(); got != "Assigning" {
		t.Fatalf("the group is %s", got)
	}
	w.drop(big)
	w.must(alive("a", 1))
	w.want("a", "epoch 3: [1/0 1/1] revoking [] target [1/0 1/1]")
	// Case: members take no more than their half.
	for i := range 20 {
		_, err := w.beat(join(strings.Repeat("x", 100+i), "t"))
		if err != nil {
			if !errors.Is(err, ErrGroupFull) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("20 members of 350 bytes fit into 2000")
}

func TestConsumer_UnreadableMembers(t *testing.T) {
	w := newConsumerWorld(t)
	w.topic("t", 2)
	w.must(join("a", "t"))
	w.must(join("b", "t"))
	m := w.members["a"]
	m.Assignment = []byte("\x0a\x02\x0a\x00")
	w.members["a"] = m
	old, members := w.stored()
	g, err := loadConsumerGroup(old, members, w.view(), &w.limits)
	if !errors.Is(err, errConsumerStored) {
		t.Fatalf("loaded with %v", err)
	}
	// Case: the others go on, the unreadable one is told to join anew.
	w.g = g
	w.pass(0)
	w.must(alive("b", 2))
	w.want("b", "epoch 3: [1/0 1/1] revoking [] target [1/0 1/1]")
	if _, err := w.beat(alive("a", 1)); !errors.Is(err, ErrUnknownMember) {
		t.Fatalf("told %v", err)
	}
}
