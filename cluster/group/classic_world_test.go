package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// classicWorld drives one classicGroup, keeps what the state machine would have of it, and checks the machine's invariants
// after every event.
type classicWorld struct {
	t      testingT
	now    time.Time
	limits Limits
	g      *classicGroup

	ids     int
	tickets ticket
	joins   map[ticket]*Joined // answers so far
	syncs   map[ticket]*Synced
	gone    map[ticket]bool // abandoned

	header  *fsm.GroupHeader
	members map[string]fsm.GroupMember
	// leaders is who was given the members of each generation, and what was made of it.
	leaders map[int32]string
}

// testingT is what testing.T and rapid.T have in common.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newClassicWorld(t testingT) *classicWorld {
	w := &classicWorld{t: t, now: time.UnixMilli(1_000_000), limits: DefaultLimits(), joins: map[ticket]*Joined{}, syncs: map[ticket]*Synced{}, gone: map[ticket]bool{},
		members: map[string]fsm.GroupMember{}, leaders: map[int32]string{}}
	w.limits.InitialDelay = 0
	w.g = newClassicGroup("g", &w.limits, w.newID)
	return w
}

func (w *classicWorld) newID(prefix string) string {
	w.ids++
	return fmt.Sprintf("%s-%d", prefix, w.ids)
}

// took notes the effects of an event as runtime and state machine would.
func (w *classicWorld) took(eff effects) {
	w.t.Helper()
	if eff.item != nil {
		w.apply(eff.item)
	}
	for _, a := range eff.answers {
		if w.joins[a.to] != nil || w.syncs[a.to] != nil {
			w.t.Fatalf("ticket %d is answered twice", a.to)
		}
		if w.gone[a.to] {
			w.t.Fatalf("ticket %d is answered after it was abandoned", a.to)
		}
		if (a.joined == nil) == (a.synced == nil) {
			w.t.Fatalf("ticket %d: want one kind of answer", a.to)
		}
		w.joins[a.to], w.syncs[a.to] = a.joined, a.synced
		if a.joined != nil && a.joined.Err == nil {
			w.joined(a.joined)
		}
	}
	w.check()
}

// apply does what UpdateGroups does.
func (w *classicWorld) apply(i *fsm.GroupItem) {
	w.t.Helper()
	i.Group, i.Epoch = "g", 1
	if err := i.Check(); err != nil {
		w.t.Fatalf("item: %v", err)
	}
	if w.header != nil && i.Header.Epoch < w.header.Epoch {
		w.t.Fatalf("generation goes back from %d to %d", w.header.Epoch, i.Header.Epoch)
	}
	w.header = i.Header
	for _, id := range i.RemoveMembers {
		delete(w.members, id)
	}
	for _, m := range i.PutMembers {
		w.members[m.ID] = m
	}
}

// joined: what a member is told of a generation is durable, and it has one leader.
func (w *classicWorld) joined(j *Joined) {
	w.t.Helper()
	if w.header == nil || w.header.Epoch < j.Generation {
		w.t.Fatalf("generation %d was given out before the state machine had it: %+v", j.Generation, w.header)
	}
	if len(j.Members) > 0 && j.Leader != j.MemberID {
		w.t.Fatalf("%q was given the members, and %q leads", j.MemberID, j.Leader)
	}
}

// check looks at the invariants of the machine.
func (w *classicWorld) check() {
	w.t.Helper()
	g := w.g
	awaiting, size, votes := 0, 0, map[string]int{}
	for id, m := range g.members {
		if m.id != id || m.instance != "" && g.static[m.instance] != id {
			w.t.Fatalf("tables disagree on member %q", id)
		}
		if m.joining != 0 {
			awaiting++
		}
		if m.joining != 0 && g.state != classicJoining || m.syncing != 0 && g.state != classicSyncing {
			w.t.Fatalf("member %q waits in state %s", id, g.state)
		}
		if m.joining == 0 && m.syncing == 0 && m.expires.IsZero() {
			w.t.Fatalf("nothing ends the session of %q", id)
		}
		size += m.bytes()
		for _, p := range m.protocols {
			votes[p.Name]++
		}
	}
	if awaiting != g.awaiting || size != g.bytes || fmt.Sprint(votes) != fmt.Sprint(g.votes) || len(g.static) > len(g.members) {
		w.t.Fatalf("sums are off: awaiting %d, want %d; bytes %d, want %d; votes %v, want %v", g.awaiting, awaiting, g.bytes, size, g.votes, votes)
	}
	if (g.state == classicEmpty) != (len(g.members) == 0) && g.state != classicJoining {
		w.t.Fatalf("%s with %d members", g.state, len(g.members))
	}
	if _, ok := g.members[g.leader]; len(g.members) > 0 && !ok {
		w.t.Fatalf("leader %q is no member", g.leader)
	}
	if g.state == classicJoining && g.joinBy.IsZero() || g.state == classicSyncing && g.syncBy.IsZero() {
		w.t.Fatalf("nothing ends %s", g.state)
	}
	w.checkStored()
}

// checkStored: a coordinator that began now would have what the members were told.
func (w *classicWorld) checkStored() {
	w.t.Helper()
	if w.header == nil {
		return
	}
	if w.header.Epoch != w.g.generation || w.header.AssignmentEpoch != w.g.assigned {
		w.t.Fatalf("stored generation %d of %d, in memory %d of %d", w.header.AssignmentEpoch, w.header.Epoch, w.g.assigned, w.g.generation)
	}
	if w.g.state != classicStable {
		return
	}
	for id, m := range w.g.members {
		if s, ok := w.members[id]; !ok || string(s.Assignment) != string(m.assignment) {
			w.t.Fatalf("member %q of a stable group is stored as %+v", id, s)
		}
	}
	if len(w.members) != len(w.g.members) {
		w.t.Fatalf("%d members stored, %d in memory", len(w.members), len(w.g.members))
	}
}

