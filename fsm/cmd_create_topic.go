package fsm

import (
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// CreateTopic creates a topic and all its ranges in one entry.
//
//	op            5, since level 1
//	proposed by   any node, through the Raft leader; the topic id and the placement come with it
//	precondition  the name and the id are free; every node named is registered and not gone
//	effect        ranges 0…n-1 with one voter on each node named, in preferred order, replica ids minted here, and epochs
//	              above the highest that a deleted topic ever used
//	refused       CodeTopicExists; CodeUnknownNode; CodeNodeGone; CodeLimit; CodeConflict: the id was used before
//	a repeat      (same id and name) changes nothing and succeeds
type CreateTopic struct {
	ID     vtop.TopicID
	Name   string
	Config map[string]string
	// Ranges holds for each range the nodes of its voters, the preferred one first.
	Ranges [][]vtop.NodeName
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *CreateTopic) Op() Op { return OpCreateTopic }

// Check implements Command.
func (c *CreateTopic) Check() error {
	var s shape
	s.uuid("topic id", c.ID)
	s.topicName(c.Name)
	s.config(c.Config)
	s.placement(c.Ranges)
	return s.err()
}

func (c *CreateTopic) encode() proto.Message {
	return &fsmpb.CreateTopic{
		Id: putUUID(c.ID), Name: c.Name, Config: putConfig(c.Config), Ranges: putPlacement(c.Ranges), At: c.At,
	}
}

func decodeCreateTopic(r *reader, p *fsmpb.CreateTopic) *CreateTopic {
	return &CreateTopic{
		ID: r.uuid(p.GetId()), Name: p.GetName(), Config: r.config(p.GetConfig()), Ranges: r.placement(p.GetRanges()), At: p.GetAt(),
	}
}

func (c *CreateTopic) apply(t *tx) Outcome {
	if old, ok := t.s.TopicByName(c.Name); ok {
		if old.ID == c.ID {
			return Outcome{}
		}
		return Outcome{Refusal: refusef(CodeTopicExists, "topic %q exists with id %s", c.Name, old.ID)}
	}
	if _, ok := t.s.Topic(c.ID); ok || t.s.Deleted(c.ID) {
		return Outcome{Refusal: refusef(CodeConflict, "topic id %s was used before: every topic takes a new one", c.ID)}
	}
	if t.s.topics.Len() >= MaxTopics {
		return Outcome{Refusal: refusef(CodeLimit, "topic %q: %d topics exist, at most %d", c.Name, t.s.topics.Len(), MaxTopics)}
	}
	if r := t.admitsPlacement(c.Ranges); r != nil {
		return Outcome{Refusal: r}
	}
	topic := &Topic{
		ID: c.ID, Name: c.Name, Config: maps.Clone(c.Config), ConfigVersion: 1, Ranges: int32(len(c.Ranges)), CreatedAt: c.At,
	}
	t.putTopic(topic)
	t.s.names.Set(c.Name, c.ID)
	t.addRanges(c.ID, 0, c.Ranges)
	return Outcome{}
}
