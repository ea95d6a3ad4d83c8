package group

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// member finds the one that makes a claim, whatever its generation.
func (g *classicGroup) member(c Claim) (*classicMember, error) {
	m, ok := g.members[c.MemberID]
	if c.InstanceID != nil {
		switch id, known := g.static[*c.InstanceID]; {
		case !known:
			return nil, fmt.Errorf("%w: group %q has no instance %q", ErrUnknownMember, g.id, *c.InstanceID)
		case id != c.MemberID:
			return nil, fmt.Errorf("%w: instance %q of group %q is member %q, not %q", ErrFencedInstance, *c.InstanceID, g.id, id, c.MemberID)
		}
	}
	if !ok {
		return nil, fmt.Errorf("%w: %q in group %q", ErrUnknownMember, c.MemberID, g.id)
	}
	return m, nil
}

// current finds the member that makes a claim of the present generation.
func (g *classicGroup) current(c Claim) (*classicMember, error) {
	m, err := g.member(c)
	if err != nil {
		return nil, err
	}
	if c.Generation == g.generation {
		return m, nil
	}
	if g.state == classicJoining && c.Generation == g.assigned && m.told {
		// A generation was made whose assignments nobody got before the coordinator changed: what the members hold is still
		// of the one before.
		return m, nil
	}
	return nil, fmt.Errorf("%w: %d, group %q is at %d", ErrIllegalGeneration, c.Generation, g.id, g.generation)
}

// sessionOf is the session timeout of the member that claims this; 0 if there is none.
func (g *classicGroup) sessionOf(c Claim) time.Duration {
	m, err := g.member(c)
	if err != nil {
		return 0
	}
	return m.session
}

// sync takes a Sync. Its answer has the ticket t, and may come with a later event.
func (g *classicGroup) sync(now time.Time, t ticket, r *Sync) effects {
	if s, wait := g.syncNow(now, t, r); !wait {
		g.answers = append(g.answers, answer{to: t, synced: &s})
	}
	return g.finish()
}

// syncNow returns the answer, unless it has to wait for the leader's Sync.
func (g *classicGroup) syncNow(now time.Time, t ticket, r *Sync) (s Synced, wait bool) {
	m, err := g.current(r.Claim)
	switch {
	case err != nil:
		return Synced{Err: err}, false
	case r.ProtocolType != nil && *r.ProtocolType != g.protocolType || r.Protocol != nil && *r.Protocol != g.protocol && g.state != classicJoining:
		return Synced{Err: fmt.Errorf("%w: group %q agreed on %q of type %q", ErrInconsistentProtocol, g.id, g.protocol, g.protocolType)}, false
	case g.state == classicJoining:
		return Synced{Err: ErrRebalance}, false
	}
	g.touch(m, now)
	if g.state == classicStable {
		m.owesSync = false
		return g.synced(m), false
	}
	if m.id == g.leader {
		if err := g.assign(now, r.Assignments); err != nil {
			return Synced{Err: err}, false
		}
		m.owesSync = false
		return g.synced(m), false
	}
	if m.syncing != 0 {
		g.answers = append(g.answers, answer{to: m.syncing, synced: &Synced{Err: fmt.Errorf("%w: the member asked again", ErrRebalance)}})
	}
	m.owesSync = false
	m.syncing, m.expires = t, time.Time{}
	return Synced{}, true
}

// assign takes what the leader made of the generation, and answers those that wait for it. Members that it does not name
// get nothing; names of nobody are passed over.
func (g *classicGroup) assign(now time.Time, given []Assignment) error {
	size := g.bytes
	byID := make(map[string][]byte, len(given))
	for _, a := range given {
		if m, ok := g.members[a.MemberID]; ok {
			size += len(a.Data) - len(m.assignment)
			byID[a.MemberID] = a.Data
		}
	}
	if size > g.limits.MaxGroupBytes {
		return fmt.Errorf("%w: subscriptions and assignments would take %d bytes, at most %d", ErrGroupFull, size, g.limits.MaxGroupBytes)
	}
	for id, m := range g.members {
		g.bytes += len(byID[id]) - len(m.assignment)
		m.dirty = m.dirty || !bytes.Equal(m.assignment, byID[id])
		m.assignment = slices.Clone(byID[id])
	}
	g.state, g.assigned, g.tellMembers = classicStable, g.generation, true
	for _, m := range g.sorted() {
		if m.syncing == 0 {
			continue
		}
		s := g.synced(m)
		g.answers = append(g.answers, answer{to: m.syncing, synced: &s})
		m.syncing = 0
		g.touch(m, now)
	}
	return nil
}

func (g *classicGroup) synced(m *classicMember) Synced {
	return Synced{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// heartbeat keeps a member's session alive. ErrRebalance: it should join.
func (g *classicGroup) heartbeat(now time.Time, c Claim) error {
	m, err := g.current(c)
	if err != nil {
		return err
	}
	if m.joining == 0 && m.syncing == 0 {
		g.touch(m, now)
	}
	if g.state == classicJoining {
		return ErrRebalance
	}
	return nil
}

// checkCommit says whether an OffsetCommit under this claim may be taken. A commit is a sign of life. Whoever claims no
// generation may commit while there are no members: a consumer that assigns by itself, or an operator.
func (g *classicGroup) checkCommit(now time.Time, c Claim) error {
	if c.Generation < 0 && len(g.members) == 0 {
		return nil
	}
	if c.Generation < 0 && c.MemberID == "" && c.InstanceID == nil {
		return fmt.Errorf("%w: group %q has members, and the commit names none", ErrUnknownMember, g.id)
	}
	m, err := g.current(c)
	switch {
	case err != nil:
		return err
	case g.state == classicSyncing:
		return fmt.Errorf("%w: group %q waits for its assignments", ErrRebalance, g.id)
	}
	if m.joining == 0 && m.syncing == 0 {
		g.touch(m, now)
	}
	return nil
}
