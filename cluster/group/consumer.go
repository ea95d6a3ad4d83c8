package group

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Member epochs with a meaning of their own (KIP-848).
const (
	// consumerJoins: the member has nothing and wants to be in the group.
	consumerJoins = 0
	// consumerLeaves: the member has given up everything and goes.
	consumerLeaves = -1
	// consumerAway: the same of a static member, which means to come back under the same instance id.
	consumerAway = -2
)

// consumerGroup is the state machine of one group of the consumer protocol (KIP-848): members tell by heartbeat what they
// subscribe to and what they have; the group gives each of them a target, and leads them there one by one. It is pure: events
// come with their time and the applied state. It is not safe for concurrent use.
//
// What must hold, after every event (checked in the tests): a range has at most one holder, which is the member that has it
// assigned or is still revoking it; no member gets a range while another holds it; the targets of the members share no
// range; no epoch goes back.
type consumerGroup struct {
	// Set once.
	id     string
	limits *Limits

	// epoch rises with every change of members, subscriptions and topics; assignmentEpoch is the epoch for which the targets
	// were made. They differ only while the targets would take more bytes than a group may.
	epoch, assignmentEpoch int32
	assignor               string
	emptySince             int64 // Unix milliseconds; 0 with members, and before the first

	members map[string]*consumerMember
	static  map[string]string // from instance id to member id
	// holders are those who may be reading a range.
	holders map[vtop.Range]string
	// resolved are the topics of each subscription that a member has, by its key.
	resolved map[string][]assignTopic
	bytes    int // of members, without their ranges

	// outdated: the targets are not those of the topics there are.
	outdated bool
	// next is a time at or before the first at which tick has something to do; zero: never.
	next time.Time

	// What the state machine has to be told.
	tellHeader bool
	dirty      map[string]bool
	gone       map[string]bool
}

// consumerMember is one member.
type consumerMember struct {
	id, instance         string
	clientID, clientHost string
	rack                 string
	rebalance            time.Duration
	assignor             string // "": whichever
	subscription         *consumerSubscription
	// topics are those of the subscription that there are.
	topics []assignTopic

	// epoch is the one given to the member last; previous the one that it named last: if our answer was lost, it names that again.
	epoch, previous int32
	// target is what it is to have; assigned what it may read; revoking what it was told to give up, and has not said that it did.
	target, assigned, revoking rangeSet
	// since is the epoch in which it got each range that it holds.
	since map[vtop.Range]int32

	// expires ends its session; revokeBy the time to give up revoking, zero if that is empty.
	expires, revokeBy time.Time
	// resend: nobody knows what it was told last, so the next answer tells all.
	resend bool
}

// newConsumerGroup makes a group without members, whose epochs go on from the one given.
func newConsumerGroup(id string, epoch int32, limits *Limits) *consumerGroup {
	return &consumerGroup{
		id: id, limits: limits, epoch: epoch, assignmentEpoch: epoch, assignor: assignNames[0], tellHeader: true,
		members: map[string]*consumerMember{}, static: map[string]string{}, holders: map[vtop.Range]string{},
		resolved: map[string][]assignTopic{}, dirty: map[string]bool{}, gone: map[string]bool{},
	}
}

func (g *consumerGroup) memberCount() int { return len(g.members) }

// sorted lists the members by id.
func (g *consumerGroup) sorted() []*consumerMember {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *consumerMember) int { return cmp.Compare(a.id, b.id) })
}

// put adds a member that is not there yet, with what it holds.
func (g *consumerGroup) put(m *consumerMember) {
	g.members[m.id] = m
	if m.instance != "" {
		g.static[m.instance] = m.id
	}
	for _, r := range m.assigned {
		g.holders[r] = m.id
	}
	for _, r := range m.revoking {
		g.holders[r] = m.id
	}
	g.bytes += m.cost()
	delete(g.gone, m.id)
	g.dirty[m.id] = true
}

// take removes a member; nobody holds then what it held.
func (g *consumerGroup) take(m *consumerMember) {
	for r := range m.since {
		delete(g.holders, r)
	}
	delete(g.members, m.id)
	if g.static[m.instance] == m.id {
		delete(g.static, m.instance)
	}
	g.bytes -= m.cost()
	delete(g.dirty, m.id)
	g.gone[m.id] = true
}

// remove takes a member out for good, and gives the others what it had.
func (g *consumerGroup) remove(v view, m *consumerMember) {
	g.take(m)
	g.regroup(v)
}

// release has a member hold some ranges no more.
func (g *consumerGroup) release(m *consumerMember, ranges rangeSet) {
	for _, r := range ranges {
		delete(g.holders, r)
		delete(m.since, r)
	}
}

// grant has a member hold some ranges that nobody holds.
func (g *consumerGroup) grant(m *consumerMember, ranges rangeSet, epoch int32) {
	for _, r := range ranges {
		g.holders[r] = m.id
		m.since[r] = epoch
	}
}

// regroup starts a new group epoch, with new targets.
func (g *consumerGroup) regroup(v view) {
	g.epoch++
	g.tellHeader = true
	g.emptySince = 0
	if len(g.members) == 0 {
		g.emptySince = v.now.UnixMilli()
	}
	g.retarget()
}

// newest is the epoch that members are led to: that of the targets. (A group without any has members all the same, and an epoch of 0 would
// tell them to join.)
func (g *consumerGroup) newest() int32 { return max(1, g.assignmentEpoch) }

// settled reports whether a member has what it is to have, in the newest epoch.
func (g *consumerGroup) settled(m *consumerMember) bool {
	return m.epoch == consumerAway || m.epoch == g.newest() && len(m.revoking) == 0 && m.assigned.equal(m.target)
}

// stateName is the state in Kafka's words.
func (g *consumerGroup) stateName() string {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case g.epoch != g.assignmentEpoch:
		return "Assigning"
	}
	for _, m := range g.members {
		if !g.settled(m) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// subscribes reports whether a member wants to read the topic of that name.
func (g *consumerGroup) subscribes(topic string) bool {
	for _, m := range g.members {
		if m.subscription.matches(topic) {
			return true
		}
	}
	return false
}

// item gathers what an event led to; nil for nothing that the state machine has to know.
func (g *consumerGroup) item() *fsm.GroupItem {
	if !g.tellHeader && len(g.dirty) == 0 && len(g.gone) == 0 {
		return nil
	}
	out := &fsm.GroupItem{
		Group: g.id,
		Header: &fsm.GroupHeader{
			Kind: fsm.GroupConsumer, Epoch: g.epoch, AssignmentEpoch: g.assignmentEpoch,
			ProtocolType: "consumer", Protocol: g.assignor, EmptySince: g.emptySince,
		},
		RemoveMembers: slices.Sorted(maps.Keys(g.gone)),
	}
	for _, id := range slices.Sorted(maps.Keys(g.dirty)) {
		out.PutMembers = append(out.PutMembers, g.members[id].store(g.limits))
	}
	g.tellHeader = false
	clear(g.dirty)
	clear(g.gone)
	return out
}

// cost is what a member takes in the state machine, without its ranges.
func (m *consumerMember) cost() int {
	return 256 + len(m.id) + len(m.instance) + len(m.clientID) + len(m.clientHost) + len(m.rack) + len(m.assignor) + m.subscription.cost()
}
