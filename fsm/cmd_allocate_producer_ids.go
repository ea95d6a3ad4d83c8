package fsm

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// AllocateProducerIDs gives a node a block of producer ids.
//
//	op            17, since level 1
//	proposed by   any node, through the Raft leader
//	precondition  Incarnation is the registered one
//	effect        the block in the outcome is never given out again
//	refused       CodeUnknownNode; CodeStaleIncarnation; CodeLimit
//	a repeat      gives another block; the first is wasted
type AllocateProducerIDs struct {
	Node        vtop.NodeName
	Incarnation vtop.Incarnation
	// Count is 1…MaxProducerBlock.
	Count int32
}

// Op implements Command.
func (c *AllocateProducerIDs) Op() Op { return OpAllocateProducerIDs }

// Check implements Command.
func (c *AllocateProducerIDs) Check() error {
	var s shape
	s.node(c.Node)
	s.must(c.Incarnation > 0, "incarnation is 0")
	s.must(c.Count > 0, "count %d", c.Count)
	s.atMost("producer ids", int(c.Count), MaxProducerBlock)
	return s.err()
}

func (c *AllocateProducerIDs) encode() proto.Message {
	return &fsmpb.AllocateProducerIDs{Node: string(c.Node), Incarnation: uint64(c.Incarnation), Count: c.Count}
}

func decodeAllocateProducerIDs(_ *reader, p *fsmpb.AllocateProducerIDs) *AllocateProducerIDs {
	return &AllocateProducerIDs{Node: vtop.NodeName(p.GetNode()), Incarnation: vtop.Incarnation(p.GetIncarnation()), Count: p.GetCount()}
}

func (c *AllocateProducerIDs) apply(t *tx) Outcome {
	if _, refusal := t.node(c.Node, c.Incarnation); refusal != nil {
		return Outcome{Refusal: refusal}
	}
	first := t.s.nextProducerID
	if first > math.MaxInt64-int64(c.Count) {
		return Outcome{Refusal: refusef(CodeLimit, "no %d producer ids are left above %d", c.Count, first)}
	}
	t.s.nextProducerID += int64(c.Count)
	return Outcome{ProducerIDs: ProducerBlock{First: first, Count: c.Count}}
}
