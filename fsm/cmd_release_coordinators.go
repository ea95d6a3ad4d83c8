package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// ReleaseCoordinators gives back every coordinator slot that one process holds.
//
//	op            26, since level 1
//	proposed by   the holder, at an orderly stop
//	precondition  none: slots that the process does not hold are not its to give
//	effect        its slots have no holder; their epochs stay. The items of the outcome name them
//	refused       never
//	a repeat      changes nothing and succeeds, with no items
type ReleaseCoordinators struct {
	Node        vtop.NodeName
	Incarnation vtop.Incarnation
}

// Op implements Command.
func (c *ReleaseCoordinators) Op() Op { return OpReleaseCoordinators }

// Check implements Command.
func (c *ReleaseCoordinators) Check() error {
	var s shape
	s.node(c.Node)
	s.must(c.Incarnation > 0, "incarnation is 0")
	return s.err()
}

func (c *ReleaseCoordinators) encode() proto.Message {
	return &fsmpb.ReleaseCoordinators{Node: string(c.Node), Incarnation: uint64(c.Incarnation)}
}

func decodeReleaseCoordinators(_ *reader, p *fsmpb.ReleaseCoordinators) *ReleaseCoordinators {
	return &ReleaseCoordinators{Node: vtop.NodeName(p.GetNode()), Incarnation: vtop.Incarnation(p.GetIncarnation())}
}

func (c *ReleaseCoordinators) apply(t *tx) (out Outcome) {
	for held := range t.s.Coordinators() {
		if held.HeldBy(c.Node, c.Incarnation) {
			out.Items = append(out.Items, Item{Slot: held.Slot, Epoch: held.Epoch})
			t.putCoordinator(&Coordinator{Slot: held.Slot, Epoch: held.Epoch})
		}
	}
	return out
}
