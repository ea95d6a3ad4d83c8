package cluster

import (
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

func TestAllowed_TheClustersNodesAndNobodyElse(t *testing.T) {
	machine := fsm.New(fsm.Options{})
	index := uint64(0)
	apply := func(cmd fsm.Command) {
		t.Helper()
		index++
		if out := machine.ApplyCommands(index, cmd)[0]; out.Err() != nil {
			t.Fatalf("%T: %v", cmd, out.Err())
		}
	}
	apply(&fsm.BootstrapCluster{ID: vtop.UUID{7}, Level: fsm.LevelMax, At: 1})
	for i, name := range []vtop.NodeName{"n1", "n2", "n3"} {
		apply(&fsm.RegisterNode{Name: name, At: 1, Identity: fsm.Identity{
			Storage: vtop.UUID{1, byte(i + 1)}, RaftID: string(name), Incarnation: 1, BootNonce: vtop.UUID{2, byte(i + 1)},
			Addresses: fsm.Addresses{Peer: string(name) + ":1"}, MaxLevel: fsm.LevelMax,
		}})
	}
	apply(&fsm.UpdateNode{Name: "n2", State: fsm.NodeDraining})
	apply(&fsm.UpdateNode{Name: "n3", State: fsm.NodeGone})
	for name, c := range map[string]struct {
		node    vtop.NodeName
		storage vtop.UUID
		only    []vtop.NodeName
		want    bool
	}{
		"a node":                             {"n1", vtop.UUID{1, 1}, nil, true},
		"one that drains":                    {"n2", vtop.UUID{1, 2}, nil, true},
		"one that is gone":                   {"n3", vtop.UUID{1, 3}, nil, false},
		"a stranger":                         {"n9", vtop.UUID{1, 1}, nil, false},
		"a node's name with another disk":    {"n1", vtop.UUID{9}, nil, false},
		"a node that the list names":         {"n1", vtop.UUID{1, 1}, []vtop.NodeName{"n1"}, true},
		"a node that the list does not name": {"n2", vtop.UUID{1, 2}, []vtop.NodeName{"n1"}, false},
		"a stranger that the list names":     {"n9", vtop.UUID{1, 1}, []vtop.NodeName{"n9"}, false},
	} {
		err := allowed(machine.State(), c.only, transport.Self{Name: c.node, Storage: c.storage})
		if (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
