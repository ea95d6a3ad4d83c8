package fsm

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// randomGroupCommand makes a command about consumer groups.
func randomGroupCommand(s *State, choose chooser) Command {
	n := pick(choose, slices.Collect(s.Nodes()))
	group := fmt.Sprintf("g%d", choose(4))
	c := s.CoordinatorOf(group)
	if choose(15) == 0 {
		return &ReleaseCoordinators{Node: n.Name, Incarnation: n.Incarnation}
	}
	holder, known := s.Node(c.Holder)
	if !known || holder.Incarnation != c.Incarnation || choose(12) == 0 {
		return &GrantCoordinators{Items: []CoordinatorGrant{{
			Slot: c.Slot, Holder: n.Name, Incarnation: n.Incarnation, Expected: max(0, c.Epoch-vtop.Epoch(choose(8)/7)), Reason: "test",
		}}}
	}
	cmd := &UpdateGroups{
		Node: c.Holder, Incarnation: c.Incarnation, Sequence: max(1, c.Sequence+1-uint64(choose(10)/9)), At: int64(s.index),
	}
	epoch := max(1, c.Epoch-vtop.Epoch(choose(10)/9))
	for range 1 + choose(2) {
		cmd.Items = append(cmd.Items, randomGroupItem(s, group, epoch, choose))
	}
	return cmd
}

func randomGroupItem(s *State, group string, epoch vtop.Epoch, choose chooser) GroupItem {
	i := GroupItem{Group: group, Epoch: epoch, Delete: choose(12) == 0}
	if i.Delete {
		return i
	}
	g, ok := s.Group(group)
	if !ok && choose(6) != 0 {
		i.Header = &GroupHeader{Kind: GroupClassic, Epoch: int32(choose(3)), Protocol: "range", Data: make([]byte, choose(9))}
	} else if ok && choose(2) == 0 {
		h := g.GroupHeader
		h.Epoch, h.Kind = max(0, h.Epoch+int32(choose(4)-1)), GroupKind(1+choose(2))
		i.Header = &h
	}
	for n := range 4 {
		id := fmt.Sprintf("m%d", n)
		switch choose(5) {
		case 0:
			i.RemoveMembers = append(i.RemoveMembers, id)
		case 1:
			i.PutMembers = append(i.PutMembers, GroupMember{ID: id, Epoch: int32(choose(9)), Subscription: make([]byte, choose(9))})
		}
	}
	for _, r := range append(slices.Collect(s.rangesUpTo(4)), vtop.Range{Topic: uuid(99)}) {
		switch choose(5) {
		case 0:
			i.DropOffsets = append(i.DropOffsets, r)
		case 1:
			i.PutOffsets = append(i.PutOffsets, GroupOffset{Range: r, Offset: vtop.Offset(choose(100)), Metadata: "metadata"[:choose(8)]})
		}
	}
	return i
}

// rangesUpTo walks the first n ranges.
func (s *State) rangesUpTo(n int) func(func(vtop.Range) bool) {
	return func(yield func(vtop.Range) bool) {
		for r := range s.Ranges() {
			if n--; n < 0 || !yield(r.ID) {
				return
			}
		}
	}
}

// stepGroups: epochs of slots rise; only what its holder proposed, and in the order in which it was proposed, changes a group; all but the
// offsets that went with a topic.
func stepGroups(from, to *State, out Outcome) error {
	for c := range to.Coordinators() {
		old := from.Coordinator(c.Slot)
		switch {
		case c.Epoch < old.Epoch, c.Epoch == old.Epoch && c.Holder != "" && !c.HeldBy(old.Holder, old.Incarnation):
			return fmt.Errorf("I5: slot %d went from %+v to %+v", c.Slot, *old, *c)
		case c.Epoch == old.Epoch && c.Holder != "" && c.Sequence < old.Sequence:
			return fmt.Errorf("slot %d: sequence %d after %d", c.Slot, c.Sequence, old.Sequence)
		}
	}
	taken := map[string]bool{}
	for _, item := range out.Items {
		if item.Group == "" || item.Refusal != nil {
			continue
		}
		c, old := to.CoordinatorOf(item.Group), from.CoordinatorOf(item.Group)
		if item.Epoch != old.Epoch || old.Holder == "" || c.Sequence <= old.Sequence {
			return fmt.Errorf("I3: group %q was changed under epoch %d, the lease was %+v, is %+v", item.Group, item.Epoch, *old, *c)
		}
		taken[item.Group] = true
	}
	for g := range to.Groups() {
		if _, ok := from.Group(g.ID); !ok && !taken[g.ID] {
			return fmt.Errorf("group %q came from nowhere", g.ID)
		}
	}
	for g := range from.Groups() {
		if taken[g.ID] {
			continue
		}
		now, ok := to.Group(g.ID)
		if !ok || now.Index != g.Index || !slices.EqualFunc(slices.Collect(from.Members(g.ID)), slices.Collect(to.Members(g.ID)), func(a, b *GroupMember) bool { return a == b }) {
			return fmt.Errorf("group %+v became %+v, and nobody said so", g, now)
		}
		for o := range from.Offsets(g.ID) {
			if now, ok := to.Offset(g.ID, o.Range); ok == to.Deleted(o.Range.Topic) || ok && now != o {
				return fmt.Errorf("group %q: offset %+v became %+v, and nobody said so", g.ID, o, now)
			}
		}
	}
	return nil
}
