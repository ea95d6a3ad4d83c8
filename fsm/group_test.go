package fsm

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
)

// grantSlot gives the slot of a group to a node and returns the epoch.
func (w *world) grantSlot(group string, node vtop.NodeName) vtop.Epoch {
	w.t.Helper()
	return w.ok(w.grantSlotOf(group, node)).Items[0].Epoch
}

func (w *world) grantSlotOf(group string, node vtop.NodeName) *GrantCoordinators {
	c := w.s.CoordinatorOf(group)
	return &GrantCoordinators{Items: []CoordinatorGrant{{
		Slot: c.Slot, Holder: node, Incarnation: w.node(node).Incarnation, Expected: c.Epoch, Reason: "test",
	}}, At: 4}
}

// updateOf is what the holder of the first item's slot proposes next; epochs that are 0 are filled in.
func (w *world) updateOf(items ...GroupItem) *UpdateGroups {
	c := w.s.CoordinatorOf(items[0].Group)
	for i := range items {
		if items[i].Epoch == 0 {
			items[i].Epoch = w.s.CoordinatorOf(items[i].Group).Epoch
		}
	}
	return &UpdateGroups{Node: c.Holder, Incarnation: c.Incarnation, Sequence: c.Sequence + 1, Items: items, At: 6}
}

// groupWorld is a world in which n1 coordinates group "g", which has members m1 and m2 and offsets of both ranges of topic "lines".
func groupWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.grantSlot("g", "n1")
	w.ok(w.updateOf(GroupItem{
		Group: "g", Header: &GroupHeader{Kind: GroupClassic, Epoch: 3, Protocol: "range", Leader: "m1"},
		PutMembers: []GroupMember{{ID: "m1", Subscription: []byte("s")}, {ID: "m2", InstanceID: "i2"}},
		PutOffsets: []GroupOffset{{Range: r0, Offset: 10, LeaderEpoch: 1, Metadata: "x", CommittedAt: 5}, {Range: rangeID(1, 1), Offset: 20}},
	}))
	return w
}

func (w *world) group(id string) *Group {
	w.t.Helper()
	g, ok := w.s.Group(id)
	if !ok {
		w.t.Fatalf("no group %q", id)
	}
	return g
}

// offsetsOf lists the offsets of a group as "topic/index=offset".
func (w *world) offsetsOf(group string) (out []string) {
	for o := range w.s.Offsets(group) {
		out = append(out, fmt.Sprintf("%s=%d", w.s.RangeName(o.Range), o.Offset))
	}
	return out
}

func (w *world) membersOf(group string) (out []string) {
	for m := range w.s.Members(group) {
		out = append(out, m.ID)
	}
	return out
}

// The slot of a group is for ever: nodes of all builds must agree on it.
func TestGroupSlot(t *testing.T) {
	for group, want := range map[string]Slot{"": 5, "g": 6, "readers": 63, "console-consumer-1": 39, "\xff": 14} {
		if got := GroupSlot(group); got != want {
			t.Errorf("slot of %q is %d, want %d", group, got, want)
		}
	}
	seen := map[Slot]bool{}
	for i := range 2000 {
		slot := GroupSlot(fmt.Sprint("group-", i))
		if slot < 0 || slot >= GroupSlots {
			t.Fatalf("slot %d", slot)
		}
		seen[slot] = true
	}
	if len(seen) != GroupSlots {
		t.Errorf("2000 groups lie in %d slots", len(seen))
	}
}

func TestGrantCoordinators(t *testing.T) {
	w := newWorld(t)
	if c := w.s.CoordinatorOf("g"); c.Holder != "" || c.Epoch != vtop.NoEpoch || c.HeldBy("", 0) {
		t.Errorf("before the first grant: %+v", c)
	}
	first := w.grantSlotOf("g", "n1")
	w.ok(first)
	if c := w.s.CoordinatorOf("g"); !c.HeldBy("n1", 1) || c.Epoch != 1 || c.GrantIndex != w.s.Index() || c.GrantedAt != 4 || c.GrantReason != "test" {
		t.Errorf("granted: %+v", c)
	}
	w.refused(first, CodeStaleEpoch)
	strange := w.grantSlotOf("g", "n2")
	strange.Items[0].Incarnation = 9
	w.refused(strange, CodeStaleIncarnation)
	strange.Items[0].Holder = "n7"
	w.refused(strange, CodeUnknownNode)
	if e := w.grantSlot("g", "n2"); e != 2 {
		t.Errorf("the next epoch is %d", e)
	}
	w.ok(&RemoveNode{Name: "n5"})
	w.refused(w.grantSlotOf("g", "n5"), CodeNodeGone)
	last := w.s.fork()
	c := *last.CoordinatorOf("g")
	c.Epoch = 1<<31 - 1
	last.groups.coordinators[c.Slot] = &c
	end := &world{t: t, s: last}
	end.refused(end.grantSlotOf("g", "n1"), CodeLimit)
}

