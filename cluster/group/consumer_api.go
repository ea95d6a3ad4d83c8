package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// ConsumerHeartbeat hears what a member of a consumer group says, and tells it what it may read (KIP-848). The first member makes the
// group; a classic group without members is taken over. A member that joins without an id gets one, but if the answer is lost
// there are two of it until a session has ended: newer clients make their own.
// It returns once what it answers is in the state machine.
// Errors: ErrInvalidGroup, ErrInvalidRequest, ErrInvalidRegex, ErrUnsupportedAssignor, ErrGroupFull, ErrUnknownMember (join anew),
// ErrFencedMemberEpoch, ErrFencedInstance, ErrUnreleasedInstance, ErrNotConsumerGroup, and ErrNotCoordinator, ErrLoading,
// ErrNotAvailable, after which the member asks again.
func (c *Coordinator) ConsumerHeartbeat(ctx context.Context, h ConsumerHeartbeat) (ConsumerAnswer, error) {
	if h.MemberID == "" && h.Epoch == consumerJoins {
		h.MemberID = newMemberID("consumer")
	}
	if err := h.check(); err != nil { // before a group is made for it
		return ConsumerAnswer{}, err
	}
	var out ConsumerAnswer
	err := c.update(ctx, h.Group, h.Epoch == consumerJoins, func(g *group, v view) (*fsm.GroupItem, error) {
		m, err := g.asConsumer(&c.cfg.Limits)
		if err != nil {
			return nil, err
		}
		var item *fsm.GroupItem
		out, item, err = m.heartbeat(v, &h)
		return item, err
	})
	if errors.Is(err, ErrGroupNotFound) { // it went when its last member did; clients know better what to do without their member
		err = fmt.Errorf("%w: there is no group %q: join anew", ErrUnknownMember, h.Group)
	}
	if err != nil {
		return ConsumerAnswer{}, err
	}
	return out, nil
}

// ConsumerDescription shows a consumer group.
type ConsumerDescription struct {
	// State is one of Empty, Assigning, Reconciling, Stable.
	State                  string
	Epoch, AssignmentEpoch int32
	Assignor               string
	// Members by id.
	Members []ConsumerMemberDescription
}

// ConsumerMemberDescription shows one member.
type ConsumerMemberDescription struct {
	ID, InstanceID, Rack, ClientID, ClientHost string
	Epoch                                      int32
	Topics                                     []string
	Regex                                      string
	// Assigned is what the member may read, Revoking what it was told to give up, Target what it will have; each in order.
	Assigned, Revoking, Target []vtop.Range
	Rebalance                  time.Duration
}

// ConsumerDescribe shows a consumer group as its coordinator has it.
// Errors: ErrInvalidGroup, ErrGroupNotFound (also for a group of the classic protocol), ErrNotCoordinator, ErrLoading, ErrNotAvailable.
func (c *Coordinator) ConsumerDescribe(ctx context.Context, id string) (ConsumerDescription, error) {
	var out ConsumerDescription
	err := c.update(ctx, id, false, func(g *group, _ view) (*fsm.GroupItem, error) {
		if g.consumer == nil {
			return nil, fmt.Errorf("%w: %q is one of the classic protocol", ErrGroupNotFound, id)
		}
		out = g.consumer.describe()
		return nil, nil
	})
	if err != nil {
		return ConsumerDescription{}, err
	}
	return out, nil
}

func (g *consumerGroup) describe() ConsumerDescription {
	out := ConsumerDescription{State: g.stateName(), Epoch: g.epoch, AssignmentEpoch: g.assignmentEpoch, Assignor: g.assignor}
	for _, m := range g.sorted() {
		out.Members = append(out.Members, ConsumerMemberDescription{
			ID: m.id, InstanceID: m.instance, Rack: m.rack, ClientID: m.clientID, ClientHost: m.clientHost, Epoch: m.epoch,
			Topics: slices.Clone(m.subscription.names), Regex: m.subscription.pattern,
			Assigned: slices.Clone(m.assigned), Revoking: slices.Clone(m.revoking), Target: slices.Clone(m.target),
			Rebalance: m.rebalance,
		})
	}
	return out
}
