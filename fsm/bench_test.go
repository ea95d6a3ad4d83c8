package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

// bigState has one topic of n ranges on n1, n2, n3, led by n1.
func bigState(b *testing.B, n int) *State {
	b.Helper()
	cmds := []Command{&BootstrapCluster{ID: uuid(1), Level: LevelFirst}}
	for i := 1; i <= 3; i++ {
		name := vtop.NodeName(fmt.Sprintf("n%d", i))
		cmds = append(cmds, &RegisterNode{Name: name, Identity: identityOf(name, 0, 1)})
	}
	topic, grants, starts := &CreateTopic{ID: uuid(1), Name: "t"}, &GrantLeases{}, &StartEpochs{}
	for i := range n {
		id := rangeID(1, int32(i))
		topic.Ranges = append(topic.Ranges, []vtop.NodeName{"n1", "n2", "n3"})
		grants.Items = append(grants.Items, Grant{Range: id, Holder: "n1", Incarnation: 1})
		starts.Items = append(starts.Items, EpochStart{Range: id, Epoch: 1})
	}
	s, _ := NewState().Apply(1, append(cmds, topic, grants, starts)...)
	return s
}

func BenchmarkApply_ReportFloorsOf1000Ranges(b *testing.B) {
	m := New(Options{})
	m.Replace(bigState(b, 1000))
	for i := 0; b.Loop(); i++ {
		report := &ReportFloors{}
		for j := range 1000 {
			o := vtop.Offset(i + 1)
			report.Items = append(report.Items, FloorReport{rangeID(1, int32(j)), 1, 1, o, o, o})
		}
		m.ApplyCommands(m.Applied()+1, report)
	}
}

func BenchmarkSave_10000Ranges(b *testing.B) {
	s := bigState(b, 10_000)
	for b.Loop() {
		s.Hash()
	}
}

func BenchmarkHold(b *testing.B) {
	m := New(Options{Clock: func() time.Duration { return 0 }})
	m.Replace(bigState(b, 10))
	m.Leases().SetIdentity("n1", 1)
	m.Leases().SetDeadline(1)
	fn := func() error { return nil }
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := m.Leases().Hold(rangeID(1, 3), 1, vtop.FenceLead, fn); err != nil {
				b.Error(err)
			}
		}
	})
}
