package group

import (
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// ConsumerHeartbeat is what a member of a consumer group says of itself. Pointers, and Topics, that are nil, mean that it is
// as the member said last.
type ConsumerHeartbeat struct {
	Group, MemberID string
	// Epoch is the member's; 0 joins, -1 leaves, -2 leaves for a while (a static member).
	Epoch                int32
	InstanceID, Rack     *string
	ClientID, ClientHost string
	// Rebalance is the time that the member needs to give up ranges; negative: as before.
	Rebalance time.Duration
	Topics    []string
	// Regex is a subscription to all topics whose whole name it matches, in the syntax of RE2; empty: to none.
	Regex    *string
	Assignor *string
	// Owned is what the member has; nil: as it said last; empty: nothing.
	Owned []vtop.Range
}

// ConsumerAnswer answers a heartbeat.
type ConsumerAnswer struct {
	MemberID string
	Epoch    int32
	// Interval is when the next heartbeat is expected; 0 after leaving.
	Interval time.Duration
	// Assigned is all that the member may read, in order; nil if that is as it was told last.
	Assigned []vtop.Range
}

// full reports whether the member says everything of itself: it may have missed an answer.
func (h *ConsumerHeartbeat) full() bool {
	return h.Rebalance >= 0 && (h.Topics != nil || h.Regex != nil) && h.Owned != nil
}

// check looks at the fields alone.
func (h *ConsumerHeartbeat) check() error {
	switch {
	case h.MemberID == "":
		return fmt.Errorf("%w: member id is empty", ErrInvalidRequest)
	case len(h.MemberID) > fsm.MaxGroupName || len(h.ClientID) > fsm.MaxGroupName || len(h.ClientHost) > fsm.MaxGroupName:
		return fmt.Errorf("%w: member id, client id or host above %d bytes", ErrInvalidRequest, fsm.MaxGroupName)
	case h.InstanceID != nil && (*h.InstanceID == "" || len(*h.InstanceID) > fsm.MaxGroupName):
		return fmt.Errorf("%w: instance id of %d bytes: want 1 to %d", ErrInvalidRequest, len(*h.InstanceID), fsm.MaxGroupName)
	case h.Rack != nil && (*h.Rack == "" || len(*h.Rack) > fsm.MaxGroupName):
		return fmt.Errorf("%w: rack of %d bytes: want 1 to %d", ErrInvalidRequest, len(*h.Rack), fsm.MaxGroupName)
	case h.Epoch < consumerAway:
		return fmt.Errorf("%w: member epoch %d: want %d or more", ErrInvalidRequest, h.Epoch, consumerAway)
	case h.Epoch == consumerJoins && h.Rebalance < 0:
		return fmt.Errorf("%w: a member that joins must give its rebalance timeout", ErrInvalidRequest)
	case h.Epoch == consumerJoins && (h.Owned == nil || len(h.Owned) > 0):
		return fmt.Errorf("%w: a member that joins must say that it owns nothing", ErrInvalidRequest)
	case h.Epoch == consumerJoins && h.Topics == nil && h.Regex == nil:
		return fmt.Errorf("%w: a member that joins must say what it subscribes to", ErrInvalidRequest)
	case h.Assignor != nil && *h.Assignor != "" && !assignKnown(*h.Assignor):
		return fmt.Errorf("%w: %q: want one of %q", ErrUnsupportedAssignor, *h.Assignor, assignNames)
	}
	return nil
}

// heartbeat takes what a member says. An error means that nothing changed.
func (g *consumerGroup) heartbeat(v view, h *ConsumerHeartbeat) (ConsumerAnswer, *fsm.GroupItem, error) {
	if err := h.check(); err != nil {
		return ConsumerAnswer{}, nil, err
	}
	if h.Epoch < 0 {
		return g.departs(v, h)
	}
	old, err := g.speaker(h)
	if err != nil {
		return ConsumerAnswer{}, nil, err
	}
	said, err := g.said(old, h)
	if err != nil {
		return ConsumerAnswer{}, nil, err
	}
	m := old
	if h.Epoch == consumerJoins {
		m = g.admit(old, said)
	}
	missed := h.Epoch != m.epoch || m.resend
	before := m.assigned
	changed := g.update(v, m, said) || old == nil
	if changed || g.outdated {
		g.regroup(v)
	}
	m.previous = h.Epoch
	g.touch(v, m)
	g.reconcile(v, m, h.Owned)
	a := ConsumerAnswer{MemberID: m.id, Epoch: m.epoch, Interval: g.interval(m)}
	if missed || h.full() || !m.assigned.equal(before) {
		a.Assigned = append([]vtop.Range{}, m.assigned...)
		m.resend = false
	}
	return a, g.item(), nil
}

// interval asks a member that waits for something to come back soon: what it waits for may be free by then.
func (g *consumerGroup) interval(m *consumerMember) time.Duration {
	if g.settled(m) {
		return g.limits.ConsumerHeartbeat
	}
	return max(g.limits.ConsumerHeartbeat/5, time.Millisecond)
}

// consumerSaid is a heartbeat put together with what its member said before.
type consumerSaid struct {
	*ConsumerHeartbeat
	subscription *consumerSubscription
	assignor     string
	rack         string
	rebalance    time.Duration
}

// said completes a heartbeat by what is known of its member, which may be nil, and refuses what is too much.
func (g *consumerGroup) said(old *consumerMember, h *ConsumerHeartbeat) (*consumerSaid, error) {
	s := &consumerSaid{ConsumerHeartbeat: h}
	var names []string
	pattern, cost := "", 0
	if old != nil {
		names, pattern, cost = old.subscription.names, old.subscription.pattern, old.cost()
		s.assignor, s.rack, s.rebalance = old.assignor, old.rack, old.rebalance
	}
	if h.Topics != nil {
		names = h.Topics
	}
	if h.Regex != nil {
		pattern = *h.Regex
	}
	if h.Epoch == consumerJoins { // what a member that joins does not say it does not want
		names, s.assignor, s.rack = h.Topics, "", ""
		if h.Regex == nil {
			pattern = ""
		}
	}
	if h.Assignor != nil {
		s.assignor = *h.Assignor
	}
	if h.Rack != nil {
		s.rack = *h.Rack
	}
	if h.Rebalance >= 0 {
		s.rebalance = min(h.Rebalance, g.limits.MaxRebalance)
	}
	if old != nil && h.Topics == nil && h.Regex == nil {
		s.subscription = old.subscription
		return s, nil
	}
	var err error
	if s.subscription, err = newConsumerSubscription(names, pattern); err != nil {
		return nil, err
	}
	if more := s.cost() - cost; more > 0 && g.bytes+more > g.limits.MaxGroupBytes/2 { // the other half is for what they are assigned
		return nil, fmt.Errorf("%w: members of group %q take %d bytes, at most %d", ErrGroupFull, g.id, g.bytes+more, g.limits.MaxGroupBytes/2)
	}
	return s, nil
}

// cost is that of the member of whom it is said.
func (s *consumerSaid) cost() int {
	m := consumerMember{id: s.MemberID, clientID: s.ClientID, clientHost: s.ClientHost, rack: s.rack, assignor: s.assignor, subscription: s.subscription}
	if s.InstanceID != nil {
		m.instance = *s.InstanceID
	}
	return m.cost()
}

// update takes over what a member says of itself, and reports whether it needs new targets.
func (g *consumerGroup) update(v view, m *consumerMember, s *consumerSaid) bool {
	g.bytes -= m.cost()
	defer func() { g.bytes += m.cost() }()
	voted := m.assignor
	if m.clientID != s.ClientID || m.clientHost != s.ClientHost || m.rack != s.rack || m.assignor != s.assignor || m.rebalance != s.rebalance {
		m.clientID, m.clientHost, m.rack, m.assignor, m.rebalance = s.ClientID, s.ClientHost, s.rack, s.assignor, s.rebalance
		g.dirty[m.id] = true
	}
	changed := m.subscription.key != s.subscription.key
	if changed {
		m.subscription = s.subscription
		g.dirty[m.id] = true
	}
	if changed || m.topics == nil {
		m.topics = g.lookup(m.subscription, v.state)
	}
	return changed || m.assignor != voted && g.vote() != g.assignor
}
