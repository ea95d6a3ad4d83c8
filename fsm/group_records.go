package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// Consumer groups as protobuf messages, each way.

func putGroupHeader(h *GroupHeader) *fsmpb.GroupHeader {
	if h == nil {
		return nil
	}
	return &fsmpb.GroupHeader{
		Kind: uint32(h.Kind), Epoch: h.Epoch, AssignmentEpoch: h.AssignmentEpoch, ProtocolType: []byte(h.ProtocolType),
		Protocol: []byte(h.Protocol), Leader: []byte(h.Leader), EmptySince: h.EmptySince, Data: h.Data,
	}
}

func (r *reader) groupHeader(p *fsmpb.GroupHeader) *GroupHeader {
	if p == nil {
		return nil
	}
	return &GroupHeader{
		Kind: GroupKind(r.small(p.GetKind())), Epoch: p.GetEpoch(), AssignmentEpoch: p.GetAssignmentEpoch(),
		ProtocolType: string(p.GetProtocolType()), Protocol: string(p.GetProtocol()), Leader: string(p.GetLeader()),
		EmptySince: p.GetEmptySince(), Data: blob(p.GetData()),
	}
}

// blob keeps nil for no bytes, so that a value is the same after a round trip.
func blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func putGroupMember(m *GroupMember) *fsmpb.GroupMember {
	return &fsmpb.GroupMember{
		Id: []byte(m.ID), InstanceId: []byte(m.InstanceID), ClientId: []byte(m.ClientID), ClientHost: []byte(m.ClientHost), Rack: []byte(m.Rack),
		RebalanceTimeoutMs: m.RebalanceTimeoutMS, SessionTimeoutMs: m.SessionTimeoutMS, Epoch: m.Epoch, PreviousEpoch: m.PreviousEpoch,
		State: uint32(m.State), Subscription: m.Subscription, Assignment: m.Assignment, Target: m.Target,
	}
}

func (r *reader) groupMember(p *fsmpb.GroupMember) GroupMember {
	return GroupMember{
		ID: string(p.GetId()), InstanceID: string(p.GetInstanceId()), ClientID: string(p.GetClientId()), ClientHost: string(p.GetClientHost()),
		Rack: string(p.GetRack()), RebalanceTimeoutMS: p.GetRebalanceTimeoutMs(), SessionTimeoutMS: p.GetSessionTimeoutMs(),
		Epoch: p.GetEpoch(), PreviousEpoch: p.GetPreviousEpoch(), State: r.small(p.GetState()),
		Subscription: blob(p.GetSubscription()), Assignment: blob(p.GetAssignment()), Target: blob(p.GetTarget()),
	}
}

func putGroupOffset(o *GroupOffset) *fsmpb.GroupOffset {
	return &fsmpb.GroupOffset{
		Range: putRangeID(o.Range), Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch), Metadata: []byte(o.Metadata), CommittedAt: o.CommittedAt,
	}
}

func (r *reader) groupOffset(p *fsmpb.GroupOffset) GroupOffset {
	return GroupOffset{
		Range: r.rangeID(p.GetRange()), Offset: vtop.Offset(p.GetOffset()), LeaderEpoch: vtop.Epoch(p.GetLeaderEpoch()),
		Metadata: string(p.GetMetadata()), CommittedAt: p.GetCommittedAt(),
	}
}

func putGroupItem(i *GroupItem) *fsmpb.UpdateGroups_Item {
	p := &fsmpb.UpdateGroups_Item{
		Group: []byte(i.Group), Epoch: int32(i.Epoch), Delete: i.Delete, Header: putGroupHeader(i.Header),
		RemoveMembers: mapSlice(i.RemoveMembers, func(id string) []byte { return []byte(id) }),
		DropOffsets:   mapSlice(i.DropOffsets, putRangeID),
	}
	for n := range i.PutMembers {
		p.PutMembers = append(p.PutMembers, putGroupMember(&i.PutMembers[n]))
	}
	for n := range i.PutOffsets {
		p.PutOffsets = append(p.PutOffsets, putGroupOffset(&i.PutOffsets[n]))
	}
	return p
}

func (r *reader) groupItem(p *fsmpb.UpdateGroups_Item) GroupItem {
	return GroupItem{
		Group: string(p.GetGroup()), Epoch: vtop.Epoch(p.GetEpoch()), Delete: p.GetDelete(), Header: r.groupHeader(p.GetHeader()),
		RemoveMembers: mapSlice(p.GetRemoveMembers(), func(b []byte) string { return string(b) }),
		PutMembers:    mapSlice(p.GetPutMembers(), r.groupMember),
		DropOffsets:   mapSlice(p.GetDropOffsets(), r.rangeID),
		PutOffsets:    mapSlice(p.GetPutOffsets(), r.groupOffset),
	}
}

