package kafka

import (
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// errUnknownTopicID: a request names a topic by an id that is no topic's, or is one's no more.
var errUnknownTopicID = errors.New("unknown topic id")

// metadata is the newest applied metadata, and why it says nothing of what is not in it: a node that has not caught up must not tell a
// client that a topic is unknown, on which clients give up all that waits for it.
func (s *Server) metadata() (state *fsm.State, unready error) {
	unready = s.node.Ready() // before the state: all that there was when the node was ready is in that
	return s.node.State(), unready
}

// unlessUnready is err, which says that something is not there, or why this node can't know.
func unlessUnready(unready, err error) error {
	if unready != nil {
		return unready
	}
	return err
}

// topicRef is a topic as a request names it: by name, or, from the version on that has them, by id (KIP-516).
//
// A name stands for its present life, whatever the client had in mind; an id for one life, for ever. So the topic that was
// deleted and made again is unknown under its old id: clients look at the metadata and find the new one, and nothing that
// was meant for the old life reaches the new. INCONSISTENT_TOPIC_ID, which Kafka has for a name and an id that do not
// belong together, is never answered: nothing here looks a topic up by both.
type topicRef struct {
	name string
	id   vtop.TopicID
	byID bool
}

// in finds the topic.
func (t topicRef) in(state *fsm.State) (*fsm.Topic, bool) {
	if t.byID {
		return state.Topic(t.id)
	}
	return state.TopicByName(t.name)
}

// String is the topic as the client named it.
func (t topicRef) String() string {
	if t.byID {
		return t.id.String()
	}
	return fmt.Sprintf("%q", t.name)
}

// unknown is the refusal of a topic that is not there.
func (t topicRef) unknown() error {
	if t.byID {
		return fmt.Errorf("%w: %s", errUnknownTopicID, t.id)
	}
	return fmt.Errorf("%w: topic %q", vtop.ErrUnknownRange, t.name)
}

// noRange is the refusal of a range that the topic, if it is there, does not have.
func (t topicRef) noRange(known bool, index int32) error {
	if !known {
		return t.unknown()
	}
	return fmt.Errorf("%w: %s/%d", vtop.ErrUnknownRange, t, index)
}

// during is err, or what it comes to where the topic went while the request was in work.
func (t topicRef) during(state *fsm.State, err error) error {
	if !t.byID || !errors.Is(err, vtop.ErrUnknownRange) {
		return err
	}
	if _, known := t.in(state); known {
		return err
	}
	return fmt.Errorf("%w: %w", t.unknown(), err)
}