func TestReleaseCoordinators_GivesBackWhatTheProcessHolds(t *testing.T) {
	w := groupWorld(t)
	w.grantSlot("h", "n1")
	w.grantSlot("other", "n2")
	if out := w.ok(&ReleaseCoordinators{Node: "n1", Incarnation: 2}); out.Items != nil || len(slices.Collect(w.s.CoordinatorsOf("n1"))) != 2 {
		t.Errorf("another life gave back %+v", out.Items)
	}
	release := &ReleaseCoordinators{Node: "n1", Incarnation: 1}
	if out := w.ok(release); len(out.Items) != 2 || w.s.CoordinatorOf("g").Holder != "" || w.s.CoordinatorOf("g").Epoch != 1 {
		t.Errorf("gave back %+v, slot %+v", out.Items, w.s.CoordinatorOf("g"))
	}
	if out := w.ok(release); out.Items != nil {
		t.Errorf("a repeat gave back %+v", out.Items)
	}
	w.refused(&UpdateGroups{Node: "n1", Incarnation: 1, Sequence: 9, Items: []GroupItem{{Group: "g", Epoch: 1, Delete: true}}}, CodeStaleEpoch)
	if e := w.grantSlot("g", "n1"); e != 2 {
		t.Errorf("the next epoch is %d", e)
	}
	if c := w.s.CoordinatorOf("other"); !c.HeldBy("n2", 1) {
		t.Errorf("another node's slot: %+v", c)
	}
}

// I5: what a node held goes with it: removed, set gone, or its name given to another data directory, whose counter may come to the same
// number once more.
func TestCoordinator_EndsWithItsNode(t *testing.T) {
	for name, c := range map[string][]Command{
		"removed":  {&RemoveNode{Name: "n5"}},
		"set gone": {&UpdateNode{Name: "n5", State: NodeGone}},
		"replaced": {&RegisterNode{Name: "n5", Identity: identityOf("n5", 1, 1)}, &AdmitPending{Name: "n5", Storage: identityOf("n5", 1, 1).Storage}},
	} {
		w := newWorld(t)
		w.grantSlot("g", "n5")
		for _, cmd := range c {
			w.do(cmd)
		}
		if c := w.s.CoordinatorOf("g"); c.Holder != "" || c.Epoch != 1 {
			t.Errorf("%s: slot %+v", name, c)
		}
	}
	w := newWorld(t)
	w.grantSlot("g", "n5")
	w.ok(&RegisterNode{Name: "n5", Identity: identityOf("n5", 0, 2), Expected: 1})
	if c := w.s.CoordinatorOf("g"); c.HeldBy("n5", 2) || !c.HeldBy("n5", 1) {
		t.Errorf("restarted: slot %+v", c)
	}
	w.refused(w.updateOf(GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic}}), CodeStaleIncarnation)
}

func TestUpdateGroups_IsFenced(t *testing.T) {
	w := groupWorld(t)
	header := &GroupHeader{Kind: GroupClassic, Epoch: 4}
	update := func(node vtop.NodeName, life vtop.Incarnation, epoch vtop.Epoch, sequence uint64) *UpdateGroups {
		return &UpdateGroups{Node: node, Incarnation: life, Sequence: sequence, Items: []GroupItem{{Group: "g", Epoch: epoch, Header: header}}}
	}
	w.refused(update("n7", 1, 1, 9), CodeUnknownNode)
	w.refused(update("n1", 2, 1, 9), CodeStaleIncarnation)
	w.refused(update("n2", 1, 1, 9), CodeStaleEpoch) // not its holder
	w.refused(update("n1", 1, 2, 9), CodeStaleEpoch) // an epoch never minted
	w.refused(update("n1", 1, 1, 1), CodeOvertaken)  // the sequence that made the group
	w.ok(update("n1", 1, 1, 5))
	w.refused(update("n1", 1, 1, 4), CodeOvertaken) // proposed before, came later
	w.grantSlot("g", "n2")
	w.refused(update("n1", 1, 1, 9), CodeStaleEpoch) // deposed
	w.ok(update("n2", 1, 2, 1))                      // under a new epoch the count begins anew
	w.grantSlot("g", "n1")
	w.refused(update("n1", 1, 1, 99), CodeStaleEpoch) // its old epoch is not its new one
	other := update("n1", 1, 1, 99)
	other.Items[0].Group = "nobody coordinates this one"
	w.refused(other, CodeStaleEpoch)
}

