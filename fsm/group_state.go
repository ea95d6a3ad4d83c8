package fsm

import (
	"cmp"
	"iter"

	"github.com/tidwall/btree"

	"github.com/vtop-log/vtop"
)

// groupTables is the part of a State that is about consumer groups.
type groupTables struct {
	coordinators [GroupSlots]*Coordinator
	// all is ordered by slot and id, so that a coordinator finds its groups together.
	all     *btree.BTreeG[*Group]
	members *btree.BTreeG[groupMember]
	offsets *btree.BTreeG[*groupOffset]
	// byRange holds the same offsets in the order of their ranges: a topic that is deleted takes them along.
	byRange *btree.BTreeG[*groupOffset]
	// bytes is what all of it takes, at most MaxGroupState.
	bytes int64
}

type groupMember struct {
	group string
	*GroupMember
}

type groupOffset struct {
	group string
	GroupOffset
}

func newGroupTables() groupTables {
	g := groupTables{
		all: newTree(func(a, b *Group) bool { return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.ID, b.ID)) < 0 }),
		members: newTree(func(a, b groupMember) bool {
			return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.ID, b.ID)) < 0
		}),
		offsets: newTree(func(a, b *groupOffset) bool {
			return cmp.Or(cmp.Compare(a.group, b.group), a.Range.Compare(b.Range)) < 0
		}),
		byRange: newTree(func(a, b *groupOffset) bool {
			return cmp.Or(a.Range.Compare(b.Range), cmp.Compare(a.group, b.group)) < 0
		}),
	}
	for slot := range g.coordinators {
		g.coordinators[slot] = &Coordinator{Slot: Slot(slot)}
	}
	return g
}

func (g *groupTables) fork() groupTables {
	return groupTables{
		coordinators: g.coordinators, all: g.all.Copy(), members: g.members.Copy(), offsets: g.offsets.Copy(), byRange: g.byRange.Copy(),
		bytes: g.bytes,
	}
}

// Coordinator returns the lease of a slot. It panics if there is no such slot.
func (s *State) Coordinator(slot Slot) *Coordinator { return s.groups.coordinators[slot] }

// CoordinatorOf returns the lease of the slot of a group, which need not exist.
func (s *State) CoordinatorOf(group string) *Coordinator { return s.Coordinator(GroupSlot(group)) }

// Coordinators walks the leases of all slots, held or not, by slot.
func (s *State) Coordinators() iter.Seq[*Coordinator] {
	return func(yield func(*Coordinator) bool) {
		for _, c := range s.groups.coordinators {
			if !yield(c) {
				return
			}
		}
	}
}

// CoordinatorsOf walks the slots that the node holds, in whatever incarnation, by slot.
func (s *State) CoordinatorsOf(node vtop.NodeName) iter.Seq[*Coordinator] {
	return func(yield func(*Coordinator) bool) {
		for _, c := range s.groups.coordinators {
			if c.Holder == node && node != "" && !yield(c) {
				return
			}
		}
	}
}

// Group finds a group.
func (s *State) Group(id string) (*Group, bool) {
	return s.groups.all.Get(&Group{ID: id, Slot: GroupSlot(id)})
}

// Groups walks the groups by slot and id.
func (s *State) Groups() iter.Seq[*Group] { return all(s.groups.all) }

// GroupsOf walks the groups of one slot by id.
func (s *State) GroupsOf(slot Slot) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		s.groups.all.Ascend(&Group{Slot: slot}, func(g *Group) bool { return g.Slot == slot && yield(g) })
	}
}

// GroupCount is the number of groups.
func (s *State) GroupCount() int { return s.groups.all.Len() }

// GroupBytes is what all groups with their members and offsets take, as MaxGroupState bounds it.
func (s *State) GroupBytes() int64 { return s.groups.bytes }

// Member finds a member of a group.
func (s *State) Member(group, id string) (*GroupMember, bool) {
	m, ok := s.groups.members.Get(groupMember{group, &GroupMember{ID: id}})
	return m.GroupMember, ok
}

// Members walks the members of a group by id.
func (s *State) Members(group string) iter.Seq[*GroupMember] {
	return func(yield func(*GroupMember) bool) {
		s.groups.members.Ascend(groupMember{group, &GroupMember{}}, func(m groupMember) bool {
			return m.group == group && yield(m.GroupMember)
		})
	}
}

// Offset finds the committed offset of a group for a range.
func (s *State) Offset(group string, r vtop.Range) (*GroupOffset, bool) {
	o, ok := s.groups.offsets.Get(&groupOffset{group: group, GroupOffset: GroupOffset{Range: r}})
	if !ok {
		return nil, false
	}
	return &o.GroupOffset, true
}

// Offsets walks the committed offsets of a group by topic id and index.
func (s *State) Offsets(group string) iter.Seq[*GroupOffset] {
	return func(yield func(*GroupOffset) bool) {
		s.groups.offsets.Ascend(&groupOffset{group: group}, func(o *groupOffset) bool {
			return o.group == group && yield(&o.GroupOffset)
		})
	}
}

// OffsetsOf walks the committed offsets of all groups for a topic, by index and group.
func (s *State) OffsetsOf(topic vtop.TopicID) iter.Seq2[string, *GroupOffset] {
	return func(yield func(string, *GroupOffset) bool) {
		first := &groupOffset{GroupOffset: GroupOffset{Range: vtop.Range{Topic: topic}}}
		s.groups.byRange.Ascend(first, func(o *groupOffset) bool {
			return o.Range.Topic == topic && yield(o.group, &o.GroupOffset)
		})
	}
}

// OffsetCount is the number of committed offsets of all groups.
func (s *State) OffsetCount() int { return s.groups.offsets.Len() }
