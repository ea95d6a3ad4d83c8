package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// groupState holds objects of consumer groups of every kind, with every field set somewhere.
func groupState(t *testing.T) *State {
	t.Helper()
	w := groupWorld(t)
	item := everyItem()[0]
	item.Group, item.Epoch = "g", 1
	item.RemoveMembers, item.DropOffsets = []string{"m2"}, nil
	item.PutOffsets[0].Range = rangeID(1, 1)
	w.ok(w.updateOf(item))
	w.grantSlot("h", "n2")
	w.ok(w.updateOf(GroupItem{Group: "h", Header: &GroupHeader{Kind: GroupConsumer}}))
	w.grantSlot("given back", "n3")
	w.ok(&ReleaseCoordinators{Node: "n3", Incarnation: 1})
	return w.s
}

func TestGroups_SaveAndLoadEveryField(t *testing.T) {
	s := groupState(t)
	saved := save(t, s)
	back, err := Load(bytes.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	a, b := contents(s), contents(back)
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Errorf("saved  %+v\nloaded %+v", a[i], b[i])
		}
	}
	if len(a) != len(b) || s.Hash() != back.Hash() {
		t.Errorf("%d objects saved, %d loaded", len(a), len(b))
	}
	compareGolden(t, "testdata/snapshot_groups.golden", []byte(hex.EncodeToString(saved)+"\n"))
}

