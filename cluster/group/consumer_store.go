package group

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group/grouppb"
	"github.com/vtop-log/vtop/fsm"
)

// errConsumerStored: what the state machine has of a member cannot be read.
var errConsumerStored = errors.New("unreadable member of a consumer group")

// loadConsumerGroup goes on with a group as the applied state has it: same members, same epochs, same holders. The timers begin
// at v.now. Members are told all of their assignment again: nobody knows what they were told last. The group is good even with an
// error: it is without the members that cannot be read, and its next item takes those out.
func loadConsumerGroup(old *fsm.Group, members iter.Seq[*fsm.GroupMember], v view, limits *Limits) (*consumerGroup, error) {
	g := newConsumerGroup(old.ID, old.Epoch, limits)
	g.tellHeader = false
	g.assignmentEpoch, g.emptySince = old.AssignmentEpoch, old.EmptySince
	if assignKnown(old.Protocol) {
		g.assignor = old.Protocol
	}
	var errs error
	targets := map[vtop.Range]bool{}
	for stored := range members {
		m, err := loadConsumerMember(stored)
		if err == nil {
			err = g.admits(m)
		}
		if err != nil {
			errs = errors.Join(errs, err)
			g.gone[stored.ID] = true
			continue
		}
		g.put(m)
		m.topics = g.lookup(m.subscription, v.state)
		for _, r := range m.target {
			targets[r] = true
		}
	}
	clear(g.dirty)
	g.rearm(v)
	if g.outdated = errs != nil || !g.covers(targets); g.outdated {
		g.want(v.now)
	}
	return g, errs
}

// admits refuses a member that holds what another does, or has another's instance id.
func (g *consumerGroup) admits(m *consumerMember) error {
	if id, used := g.static[m.instance]; used {
		return fmt.Errorf("%w %q: it has the instance id of %q", errConsumerStored, m.id, id)
	}
	for r := range m.since {
		if id, held := g.holders[r]; held {
			return fmt.Errorf("%w %q: it holds %s, as %q does", errConsumerStored, m.id, r, id)
		}
	}
	return nil
}

// covers reports whether the targets are made of all ranges that members subscribe to, and no others. Topics may have changed while nobody
// looked.
func (g *consumerGroup) covers(targets map[vtop.Range]bool) bool {
	seen := map[vtop.TopicID]bool{}
	total := 0
	for _, m := range g.members {
		for _, t := range m.topics {
			if seen[t.id] {
				continue
			}
			seen[t.id] = true
			for i := range t.ranges {
				if !targets[vtop.Range{Topic: t.id, Index: i}] {
					return false
				}
			}
			total += int(t.ranges)
		}
	}
	return total == len(targets)
}

// store gives the member as the state machine keeps it.
func (m *consumerMember) store(limits *Limits) fsm.GroupMember {
	names := make([][]byte, len(m.subscription.names))
	for i, name := range m.subscription.names {
		names[i] = []byte(name)
	}
	return fsm.GroupMember{
		ID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Rack: m.rack,
		RebalanceTimeoutMS: int32(m.rebalance.Milliseconds()), SessionTimeoutMS: int32(limits.ConsumerSession.Milliseconds()),
		Epoch: m.epoch, PreviousEpoch: m.previous,
		Subscription: consumerEncode(&grouppb.Subscription{Names: names, Regex: []byte(m.subscription.pattern), Assignor: []byte(m.assignor)}),
		Assignment:   consumerEncode(&grouppb.Assignment{Assigned: putConsumerRanges(m.assigned, m.since), Revoking: putConsumerRanges(m.revoking, m.since)}),
		Target:       consumerEncode(&grouppb.Target{Topics: putConsumerRanges(m.target, nil)}),
	}
}

func consumerEncode(msg proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		panic(fmt.Sprintf("messages of bytes and numbers always marshal: %v", err))
	}
	return b
}

func putConsumerRanges(s rangeSet, since map[vtop.Range]int32) []*grouppb.Topic {
	var out []*grouppb.Topic
	for _, r := range s {
		if len(out) == 0 || string(out[len(out)-1].Id) != string(r.Topic[:]) {
			out = append(out, &grouppb.Topic{Id: append([]byte{}, r.Topic[:]...)})
		}
		t := out[len(out)-1]
		t.Ranges = append(t.Ranges, r.Index)
		if since != nil {
			t.Since = append(t.Since, since[r])
		}
	}
	return out
}

// loadConsumerMember reads what store wrote; it refuses all else with errConsumerStored.
func loadConsumerMember(stored *fsm.GroupMember) (*consumerMember, error) {
	var subscription grouppb.Subscription
	var assignment grouppb.Assignment
	var target grouppb.Target
	err := errors.Join(proto.Unmarshal(stored.Subscription, &subscription), proto.Unmarshal(stored.Assignment, &assignment),
		proto.Unmarshal(stored.Target, &target))
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", errConsumerStored, stored.ID, err)
	}
	m := &consumerMember{
		id: stored.ID, instance: stored.InstanceID, clientID: stored.ClientID, clientHost: stored.ClientHost, rack: stored.Rack,
		rebalance: time.Duration(stored.RebalanceTimeoutMS) * time.Millisecond, assignor: string(subscription.Assignor),
		epoch: stored.Epoch, previous: stored.PreviousEpoch, since: map[vtop.Range]int32{}, resend: true,
	}
	names := make([]string, len(subscription.Names))
	for i, name := range subscription.Names {
		names[i] = string(name)
	}
	if m.subscription, err = newConsumerSubscription(names, string(subscription.Regex)); err != nil {
		return nil, fmt.Errorf("%w %q: %w", errConsumerStored, stored.ID, err)
	}
	var errs [3]error
	m.assigned, errs[0] = m.readRanges(assignment.Assigned, true)
	m.revoking, errs[1] = m.readRanges(assignment.Revoking, true)
	m.target, errs[2] = m.readRanges(target.Topics, false)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("%w %q: %w", errConsumerStored, stored.ID, err)
	}
	return m, nil
}

// readRanges reads one set; the member holds it then, if it is to.
func (m *consumerMember) readRanges(topics []*grouppb.Topic, holds bool) (rangeSet, error) {
	var out []vtop.Range
	for _, t := range topics {
		if len(t.Id) != len(vtop.TopicID{}) || holds && len(t.Since) != len(t.Ranges) {
			return nil, fmt.Errorf("topic id of %d bytes with %d ranges and %d epochs", len(t.Id), len(t.Ranges), len(t.Since))
		}
		for i, index := range t.Ranges {
			r := vtop.Range{Topic: vtop.TopicID(t.Id), Index: index}
			if _, twice := m.since[r]; index < 0 || holds && twice {
				return nil, fmt.Errorf("range %s is negative or held twice", r)
			}
			if holds {
				m.since[r] = t.Since[i]
			}
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return newRangeSet(out), nil
}
