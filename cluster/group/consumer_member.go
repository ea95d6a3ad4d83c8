package group

import (
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// speaker finds the member that a heartbeat comes from: nil for one that joins and was not there; the one it takes the place of if it
// joins with the instance id of a member that is away.
func (g *consumerGroup) speaker(h *ConsumerHeartbeat) (*consumerMember, error) {
	if h.Epoch == consumerJoins {
		return g.joiner(h)
	}
	m, err := g.known(h.MemberID, h.InstanceID)
	if err != nil {
		return nil, err
	}
	held := m.assigned.or(m.revoking)
	switch {
	case h.Epoch == m.epoch:
		return m, nil
	case h.Epoch > m.epoch || h.Epoch != m.previous:
		return nil, fmt.Errorf("%w: member %q is in epoch %d, not %d: give up everything and join anew", ErrFencedMemberEpoch, m.id, m.epoch, h.Epoch)
	}
	// Our last answer was lost, if what it has is what it was given.
	for _, r := range h.Owned {
		if !held.has(r) {
			return nil, fmt.Errorf("%w: member %q says in epoch %d that it has %s, which it was not given; its epoch is %d", ErrFencedMemberEpoch, m.id, h.Epoch, r, m.epoch)
		}
	}
	return m, nil
}

// joiner is speaker for a member that joins.
func (g *consumerGroup) joiner(h *ConsumerHeartbeat) (*consumerMember, error) {
	m := g.members[h.MemberID]
	instance := ""
	if h.InstanceID != nil {
		instance = *h.InstanceID
	}
	if m != nil && m.instance != instance {
		return nil, fmt.Errorf("%w: member id %q belongs to instance id %q, not to %q", ErrInvalidRequest, m.id, m.instance, instance)
	}
	if id, used := g.static[instance]; used && id != h.MemberID {
		m = g.members[id]
		if m.epoch != consumerAway {
			return nil, fmt.Errorf("%w: instance id %q is member %q, which has not left", ErrUnreleasedInstance, instance, id)
		}
	}
	if m == nil && len(g.members) >= g.limits.MaxMembers {
		return nil, fmt.Errorf("%w: group %q has %d members", ErrGroupFull, g.id, len(g.members))
	}
	return m, nil
}

// known finds a member by its id; if it names an instance id, that must be its own.
func (g *consumerGroup) known(id string, instance *string) (*consumerMember, error) {
	if instance != nil {
		switch of, used := g.static[*instance]; {
		case !used:
			return nil, fmt.Errorf("%w: no member of group %q has the instance id %q", ErrUnknownMember, g.id, *instance)
		case of != id:
			return nil, fmt.Errorf("%w: instance id %q is member %q, not %q", ErrFencedInstance, *instance, of, id)
		}
	}
	m := g.members[id]
	if m == nil {
		return nil, fmt.Errorf("%w: group %q has no member %q", ErrUnknownMember, g.id, id)
	}
	return m, nil
}

// admit makes a member of one that joins: a new one, or the one that was there, or the one that takes the place of a static member.
// In any case it says that it has nothing, which ends what the old one was revoking.
func (g *consumerGroup) admit(old *consumerMember, s *consumerSaid) *consumerMember {
	if old == nil {
		m := &consumerMember{id: s.MemberID, subscription: s.subscription, since: map[vtop.Range]int32{}}
		if s.InstanceID != nil {
			m.instance = *s.InstanceID
		}
		g.put(m)
		return m
	}
	old.epoch = consumerJoins
	g.dirty[old.id] = true
	if old.id == s.MemberID {
		return old
	}
	heir := *old
	g.take(old)
	heir.id = s.MemberID
	g.put(&heir)
	return &heir
}

// departs has a member leave, for good or for a while.
func (g *consumerGroup) departs(v view, h *ConsumerHeartbeat) (ConsumerAnswer, *fsm.GroupItem, error) {
	m, err := g.known(h.MemberID, h.InstanceID)
	if err != nil {
		return ConsumerAnswer{}, nil, err
	}
	a := ConsumerAnswer{MemberID: m.id, Epoch: h.Epoch}
	if h.Epoch == consumerLeaves || m.instance == "" { // without an instance id nobody could come back for it
		g.remove(v, m)
		return a, g.item(), nil
	}
	g.release(m, m.revoking)
	m.revoking = nil
	m.epoch, m.previous = consumerAway, consumerAway
	g.dirty[m.id] = true
	g.unhand(m)
	g.touch(v, m)
	return a, g.item(), nil
}

// leave takes out a member that somebody else says has left: by its id, or by its instance id, or both.
func (g *consumerGroup) leave(v view, id string, instance *string) (*fsm.GroupItem, error) {
	if id == "" && instance != nil {
		id = g.static[*instance]
		if id == "" {
			return nil, fmt.Errorf("%w: no member of group %q has the instance id %q", ErrUnknownMember, g.id, *instance)
		}
	}
	m, err := g.known(id, instance)
	if err != nil {
		return nil, err
	}
	g.remove(v, m)
	return g.item(), nil
}

// checkFetch says whether a member may ask for offsets: nil for the member of nobody, who may.
func (g *consumerGroup) checkFetch(member *string, epoch int32) error {
	if member == nil || *member == "" && epoch < 0 {
		return nil
	}
	m, err := g.known(*member, nil)
	if err == nil && m.epoch != epoch {
		err = fmt.Errorf("%w: member %q is in epoch %d, not %d", ErrStaleMemberEpoch, m.id, m.epoch, epoch)
	}
	return err
}

// checkCommitOf says whether a member may commit an offset of one range. In an older epoch than its own it may if it has held the
// range since then: nobody else can have read it meanwhile (KIP-1251).
func (g *consumerGroup) checkCommitOf(member string, instance *string, epoch int32, r vtop.Range) error {
	m, err := g.known(member, instance)
	if err != nil || m.epoch == epoch {
		return err
	}
	if since, holds := m.since[r]; holds && since <= epoch && epoch < m.epoch {
		return nil
	}
	return fmt.Errorf("%w: member %q is in epoch %d, and has not held %s since epoch %d", ErrStaleMemberEpoch, m.id, m.epoch, r, epoch)
}
