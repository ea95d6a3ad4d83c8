package fsm

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// RemoveNode removes a node from the cluster for good.
//
//	op            23, since level 1
//	proposed by   any node for an operator, after a drain or when the node's replicas were rebuilt elsewhere
//	precondition  Incarnation is 0 (said of the name) or the registered one; the node holds no lease and has no voter. A lost voter
//	              counts in its quorum's size, too: only the range's leader may remove it, one at a time. Learners count for
//	              nothing: they do not keep a node
//	effect        its learners go (their ranges' configuration versions rise); repairs to it fail; its coordinator slots have no holder; its claims go; it is gone, and
//	              keeps its broker id
//	refused       CodeUnknownNode; CodeStaleIncarnation; CodeInUse, naming the ranges
//	a repeat      changes nothing and succeeds
type RemoveNode struct {
	Name        vtop.NodeName
	Incarnation vtop.Incarnation
}

// Op implements Command.
func (c *RemoveNode) Op() Op { return OpRemoveNode }

// Check implements Command.
func (c *RemoveNode) Check() error {
	var s shape
	s.node(c.Name)
	return s.err()
}

func (c *RemoveNode) encode() proto.Message {
	return &fsmpb.RemoveNode{Name: string(c.Name), Incarnation: uint64(c.Incarnation)}
}

func decodeRemoveNode(_ *reader, p *fsmpb.RemoveNode) *RemoveNode {
	return &RemoveNode{Name: vtop.NodeName(p.GetName()), Incarnation: vtop.Incarnation(p.GetIncarnation())}
}

func (c *RemoveNode) apply(t *tx) Outcome {
	old, refusal := t.node(c.Name, c.Incarnation)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	if old.State == NodeGone {
		return Outcome{}
	}
	if refusal := t.inUse(c.Name); refusal != nil {
		return Outcome{Refusal: refusal}
	}
	t.endRepairsTo(c.Name)
	t.endCoordinators(c.Name)
	for _, r := range slices.Collect(t.s.RangesOf(c.Name)) {
		for _, rep := range r.Replicas {
			if rep.Node == c.Name {
				t.dropLearner(r.ID, rep.ID)
			}
		}
	}
	n := *old
	n.State, n.Pending = NodeGone, nil
	t.putNode(&n)
	return Outcome{}
}

// inUse names the voters and leases of a node; nil if there are none.
func (t *tx) inUse(node vtop.NodeName) *Refusal {
	var voters, leases []string
	for r := range t.s.RangesOf(node) {
		if slices.ContainsFunc(r.Replicas, func(rep Replica) bool { return rep.Node == node && rep.Role == Voter }) {
			voters = append(voters, t.s.RangeName(r.ID))
		}
		if r.Lease.Holder == node {
			leases = append(leases, t.s.RangeName(r.ID))
		}
	}
	if len(voters) == 0 && len(leases) == 0 {
		return nil
	}
	return refusef(CodeInUse, "node %q holds %d leases (%s) and has %d voters (%s): drain it, or rebuild its replicas elsewhere, first",
		node, len(leases), someOf(leases), len(voters), someOf(voters))
}

// someOf lists the first few names.
func someOf(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
