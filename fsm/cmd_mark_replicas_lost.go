package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// MarkReplicasLost says that replicas of a node may have forgotten what they held (I10).
//
//	op            16, since level 1
//	proposed by   the Raft leader, for the node that found the damage
//	precondition  Storage and Incarnation are the registered ones; per item: the replica id is still the node's
//	effect        per item: the replica is lost for ever (only a new replica id cures it); the configuration version
//	              rises, so that every leader counts anew; a lease resting on the replica ends; a repair that made the
//	              replica whole begins anew, one that filled its holes fails
//	refused       CodeUnknownNode; CodeStaleIncarnation; per item: CodeUnknownRange; CodeUnknownReplica
//	a repeat      changes nothing and succeeds
type MarkReplicasLost struct {
	Node        vtop.NodeName
	Storage     vtop.StorageID
	Incarnation vtop.Incarnation
	Items       []LostReplica
	// Reason is shown to people; required.
	Reason string
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// LostReplica is one item of MarkReplicasLost.
type LostReplica struct {
	Range     vtop.Range
	ReplicaID vtop.ReplicaID
}

// Op implements Command.
func (c *MarkReplicasLost) Op() Op { return OpMarkReplicasLost }

// Check implements Command.
func (c *MarkReplicasLost) Check() error {
	var s shape
	s.node(c.Node)
	s.uuid("storage id", c.Storage)
	s.must(c.Incarnation > 0, "incarnation is 0")
	s.must(c.Reason != "", "reason is empty")
	s.text("reason", c.Reason)
	s.items(len(c.Items))
	for _, l := range c.Items {
		s.rangeID(l.Range)
		s.must(l.ReplicaID > 0, "replica id is 0")
	}
	return s.err()
}

func (c *MarkReplicasLost) encode() proto.Message {
	return &fsmpb.MarkReplicasLost{
		Node: string(c.Node), Storage: putUUID(c.Storage), Incarnation: uint64(c.Incarnation), Reason: c.Reason, At: c.At,
		Items: mapSlice(c.Items, func(l LostReplica) *fsmpb.MarkReplicasLost_Item {
			return &fsmpb.MarkReplicasLost_Item{Range: putRangeID(l.Range), ReplicaId: uint64(l.ReplicaID)}
		}),
	}
}

func decodeMarkReplicasLost(r *reader, p *fsmpb.MarkReplicasLost) *MarkReplicasLost {
	return &MarkReplicasLost{
		Node: vtop.NodeName(p.GetNode()), Storage: r.uuid(p.GetStorage()), Incarnation: vtop.Incarnation(p.GetIncarnation()),
		Reason: p.GetReason(), At: p.GetAt(),
		Items: mapSlice(p.GetItems(), func(l *fsmpb.MarkReplicasLost_Item) LostReplica {
			return LostReplica{Range: r.rangeID(l.GetRange()), ReplicaID: vtop.ReplicaID(l.GetReplicaId())}
		}),
	}
}

func (c *MarkReplicasLost) apply(t *tx) Outcome {
	n, refusal := t.node(c.Node, c.Incarnation)
	if refusal == nil && n.Storage != c.Storage {
		refusal = refusef(CodeStaleIncarnation, "lost replicas of node %q: its data directory is %s, not %s", c.Node, n.Storage, c.Storage)
	}
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	return Outcome{Items: mapSlice(c.Items, func(l LostReplica) Item {
		return Item{Range: l.Range, Refusal: c.lose(t, l)}
	})}
}

func (c *MarkReplicasLost) lose(t *tx, l LostReplica) *Refusal {
	r, refusal := t.rangeOf(l.Range)
	if refusal != nil {
		return refusal
	}
	rep, ok := r.Replica(l.ReplicaID)
	if !ok || rep.Node != c.Node {
		return refusef(CodeUnknownReplica, "%s has no replica %d on node %q", t.s.RangeName(l.Range), l.ReplicaID, c.Node)
	}
	t.lose(r, rep, c.Reason, c.At)
	return nil
}