// One refused item keeps none of the others from being taken.
func TestUpdateGroups_TakesItemByItem(t *testing.T) {
	w := groupWorld(t)
	for _, node := range []vtop.NodeName{"n1", "n2"} {
		w.grantSlot(map[vtop.NodeName]string{"n1": "mine", "n2": "theirs"}[node], node)
	}
	header := &GroupHeader{Kind: GroupConsumer}
	out := w.do(w.updateOf(
		GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0, Offset: 11}}},
		GroupItem{Group: "theirs", Header: header},
		GroupItem{Group: "mine", PutOffsets: []GroupOffset{{Range: r0, Offset: 1}}}, // not made yet
		GroupItem{Group: "mine", Header: header},
		GroupItem{Group: "mine", PutOffsets: []GroupOffset{{Range: r0, Offset: 2}}}, // made by the item before
	))
	var codes []Code
	for _, item := range out.Items {
		if item.Refusal == nil {
			codes = append(codes, 0)
			continue
		}
		codes = append(codes, item.Refusal.Code)
	}
	if want := []Code{0, CodeStaleEpoch, CodeUnknownGroup, 0, 0}; out.Refusal != nil || !slices.Equal(codes, want) {
		t.Errorf("outcome %+v, codes %v, want %v", out, codes, want)
	}
	if got := w.offsetsOf("mine"); !slices.Equal(got, []string{"lines/0=2"}) {
		t.Errorf("offsets %v", got)
	}
	if out.Items[0].Group != "g" || out.Items[0].Slot != GroupSlot("g") || out.Items[0].Epoch != 1 {
		t.Errorf("item %+v", out.Items[0])
	}
}

func TestUpdateGroups_ChangesOnlyWhatItNames(t *testing.T) {
	w := groupWorld(t)
	if g := w.group("g"); g.Members != 2 || g.Offsets != 2 || g.Epoch != 3 || g.CreatedAt != 6 || g.Index != w.s.Index() || g.Slot != GroupSlot("g") {
		t.Errorf("made %+v", g)
	}
	made := w.group("g")
	w.ok(w.updateOf(GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0, Offset: 12}}}))
	if w.group("g") != made || !slices.Equal(w.offsetsOf("g"), []string{"lines/0=12", "lines/1=20"}) {
		t.Errorf("a commit: group %+v, offsets %v", w.group("g"), w.offsetsOf("g"))
	}
	if o, _ := w.s.Offset("g", r0); o.Metadata != "" || o.LeaderEpoch != 0 {
		t.Errorf("an offset is replaced as a whole: %+v", o)
	}
	w.ok(w.updateOf(GroupItem{
		Group: "g", RemoveMembers: []string{"m1", "never there"}, PutMembers: []GroupMember{{ID: "m2", Rack: "r"}, {ID: "m3"}},
		DropOffsets: []vtop.Range{r0, rangeID(8, 1)},
	}))
	if g := w.group("g"); g.Members != 2 || g.Offsets != 1 || g.Epoch != 3 || g.Leader != "m1" {
		t.Errorf("changed %+v", g)
	}
	if m, ok := w.s.Member("g", "m2"); !ok || m.InstanceID != "" || m.Rack != "r" {
		t.Errorf("a member is replaced as a whole: %+v", m)
	}
	if got := w.membersOf("g"); !slices.Equal(got, []string{"m2", "m3"}) || !slices.Equal(w.offsetsOf("g"), []string{"lines/1=20"}) {
		t.Errorf("members %v, offsets %v", got, w.offsetsOf("g"))
	}
	if _, ok := w.s.Member("g", "m1"); ok {
		t.Error("m1 is still there")
	}
	back := GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupClassic, Epoch: 2}}
	w.refused(w.updateOf(back), CodeConflict)
	if err := w.s.CheckGroupItem(&back); err == nil {
		t.Error("CheckGroupItem takes an epoch that goes back")
	}
}

