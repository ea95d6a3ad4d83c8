package group

import (
	"fmt"
	"time"
)

// leave takes members out, each by itself.
func (g *classicGroup) leave(now time.Time, leavers []Leaver) ([]Left, effects) {
	out := make([]Left, len(leavers))
	left := false
	for i, l := range leavers {
		out[i] = Left{Leaver: l}
		m, err := g.leaver(l)
		switch {
		case err != nil:
			out[i].Err = err
		case m != nil:
			g.remove(m, fmt.Errorf("%w: it was taken out of the group", ErrUnknownMember))
		}
		left = left || err == nil
	}
	if left {
		g.missing(now)
	}
	return out, g.finish()
}

// leaver finds who leaves; nil without an error for one that had only been given its id.
func (g *classicGroup) leaver(l Leaver) (*classicMember, error) {
	if _, ok := g.pending[l.MemberID]; ok && l.InstanceID == nil {
		delete(g.pending, l.MemberID)
		return nil, nil
	}
	c := Claim{MemberID: l.MemberID, InstanceID: l.InstanceID}
	if l.InstanceID != nil && l.MemberID == "" { // an operator, who knows the instance only
		c.MemberID = g.static[*l.InstanceID]
	}
	return g.member(c)
}

// missing goes on after members went: the others share anew, or need wait no longer.
func (g *classicGroup) missing(now time.Time) {
	switch g.state {
	case classicEmpty:
	default:
		g.rebalance(now)
	}
}

// abandon: whoever waited with a ticket is gone, its connection with it. A member that nobody can come back for goes at
// once; another has its session to come back in.
func (g *classicGroup) abandon(now time.Time, t ticket) effects {
	for _, m := range g.members {
		switch t {
		case m.joining:
			m.joining = 0
			g.awaiting--
			if m.unnamed {
				g.remove(m, ErrUnknownMember)
				g.missing(now)
			} else {
				g.touch(m, now)
			}
		case m.syncing:
			m.syncing = 0
			g.touch(m, now)
		default:
			continue
		}
		break
	}
	return g.finish()
}

// tick does what is due: sessions that ended, joins that took too long, members that never asked for their assignment.
func (g *classicGroup) tick(now time.Time) effects {
	lost := false
	for id, until := range g.pending {
		if !until.After(now) {
			delete(g.pending, id)
			lost = true // the joining waits for it no longer
		}
	}
	late := !g.syncBy.IsZero() && !g.syncBy.After(now)
	stuck := false
	for _, m := range g.sorted() {
		if due(m.expires, now) || late && m.owesSync {
			stuck = true
			g.remove(m, fmt.Errorf("%w: its time ran out", ErrUnknownMember))
		}
	}
	if late {
		g.syncBy = time.Time{}
	}
	switch {
	case stuck:
		g.missing(now)
	case lost && g.state == classicJoining:
		g.completeJoin(now, false)
	}
	if g.state == classicJoining && due(g.joinBy, now) {
		g.endJoining(now)
	}
	g.reckon()
	return g.finish()
}

func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// endJoining: the time to join is over, unless the first members of a group are still coming in.
func (g *classicGroup) endJoining(now time.Time) {
	if g.gathering && g.grown && g.gatherLeft > 0 {
		d := min(g.limits.InitialDelay, g.gatherLeft)
		g.grown, g.gatherLeft, g.joinBy = false, g.gatherLeft-d, now.Add(d)
		return
	}
	g.gathering = false
	g.completeJoin(now, true)
}

// reckon finds when tick is wanted next.
func (g *classicGroup) reckon() {
	g.next = time.Time{}
	for _, until := range g.pending {
		g.want(until)
	}
	for _, m := range g.members {
		g.want(m.expires)
	}
	g.want(g.joinBy)
	g.want(g.syncBy)
}

// rearm begins all times anew: members could not be heard for a while, and that was not their fault.
func (g *classicGroup) rearm(now time.Time) {
	for id := range g.pending {
		g.pending[id] = now.Add(g.limits.MinSession)
	}
	for _, m := range g.members {
		switch {
		case m.unnamed && m.joining != 0:
			m.expires = now.Add(g.limits.NewMemberTimeout)
		case m.joining == 0 && m.syncing == 0:
			m.expires = now.Add(m.session)
		}
	}
	if !g.joinBy.IsZero() && !g.gathering {
		g.joinBy = now.Add(g.rebalanceTime())
	}
	if !g.syncBy.IsZero() {
		g.syncBy = now.Add(g.rebalanceTime())
	}
	g.reckon()
}
