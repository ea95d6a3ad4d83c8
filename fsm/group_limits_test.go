package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

func TestUpdateGroups_Limits(t *testing.T) {
	w := groupWorld(t)
	members := make([]GroupMember, MaxGroupMembers)
	for i := range members {
		members[i].ID = fmt.Sprintf("x%d", i)
	}
	w.refused(w.updateOf(GroupItem{Group: "g", PutMembers: members}), CodeLimit)
	w.ok(w.updateOf(GroupItem{Group: "g", RemoveMembers: []string{"m1", "m2"}, PutMembers: members}))
	w.refused(w.updateOf(GroupItem{Group: "g", PutMembers: []GroupMember{{ID: "m1"}}}), CodeLimit)
	w.ok(w.updateOf(GroupItem{Group: "g", Delete: true}))

	w.ok(w.updateOf(GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic}}))
	for i := range 3 {
		w.ok(w.updateOf(GroupItem{Group: "g", PutMembers: []GroupMember{{ID: fmt.Sprint(i), Assignment: make([]byte, MaxMemberBytes)}}}))
	}
	big := GroupMember{ID: "big", Target: make([]byte, MaxMemberBytes)}
	w.refused(w.updateOf(GroupItem{Group: "g", PutMembers: []GroupMember{big}}), CodeLimit)
	w.ok(w.updateOf(GroupItem{Group: "g", RemoveMembers: []string{"0"}, PutMembers: []GroupMember{big}}))

	full := w.s.fork()
	full.groups.bytes = MaxGroupState
	for name, c := range map[string]struct {
		item GroupItem
		ok   bool
	}{
		"what grows":          {GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0}}}, false},
		"a new group":         {GroupItem{Group: "new", Header: &GroupHeader{Kind: GroupClassic}}, false},
		"what shrinks":        {GroupItem{Group: "g", RemoveMembers: []string{"1"}}, true},
		"what stays the same": {GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic, Epoch: 9}}, true},
		"a deletion":          {GroupItem{Group: "g", Delete: true}, true},
	} {
		c.item.Epoch = 1
		if err := full.CheckGroupItem(&c.item); (err == nil) != c.ok {
			t.Errorf("%s in a full state: %v", name, err)
		}
	}
}

func TestUpdateGroups_NumberOfGroups(t *testing.T) {
	w := newWorld(t)
	s := w.s.fork()
	for i := range MaxGroups {
		id := fmt.Sprint("g", i)
		s.groups.all.Set(&Group{ID: id, Slot: GroupSlot(id)})
	}
	one := GroupItem{Group: "one more", Epoch: 1, Header: &GroupHeader{Kind: GroupClassic}}
	if err := s.CheckGroupItem(&one); err == nil || err.(*Refusal).Code != CodeLimit {
		t.Errorf("one more group: %v", err)
	}
	one.Group = "g7"
	if err := s.CheckGroupItem(&one); err != nil {
		t.Errorf("a group that is there: %v", err)
	}
}

func TestGroupItem_RefusesBadShape(t *testing.T) {
	long := strings.Repeat("x", MaxGroupName+1)
	for name, c := range map[string]struct {
		item GroupItem
		code Code
	}{
		"no group":              {GroupItem{}, CodeInvalid},
		"a long id":             {GroupItem{Group: long}, CodeLimit},
		"deleted and changed":   {GroupItem{Group: "g", Delete: true, Header: &GroupHeader{Kind: GroupClassic}}, CodeInvalid},
		"a kind unknown":        {GroupItem{Group: "g", Header: &GroupHeader{Kind: 3}}, CodeInvalid},
		"a negative epoch":      {GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic, Epoch: -1}}, CodeInvalid},
		"a long protocol":       {GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic, Protocol: long}}, CodeLimit},
		"much data":             {GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic, Data: make([]byte, MaxMemberBytes+1)}}, CodeLimit},
		"a member without id":   {GroupItem{Group: "g", PutMembers: []GroupMember{{}}}, CodeInvalid},
		"a member twice":        {GroupItem{Group: "g", PutMembers: []GroupMember{{ID: "m"}, {ID: "m"}}}, CodeInvalid},
		"put and removed":       {GroupItem{Group: "g", RemoveMembers: []string{"m"}, PutMembers: []GroupMember{{ID: "m"}}}, CodeInvalid},
		"a long client host":    {GroupItem{Group: "g", PutMembers: []GroupMember{{ID: "m", ClientHost: long}}}, CodeLimit},
		"much subscribed":       {GroupItem{Group: "g", PutMembers: []GroupMember{{ID: "m", Subscription: make([]byte, MaxMemberBytes+1)}}}, CodeLimit},
		"a negative timeout":    {GroupItem{Group: "g", PutMembers: []GroupMember{{ID: "m", SessionTimeoutMS: -1}}}, CodeInvalid},
		"a range twice":         {GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0}, {Range: r0}}}, CodeInvalid},
		"put and dropped":       {GroupItem{Group: "g", DropOffsets: []vtop.Range{r0}, PutOffsets: []GroupOffset{{Range: r0}}}, CodeInvalid},
		"a negative offset":     {GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0, Offset: -1}}}, CodeInvalid},
		"long metadata":         {GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0, Metadata: strings.Repeat("x", MaxOffsetMetadata+1)}}}, CodeLimit},
		"an offset of no topic": {GroupItem{Group: "g", PutOffsets: []GroupOffset{{}}}, CodeInvalid},
	} {
		c.item.Epoch = 1
		if err, ok := c.item.Check().(*Refusal); !ok || err.Code != c.code {
			t.Errorf("%s: %v, want code %q", name, err, c.code)
		}
	}
	for name, cmd := range map[string]Command{
		"no epoch":        &UpdateGroups{Node: "n1", Incarnation: 1, Sequence: 1, Items: []GroupItem{{Group: "g"}}},
		"no sequence":     &UpdateGroups{Node: "n1", Incarnation: 1, Items: []GroupItem{{Group: "g", Epoch: 1}}},
		"no items":        &UpdateGroups{Node: "n1", Incarnation: 1, Sequence: 1},
		"no incarnation":  &ReleaseCoordinators{Node: "n1"},
		"a slot too high": &GrantCoordinators{Items: []CoordinatorGrant{{Slot: GroupSlots, Holder: "n1", Incarnation: 1}}},
		"a slot below 0":  &GrantCoordinators{Items: []CoordinatorGrant{{Slot: -1, Holder: "n1", Incarnation: 1}}},
	} {
		if _, err := Encode(cmd); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// A batch that is filled by the sizes of its items fits into a command.
func TestGroupItem_SizeIsWhatItTakes(t *testing.T) {
	cmd := &UpdateGroups{Node: "n1", Incarnation: 1, Sequence: 1}
	empty := 40
	sum := 0
	for i := range 50 {
		item := everyItem()[0]
		item.PutMembers[0].Subscription = make([]byte, i*1000)
		cmd.Items = append(cmd.Items, item, GroupItem{Group: fmt.Sprint(i), Epoch: 1, Delete: true})
		sum += item.Size() + cmd.Items[2*i+1].Size()
	}
	b, err := Encode(cmd)
	if err != nil || len(b) > sum+empty || len(b) < sum-600 {
		t.Errorf("%d bytes encoded, %d foreseen: %v", len(b), sum, err)
	}
}