func TestUpdateGroups_DeletesTheWholeGroup(t *testing.T) {
	w := groupWorld(t)
	w.ok(w.updateOf(GroupItem{Group: "g", Delete: true}))
	if _, ok := w.s.Group("g"); ok || w.s.GroupCount() != 0 || w.s.OffsetCount() != 0 || w.s.GroupBytes() != 0 || w.membersOf("g") != nil {
		t.Errorf("left: %d groups, %d offsets, %d bytes", w.s.GroupCount(), w.s.OffsetCount(), w.s.GroupBytes())
	}
	w.ok(w.updateOf(GroupItem{Group: "g", Delete: true}))
	w.refused(w.updateOf(GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0, Offset: 1}}}), CodeUnknownGroup)
	w.ok(w.updateOf(GroupItem{Group: "g", Header: &GroupHeader{Kind: GroupConsumer, Epoch: 1}})) // another life begins where it likes
}

// A commit that comes after the deletion of its topic leaves nothing behind, in whatever order the two were proposed.
func TestDeleteTopic_TakesTheOffsetsAlong(t *testing.T) {
	w := groupWorld(t)
	w.ok(&CreateTopic{ID: uuid(2), Name: "stays", Ranges: [][]vtop.NodeName{{"n1"}}})
	kept := GroupOffset{Range: rangeID(2, 0), Offset: 7}
	w.ok(w.updateOf(GroupItem{Group: "g", PutOffsets: []GroupOffset{kept}}))
	w.grantSlot("h", "n2")
	w.ok(w.updateOf(GroupItem{Group: "h", Header: &GroupHeader{Kind: GroupConsumer}, PutOffsets: []GroupOffset{{Range: r0, Offset: 3}}}))
	var of []string
	for group, o := range w.s.OffsetsOf(uuid(1)) {
		of = append(of, fmt.Sprintf("%s/%d=%d", group, o.Range.Index, o.Offset))
	}
	if want := []string{"g/0=10", "h/0=3", "g/1=20"}; !slices.Equal(of, want) {
		t.Errorf("offsets of the topic %v, want %v", of, want)
	}
	w.ok(&DeleteTopic{ID: uuid(1)})
	if got := w.offsetsOf("g"); !slices.Equal(got, []string{"stays/0=7"}) || w.offsetsOf("h") != nil || w.group("h").Offsets != 0 {
		t.Errorf("left: %v and %v", got, w.offsetsOf("h"))
	}
	w.ok(w.updateOf(GroupItem{Group: "g", PutOffsets: []GroupOffset{{Range: r0, Offset: 99}, {Range: rangeID(2, 5), Offset: 1}, kept}}))
	if got := w.offsetsOf("g"); !slices.Equal(got, []string{"stays/0=7"}) {
		t.Errorf("after a late commit: %v", got)
	}
}

func TestState_GroupAccessors(t *testing.T) {
	w := newWorld(t)
	bySlot := map[Slot][]string{}
	for i := range 200 {
		id := fmt.Sprint("group-", i)
		if w.s.CoordinatorOf(id).Holder == "" {
			w.s, _ = w.s.Apply(w.s.Index()+1, w.grantSlotOf(id, vtop.NodeName(fmt.Sprint("n", 1+i%2))))
		}
		w.s, _ = w.s.Apply(w.s.Index()+1, w.updateOf(GroupItem{Group: id, Header: &GroupHeader{Kind: GroupClassic}}))
		bySlot[GroupSlot(id)] = append(bySlot[GroupSlot(id)], id)
	}
	var all []string
	for slot := range Slot(GroupSlots) {
		var got []string
		for g := range w.s.GroupsOf(slot) {
			got = append(got, g.ID)
		}
		slices.Sort(bySlot[slot])
		if !slices.Equal(got, bySlot[slot]) {
			t.Errorf("slot %d has %v, want %v", slot, got, bySlot[slot])
		}
		all = append(all, got...)
	}
	var walked []string
	for g := range w.s.Groups() {
		walked = append(walked, g.ID)
	}
	if !slices.Equal(walked, all) || w.s.GroupCount() != 200 {
		t.Errorf("%d groups walked, %d counted", len(walked), w.s.GroupCount())
	}
	held := len(slices.Collect(w.s.CoordinatorsOf("n1"))) + len(slices.Collect(w.s.CoordinatorsOf("n2")))
	if held != len(bySlot) || len(slices.Collect(w.s.CoordinatorsOf(""))) != 0 {
		t.Errorf("%d slots held, %d granted", held, len(bySlot))
	}
	for range w.s.Coordinators() {
		break
	}
	if err := w.s.Check(); err != nil {
		t.Error(err)
	}
	if got := []string{GroupClassic.String(), GroupConsumer.String(), GroupKind(0).String()}; !reflect.DeepEqual(got, []string{"classic", "consumer", "unknown"}) {
		t.Errorf("kinds are named %v", got)
	}
}
