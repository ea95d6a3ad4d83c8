package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// consumerWorld drives one consumerGroup over a real state of topics, keeps what the state machine would have of the group, and
// checks after every event what must always hold.
type consumerWorld struct {
	t       *testing.T
	machine *fsm.Machine
	index   uint64
	topics  int
	now     time.Time
	limits  Limits
	g       *consumerGroup

	header  *fsm.GroupHeader
	members map[string]fsm.GroupMember
	epochs  int32 // the highest group epoch seen
}

func newConsumerWorld(t *testing.T) *consumerWorld {
	w := &consumerWorld{t: t, machine: fsm.New(fsm.Options{}), now: time.UnixMilli(1_000_000), limits: DefaultLimits(), members: map[string]fsm.GroupMember{}}
	w.apply(&fsm.BootstrapCluster{ID: vtop.ClusterID{1}, Level: fsm.LevelFirst})
	w.apply(&fsm.RegisterNode{Name: "n1", Identity: fsm.Identity{Storage: vtop.StorageID{1}, RaftID: "n1", Incarnation: 1, BootNonce: vtop.UUID{1}, MaxLevel: fsm.LevelMax,
		Addresses: fsm.Addresses{Kafka: "127.0.0.1:9092", Peer: "127.0.0.1:1", Gossip: "127.0.0.1:2", Admin: "127.0.0.1:3"}}})
	w.g = newConsumerGroup("g", 0, &w.limits)
	return w
}

func (w *consumerWorld) apply(cmd fsm.Command) {
	w.t.Helper()
	w.index++
	if out := w.machine.ApplyCommands(w.index, cmd)[0]; out.Refusal != nil {
		w.t.Fatalf("%T: %v", cmd, out.Refusal)
	}
}

func (w *consumerWorld) view() view { return view{now: w.now, state: w.machine.State()} }

// topic creates a topic of that many ranges, and has the group look.
func (w *consumerWorld) topic(name string, ranges int) vtop.TopicID {
	w.t.Helper()
	w.topics++
	id := vtop.TopicID{14: byte(w.topics >> 8), 15: byte(w.topics)}
	w.apply(&fsm.CreateTopic{ID: id, Name: name, Ranges: onOne(ranges)})
	w.tick()
	return id
}

func onOne(ranges int) (out [][]vtop.NodeName) {
	for range ranges {
		out = append(out, []vtop.NodeName{"n1"})
	}
	return out
}

func (w *consumerWorld) grow(id vtop.TopicID, by int) {
	w.t.Helper()
	t, _ := w.machine.State().Topic(id)
	w.apply(&fsm.CreateRanges{Topic: id, Expected: t.Ranges, Ranges: onOne(by)})
	w.tick()
}

func (w *consumerWorld) drop(id vtop.TopicID) {
	w.t.Helper()
	w.apply(&fsm.DeleteTopic{ID: id})
	w.tick()
}

func (w *consumerWorld) tick() {
	w.t.Helper()
	w.took(w.g.tick(w.view()))
}

// pass lets time pass, and calls tick as the group wants it.
func (w *consumerWorld) pass(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for at := w.g.deadline(); !at.IsZero() && !at.After(end); at = w.g.deadline() {
		w.now = at
		w.tick()
		if next := w.g.deadline(); !next.IsZero() && !next.After(at) {
			w.t.Fatalf("after the tick at %s the next is wanted at %s", at, next)
		}
	}
	w.now = end
}

func (w *consumerWorld) beat(h ConsumerHeartbeat) (ConsumerAnswer, error) {
	w.t.Helper()
	h.Group = "g"
	a, item, err := w.g.heartbeat(w.view(), &h)
	if err != nil && item != nil {
		w.t.Fatalf("a refused heartbeat led to %+v", item)
	}
	w.took(item)
	return a, err
}

// took does with an item what the state machine does, and checks the group.
func (w *consumerWorld) took(item *fsm.GroupItem) {
	w.t.Helper()
	if item != nil {
		item.Epoch = 1
		if err := item.Check(); err != nil {
			w.t.Fatalf("item: %v", err)
		}
		if w.header != nil && item.Header.Epoch < w.header.Epoch {
			w.t.Fatalf("the group epoch went from %d to %d", w.header.Epoch, item.Header.Epoch)
		}
		w.header = item.Header
		for _, id := range item.RemoveMembers {
			delete(w.members, id)
		}
		for _, m := range item.PutMembers {
			w.members[m.ID] = m
		}
	}
	w.check()
}

// stored is the group as the state machine has it.
func (w *consumerWorld) stored() (*fsm.Group, func(func(*fsm.GroupMember) bool)) {
	return &fsm.Group{ID: "g", GroupHeader: *w.header}, func(yield func(*fsm.GroupMember) bool) {
		for _, id := range slices.Sorted(maps.Keys(w.members)) {
			m := w.members[id]
			if !yield(&m) {
				return
			}
		}
	}
}

