package group

import (
	"fmt"
	"time"
)

// replace gives the place of a static member to a new process of the same instance (KIP-345), under a new member id. In a
// stable group that would choose the same protocol, nobody is asked to join: the newcomer takes over the assignment.
func (g *classicGroup) replace(now time.Time, t ticket, r *Join, old *classicMember) error {
	if err := g.fits(r, old); err != nil {
		return err
	}
	g.admitted++
	m := &classicMember{
		id: g.newID(old.instance), instance: old.instance, order: old.order, assignment: old.assignment,
		protocols: old.protocols, owesSync: old.owesSync, dirty: true,
	}
	led := g.leader == old.id
	g.remove(old, fmt.Errorf("%w: another process of %q joined", ErrFencedInstance, old.instance))
	g.add(m)
	g.update(m, r)
	if led {
		g.leader = m.id
	}
	if g.state == classicStable && g.choose() == g.protocol {
		g.touch(m, now)
		g.tellMembers = true
		g.reply(t, g.resumed(m, led, old.id, r.SkipsAssignment))
		return nil
	}
	g.await(now, t, m)
	g.rebalance(now)
	return nil
}

// resumed is what a newcomer in the place of a static member is told. As leader it must not assign, for the others are not
// waiting: a client that knows no SkipAssignment is told of another leader, so that it brings nothing.
func (g *classicGroup) resumed(m *classicMember, led bool, oldID string, skips bool) Joined {
	j := g.joined(m)
	switch {
	case led && skips:
		j.SkipAssignment = true
	case led:
		j.Leader, j.Members = oldID, nil
	}
	return j
}
