package group

import (
	"slices"

	"github.com/vtop-log/vtop"
)

// reconcile leads a member one step towards its target. owned is what the member says it has, nil if it says nothing, which
// tells as much as that it still has everything.
//
//  1. What it is to lose it is told to revoke; it stays in its epoch, and holds that until it says that it has given it up.
//  2. Then it is in the newest epoch, and gets what nobody holds of what it is to have.
//  3. The rest it gets as the others let go of it, within the same epoch.
//
// A range passes through nobody's hands on its way from one member to another.
func (g *consumerGroup) reconcile(v view, m *consumerMember, owned []vtop.Range) {
	if len(m.revoking) > 0 {
		if consumerOwns(owned, m.revoking) {
			return
		}
		g.release(m, m.revoking)
		m.revoking = nil
		g.dirty[m.id] = true
	}
	if lost := m.assigned.minus(m.target); len(lost) > 0 {
		m.assigned = m.assigned.and(m.target)
		g.dirty[m.id] = true
		if consumerOwns(owned, lost) {
			m.revoking = lost
			m.revokeBy = v.now.Add(m.rebalance)
			g.want(m.revokeBy)
			return
		}
		g.release(m, lost)
	}
	if m.epoch != g.newest() {
		m.epoch = g.newest()
		g.dirty[m.id] = true
	}
	free := m.target.minus(m.assigned).where(func(r vtop.Range) bool { return g.holders[r] == "" })
	if len(free) > 0 {
		g.grant(m, free, m.epoch)
		m.assigned = m.assigned.or(free)
		g.dirty[m.id] = true
	}
}

// consumerOwns reports whether a member that says it has owned may have any of ranges.
func consumerOwns(owned []vtop.Range, ranges rangeSet) bool {
	return owned == nil || slices.ContainsFunc(owned, ranges.has)
}
