package inspect

import (
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// TestStatus_CoordinatorSlots: nodes are shown with the slots that they hold; those that no living node holds are a problem.
func TestStatus_CoordinatorSlots(t *testing.T) {
	w := newWorld(t)
	group := &fsm.UpdateGroups{Node: "n2", Incarnation: 1, Sequence: 1, At: 1, Items: []fsm.GroupItem{{
		Group: "g", Epoch: 1, Header: &fsm.GroupHeader{Kind: fsm.GroupClassic, Epoch: 1, ProtocolType: "consumer"},
	}}}
	problem := func() string {
		t.Helper()
		s := &adminapi.Status{}
		if w.look().judgeSlots(s); len(s.Problems) == 0 {
			return ""
		}
		return s.Problems[0].Kind + ": " + s.Problems[0].Message
	}
	if got := problem(); !strings.Contains(got, "no_coordinator: 64 of 64 ") {
		t.Errorf("nobody holds a slot: %q", got)
	}
	give := func(holders ...vtop.NodeName) {
		t.Helper()
		cmd := &fsm.GrantCoordinators{}
		for slot := range fsm.Slot(fsm.GroupSlots) {
			cmd.Items = append(cmd.Items, fsm.CoordinatorGrant{
				Slot: slot, Holder: holders[int(slot)%len(holders)], Incarnation: 1, Expected: w.state.Coordinator(slot).Epoch, Reason: "test",
			})
		}
		w.apply(cmd)
	}
	give("n2")
	w.apply(group)
	give("n2", "n3")
	if got := problem(); got != "" {
		t.Errorf("living nodes hold all: %q", got)
	}
	held := map[string]int{}
	for _, n := range w.look().nodes() {
		held[n.Name] = n.CoordinatorSlots
	}
	if held["n1"] != 0 || held["n2"] != 32 || held["n3"] != 32 {
		t.Errorf("slots held: %v", held)
	}

	// Case: a holder is down.
	holder := w.state.CoordinatorOf("g").Holder
	w.down[holder] = true
	if got := problem(); !strings.Contains(got, "32 of 64") || !strings.Contains(got, "groups that wait: 1") {
		t.Errorf("%s is down: %q", holder, got)
	}
}
