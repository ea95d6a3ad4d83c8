package inspect

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// withGroup gives the world a classic group of members, coordinated by n2, that has read lines/0 up to offset.
func (w *world) withGroup(id string, members int, offset vtop.Offset) {
	w.t.Helper()
	slot := fsm.GroupSlot(id)
	w.apply(&fsm.GrantCoordinators{Items: []fsm.CoordinatorGrant{{Slot: slot, Holder: "n2", Incarnation: 1, Expected: w.state.Coordinator(slot).Epoch, Reason: "test"}}})
	item := fsm.GroupItem{
		Group: id, Epoch: w.state.Coordinator(slot).Epoch, Header: &fsm.GroupHeader{Kind: fsm.GroupClassic, Epoch: 3, AssignmentEpoch: 3, ProtocolType: "consumer", Protocol: "range"},
		PutOffsets: []fsm.GroupOffset{{Range: lines, Offset: offset, LeaderEpoch: 1, Metadata: "here", CommittedAt: 60_000}},
	}
	if members == 0 {
		item.Header.EmptySince = 1000
	}
	for i := range members {
		m := fsm.GroupMember{ID: fmt.Sprintf("m%d", i+1), ClientID: "app", ClientHost: "/10.0.0.1", RebalanceTimeoutMS: 5000, SessionTimeoutMS: 10_000}
		if i == 0 { // version 0, one topic: lines, range 0; no user data
			m.Assignment = []byte("\x00\x00" + "\x00\x00\x00\x01" + "\x00\x05lines" + "\x00\x00\x00\x01" + "\x00\x00\x00\x00" + "\xff\xff\xff\xff")
		} else {
			m.Assignment = []byte("of another kind")
		}
		item.PutMembers = append(item.PutMembers, m)
	}
	w.apply(&fsm.UpdateGroups{Node: "n2", Incarnation: 1, Sequence: w.state.Index(), Items: []fsm.GroupItem{item}, At: 1})
}

