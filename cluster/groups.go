package cluster

import (
	"context"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
)

// Groups coordinates consumer groups; vtop.ErrNotReady until the node has joined.
func (n *Node) Groups() (*group.Coordinator, error) {
	if g := n.groups.Load(); g != nil {
		return g, nil
	}
	return nil, n.Ready()
}

// startGroups begins to coordinate the groups of the slots that this process will be granted.
func (n *Node) startGroups(name vtop.NodeName, incarnation vtop.Incarnation) error {
	c, err := group.New(group.Config{
		Self: name, Incarnation: incarnation, Machine: n.machine, Clock: monotonic, LeaseTime: n.cfg.LeaseTime, Propose: n.meta.Propose,
		Fresh: n.freshen, CaughtUp: n.meta.CaughtUp, Alive: n.Alive, Limits: n.cfg.Groups, Retention: n.cfg.OffsetRetention, Log: n.cfg.Log,
	})
	if err != nil {
		return err
	}
	n.groups.Store(c)
	return nil
}

// freshen returns once everything that was committed when it was called is applied here.
func (n *Node) freshen(ctx context.Context) error {
	index, err := n.meta.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return n.machine.WaitApplied(ctx, index)
}
