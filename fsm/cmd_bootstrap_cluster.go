package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// BootstrapCluster gives birth to the cluster.
//
//	op            1, since level 1
//	proposed by   the first Raft leader, once every pledge is in
//	precondition  no cluster yet, or the same id
//	effect        sets id, feature level and generation 1
//	refused       CodeOtherCluster if another id is set
//	a repeat      changes nothing and succeeds
type BootstrapCluster struct {
	ID vtop.ClusterID
	// Level is the feature level to start at: the lowest MaxLevel of the founders.
	Level Level
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *BootstrapCluster) Op() Op { return OpBootstrapCluster }

// Check implements Command.
func (c *BootstrapCluster) Check() error {
	var s shape
	s.uuid("cluster id", c.ID)
	s.must(c.Level > 0, "feature level is 0")
	return s.err()
}

func (c *BootstrapCluster) encode() proto.Message {
	return &fsmpb.BootstrapCluster{Id: putUUID(c.ID), Level: uint32(c.Level), At: c.At}
}

func decodeBootstrapCluster(r *reader, p *fsmpb.BootstrapCluster) *BootstrapCluster {
	return &BootstrapCluster{ID: r.uuid(p.GetId()), Level: Level(p.GetLevel()), At: p.GetAt()}
}

func (c *BootstrapCluster) apply(t *tx) Outcome {
	switch t.s.cluster.ID {
	case c.ID:
		return Outcome{}
	case vtop.ClusterID{}:
	default:
		return Outcome{Refusal: refusef(CodeOtherCluster, "bootstrap of cluster %s: this is cluster %s", c.ID, t.s.cluster.ID)}
	}
	t.understands(c.Level)
	t.s.cluster = Cluster{ID: c.ID, Level: c.Level, Generation: 1, CreatedAt: c.At}
	t.nodes = true
	return Outcome{}
}