// failover has a new coordinator take the group from what the state machine has.
func (w *consumerWorld) failover() {
	w.t.Helper()
	if w.header == nil {
		w.g = newConsumerGroup("g", 0, &w.limits)
		return
	}
	old, members := w.stored()
	g, err := loadConsumerGroup(old, members, w.view(), &w.limits)
	if err != nil {
		w.t.Fatal(err)
	}
	w.g = g
	w.check()
}

// check is what must hold of the group at every moment.
func (w *consumerWorld) check() {
	w.t.Helper()
	g := w.g
	holders, targets, bytes := map[vtop.Range]string{}, map[vtop.Range]string{}, 0
	for id, m := range g.members {
		if m.id != id || m.instance != "" && g.static[m.instance] != id {
			w.t.Fatalf("member %q is filed as %q, its instance id under %q", m.id, id, g.static[m.instance])
		}
		if both := m.assigned.and(m.revoking); len(both) > 0 {
			w.t.Fatalf("member %q has assigned and is revoking %v", id, both)
		}
		for _, r := range m.assigned.or(m.revoking) {
			if other, held := holders[r]; held {
				w.t.Fatalf("%v is held by %q and %q", r, other, id)
			}
			holders[r] = id
			if _, has := m.since[r]; !has {
				w.t.Fatalf("member %q holds %v since never", id, r)
			}
		}
		for _, r := range m.target {
			if other, twice := targets[r]; twice {
				w.t.Fatalf("%v is the target of %q and %q", r, other, id)
			}
			targets[r] = id
		}
		if m.epoch > g.newest() || m.epoch < consumerAway || m.epoch == consumerLeaves {
			w.t.Fatalf("member %q is in epoch %d, the newest is %d", id, m.epoch, g.newest())
		}
		bytes += m.cost()
	}
	if !maps.Equal(holders, g.holders) {
		w.t.Fatalf("holders are %v, filed are %v", holders, g.holders)
	}
	if bytes != g.bytes || g.epoch < w.epochs {
		w.t.Fatalf("%d bytes counted as %d; group epoch %d after %d", bytes, g.bytes, g.epoch, w.epochs)
	}
	w.epochs = g.epoch
	if g.item() != nil {
		w.t.Fatal("something was not told to the state machine")
	}
	w.checkStored()
}

// checkStored: the state machine has all of the group that another coordinator needs.
func (w *consumerWorld) checkStored() {
	w.t.Helper()
	if w.header == nil {
		return
	}
	old, members := w.stored()
	g, err := loadConsumerGroup(old, members, w.view(), &w.limits)
	if err != nil {
		w.t.Fatalf("load: %v", err)
	}
	if len(g.members) != len(w.g.members) || g.epoch != w.g.epoch || g.assignmentEpoch != w.g.assignmentEpoch || g.assignor != w.g.assignor || g.emptySince != w.g.emptySince {
		w.t.Fatalf("stored is %+v, want %+v", old, w.g)
	}
	for id, m := range w.g.members {
		l := g.members[id]
		if l == nil || l.epoch != m.epoch || l.instance != m.instance || l.subscription.key != m.subscription.key || l.rebalance != m.rebalance || l.assignor != m.assignor ||
			!l.target.equal(m.target) || !l.assigned.equal(m.assigned) || !l.revoking.equal(m.revoking) || !maps.Equal(l.since, m.since) {
			w.t.Fatalf("stored of %q is %+v, want %+v", id, l, m)
		}
	}
}

// join is the first heartbeat of a member, to topics by name.
func join(id string, topics ...string) ConsumerHeartbeat {
	return ConsumerHeartbeat{MemberID: id, Rebalance: time.Minute, Topics: append([]string{}, topics...), Owned: []vtop.Range{}}
}

// alive is a heartbeat that says nothing but that.
func alive(id string, epoch int32) ConsumerHeartbeat {
	return ConsumerHeartbeat{MemberID: id, Epoch: epoch, Rebalance: -1}
}

// owning is a heartbeat that says what the member has.
func owning(id string, epoch int32, owned ...vtop.Range) ConsumerHeartbeat {
	return ConsumerHeartbeat{MemberID: id, Epoch: epoch, Rebalance: -1, Owned: append([]vtop.Range{}, owned...)}
}

// draw shows a member's state in one line, with ranges as topic number and index.
func (w *consumerWorld) draw(id string) string {
	m := w.g.members[id]
	if m == nil {
		return "gone"
	}
	set := func(s rangeSet) string {
		var parts []string
		for _, r := range s {
			parts = append(parts, fmt.Sprintf("%d/%d", r.Topic[15], r.Index))
		}
		return strings.Join(parts, " ")
	}
	return fmt.Sprintf("epoch %d: [%s] revoking [%s] target [%s]", m.epoch, set(m.assigned), set(m.revoking), set(m.target))
}

func (w *consumerWorld) want(id, drawn string) {
	w.t.Helper()
	if got := w.draw(id); got != drawn {
		w.t.Fatalf("member %s is at %s\nwant %s", id, got, drawn)
	}
}

func (w *consumerWorld) must(h ConsumerHeartbeat) ConsumerAnswer {
	w.t.Helper()
	a, err := w.beat(h)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}
