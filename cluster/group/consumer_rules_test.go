package group

import (
	"errors"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

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

// FuzzConsumer_Stored: whatever stands in the state machine is read or refused, and what is read is written and read as the same.
func FuzzConsumer_Stored(f *testing.F) {
	w := newConsumerWorld(&testing.T{})
	w.topic("t", 3)
	w.must(join("a", "t"))
	w.must(join("b", "t"))
	w.must(alive("a", 1))
	for _, m := range w.members {
		f.Add(m.Subscription, m.Assignment, m.Target)
	}
	f.Add([]byte("\x12\x01("), []byte("\x0a\x02\x0a\x00"), []byte{0xff})
	limits := DefaultLimits()
	f.Fuzz(func(t *testing.T, subscription, assignment, target []byte) {
		m, err := loadConsumerMember(&fsm.GroupMember{ID: "m", Subscription: subscription, Assignment: assignment, Target: target})
		if err != nil {
			if !errors.Is(err, errConsumerStored) {
				t.Fatal(err)
			}
			return
		}
		stored := m.store(&limits)
		again, err := loadConsumerMember(&stored)
		if err != nil {
			t.Fatalf("written as what cannot be read: %v", err)
		}
		if !again.assigned.equal(m.assigned) || !again.revoking.equal(m.revoking) || !again.target.equal(m.target) || again.subscription.key != m.subscription.key {
			t.Fatalf("%+v came back as %+v", m, again)
		}
	})
}
