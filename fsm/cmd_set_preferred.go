package fsm

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// SetPreferred names the nodes wanted for ranges, in the order of preference: what a reassignment ends with.
//
//	op            28, since level 1
//	proposed by   any node for a client or an operator, once the jobs are submitted that bring what is missing
//	precondition  per item: the range exists; the nodes are registered and not gone; each has a replica that is not lost, or an
//	              active repair brings one there
//	effect        per item: the range's order of preference. No replica changes here: the leader removes voters on other nodes
//	              once every node that is preferred has one that can vote, and the lease goes to the first in the order. A repair
//	              that has nothing left to do is cancelled
//	refused       per item: CodeUnknownRange; CodeUnknownNode; CodeNodeGone; CodeConflict (a node without a replica)
//	a repeat      changes nothing
type SetPreferred struct {
	Items []Preference
}

// Preference is one item of SetPreferred.
type Preference struct {
	Range vtop.Range
	// Nodes are 1 to MaxReplicas, each once.
	Nodes []vtop.NodeName
}

// Op implements Command.
func (c *SetPreferred) Op() Op { return OpSetPreferred }

// Check implements Command.
func (c *SetPreferred) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, e := range c.Items {
		s.rangeID(e.Range)
		s.must(len(e.Nodes) > 0, "no node is preferred")
		s.atMost("preferred nodes", len(e.Nodes), MaxReplicas)
		for i, n := range e.Nodes {
			s.node(n)
			s.must(!slices.Contains(e.Nodes[:i], n), "node %q is preferred twice", n)
		}
	}
	return s.err()
}

func (c *SetPreferred) encode() proto.Message {
	return &fsmpb.SetPreferred{Items: mapSlice(c.Items, func(e Preference) *fsmpb.SetPreferred_Item {
		return &fsmpb.SetPreferred_Item{Range: putRangeID(e.Range), Nodes: putNodeNames(e.Nodes)}
	})}
}

func decodeSetPreferred(r *reader, p *fsmpb.SetPreferred) *SetPreferred {
	return &SetPreferred{Items: mapSlice(p.GetItems(), func(e *fsmpb.SetPreferred_Item) Preference {
		return Preference{Range: r.rangeID(e.GetRange()), Nodes: nodeNames(e.GetNodes())}
	})}
}

func (c *SetPreferred) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(e Preference) Item {
		return Item{Range: e.Range, Refusal: e.apply(t)}
	})}
}

func (e Preference) apply(t *tx) *Refusal {
	old, refusal := t.rangeOf(e.Range)
	if refusal != nil {
		return refusal
	}
	for _, n := range e.Nodes {
		if refusal := t.takesReplica(n); refusal != nil {
			return refusal
		}
		job, coming := t.s.ActiveRepair(e.Range, n)
		if _, there := old.On(n); !there && (!coming || job.Holes) {
			return refusef(CodeConflict, "node %q has no replica of %s and no repair brings one", n, t.s.RangeName(e.Range))
		}
	}
	if slices.Equal(old.Preferred, e.Nodes) {
		return nil
	}
	r := old.clone()
	r.Preferred = slices.Clone(e.Nodes)
	t.putRange(r)
	t.endNeedless(r)
	return nil
}