func (w *world) group(id string, states map[vtop.NodeName]map[string]string) *adminapi.GroupDetail {
	w.t.Helper()
	g, err := groupNamed(w.state, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.look().group(g, states)
}

func TestGroup_Described(t *testing.T) {
	w := newWorld(t)
	w.withGroup("g", 2, 90)
	p := w.look()
	p.ranges["n1"][lines].HighWatermark = 100
	g, _ := w.state.Group("g")
	d := p.group(g, map[vtop.NodeName]map[string]string{"n2": {"g": "Stable"}})
	if d.State != "Stable" || d.Kind != "classic" || d.Epoch != 3 || d.Coordinator != "n2" || d.Slot != int32(fsm.GroupSlot("g")) || d.CoordinatorEpoch != 1 || !d.EmptySince.IsZero() {
		t.Errorf("the group is %+v", d.Group)
	}
	if len(d.MembersDetail) != 2 || len(d.MembersDetail[0].Assigned) != 1 || d.MembersDetail[0].Assigned[0] != "lines/0" || d.MembersDetail[0].RebalanceMS != 5000 ||
		len(d.MembersDetail[1].Assigned) != 0 || d.MembersDetail[1].Epoch != 3 {
		t.Errorf("the members are %+v", d.MembersDetail)
	}
	want := adminapi.GroupOffset{Topic: "lines", Offset: 90, LeaderEpoch: 1, Metadata: "here", CommittedAt: time.UnixMilli(60_000).UTC(), HighWatermark: 100, Lag: 10, Member: "m1"}
	if len(d.CommittedDetail) != 1 || d.CommittedDetail[0] != want {
		t.Errorf("the offsets are %+v, want %+v", d.CommittedDetail, want)
	}
}

// TestGroup_UnknownIsNotZero: what nobody answers for is shown as unknown (I12).
func TestGroup_UnknownIsNotZero(t *testing.T) {
	w := newWorld(t)
	w.withGroup("g", 0, 90)
	w.down["n1"], w.noRaft = true, true
	d := w.group("g", nil)
	if d.State != stateUnknown || d.EmptySince != time.UnixMilli(1000).UTC() {
		t.Errorf("the group is %+v", d.Group)
	}
	if o := d.CommittedDetail[0]; o.HighWatermark != adminapi.Unknown || o.Lag != adminapi.Unknown || o.Offset != 90 {
		t.Errorf("the offset is %+v", o)
	}
}

func TestResets(t *testing.T) {
	w := newWorld(t)
	w.withGroup("g", 0, 90)
	w.withGroup("busy", 1, 90)
	p := w.look()
	p.ranges["n1"][lines].HighWatermark, p.ranges["n1"][lines].LogStart = 100, 20
	asked := 0
	answer := map[vtop.Range]int64{lines: 70}
	times := func(*fsm.Topic) map[vtop.Range]int64 { asked++; return answer }
	for _, row := range []struct {
		name  string
		req   adminapi.ResetOffsets
		after int64
		code  adminapi.Code
	}{
		{"the earliest", adminapi.ResetOffsets{To: adminapi.ToEarliest}, 20, ""},
		{"the latest", adminapi.ResetOffsets{To: adminapi.ToLatest}, 100, ""},
		{"an offset", adminapi.ResetOffsets{To: adminapi.ToOffset, Offset: 50}, 50, ""},
		{"an offset above the end", adminapi.ResetOffsets{To: adminapi.ToOffset, Offset: 500}, 100, ""},
		{"an offset below the start", adminapi.ResetOffsets{To: adminapi.ToOffset, Offset: 5}, 20, ""},
		{"all ranges", adminapi.ResetOffsets{Range: adminapi.AllRanges, To: adminapi.ToEarliest}, 20, ""},
		{"a time", adminapi.ResetOffsets{To: adminapi.ToTime, Time: time.UnixMilli(5000)}, 70, ""},
		{"no time", adminapi.ResetOffsets{To: adminapi.ToTime}, 0, adminapi.CodeInvalid},
		{"nowhere", adminapi.ResetOffsets{To: "there"}, 0, adminapi.CodeInvalid},
		{"an unknown topic", adminapi.ResetOffsets{Topic: "none", To: adminapi.ToLatest}, 0, adminapi.CodeNotFound},
		{"an unknown range", adminapi.ResetOffsets{Range: 7, To: adminapi.ToLatest}, 0, adminapi.CodeNotFound},
		{"an unknown group", adminapi.ResetOffsets{Group: "none", To: adminapi.ToLatest}, 0, adminapi.CodeNotFound},
		{"a group with members", adminapi.ResetOffsets{Group: "busy", To: adminapi.ToLatest}, 0, adminapi.CodeConflict},
		{"an unknown topic, by time", adminapi.ResetOffsets{Topic: "none", To: adminapi.ToTime, Time: time.UnixMilli(5000)}, 0, adminapi.CodeNotFound},
		{"an unknown range, by time", adminapi.ResetOffsets{Range: 7, To: adminapi.ToTime, Time: time.UnixMilli(5000)}, 0, adminapi.CodeNotFound},
		{"an unknown group, by time", adminapi.ResetOffsets{Group: "none", To: adminapi.ToTime, Time: time.UnixMilli(5000)}, 0, adminapi.CodeNotFound},
		{"a group with members, by time", adminapi.ResetOffsets{Group: "busy", To: adminapi.ToTime, Time: time.UnixMilli(5000)}, 0, adminapi.CodeConflict},
	} {
		if row.req.Group == "" {
			row.req.Group = "g"
		}
		if row.req.Topic == "" {
			row.req.Topic = "lines"
		}
		before := asked
		resets, offsets, err := p.resets(row.req, times)
		if want := row.req.To == adminapi.ToTime && row.code == ""; (asked > before) != want {
			t.Errorf("%s: the leaders were asked for a time %d times, want %t", row.name, asked-before, want)
		}
		if row.code != "" {
			var refused *adminapi.Error
			if !errors.As(err, &refused) || refused.Code != row.code {
				t.Errorf("%s: %v, want %s", row.name, err, row.code)
			}
			continue
		}
		if err != nil || len(resets) != 1 || resets[0] != (adminapi.OffsetReset{Topic: "lines", Before: 90, After: row.after}) ||
			len(offsets) != 1 || offsets[0].Offset != vtop.Offset(row.after) || offsets[0].Range != lines {
			t.Errorf("%s: %+v %+v %v, want %d", row.name, resets, offsets, err, row.after)
		}
	}
	// Case: a time that the leader has not answered for is not made up.
	answer = nil
	var refused *adminapi.Error
	byTime := adminapi.ResetOffsets{Group: "g", Topic: "lines", To: adminapi.ToTime, Time: time.UnixMilli(5000)}
	if _, _, err := p.resets(byTime, times); !errors.As(err, &refused) || refused.Code != adminapi.CodeUnavailable {
		t.Errorf("without the leader's answer: %v", err)
	}
	// Case: an end that nobody knows is not made up.
	w.down["n1"], w.noRaft = true, true
	before := asked
	for _, req := range []adminapi.ResetOffsets{{Group: "g", Topic: "lines", To: adminapi.ToEarliest}, byTime} {
		if _, _, err := w.look().resets(req, times); !errors.As(err, &refused) || refused.Code != adminapi.CodeUnavailable || asked != before {
			t.Errorf("without a leader: %v, asked %d times", err, asked-before)
		}
	}
}

func TestGroupRefusal(t *testing.T) {
	for _, row := range []struct {
		err  error
		code adminapi.Code
	}{
		{group.ErrGroupNotFound, adminapi.CodeNotFound},
		{group.ErrNotEmpty, adminapi.CodeConflict},
		{group.ErrUnknownMember, adminapi.CodeConflict},
		{group.ErrNotCoordinator, adminapi.CodeConflict},
		{group.ErrLoading, adminapi.CodeUnavailable},
		{group.ErrNotAvailable, adminapi.CodeUnavailable},
		{group.ErrInvalidGroup, adminapi.CodeInvalid},
		{vtop.ErrTimeout, adminapi.CodeTimeout},
	} {
		var refused *adminapi.Error
		if err := groupRefusal(fmt.Errorf("wrapped: %w", row.err)); !errors.As(err, &refused) || refused.Code != row.code {
			t.Errorf("%v is told as %v, want %s", row.err, err, row.code)
		}
	}
	if err := groupRefusal(nil); err != nil {
		t.Errorf("no refusal is told as %v", err)
	}
}
