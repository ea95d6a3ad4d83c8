package kafka

import (
	"context"
	"math"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// The consumer groups of a fakeCluster are real: each node has a coordinator over the shared metadata.

// startGroups makes the coordinator of a node, with short times.
func (n *fakeNode) startGroups(log hclog.Logger) {
	limits := group.DefaultLimits()
	limits.MinSession, limits.InitialDelay = 100*time.Millisecond, 100*time.Millisecond
	limits.ConsumerHeartbeat = 100 * time.Millisecond
	n.c.machine.Leases().SetDeadline(math.MaxInt64)
	var err error
	n.groups, err = group.New(group.Config{
		Self: n.name, Incarnation: 1, Machine: n.c.machine, Clock: func() time.Duration { return 0 }, Propose: n.propose,
		CaughtUp: func() bool { return n.Ready() == nil }, Alive: n.Alive, Limits: limits, Log: log,
	})
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.c.t.Cleanup(n.groups.Close)
}

func (n *fakeNode) propose(_ context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.proposals != nil {
		if err := n.c.proposals(cmd); err != nil {
			return fsm.Outcome{}, err
		}
	}
	if err := cmd.Check(); err != nil {
		return fsm.Outcome{}, err
	}
	return n.c.outcomeLocked(cmd), nil
}

func (n *fakeNode) Groups() (*group.Coordinator, error) {
	if err := n.Ready(); err != nil {
		return nil, err
	}
	return n.groups, nil
}

// spreadSlots gives the coordinator slots to the nodes in turn.
func (c *fakeCluster) spreadSlots() {
	for slot := range fsm.Slot(fsm.GroupSlots) {
		c.moveSlot(slot, c.nodes[int(slot)%len(c.nodes)].name)
	}
}

// moveSlot grants a coordinator slot.
func (c *fakeCluster) moveSlot(slot fsm.Slot, to vtop.NodeName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.applyLocked(&fsm.GrantCoordinators{Items: []fsm.CoordinatorGrant{
		{Slot: slot, Holder: to, Incarnation: 1, Expected: c.state.Coordinator(slot).Epoch, Reason: "test"}}}); err != nil {
		c.t.Errorf("grant of slot %d: %v", slot, err)
	}
}

// coordinator is the node that coordinates a group.
func (c *fakeCluster) coordinator(id string) *fakeNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := c.state.CoordinatorOf(id).Holder
	for _, n := range c.nodes {
		if n.name == holder {
			return n
		}
	}
	c.t.Fatalf("group %q: nobody holds its slot", id)
	return nil
}

// other is a node that is not n.
func (c *fakeCluster) other(n *fakeNode) *fakeNode {
	for _, o := range c.nodes {
		if o != n {
			return o
		}
	}
	c.t.Fatal("there is no other node")
	return nil
}
