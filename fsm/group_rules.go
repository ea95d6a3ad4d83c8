package fsm

import (
	"slices"

	"github.com/vtop-log/vtop"
)

// What the commands about consumer groups ask of the state, or do to it.

// groupItem wants bounded fields, and nothing named twice.
func (s *shape) groupItem(i *GroupItem) {
	s.must(i.Group != "", "group id is empty")
	s.atMost("length of group id", len(i.Group), MaxGroupName)
	s.epoch(i.Epoch)
	if i.Delete {
		s.must(i.Header == nil && len(i.RemoveMembers)+len(i.PutMembers)+len(i.DropOffsets)+len(i.PutOffsets) == 0,
			"group %q is deleted and changed in one item", i.Group)
		return
	}
	if i.Header != nil {
		s.groupHeader(i.Group, i.Header)
	}
	s.atMost("members of one item", len(i.RemoveMembers)+len(i.PutMembers), 2*MaxGroupMembers)
	s.atMost("offsets of one item", len(i.DropOffsets)+len(i.PutOffsets), MaxGroupOffsets)
	if s.bad != nil {
		return
	}
	members := make(map[string]struct{}, len(i.RemoveMembers)+len(i.PutMembers))
	for _, id := range i.RemoveMembers {
		s.once(members, id, "member")
	}
	for n := range i.PutMembers {
		s.groupMember(i.Group, &i.PutMembers[n])
		s.once(members, i.PutMembers[n].ID, "member")
	}
	ranges := make(map[vtop.Range]struct{}, len(i.DropOffsets)+len(i.PutOffsets))
	for _, r := range i.DropOffsets {
		s.rangeID(r)
		s.must(addNew(ranges, r), "group %q: an item names range %s twice", i.Group, r)
	}
	for n := range i.PutOffsets {
		s.groupOffset(&i.PutOffsets[n])
		s.must(addNew(ranges, i.PutOffsets[n].Range), "group %q: an item names range %s twice", i.Group, i.PutOffsets[n].Range)
	}
}

func (s *shape) once(seen map[string]struct{}, id, what string) {
	s.must(id != "", "%s id is empty", what)
	s.atMost("length of "+what+" id", len(id), MaxGroupName)
	s.must(addNew(seen, id), "an item names %s %q twice", what, id)
}

// addNew adds a key; false if it was there.
func addNew[K comparable](seen map[K]struct{}, key K) bool {
	n := len(seen)
	seen[key] = struct{}{}
	return len(seen) > n
}

func (s *shape) groupHeader(id string, h *GroupHeader) {
	s.must(h.Kind == GroupClassic || h.Kind == GroupConsumer, "group %q: kind %d", id, h.Kind)
	s.must(h.Epoch >= 0 && h.AssignmentEpoch >= 0 && h.EmptySince >= 0,
		"group %q: epoch %d, assignment epoch %d, empty since %d: want 0 or more", id, h.Epoch, h.AssignmentEpoch, h.EmptySince)
	for _, v := range []string{h.ProtocolType, h.Protocol, h.Leader} {
		s.atMost("length of a name of the group", len(v), MaxGroupName)
	}
	s.atMost("data of the group", len(h.Data), MaxMemberBytes)
}

func (s *shape) groupMember(id string, m *GroupMember) {
	for _, v := range []string{m.InstanceID, m.ClientID, m.ClientHost, m.Rack} {
		s.atMost("length of a name of the member", len(v), MaxGroupName)
	}
	for _, b := range [][]byte{m.Subscription, m.Assignment, m.Target} {
		s.atMost("data of the member", len(b), MaxMemberBytes)
	}
	s.must(m.RebalanceTimeoutMS >= 0 && m.SessionTimeoutMS >= 0, "group %q: timeouts of %d and %d ms", id, m.RebalanceTimeoutMS, m.SessionTimeoutMS)
}

func (s *shape) groupOffset(o *GroupOffset) {
	s.rangeID(o.Range)
	s.offset("committed offset", o.Offset)
	s.must(o.LeaderEpoch >= vtop.NoEpoch, "leader epoch %d: want 0 or more", o.LeaderEpoch)
	s.atMost("length of offset metadata", len(o.Metadata), MaxOffsetMetadata)
}

