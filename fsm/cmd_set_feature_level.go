package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// SetFeatureLevel raises the feature level of the cluster.
//
//	op            18, since level 1
//	proposed by   an operator, or the Raft leader when every node is able
//	precondition  Level is not below the present one; every node that is not gone understands it
//	effect        commands of that level may be proposed from here on; a build that does not understand it stops
//	refused       CodeConflict: lower, or a node does not understand it
//	a repeat      changes nothing and succeeds
type SetFeatureLevel struct {
	Level Level
}

// Op implements Command.
func (c *SetFeatureLevel) Op() Op { return OpSetFeatureLevel }

// Check implements Command.
func (c *SetFeatureLevel) Check() error {
	var s shape
	s.must(c.Level > 0, "feature level is 0")
	return s.err()
}

func (c *SetFeatureLevel) encode() proto.Message {
	return &fsmpb.SetFeatureLevel{Level: uint32(c.Level)}
}

func decodeSetFeatureLevel(_ *reader, p *fsmpb.SetFeatureLevel) *SetFeatureLevel {
	return &SetFeatureLevel{Level: Level(p.GetLevel())}
}

func (c *SetFeatureLevel) apply(t *tx) Outcome {
	if c.Level < t.s.cluster.Level {
		return Outcome{Refusal: refusef(CodeConflict, "feature level %d: the cluster is at %d, and a level never falls", c.Level, t.s.cluster.Level)}
	}
	for n := range t.s.Nodes() {
		if n.State != NodeGone && n.MaxLevel < c.Level {
			return Outcome{Refusal: refusef(CodeConflict, "feature level %d: node %q (version %s) understands only up to %d: upgrade it first",
				c.Level, n.Name, n.Version, n.MaxLevel)}
		}
	}
	t.understands(c.Level)
	if c.Level != t.s.cluster.Level {
		t.s.cluster.Level = c.Level
		t.nodes = true
	}
	return Outcome{}
}
