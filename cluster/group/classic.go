package group

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// classicState is where the members of a classic group are.
type classicState uint8

const (
	// classicEmpty: no members.
	classicEmpty classicState = iota
	// classicJoining: members are asked to join; those that did wait for the others.
	classicJoining
	// classicSyncing: the generation is made; its members wait for what the leader assigns.
	classicSyncing
	// classicStable: the members have their assignments.
	classicStable
)

// String gives Kafka's word.
func (s classicState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// classicGroup is the state machine of one group of the classic protocol. It is pure: events come with their time, and
// what they lead to is returned. It is not safe for concurrent use.
//
// Every Join and Sync gets exactly one answer for its ticket, at once or from a later event, unless it is abandoned.
// Invariants (checked in the tests after every event): awaiting counts the members that wait in Join; votes counts for
// each protocol the members that offer it; a generation number is given out once; static and members agree.
type classicGroup struct {
	// Set once.
	id     string
	limits *Limits
	newID  func(prefix string) string

	state classicState
	// generation counts the completed joins; assigned is the generation whose assignments the members hold.
	generation, assigned   int32
	protocolType, protocol string
	leader                 string
	emptySince             int64 // Unix milliseconds; 0 with members, and before the first

	members map[string]*classicMember
	static  map[string]string    // from instance id to member id
	pending map[string]time.Time // member ids given out with ErrMemberIDRequired, and until when they are good
	votes   map[string]int
	bytes   int // of subscriptions and assignments

	awaiting int
	admitted uint64
	// joinBy ends the joining. While gathering, the first members of an empty group wait for others: grown says that
	// some came, gatherLeft how much longer that may go on.
	joinBy     time.Time
	gathering  bool
	grown      bool
	gatherLeft time.Duration
	// syncBy is when members that owe a Sync are given up.
	syncBy time.Time
	// next is a time at or before the first at which tick has something to do; zero: never.
	next time.Time

	// stored: the state machine has the group, or has it on the way.
	stored bool
	// What the state machine has to be told: the header, or the members as well, of which gone left since the last time.
	tellHeader, tellMembers bool
	gone                    []string
	answers                 []answer
}

// classicMember is one member.
type classicMember struct {
	id, instance         string
	clientID, clientHost string
	session, rebalance   time.Duration
	protocols            []Protocol
	assignment           []byte

	order            uint64 // of admission: the eldest leads
	joining, syncing ticket
	// unnamed: it has not been told its id yet, so nobody can come back for it.
	unnamed bool
	// expires ends its session; zero while it waits for an answer.
	expires  time.Time
	owesSync bool
	// told: the state machine has it; dirty: it has it otherwise.
	told, dirty bool
}

// effects are what an event led to. The answers may go out when the item, if there is one, is applied.
type effects struct {
	answers []answer
	item    *fsm.GroupItem
	// made: a generation with members was.
	made bool
}

func newClassicGroup(id string, limits *Limits, newID func(prefix string) string) *classicGroup {
	return &classicGroup{
		id: id, limits: limits, newID: newID,
		members: map[string]*classicMember{}, static: map[string]string{}, pending: map[string]time.Time{}, votes: map[string]int{},
	}
}

// loadClassicGroup goes on with a group as the applied state has it: same members, same generation; the session timers
// begin at now. If a generation was made whose assignments never came, the members are asked to join again.
func loadClassicGroup(old *fsm.Group, members iter.Seq[*fsm.GroupMember], now time.Time, limits *Limits, newID func(string) string) *classicGroup {
	g := newClassicGroup(old.ID, limits, newID)
	g.stored = true
	g.generation, g.assigned = old.Epoch, old.AssignmentEpoch
	g.protocolType, g.protocol, g.leader, g.emptySince = old.ProtocolType, old.Protocol, old.Leader, old.EmptySince
	for stored := range members {
		m := loadMember(stored)
		m.expires = now.Add(m.session)
		g.admitted++
		m.order = g.admitted
		g.add(m)
		g.want(m.expires)
	}
	switch {
	case len(g.members) == 0:
	case g.assigned == g.generation:
		g.state = classicStable
	default:
		g.state = classicJoining
		g.joinBy = now.Add(g.rebalanceTime())
		g.want(g.joinBy)
	}
	if _, ok := g.members[g.leader]; !ok {
		g.elect(func(*classicMember) bool { return true })
	}
	return g
}

// finish gathers what an event led to.
func (g *classicGroup) finish() effects {
	out := effects{answers: g.answers, made: g.tellHeader}
	if g.tellHeader || g.tellMembers {
		out.item = &fsm.GroupItem{Group: g.id, Header: g.header()}
		g.stored = true
	}
	if g.tellMembers {
		out.item.RemoveMembers, g.gone = g.gone, nil
		for _, m := range g.sorted() {
			if m.dirty || !m.told {
				out.item.PutMembers = append(out.item.PutMembers, m.store())
				m.dirty, m.told = false, true
			}
		}
	}
	g.answers, g.tellHeader, g.tellMembers = nil, false, false
	return out
}

func (g *classicGroup) header() *fsm.GroupHeader {
	return &fsm.GroupHeader{
		Kind: fsm.GroupClassic, Epoch: g.generation, AssignmentEpoch: g.assigned,
		ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, EmptySince: g.emptySince,
	}
}

// deadline is when tick is wanted; zero: not at all.
func (g *classicGroup) deadline() time.Time { return g.next }

// want has tick called at t or before.
func (g *classicGroup) want(t time.Time) {
	if !t.IsZero() && (g.next.IsZero() || t.Before(g.next)) {
		g.next = t
	}
}

// sorted lists the members by id.
func (g *classicGroup) sorted() []*classicMember {
	out := make([]*classicMember, 0, len(g.members))
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		out = append(out, g.members[id])
	}
	return out
}