// saveGroups writes what a state holds of consumer groups.
func (s *State) saveGroups(out *recordWriter) {
	for c := range s.Coordinators() {
		if c.Epoch != vtop.NoEpoch {
			out.record(recordCoordinator, putCoordinator(c))
		}
	}
	for g := range s.Groups() {
		out.record(recordGroup, &fsmpb.GroupRecord{
			Id: []byte(g.ID), Header: putGroupHeader(&g.GroupHeader), CreatedAt: g.CreatedAt, UpdatedAt: g.UpdatedAt, Index: g.Index,
		})
	}
	for m := range all(s.groups.members) {
		out.record(recordMember, &fsmpb.MemberRecord{Group: []byte(m.group), Member: putGroupMember(m.GroupMember)})
	}
	for o := range all(s.groups.offsets) {
		out.record(recordOffset, &fsmpb.OffsetRecord{Group: []byte(o.group), Offset: putGroupOffset(&o.GroupOffset)})
	}
}

// groupRecord is the part of record that is about consumer groups.
func (l *loader) groupRecord(kind byte, r *reader) (m proto.Message, fill func()) {
	switch kind {
	case recordCoordinator:
		p := new(fsmpb.CoordinatorRecord)
		return p, func() { r.coordinator(l.s, p) }
	case recordGroup:
		p := new(fsmpb.GroupRecord)
		return p, func() { r.group(l.s, p) }
	case recordMember:
		p := new(fsmpb.MemberRecord)
		return p, func() { r.member(l.s, p) }
	case recordOffset:
		p := new(fsmpb.OffsetRecord)
		return p, func() { r.offset(l.s, p) }
	}
	return nil, nil
}

func putCoordinator(c *Coordinator) *fsmpb.CoordinatorRecord {
	return &fsmpb.CoordinatorRecord{
		Slot: int32(c.Slot), Holder: string(c.Holder), Incarnation: uint64(c.Incarnation), Epoch: int32(c.Epoch), Sequence: c.Sequence,
		GrantIndex: c.GrantIndex, GrantedAt: c.GrantedAt, GrantReason: c.GrantReason,
	}
}

func (r *reader) coordinator(s *State, p *fsmpb.CoordinatorRecord) {
	slot := Slot(p.GetSlot())
	if slot < 0 || slot >= GroupSlots {
		r.fail("coordinator slot %d: want 0 to %d", slot, GroupSlots-1)
		return
	}
	if s.groups.coordinators[slot].Epoch != vtop.NoEpoch {
		r.fail("coordinator slot %d twice", slot)
	}
	s.groups.coordinators[slot] = &Coordinator{
		Slot: slot, Holder: vtop.NodeName(p.GetHolder()), Incarnation: vtop.Incarnation(p.GetIncarnation()), Epoch: vtop.Epoch(p.GetEpoch()),
		Sequence: p.GetSequence(), GrantIndex: p.GetGrantIndex(), GrantedAt: p.GetGrantedAt(), GrantReason: p.GetGrantReason(),
	}
}

func (r *reader) group(s *State, p *fsmpb.GroupRecord) {
	id := string(p.GetId())
	g := &Group{ID: id, Slot: GroupSlot(id), CreatedAt: p.GetCreatedAt(), UpdatedAt: p.GetUpdatedAt(), Index: p.GetIndex()}
	if h := r.groupHeader(p.GetHeader()); h != nil {
		g.GroupHeader = *h
	}
	g.Bytes = g.GroupHeader.bytes(id)
	s.groups.bytes += g.Bytes
	if _, twice := s.groups.all.Set(g); twice {
		r.fail("group %q twice", id)
	}
}

// member adds a member to its group, which is not published yet and so may be written to.
func (r *reader) member(s *State, p *fsmpb.MemberRecord) {
	g, ok := s.Group(string(p.GetGroup()))
	if !ok {
		r.fail("a member of group %q, which does not exist", p.GetGroup())
		return
	}
	m := r.groupMember(p.GetMember())
	g.Members++
	g.Bytes += m.bytes()
	s.groups.bytes += m.bytes()
	if _, twice := s.groups.members.Set(groupMember{g.ID, &m}); twice {
		r.fail("member %q of group %q twice", m.ID, g.ID)
	}
}

func (r *reader) offset(s *State, p *fsmpb.OffsetRecord) {
	g, ok := s.Group(string(p.GetGroup()))
	if !ok {
		r.fail("an offset of group %q, which does not exist", p.GetGroup())
		return
	}
	o := &groupOffset{group: g.ID, GroupOffset: r.groupOffset(p.GetOffset())}
	g.Offsets++
	s.groups.bytes += o.bytes()
	if _, twice := s.groups.offsets.Set(o); twice {
		r.fail("offset of group %q for range %s twice", g.ID, o.Range)
	}
	s.groups.byRange.Set(o)
}
