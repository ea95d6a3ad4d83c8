package fsm

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// GrantCoordinators gives coordinator slots to nodes.
//
//	op            25, since level 1
//	proposed by   the placement loop on the Raft leader
//	precondition  per item: Expected is the slot's Epoch; Incarnation is the holder's registered one; the holder is not gone
//	effect        per item: epoch = last + 1, minted here and so unique and rising (I5); the sequence begins anew; a lease that
//	              was there ends, and with it the right to change the groups of the slot
//	refused       per item: CodeStaleEpoch; CodeUnknownNode; CodeNodeGone; CodeStaleIncarnation; CodeLimit (no epoch left)
//	a repeat      is refused with CodeStaleEpoch
type GrantCoordinators struct {
	Items []CoordinatorGrant
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// CoordinatorGrant is one item of GrantCoordinators.
type CoordinatorGrant struct {
	Slot        Slot
	Holder      vtop.NodeName
	Incarnation vtop.Incarnation
	// Expected is the slot's epoch on which the decision is based.
	Expected vtop.Epoch
	// Reason is shown to people.
	Reason string
}

// Op implements Command.
func (c *GrantCoordinators) Op() Op { return OpGrantCoordinators }

// Check implements Command.
func (c *GrantCoordinators) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, g := range c.Items {
		s.must(g.Slot >= 0 && g.Slot < GroupSlots, "slot %d: want 0 to %d", g.Slot, GroupSlots-1)
		s.node(g.Holder)
		s.must(g.Incarnation > 0, "incarnation is 0")
		s.must(g.Expected >= 0, "expected epoch %d: want 0 or more", g.Expected)
		s.text("reason", g.Reason)
	}
	return s.err()
}

func (c *GrantCoordinators) encode() proto.Message {
	return &fsmpb.GrantCoordinators{At: c.At, Items: mapSlice(c.Items, func(g CoordinatorGrant) *fsmpb.GrantCoordinators_Item {
		return &fsmpb.GrantCoordinators_Item{
			Slot: int32(g.Slot), Holder: string(g.Holder), Incarnation: uint64(g.Incarnation), Expected: int32(g.Expected), Reason: g.Reason,
		}
	})}
}

func decodeGrantCoordinators(_ *reader, p *fsmpb.GrantCoordinators) *GrantCoordinators {
	return &GrantCoordinators{At: p.GetAt(), Items: mapSlice(p.GetItems(), func(g *fsmpb.GrantCoordinators_Item) CoordinatorGrant {
		return CoordinatorGrant{
			Slot: Slot(g.GetSlot()), Holder: vtop.NodeName(g.GetHolder()), Incarnation: vtop.Incarnation(g.GetIncarnation()),
			Expected: vtop.Epoch(g.GetExpected()), Reason: g.GetReason(),
		}
	})}
}

func (c *GrantCoordinators) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(g CoordinatorGrant) Item {
		epoch, refusal := g.apply(t, c.At)
		return Item{Slot: g.Slot, Epoch: epoch, Refusal: refusal}
	})}
}

func (g CoordinatorGrant) apply(t *tx, at int64) (vtop.Epoch, *Refusal) {
	old := t.s.Coordinator(g.Slot)
	if old.Epoch != g.Expected {
		return vtop.NoEpoch, refusef(CodeStaleEpoch, "grant of coordinator slot %d expects last epoch %d: it is %d", g.Slot, g.Expected, old.Epoch)
	}
	n, refusal := t.node(g.Holder, g.Incarnation)
	if refusal != nil {
		return vtop.NoEpoch, refusal
	}
	if n.State == NodeGone {
		return vtop.NoEpoch, refusef(CodeNodeGone, "grant of coordinator slot %d: node %q was removed", g.Slot, g.Holder)
	}
	if old.Epoch == math.MaxInt32 {
		return vtop.NoEpoch, refusef(CodeLimit, "grant of coordinator slot %d: no epoch is left above %d", g.Slot, old.Epoch)
	}
	t.putCoordinator(&Coordinator{
		Slot: g.Slot, Holder: g.Holder, Incarnation: g.Incarnation, Epoch: old.Epoch + 1,
		GrantIndex: t.index, GrantedAt: at, GrantReason: g.Reason,
	})
	return old.Epoch + 1, nil
}
