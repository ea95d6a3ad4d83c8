package fsm

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// DeleteTopic deletes one life of a topic name.
//
//	op            6, since level 1
//	proposed by   any node, through the Raft leader
//	precondition  the topic exists
//	effect        the topic, its ranges and its catalogue go; a tombstone with its id stays, which alone permits
//	              a node to delete directories; new topics start above its highest epoch; its lease cells refuse for ever;
//	              its repairs are cancelled; the offsets that groups have committed for it go
//	refused       CodeUnknownRange
//	a repeat      succeeds while the tombstone is kept
type DeleteTopic struct {
	ID vtop.TopicID
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *DeleteTopic) Op() Op { return OpDeleteTopic }

// Check implements Command.
func (c *DeleteTopic) Check() error {
	var s shape
	s.uuid("topic id", c.ID)
	return s.err()
}

func (c *DeleteTopic) encode() proto.Message {
	return &fsmpb.DeleteTopic{Id: putUUID(c.ID), At: c.At}
}

func decodeDeleteTopic(r *reader, p *fsmpb.DeleteTopic) *DeleteTopic {
	return &DeleteTopic{ID: r.uuid(p.GetId()), At: p.GetAt()}
}

func (c *DeleteTopic) apply(t *tx) Outcome {
	topic, ok := t.s.Topic(c.ID)
	if !ok {
		if t.s.Deleted(c.ID) {
			return Outcome{}
		}
		return Outcome{Refusal: refusef(CodeUnknownRange, "delete: no topic has id %s", c.ID)}
	}
	for _, r := range slices.Collect(t.s.RangesOfTopic(c.ID)) {
		t.s.firstEpoch = max(t.s.firstEpoch, r.LastEpoch)
		t.deleteRange(r)
	}
	t.dropOffsetsOf(c.ID)
	t.s.topics.Delete(topic)
	t.s.names.Delete(topic.Name)
	t.topics = true
	t.bury(&Tombstone{Topic: c.ID, Name: topic.Name, Index: t.index, DeletedAt: c.At})
	return Outcome{}
}

// bury keeps a tombstone, and forgets the oldest one beyond the limit.
func (t *tx) bury(stone *Tombstone) {
	t.s.tombstones.Set(stone)
	t.s.burials.Set(stone.Index, stone.Topic)
	for t.s.burials.Len() > MaxTombstones {
		_, id, _ := t.s.burials.PopMin()
		t.s.tombstones.Delete(&Tombstone{Topic: id})
	}
}