func TestLoad_RefusesGroupsThatDoNotFit(t *testing.T) {
	s := groupState(t)
	g, _ := s.Group("g")
	m, _ := s.Member("g", "m1")
	o, _ := s.Offset("g", r0)
	rec := func(kind byte, m proto.Message) func(*recordWriter) {
		return func(w *recordWriter) { w.record(kind, m) }
	}
	cluster := rec(recordCluster, s.putCluster())
	held := rec(recordCoordinator, putCoordinator(s.CoordinatorOf("g")))
	group := rec(recordGroup, &fsmpb.GroupRecord{Id: []byte("g"), Header: putGroupHeader(&g.GroupHeader)})
	member := rec(recordMember, &fsmpb.MemberRecord{Group: []byte("g"), Member: putGroupMember(m)})
	offset := rec(recordOffset, &fsmpb.OffsetRecord{Group: []byte("g"), Offset: putGroupOffset(o)})
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"a slot that is none":       {rewrite(cluster, rec(recordCoordinator, &fsmpb.CoordinatorRecord{Slot: 64, Epoch: 1})), "slot 64"},
		"a slot twice":              {rewrite(cluster, held, held), "twice"},
		"a holder nobody knows":     {rewrite(cluster, held), "known false"},
		"a group without header":    {rewrite(cluster, rec(recordGroup, &fsmpb.GroupRecord{Id: []byte("g")})), "kind 0"},
		"a group twice":             {rewrite(cluster, group, group), "twice"},
		"a member of no group":      {rewrite(cluster, member), "does not exist"},
		"a member twice":            {rewrite(cluster, group, member, member), "twice"},
		"an offset of no group":     {rewrite(cluster, offset), "does not exist"},
		"an offset twice":           {rewrite(cluster, group, offset, offset), "twice"},
		"an offset of no range":     {rewrite(cluster, group, offset), "range known false"},
		"members before the group":  {rewrite(cluster, member, group), "does not exist"},
		"a group after its offsets": {rewrite(cluster, group, offset, group), "kind 9 after kind 11"},
	} {
		if _, err := Load(bytes.NewReader(c.b)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
	if _, err := Load(bytes.NewReader(rewrite(cluster, group, member))); err != nil {
		t.Errorf("a group and its member alone: %v", err)
	}
}

func TestState_CheckSeesEveryBreachOfGroups(t *testing.T) {
	good := groupState(t)
	slot := func(change func(c *Coordinator)) func(*State) {
		return func(s *State) {
			c := *s.CoordinatorOf("g")
			change(&c)
			s.groups.coordinators[GroupSlot("g")] = &c
		}
	}
	group := func(change func(g *Group)) func(*State) {
		return func(s *State) {
			old, _ := s.Group("g")
			g := *old
			change(&g)
			s.groups.all.Set(&g)
		}
	}
	stray := &groupOffset{group: "nobody", GroupOffset: GroupOffset{Range: r0}}
	for name, c := range map[string]struct {
		breach func(*State)
		want   string
	}{
		"a slot in another's place":  {slot(func(c *Coordinator) { c.Slot++ }), "stands for slot"},
		"held under no epoch":        {slot(func(c *Coordinator) { c.Epoch = 0 }), "I5:"},
		"held and not granted":       {slot(func(c *Coordinator) { c.GrantIndex = 0 }), "I5:"},
		"held by nobody we know":     {slot(func(c *Coordinator) { c.Holder = "n9" }), "I5: held by"},
		"held by a life to come":     {slot(func(c *Coordinator) { c.Incarnation = 2 }), "I5: held by"},
		"traces of a holder":         {slot(func(c *Coordinator) { c.Holder = "" }), "no holder, but"},
		"a holder that is gone":      {func(s *State) { n, _ := s.Node("n1"); x := *n; x.State = NodeGone; s.nodes.Set(&x) }, "gone"},
		"a kind unknown":             {group(func(g *Group) { g.Kind = 0 }), "kind 0"},
		"members miscounted":         {group(func(g *Group) { g.Members++ }), "members counted"},
		"bytes miscounted":           {group(func(g *Group) { g.Bytes++ }), "bytes counted"},
		"offsets miscounted":         {group(func(g *Group) { g.Offsets++ }), "offsets counted"},
		"a member of no group":       {func(s *State) { s.groups.members.Set(groupMember{"nobody", &GroupMember{ID: "m"}}) }, "members of groups"},
		"a member without id":        {func(s *State) { s.groups.members.Set(groupMember{"g", &GroupMember{}}) }, "has no id"},
		"an offset of no group":      {func(s *State) { s.groups.offsets.Set(stray); s.groups.byRange.Set(stray) }, "offsets of groups"},
		"an offset not by its range": {func(s *State) { s.groups.byRange.PopMin() }, "not the one by range"},
		"an index that lags":         {func(s *State) { s.groups.byRange.Set(stray) }, "by range"},
		"the sum of all is wrong":    {func(s *State) { s.groups.bytes++ }, "I13:"},
		"a negative offset": {func(s *State) {
			s.groups.offsets.Set(&groupOffset{group: "g", GroupOffset: GroupOffset{Range: r0, Offset: -1}})
		}, "range known true"},
	} {
		bad := good.fork()
		c.breach(bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

// What a machine's observers are told of groups.
func TestMachine_TellsOfGroups(t *testing.T) {
	w := newWorld(t)
	m := New(Options{})
	m.Replace(w.s)
	var seen []string
	m.Observe(func(c Change) {
		seen = append(seen, fmt.Sprintf("%v %v %d %t", c.Coordinators, c.Groups, len(c.Ranges), c.Nodes))
	})
	apply := func(cmds ...Command) {
		m.ApplyCommands(m.Applied()+1, cmds...)
		w.s = m.State()
	}
	apply(w.grantSlotOf("g", "n1"), w.grantSlotOf("readers", "n1"), w.grantSlotOf("h", "n1"))
	header := &GroupHeader{Kind: GroupClassic}
	put := []GroupOffset{{Range: r0, Offset: 1}}
	apply(w.updateOf(GroupItem{Group: "h", Header: header}, GroupItem{Group: "g", Header: header, PutOffsets: put}))
	apply(w.updateOf(GroupItem{Group: "readers", PutOffsets: put})) // refused
	apply(w.updateOf(GroupItem{Group: "g", PutOffsets: put}))
	apply(&DeleteTopic{ID: uuid(1)})
	apply(w.updateOf(GroupItem{Group: "h", Delete: true}))
	apply(&ReleaseCoordinators{Node: "n1", Incarnation: 1})
	slots := []Slot{GroupSlot("g"), GroupSlot("readers"), GroupSlot("h")}
	slices.Sort(slots)
	want := []string{
		fmt.Sprintf("%v [] 0 false", slots), "[] [g h] 0 false", "[] [] 0 false", "[] [g] 0 false", "[] [g] 2 false", "[] [h] 0 false",
		fmt.Sprintf("%v [] 0 false", slots),
	}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q,\nwant %q", seen, want)
	}
}