// CheckGroupItem says whether the state would take an item, but for the fence: its shape, whether the group is there, that its
// epoch does not go back, the limits. The error is a *Refusal. The state may be another by the time that the item is applied.
func (s *State) CheckGroupItem(i *GroupItem) error {
	if err := i.Check(); err != nil {
		return err
	}
	if i.Delete {
		return nil
	}
	if _, refusal := s.groupWith(i); refusal != nil {
		return refusal
	}
	return nil
}

// groupChange is what an item makes of a group.
type groupChange struct {
	group Group
	// header says that header or members change, grown by how many bytes everything grows.
	header bool
	grown  int64
}

// groupWith works out what an item makes of its group, and refuses it beyond the limits. It writes nothing.
func (s *State) groupWith(i *GroupItem) (c groupChange, refusal *Refusal) {
	old, ok := s.Group(i.Group)
	switch {
	case ok:
		c.group = *old
	case i.Header == nil:
		return c, refusef(CodeUnknownGroup, "no group %q", i.Group)
	case s.GroupCount() >= MaxGroups:
		return c, refusef(CodeLimit, "group %q: there are %d groups, at most %d", i.Group, s.GroupCount(), MaxGroups)
	default:
		c.group = Group{ID: i.Group, Slot: GroupSlot(i.Group)}
	}
	if h := i.Header; h != nil {
		if h.Epoch < c.group.Epoch {
			return c, refusef(CodeConflict, "group %q: epoch %d would go back to %d", i.Group, c.group.Epoch, h.Epoch)
		}
		if ok {
			c.group.Bytes -= old.GroupHeader.bytes(old.ID)
		}
		c.group.GroupHeader = *h
		c.group.Bytes += h.bytes(i.Group)
	}
	s.countMembers(&c, i)
	if ok {
		c.grown = -old.Bytes
	}
	c.grown += c.group.Bytes
	s.countOffsets(&c, i)
	c.header = i.Header != nil || len(i.RemoveMembers)+len(i.PutMembers) > 0
	return c, s.groupWithin(&c, i)
}

func (s *State) countMembers(c *groupChange, i *GroupItem) {
	for _, id := range i.RemoveMembers {
		if m, ok := s.Member(i.Group, id); ok {
			c.group.Members--
			c.group.Bytes -= m.bytes()
		}
	}
	for n := range i.PutMembers {
		m := &i.PutMembers[n]
		c.group.Bytes += m.bytes()
		if old, ok := s.Member(i.Group, m.ID); ok {
			c.group.Bytes -= old.bytes()
		} else {
			c.group.Members++
		}
	}
}

func (s *State) countOffsets(c *groupChange, i *GroupItem) {
	for _, r := range i.DropOffsets {
		if o, ok := s.Offset(i.Group, r); ok {
			c.group.Offsets--
			c.grown -= o.bytes()
		}
	}
	for n := range i.PutOffsets {
		o := &i.PutOffsets[n]
		if _, exists := s.Range(o.Range); !exists {
			continue
		}
		c.grown += o.bytes()
		if old, ok := s.Offset(i.Group, o.Range); ok {
			c.grown -= old.bytes()
		} else {
			c.group.Offsets++
		}
	}
}

// groupWithin refuses what would be beyond a limit (I13). What shrinks is always taken.
func (s *State) groupWithin(c *groupChange, i *GroupItem) *Refusal {
	old, ok := s.Group(i.Group)
	if !ok {
		old = new(Group)
	}
	g := &c.group
	switch total := s.groups.bytes + c.grown; {
	case g.Members > MaxGroupMembers && g.Members > old.Members:
		return refusef(CodeLimit, "group %q would have %d members, at most %d", i.Group, g.Members, MaxGroupMembers)
	case g.Bytes > MaxGroupBytes && g.Bytes > old.Bytes:
		return refusef(CodeLimit, "members of group %q would take %d bytes, at most %d", i.Group, g.Bytes, MaxGroupBytes)
	case g.Offsets > MaxGroupOffsets && g.Offsets > old.Offsets:
		return refusef(CodeLimit, "group %q would have offsets of %d ranges, at most %d", i.Group, g.Offsets, MaxGroupOffsets)
	case total > MaxGroupState && c.grown > 0:
		return refusef(CodeLimit, "group %q: all groups would take %d bytes, at most %d: delete groups that nobody needs", i.Group, total, MaxGroupState)
	}
	return nil
}

