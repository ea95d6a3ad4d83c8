package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// UpdateGroups writes down what a coordinator decided: groups, their members, their committed offsets.
//
//	op            27, since level 1
//	proposed by   the coordinator, for all groups of all its slots that wait, one command at a time
//	precondition  Incarnation is the node's registered one; per item: the slot of the group is held by that process under Epoch, and
//	              Sequence is above that of every command that changed a group of the slot under this epoch before; the group exists
//	              or Header is given; the epoch of the group does not go back
//	effect        per item: Delete takes the group with its members and offsets; else Header replaces the group's, what is
//	              removed and dropped goes, what is put replaces what was there. An offset of a range that does not exist is
//	              passed over: as if it had been put, and the deletion of the topic had then taken it
//	refused       CodeUnknownNode; CodeStaleIncarnation; per item: CodeStaleEpoch (deposed); CodeOvertaken (propose anew under a
//	              new sequence); CodeUnknownGroup; CodeConflict (an epoch that goes back); CodeLimit
//	a repeat      under a new sequence changes nothing and succeeds, under the old one is refused with CodeOvertaken
//
// The sequence makes a proposal whose outcome is not known harmless: it may be on its way through a node that is no longer the
// Raft leader, but it cannot take effect after a later one and bring an older offset back.
type UpdateGroups struct {
	Node        vtop.NodeName
	Incarnation vtop.Incarnation
	// Sequence rises from command to command of one process, from 1.
	Sequence uint64
	Items    []GroupItem
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// GroupItem is one item of UpdateGroups. No member and no range is named twice in it.
type GroupItem struct {
	Group string
	// Epoch is that of the coordinator lease of the group's slot.
	Epoch vtop.Epoch
	// Delete takes the whole group; a group that is not there is no matter. Nothing else is set then.
	Delete bool
	// Header makes the group, or replaces its header; nil leaves it as it is.
	Header *GroupHeader
	// RemoveMembers go, if they are there; PutMembers are added, or replaced as a whole.
	RemoveMembers []string
	PutMembers    []GroupMember
	// DropOffsets go, if they are there; PutOffsets are set.
	DropOffsets []vtop.Range
	PutOffsets  []GroupOffset
}

// Op implements Command.
func (c *UpdateGroups) Op() Op { return OpUpdateGroups }

// Check implements Command.
func (c *UpdateGroups) Check() error {
	var s shape
	s.node(c.Node)
	s.must(c.Incarnation > 0, "incarnation is 0")
	s.must(c.Sequence > 0, "sequence is 0")
	s.items(len(c.Items))
	for i := range c.Items {
		s.groupItem(&c.Items[i])
	}
	return s.err()
}

// Check looks at the shape of one item alone: bounds, missing fields, what is named twice. A proposer calls it before it puts the
// item beside others: a command is refused as a whole for the shape of one item. It returns a *Refusal of CodeInvalid or CodeLimit.
func (i *GroupItem) Check() error {
	var s shape
	s.groupItem(i)
	return s.err()
}

// Size is the length of the item in an encoded command, in bytes.
func (i *GroupItem) Size() int { return proto.Size(putGroupItem(i)) + groupItemOverhead }

// groupItemOverhead is what tag and length of an item take at most.
const groupItemOverhead = 6

func (c *UpdateGroups) encode() proto.Message {
	p := &fsmpb.UpdateGroups{Node: string(c.Node), Incarnation: uint64(c.Incarnation), Sequence: c.Sequence, At: c.At}
	for i := range c.Items {
		p.Items = append(p.Items, putGroupItem(&c.Items[i]))
	}
	return p
}

func decodeUpdateGroups(r *reader, p *fsmpb.UpdateGroups) *UpdateGroups {
	return &UpdateGroups{
		Node: vtop.NodeName(p.GetNode()), Incarnation: vtop.Incarnation(p.GetIncarnation()), Sequence: p.GetSequence(), At: p.GetAt(),
		Items: mapSlice(p.GetItems(), r.groupItem),
	}
}

func (c *UpdateGroups) apply(t *tx) Outcome {
	if _, refusal := t.node(c.Node, c.Incarnation); refusal != nil {
		return Outcome{Refusal: refusal}
	}
	before := t.s.groups.coordinators
	out := Outcome{Items: make([]Item, len(c.Items))}
	for n := range c.Items {
		i := &c.Items[n]
		slot := GroupSlot(i.Group)
		refusal := c.fence(before[slot], i)
		if refusal == nil {
			refusal = t.updateGroup(i, c.At)
		}
		if refusal == nil && t.s.Coordinator(slot).Sequence != c.Sequence {
			held := *before[slot]
			held.Sequence = c.Sequence
			t.s.groups.coordinators[slot] = &held
		}
		out.Items[n] = Item{Group: i.Group, Slot: slot, Epoch: i.Epoch, Refusal: refusal}
	}
	return out
}

// fence wants the slot to be held by the proposer under the epoch that it names, and no later command to have been applied.
func (c *UpdateGroups) fence(held *Coordinator, i *GroupItem) *Refusal {
	switch {
	case held.Holder == "":
		return refusef(CodeStaleEpoch, "group %q: coordinator slot %d has no holder; epoch %d was named, the last was %d", i.Group, held.Slot, i.Epoch, held.Epoch)
	case !held.HeldBy(c.Node, c.Incarnation) || held.Epoch != i.Epoch:
		return refusef(CodeStaleEpoch, "group %q: coordinator slot %d is held by %q (incarnation %d) under epoch %d, not by %q (incarnation %d) under %d",
			i.Group, held.Slot, held.Holder, held.Incarnation, held.Epoch, c.Node, c.Incarnation, i.Epoch)
	case c.Sequence <= held.Sequence:
		return refusef(CodeOvertaken, "group %q: command %d came after command %d of the same coordinator", i.Group, c.Sequence, held.Sequence)
	}
	return nil
}