// rebalanceTime is how long the slowest member needs to join again.
func (g *classicGroup) rebalanceTime() (d time.Duration) {
	for _, m := range g.members {
		d = max(d, m.rebalance)
	}
	return d
}

// add puts a member into all tables.
func (g *classicGroup) add(m *classicMember) {
	g.members[m.id] = m
	if m.instance != "" {
		g.static[m.instance] = m.id
	}
	g.count(m, 1)
}

// count adds what a member offers and takes to the sums, or with -1 subtracts it.
func (g *classicGroup) count(m *classicMember, n int) {
	for _, p := range m.protocols {
		if g.votes[p.Name] += n; g.votes[p.Name] == 0 {
			delete(g.votes, p.Name)
		}
	}
	g.bytes += n * m.bytes()
}

// take removes a member from all tables, save that nobody is told. It may lead no more.
func (g *classicGroup) take(m *classicMember) {
	delete(g.members, m.id)
	if g.static[m.instance] == m.id {
		delete(g.static, m.instance)
	}
	g.count(m, -1)
	if m.told {
		g.gone = append(g.gone, m.id)
	}
	if m.joining != 0 {
		g.awaiting--
	}
	if g.leader == m.id {
		g.elect(func(*classicMember) bool { return true })
	}
}

// remove ends a membership: whoever waits for the member is told so.
func (g *classicGroup) remove(m *classicMember, why error) {
	g.take(m)
	g.refuse(m, why)
}

// refuse answers whoever waits for a member.
func (g *classicGroup) refuse(m *classicMember, why error) {
	if m.joining != 0 {
		g.reply(m.joining, Joined{Err: why, Generation: -1, MemberID: m.id})
	}
	if m.syncing != 0 {
		g.answers = append(g.answers, answer{to: m.syncing, synced: &Synced{Err: why}})
	}
	m.joining, m.syncing = 0, 0
}

func (g *classicGroup) reply(t ticket, j Joined) {
	g.answers = append(g.answers, answer{to: t, joined: &j})
}

// elect makes the eldest member that fits the leader; none if none fits.
func (g *classicGroup) elect(fits func(*classicMember) bool) {
	var best *classicMember
	for _, m := range g.members {
		if fits(m) && (best == nil || m.order < best.order) {
			best = m
		}
	}
	g.leader = ""
	if best != nil {
		g.leader = best.id
	}
}

// memberCount is the number of members, those included that have not joined the next generation yet.
func (g *classicGroup) memberCount() int { return len(g.members) }

// idle: nothing would be lost if the group were forgotten here, for the state machine has all of it.
func (g *classicGroup) idle() bool {
	return len(g.members) == 0 && len(g.pending) == 0 && len(g.gone) == 0
}
