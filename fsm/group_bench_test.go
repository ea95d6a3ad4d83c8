package fsm

import (
	"fmt"
	"testing"
)

// 1000 consumers of one group each that commit one range: what gathers in a moment of a busy cluster.
func BenchmarkApply_CommitsOf1000Groups(b *testing.B) {
	s := bigState(b, 1000)
	slots := &GrantCoordinators{}
	for slot := range Slot(GroupSlots) {
		slots.Items = append(slots.Items, CoordinatorGrant{Slot: slot, Holder: "n1", Incarnation: 1})
	}
	s, _ = s.Apply(s.Index()+1, slots)
	m := New(Options{})
	m.Replace(s)
	for sequence := uint64(1); b.Loop(); sequence++ {
		cmd := &UpdateGroups{Node: "n1", Incarnation: 1, Sequence: sequence}
		for i := range 1000 {
			item := GroupItem{Group: fmt.Sprint("group-", i), Epoch: 1, PutOffsets: []GroupOffset{{Range: rangeID(1, int32(i)), Offset: 7}}}
			if sequence == 1 {
				item.Header = &GroupHeader{Kind: GroupClassic}
			}
			cmd.Items = append(cmd.Items, item)
		}
		m.ApplyCommands(m.Applied()+1, cmd)
	}
}
