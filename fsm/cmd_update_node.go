package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// UpdateNode changes a node's addresses or what the operator wants of it.
//
//	op            4, since level 1
//	proposed by   the Raft leader: for the node (addresses, rack) or for an operator (state)
//	precondition  Incarnation is 0 (said of the name, survives restarts) or the registered one
//	effect        sets each field that is not nil; repairs to a node that is gone fail, and its coordinator slots have no holder
//	refused       CodeUnknownNode; CodeStaleIncarnation; CodeConflict: a node that still has replicas cannot be gone,
//	              a gone one whose data directory has another name since cannot come back
//	a repeat      changes nothing and succeeds
type UpdateNode struct {
	Name        vtop.NodeName
	Incarnation vtop.Incarnation
	Addresses   *Addresses
	Rack        *string
	// State is left as it is if 0.
	State NodeState
}

// Op implements Command.
func (c *UpdateNode) Op() Op { return OpUpdateNode }

// Check implements Command.
func (c *UpdateNode) Check() error {
	var s shape
	s.node(c.Name)
	if c.Addresses != nil {
		s.addresses(*c.Addresses)
	}
	if c.Rack != nil {
		s.atMost("length of rack", len(*c.Rack), MaxName)
	}
	s.must(c.State <= NodeGone, "node state %d", c.State)
	return s.err()
}

func (c *UpdateNode) encode() proto.Message {
	p := &fsmpb.UpdateNode{Name: string(c.Name), Incarnation: uint64(c.Incarnation), Rack: c.Rack, State: uint32(c.State)}
	if c.Addresses != nil {
		p.Addresses = putAddresses(*c.Addresses)
	}
	return p
}

func decodeUpdateNode(r *reader, p *fsmpb.UpdateNode) *UpdateNode {
	c := &UpdateNode{
		Name: vtop.NodeName(p.GetName()), Incarnation: vtop.Incarnation(p.GetIncarnation()),
		Rack: p.Rack, State: NodeState(r.small(p.GetState())),
	}
	if p.Addresses != nil {
		a := r.addresses(p.Addresses)
		c.Addresses = &a
	}
	return c
}

func (c *UpdateNode) apply(t *tx) Outcome {
	old, refusal := t.node(c.Name, c.Incarnation)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	if c.State == NodeGone && old.State != NodeGone {
		for r := range t.s.RangesOf(c.Name) {
			return Outcome{Refusal: refusef(CodeConflict, "node %q cannot be gone: it still has a replica of %s: move its replicas first",
				c.Name, t.s.RangeName(r.ID))}
		}
		t.endRepairsTo(c.Name)
		t.endCoordinators(c.Name)
	}
	if old.State == NodeGone && c.State != 0 && c.State != NodeGone {
		if refusal := t.identityTaken(c.Name, old.Identity); refusal != nil {
			return Outcome{Refusal: refusal}
		}
	}
	n := *old
	if c.Addresses != nil {
		n.Addresses = *c.Addresses
	}
	if c.Rack != nil {
		n.Rack = *c.Rack
	}
	if c.State != 0 {
		n.State = c.State
	}
	t.putNode(&n)
	return Outcome{}
}