// fail over: another coordinator goes on from what is stored. Whoever waited is told so by the runtime.
func (w *classicWorld) failOver() {
	w.t.Helper()
	w.g = newClassicGroup("g", &w.limits, w.newID)
	for t := ticket(1); t <= w.tickets; t++ {
		w.gone[t] = w.gone[t] || w.joins[t] == nil && w.syncs[t] == nil
	}
	if w.header != nil {
		stored := &fsm.Group{ID: "g", GroupHeader: *w.header}
		w.g = loadClassicGroup(stored, func(yield func(*fsm.GroupMember) bool) {
			for _, m := range w.members {
				if !yield(&m) {
					return
				}
			}
		}, w.now, &w.limits, w.newID)
	}
	w.check()
}

func (w *classicWorld) join(edit func(*Join)) ticket {
	w.t.Helper()
	w.tickets++
	r := Join{Group: "g", ClientID: "c", ClientHost: "/h", Session: 10 * time.Second, Rebalance: 30 * time.Second, ProtocolType: "consumer",
		Protocols: []Protocol{{"range", []byte("r")}, {"sticky", []byte("s")}}}
	if edit != nil {
		edit(&r)
	}
	w.took(w.g.join(w.now, w.tickets, &r))
	return w.tickets
}

func (w *classicWorld) sync(id string, generation int32, given ...Assignment) ticket {
	w.t.Helper()
	w.tickets++
	w.took(w.g.sync(w.now, w.tickets, &Sync{Group: "g", Claim: Claim{MemberID: id, Generation: generation}, Assignments: given}))
	return w.tickets
}

func (w *classicWorld) beat(id string, generation int32) error {
	w.t.Helper()
	err := w.g.heartbeat(w.now, Claim{MemberID: id, Generation: generation})
	w.check()
	return err
}

func (w *classicWorld) abandon(t ticket) {
	w.t.Helper()
	w.gone[t] = w.joins[t] == nil && w.syncs[t] == nil
	w.took(w.g.abandon(w.now, t))
}

func (w *classicWorld) leave(ids ...string) []Left {
	w.t.Helper()
	var ls []Leaver
	for _, id := range ids {
		ls = append(ls, Leaver{MemberID: id})
	}
	left, eff := w.g.leave(w.now, ls)
	w.took(eff)
	return left
}

// pass lets time go by, with every tick that the machine wants.
func (w *classicWorld) pass(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for n := 0; ; n++ {
		at := w.g.deadline()
		if at.IsZero() || at.After(end) {
			break
		}
		if n > 10_000 {
			w.t.Fatalf("tick is wanted without end, at %s in state %s", at, w.g.state)
		}
		w.now = at
		w.took(w.g.tick(w.now))
		if next := w.g.deadline(); !next.IsZero() && !next.After(at) {
			w.t.Fatalf("tick at %s wants the next at %s", at, next)
		}
	}
	w.now = end
}

// joinedAs wants a ticket answered without an error.
func (w *classicWorld) joinedAs(t ticket) *Joined {
	w.t.Helper()
	if w.joins[t] == nil || w.joins[t].Err != nil {
		w.t.Fatalf("ticket %d: %+v, want to have joined (state %s)", t, w.joins[t], w.g.state)
	}
	return w.joins[t]
}

func (w *classicWorld) wantJoin(t ticket, err error) {
	w.t.Helper()
	if w.joins[t] == nil || !errors.Is(w.joins[t].Err, err) {
		w.t.Fatalf("join %d: %+v, want %v", t, w.joins[t], err)
	}
}

func (w *classicWorld) wantSync(t ticket, err error, assignment string) {
	w.t.Helper()
	if w.syncs[t] == nil || !errors.Is(w.syncs[t].Err, err) || string(w.syncs[t].Assignment) != assignment {
		w.t.Fatalf("sync %d: %+v, want %v and %q", t, w.syncs[t], err, assignment)
	}
}

func (w *classicWorld) wantState(s classicState, generation int32, members int) {
	w.t.Helper()
	if w.g.state != s || w.g.generation != generation || len(w.g.members) != members {
		w.t.Fatalf("%s, generation %d, %d members; want %s, %d, %d", w.g.state, w.g.generation, len(w.g.members), s, generation, members)
	}
}

// stable makes a group of n members, and returns their ids, the leader's first.
func (w *classicWorld) stable(n int) []string {
	w.t.Helper()
	var tickets []ticket
	ids := []string{}
	for range n {
		tickets = append(tickets, w.join(nil))
	}
	// The first one made a generation of its own; it joins again, and all are in.
	if n > 1 {
		first := w.joinedAs(tickets[0]).MemberID
		tickets[0] = w.join(func(r *Join) { r.MemberID = first })
	}
	var given []Assignment
	for _, t := range tickets {
		j := w.joinedAs(t)
		if j.MemberID == j.Leader {
			ids = slices.Insert(ids, 0, j.MemberID)
		} else {
			ids = append(ids, j.MemberID)
		}
		given = append(given, Assignment{j.MemberID, []byte("a of " + j.MemberID)})
	}
	for _, id := range ids[1:] {
		w.sync(id, w.g.generation)
	}
	w.wantSync(w.sync(ids[0], w.g.generation, given...), nil, "a of "+ids[0])
	w.wantState(classicStable, w.g.generation, n)
	return ids
}

func TestClassic_StableHelperIsStable(t *testing.T) {
	for n := 1; n < 5; n++ {
		w := newClassicWorld(t)
		if ids := w.stable(n); len(ids) != n || ids[0] != w.g.leader {
			t.Fatalf("members %v, leader %q", ids, w.g.leader)
		}
	}
}