// updateGroup does to a group what an item says.
func (t *tx) updateGroup(i *GroupItem, at int64) *Refusal {
	if i.Delete {
		t.deleteGroup(i.Group)
		return nil
	}
	c, refusal := t.s.groupWith(i)
	if refusal != nil {
		return refusal
	}
	old, ok := t.s.Group(i.Group)
	if c.header {
		c.group.UpdatedAt, c.group.Index = at, t.index
	}
	if !ok {
		c.group.CreatedAt = at
	}
	if c.header || c.group.Offsets != old.Offsets {
		t.s.groups.all.Set(&c.group)
	}
	t.s.groups.bytes += c.grown
	for _, id := range i.RemoveMembers {
		t.s.groups.members.Delete(groupMember{i.Group, &GroupMember{ID: id}})
	}
	for _, m := range i.PutMembers { // a copy of its own: it must not keep the whole list
		t.s.groups.members.Set(groupMember{c.group.ID, &m})
	}
	for _, r := range i.DropOffsets {
		t.dropOffset(&groupOffset{group: i.Group, GroupOffset: GroupOffset{Range: r}})
	}
	for _, o := range i.PutOffsets {
		if _, exists := t.s.Range(o.Range); exists {
			put := &groupOffset{group: c.group.ID, GroupOffset: o}
			t.s.groups.offsets.Set(put)
			t.s.groups.byRange.Set(put)
		}
	}
	t.touchGroup(c.group.ID)
	return nil
}

// deleteGroup takes a group with everything that it has, if it is there.
func (t *tx) deleteGroup(id string) {
	old, ok := t.s.Group(id)
	if !ok {
		return
	}
	t.s.groups.all.Delete(old)
	t.s.groups.bytes -= old.Bytes
	for _, m := range slices.Collect(t.s.Members(id)) {
		t.s.groups.members.Delete(groupMember{id, m})
	}
	for _, o := range slices.Collect(t.s.Offsets(id)) {
		t.s.groups.bytes -= o.bytes()
		t.dropOffset(&groupOffset{group: id, GroupOffset: *o})
	}
	t.touchGroup(id)
}

func (t *tx) dropOffset(o *groupOffset) {
	t.s.groups.offsets.Delete(o)
	t.s.groups.byRange.Delete(o)
}

// dropOffsetsOf forgets the offsets of a topic that is deleted.
func (t *tx) dropOffsetsOf(topic vtop.TopicID) {
	var gone []*groupOffset
	for group, o := range t.s.OffsetsOf(topic) {
		gone = append(gone, &groupOffset{group: group, GroupOffset: *o})
	}
	counts := make(map[string]int)
	for _, o := range gone {
		t.dropOffset(o)
		t.s.groups.bytes -= o.bytes()
		counts[o.group]++
	}
	for id, n := range counts { // the order of a map decides nothing: each group is changed by itself
		old, _ := t.s.Group(id)
		g := *old
		g.Offsets -= n
		t.s.groups.all.Set(&g)
		t.touchGroup(id)
	}
}

// touchGroup notes that a group changed.
func (t *tx) touchGroup(id string) {
	if t.groups == nil {
		t.groups = make(map[string]struct{})
	}
	t.groups[id] = struct{}{}
}

// putCoordinator replaces the lease of a slot.
func (t *tx) putCoordinator(c *Coordinator) {
	t.s.groups.coordinators[c.Slot] = c
	if t.slots == nil {
		t.slots = make(map[Slot]struct{})
	}
	t.slots[c.Slot] = struct{}{}
}

// endCoordinators takes its slots from a node that is gone, or whose name belongs to another data directory now.
func (t *tx) endCoordinators(node vtop.NodeName) {
	for held := range t.s.CoordinatorsOf(node) {
		t.putCoordinator(&Coordinator{Slot: held.Slot, Epoch: held.Epoch})
	}
}
