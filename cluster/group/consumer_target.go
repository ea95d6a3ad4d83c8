package group

import (
	"cmp"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// vote is the assignor that most members ask for; the first of the table where as many ask for another, or nobody for any.
func (g *consumerGroup) vote() string {
	votes := map[string]int{}
	for _, m := range g.members {
		votes[m.assignor]++
	}
	best := assignNames[0]
	for _, name := range assignNames[1:] {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// retarget makes new targets for the present epoch. If they took more bytes than a group may have, the old ones stay, and
// the group is Assigning until it has fewer ranges to give: nobody loses anything by it.
func (g *consumerGroup) retarget() {
	g.outdated = false
	members := g.sorted()
	in := make([]assignMember, len(members))
	for i, m := range members {
		in[i] = assignMember{key: cmp.Or(m.instance, m.id), topics: m.topics, owned: m.target}
	}
	assignor := g.vote()
	targets := assign(assignor, in)
	if !g.fits(targets) {
		return
	}
	if g.assignmentEpoch != g.epoch || g.assignor != assignor {
		g.assignmentEpoch, g.assignor, g.tellHeader = g.epoch, assignor, true
	}
	for i, m := range members {
		if !m.target.equal(targets[i]) {
			m.target = targets[i]
			g.dirty[m.id] = true
		}
		if m.epoch == consumerAway {
			g.unhand(m)
		}
	}
}

// unhand has a static member that is away, and so reads nothing, keep only what it is to have when it comes back.
func (g *consumerGroup) unhand(m *consumerMember) {
	lost := m.assigned.minus(m.target)
	if len(lost) == 0 {
		return
	}
	g.release(m, lost)
	m.assigned = m.assigned.and(m.target)
	g.dirty[m.id] = true
}

// fits reports whether the targets, and assignments as large, may be kept beside the members.
func (g *consumerGroup) fits(targets []rangeSet) bool {
	sum := 0
	for _, s := range targets {
		cost := consumerCost(s)
		if cost > fsm.MaxMemberBytes/2 { // an assignment may have what it had and what it gets
			return false
		}
		sum += cost
	}
	return g.bytes+2*sum <= g.limits.MaxGroupBytes
}

// consumerCost is what a set of ranges takes at most when it is kept.
func consumerCost(s rangeSet) int {
	cost := 10 * len(s)
	var last vtop.TopicID
	for i, r := range s {
		if i == 0 || r.Topic != last {
			cost += 32
			last = r.Topic
		}
	}
	return cost
}
