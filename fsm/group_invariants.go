package fsm

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// checkGroups: a slot is held by a node of the cluster or by nobody; a member or an offset belongs to a group that exists, an offset to a
// range that exists; what is counted is there.
func (s *State) checkGroups() error {
	for slot, c := range s.groups.coordinators {
		if err := s.checkCoordinator(Slot(slot), c); err != nil {
			return fmt.Errorf("coordinator slot %d: %w", slot, err)
		}
	}
	members, offsets, total := 0, 0, int64(0)
	for g := range s.Groups() {
		bytes, err := s.checkGroup(g)
		if err != nil {
			return fmt.Errorf("group %q: %w", g.ID, err)
		}
		members, offsets, total = members+g.Members, offsets+g.Offsets, total+bytes
	}
	if s.groups.members.Len() != members || s.groups.offsets.Len() != offsets || s.groups.byRange.Len() != offsets {
		return fmt.Errorf("%d members of groups, %d exist; %d offsets of groups, %d exist, %d by range",
			members, s.groups.members.Len(), offsets, s.groups.offsets.Len(), s.groups.byRange.Len())
	}
	if s.groups.bytes != total || total > MaxGroupState || s.groups.all.Len() > MaxGroups {
		return fmt.Errorf("I13: %d groups take %d bytes, %d are counted", s.groups.all.Len(), total, s.groups.bytes)
	}
	return nil
}

func (s *State) checkCoordinator(slot Slot, c *Coordinator) error {
	if c.Slot != slot || c.Epoch < vtop.NoEpoch {
		return fmt.Errorf("stands for slot %d, epoch %d", c.Slot, c.Epoch)
	}
	if c.Holder == "" {
		if *c != (Coordinator{Slot: slot, Epoch: c.Epoch}) {
			return fmt.Errorf("no holder, but %+v", *c)
		}
		return nil
	}
	if c.Epoch == vtop.NoEpoch || c.Incarnation == 0 || c.GrantIndex == 0 {
		return fmt.Errorf("I5: %+v", *c)
	}
	if n, ok := s.Node(c.Holder); !ok || n.State == NodeGone || c.Incarnation > n.Incarnation {
		return fmt.Errorf("I5: held by %q in incarnation %d: known %t", c.Holder, c.Incarnation, ok)
	}
	return nil
}

// checkGroup returns what the group takes with its members and offsets.
func (s *State) checkGroup(g *Group) (total int64, err error) {
	if g.ID == "" || g.Slot != GroupSlot(g.ID) || (g.Kind != GroupClassic && g.Kind != GroupConsumer) || g.Epoch < 0 {
		return 0, fmt.Errorf("slot %d, kind %d, epoch %d", g.Slot, g.Kind, g.Epoch)
	}
	members, bytes := 0, g.GroupHeader.bytes(g.ID)
	for m := range s.Members(g.ID) {
		if m.ID == "" {
			return 0, fmt.Errorf("member %d has no id", members)
		}
		members++
		bytes += m.bytes()
	}
	if members != g.Members || bytes != g.Bytes {
		return 0, fmt.Errorf("%d members counted, %d exist; %d bytes counted, they take %d", g.Members, members, g.Bytes, bytes)
	}
	offsets, total := 0, bytes
	for o := range s.Offsets(g.ID) {
		if _, ok := s.Range(o.Range); !ok || o.Offset < 0 || o.LeaderEpoch < vtop.NoEpoch || len(o.Metadata) > MaxOffsetMetadata {
			return 0, fmt.Errorf("offset %+v, range known %t", *o, ok)
		}
		if twin, ok := s.groups.byRange.Get(&groupOffset{group: g.ID, GroupOffset: *o}); !ok || twin.GroupOffset != *o {
			return 0, fmt.Errorf("offset %+v is not the one by range", *o)
		}
		offsets++
		total += o.bytes()
	}
	if offsets != g.Offsets || members > MaxGroupMembers || bytes > MaxGroupBytes || offsets > MaxGroupOffsets {
		return 0, fmt.Errorf("I13: %d offsets counted, %d exist; %d members, %d bytes", g.Offsets, offsets, members, bytes)
	}
	return total, nil
}
