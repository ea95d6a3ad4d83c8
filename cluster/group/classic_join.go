package group

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// maxPrefix bounds what of the client's own name stands in its member id.
const maxPrefix = 255

// join takes a Join. Its answer has the ticket t, and may come with a later event.
func (g *classicGroup) join(now time.Time, t ticket, r *Join) effects {
	id := r.MemberID
	err := g.checkJoin(r)
	switch {
	case err != nil:
	case r.MemberID == "":
		id, err = g.joinNew(now, t, r)
	default:
		err = g.joinKnown(now, t, r)
	}
	if err != nil {
		g.reply(t, Joined{Err: err, Generation: -1, MemberID: id})
	}
	return g.finish()
}

// checkJoin looks at the request alone.
func (g *classicGroup) checkJoin(r *Join) error {
	switch l := g.limits; {
	case r.Session < l.MinSession || r.Session > l.MaxSession:
		return fmt.Errorf("%w: %s: want %s to %s", ErrInvalidSession, r.Session, l.MinSession, l.MaxSession)
	case r.ProtocolType == "" || len(r.Protocols) == 0:
		return fmt.Errorf("%w: protocol type %q with %d protocols: want at least one", ErrInconsistentProtocol, r.ProtocolType, len(r.Protocols))
	case len(r.ProtocolType) > fsm.MaxGroupName || len(r.MemberID) > fsm.MaxGroupName || r.InstanceID != nil && (*r.InstanceID == "" || len(*r.InstanceID) > fsm.MaxGroupName):
		return fmt.Errorf("%w: protocol type, member or instance id: want at most %d bytes, and no empty instance id", ErrInvalidRequest, fsm.MaxGroupName)
	}
	seen := make(map[string]struct{}, len(r.Protocols))
	for _, p := range r.Protocols {
		if _, twice := seen[p.Name]; twice || p.Name == "" || len(p.Name) > fsm.MaxGroupName {
			return fmt.Errorf("%w: protocol %.40q: want names of 1 to %d bytes, each once", ErrInvalidRequest, p.Name, fsm.MaxGroupName)
		}
		seen[p.Name] = struct{}{}
	}
	return nil
}

// fits checks the protocols and the room for a member that comes, or takes the place of old.
func (g *classicGroup) fits(r *Join, old *classicMember) error {
	others, size := len(g.members), protocolBytes(r.Protocols)+g.bytes
	if old != nil {
		others--
		size -= protocolBytes(old.protocols)
	}
	if size > g.limits.MaxGroupBytes {
		return fmt.Errorf("%w: its members would take %d bytes, at most %d", ErrGroupFull, size, g.limits.MaxGroupBytes)
	}
	if others == 0 {
		return nil
	}
	if r.ProtocolType != g.protocolType {
		return fmt.Errorf("%w: protocol type %q, the group's is %q", ErrInconsistentProtocol, r.ProtocolType, g.protocolType)
	}
	for _, p := range r.Protocols {
		votes := g.votes[p.Name]
		if old != nil && old.offers(p.Name) {
			votes--
		}
		if votes == others {
			return nil
		}
	}
	return fmt.Errorf("%w: none of its %d protocols is offered by all %d others", ErrInconsistentProtocol, len(r.Protocols), others)
}

// joinNew takes a member that has no id yet, and returns the one that it is given.
func (g *classicGroup) joinNew(now time.Time, t ticket, r *Join) (string, error) {
	prefix := r.ClientID
	if r.InstanceID != nil {
		prefix = *r.InstanceID
		if old, ok := g.members[g.static[prefix]]; ok {
			return "", g.replace(now, t, r, old)
		}
	}
	if err := g.fits(r, nil); err != nil {
		return "", err
	}
	if n := len(g.members) + len(g.pending); n >= g.limits.MaxMembers {
		return "", fmt.Errorf("%w: %d members and members to be, at most %d", ErrGroupFull, n, g.limits.MaxMembers)
	}
	id := g.newID(prefix[:min(len(prefix), maxPrefix)])
	if r.NeedsID && r.InstanceID == nil {
		g.pending[id] = now.Add(r.Session)
		g.want(g.pending[id])
		return id, ErrMemberIDRequired
	}
	g.admit(now, t, r, id, r.InstanceID == nil)
	return id, nil
}

// joinKnown takes one that names its id.
func (g *classicGroup) joinKnown(now time.Time, t ticket, r *Join) error {
	m, ok := g.members[r.MemberID]
	if _, pending := g.pending[r.MemberID]; !ok && pending && r.InstanceID == nil {
		if err := g.fits(r, nil); err != nil {
			return err
		}
		delete(g.pending, r.MemberID)
		g.admit(now, t, r, r.MemberID, false)
		return nil
	}
	if _, err := g.member(Claim{MemberID: r.MemberID, InstanceID: r.InstanceID}); err != nil {
		return err
	}
	if err := g.fits(r, m); err != nil {
		return err
	}
	switch same := m.agrees(r.Protocols); {
	case g.state == classicSyncing && same, g.state == classicStable && same && m.id != g.leader:
		// The answer to its first Join was lost, or it asks for no reason.
		g.touch(m, now)
		g.reply(t, g.joined(m))
		return nil
	}
	g.update(m, r)
	g.await(now, t, m)
	g.rebalance(now)
	return nil
}

