package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// CreateRanges adds ranges to a topic.
//
//	op            7, since level 1
//	proposed by   any node, through the Raft leader
//	precondition  the topic has Expected ranges
//	effect        as CreateTopic, for ranges Expected…Expected+len(Ranges)-1
//	refused       CodeUnknownRange; CodeConflict if the count is another; as CreateTopic
//	a repeat      is refused with CodeConflict, naming the count
type CreateRanges struct {
	Topic    vtop.TopicID
	Expected int32
	// Ranges holds for each new range the nodes of its voters, the preferred one first.
	Ranges [][]vtop.NodeName
}

// Op implements Command.
func (c *CreateRanges) Op() Op { return OpCreateRanges }

// Check implements Command.
func (c *CreateRanges) Check() error {
	var s shape
	s.uuid("topic id", c.Topic)
	s.must(c.Expected > 0, "expected number of ranges %d", c.Expected)
	s.placement(c.Ranges)
	return s.err()
}

func (c *CreateRanges) encode() proto.Message {
	return &fsmpb.CreateRanges{Topic: putUUID(c.Topic), Expected: c.Expected, Ranges: putPlacement(c.Ranges)}
}

func decodeCreateRanges(r *reader, p *fsmpb.CreateRanges) *CreateRanges {
	return &CreateRanges{Topic: r.uuid(p.GetTopic()), Expected: p.GetExpected(), Ranges: r.placement(p.GetRanges())}
}

func (c *CreateRanges) apply(t *tx) Outcome {
	old, refusal := t.topic(c.Topic)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	if old.Ranges != c.Expected {
		return Outcome{Refusal: refusef(CodeConflict, "topic %q has %d ranges, expected %d", old.Name, old.Ranges, c.Expected)}
	}
	if n := int(old.Ranges) + len(c.Ranges); n > MaxRangesPerTopic {
		return Outcome{Refusal: refusef(CodeLimit, "topic %q would have %d ranges, at most %d", old.Name, n, MaxRangesPerTopic)}
	}
	if r := t.admitsPlacement(c.Ranges); r != nil {
		return Outcome{Refusal: r}
	}
	topic := *old
	topic.Ranges += int32(len(c.Ranges))
	t.putTopic(&topic)
	t.addRanges(c.Topic, old.Ranges, c.Ranges)
	return Outcome{}
}