// admit makes a member. unnamed: its id has not been told yet.
func (g *classicGroup) admit(now time.Time, t ticket, r *Join, id string, unnamed bool) {
	g.admitted++
	m := &classicMember{id: id, order: g.admitted, unnamed: unnamed}
	if r.InstanceID != nil {
		m.instance = *r.InstanceID
	}
	g.add(m)
	g.update(m, r)
	g.grown = g.gathering
	g.await(now, t, m)
	if g.leader == "" {
		g.leader = id
	}
	g.rebalance(now)
}

// update takes over what a member says of itself.
func (g *classicGroup) update(m *classicMember, r *Join) {
	g.count(m, -1)
	m.clientID, m.clientHost = r.ClientID[:min(len(r.ClientID), maxPrefix)], r.ClientHost
	m.session, m.rebalance = r.Session, min(max(r.Rebalance, 0), g.limits.MaxRebalance)
	m.protocols, m.dirty = r.Protocols, true
	g.count(m, 1)
	if len(g.members) == 1 {
		g.protocolType = r.ProtocolType
	}
}

// await parks a member until its generation is made.
func (g *classicGroup) await(now time.Time, t ticket, m *classicMember) {
	if m.joining != 0 {
		g.reply(m.joining, Joined{Err: fmt.Errorf("%w: the member joined again", ErrRebalance), Generation: -1, MemberID: m.id})
	} else {
		g.awaiting++
	}
	m.joining, m.expires = t, time.Time{}
	if m.unnamed {
		m.expires = now.Add(g.limits.NewMemberTimeout)
		g.want(m.expires)
	}
}

// rebalance asks all members to join, if they are not being asked already, and goes on if all did.
func (g *classicGroup) rebalance(now time.Time) {
	if g.state == classicJoining {
		g.completeJoin(now, false)
		return
	}
	for _, m := range g.members {
		m.owesSync = false
		if m.syncing != 0 {
			g.answers = append(g.answers, answer{to: m.syncing, synced: &Synced{Err: ErrRebalance}})
			m.syncing = 0
			g.touch(m, now)
		}
	}
	g.syncBy = time.Time{}
	limit := g.rebalanceTime()
	if g.state == classicEmpty && g.limits.InitialDelay > 0 {
		delay := min(g.limits.InitialDelay, limit)
		g.gathering, g.grown, g.gatherLeft = true, false, limit-delay
		limit = delay
	}
	g.state = classicJoining
	g.joinBy = now.Add(limit)
	g.want(g.joinBy)
	g.completeJoin(now, false)
}

// completeJoin makes the next generation of those that joined: when all did, or anyhow.
func (g *classicGroup) completeJoin(now time.Time, anyhow bool) {
	all := !g.gathering && g.awaiting == len(g.members) && len(g.pending) == 0
	if !anyhow && !all && len(g.members) > 0 {
		return
	}
	for _, m := range g.sorted() {
		if m.joining == 0 && m.instance == "" {
			g.remove(m, ErrUnknownMember)
		}
	}
	if len(g.members) > 0 && g.awaiting == 0 {
		// Only static members that are away are left. They keep their places until their sessions end.
		g.joinBy = now.Add(g.rebalanceTime())
		g.want(g.joinBy)
		return
	}
	g.joinBy, g.gathering = time.Time{}, false
	if len(g.members) == 0 && !g.stored {
		g.state, g.leader = classicEmpty, "" // as if nobody had come
		return
	}
	if g.generation < math.MaxInt32 {
		g.generation++
	}
	if len(g.members) == 0 {
		g.becomeEmpty(now)
		return
	}
	if m := g.members[g.leader]; m == nil || m.joining == 0 {
		g.elect(func(m *classicMember) bool { return m.joining != 0 })
	}
	g.state, g.protocol, g.emptySince, g.tellHeader = classicSyncing, g.choose(), 0, true
	g.syncBy = now.Add(g.rebalanceTime())
	g.want(g.syncBy)
	for _, m := range g.sorted() {
		m.owesSync = true
		t := m.joining
		m.joining, m.unnamed = 0, false
		g.touch(m, now)
		if t != 0 {
			g.reply(t, g.joined(m))
		}
	}
	g.awaiting = 0
}

// becomeEmpty ends the last generation with members.
func (g *classicGroup) becomeEmpty(now time.Time) {
	g.state, g.protocol, g.leader = classicEmpty, "", ""
	g.assigned, g.emptySince, g.syncBy = g.generation, now.UnixMilli(), time.Time{}
	g.tellMembers = true
}

// joined is what a member of the present generation is told.
func (g *classicGroup) joined(m *classicMember) Joined {
	j := Joined{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, MemberID: m.id}
	if m.id == g.leader {
		for _, other := range g.sorted() {
			j.Members = append(j.Members, JoinedMember{other.id, other.instanceID(), other.metadata(g.protocol)})
		}
	}
	return j
}

// choose finds the protocol that all offer and most prefer; of equals the first by name.
func (g *classicGroup) choose() string {
	ballot := map[string]int{}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.votes[p.Name] == len(g.members) {
				ballot[p.Name]++
				break
			}
		}
	}
	best, most := "", 0
	for name, n := range ballot {
		if n > most || n == most && cmp.Less(name, best) {
			best, most = name, n
		}
	}
	return best
}

// touch begins the session of a member anew.
func (g *classicGroup) touch(m *classicMember, now time.Time) {
	m.expires = now.Add(m.session)
	g.want(m.expires)
}
