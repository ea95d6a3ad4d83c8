package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// DeleteTopics: v1-6
//
//   - By name: the present life of the name is deleted; by id (v6): that life and no other, UNKNOWN_TOPIC_ID if it is gone.
//     The answer comes when it is applied here; the bytes go later, on each node by itself.
//   - A topic that is named both ways, neither way, or more than once is refused with INVALID_REQUEST and stays.
//   - A new topic of the same name begins above every epoch that this one used.

func runDeleteTopics(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	for i := range req.TopicNames { // until v5
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
	}
	named := c.namedForDeletion(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		if err := c.deleteTopic(ctx, t, named, &rt); err != nil {
			rt.ErrorCode, rt.ErrorMessage = c.adminAnswer(err)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// refToDelete is how a topic is named; refused unless it is in one way.
func refToDelete(t *kmsg.DeleteTopicsRequestTopic) (topicRef, error) {
	id := vtop.TopicID(t.TopicID)
	byID := id != (vtop.TopicID{})
	switch {
	case t.Topic != nil && byID:
		return topicRef{}, refuse(kerr.InvalidRequest, "a topic is named by its name and by its id: want one of them")
	case t.Topic == nil && !byID:
		return topicRef{}, refuse(kerr.InvalidRequest, "a topic has neither a name nor an id")
	case byID:
		return topicRef{id: id, byID: true}, nil
	}
	return topicRef{name: *t.Topic}, nil
}

// namedForDeletion counts how often each topic is named, by whatever it is named.
func (c *call) namedForDeletion(req *kmsg.DeleteTopicsRequest) map[vtop.TopicID]int {
	named := make(map[vtop.TopicID]int, len(req.Topics))
	for i := range req.Topics {
		if ref, err := refToDelete(&req.Topics[i]); err == nil {
			if t, ok := ref.in(c.node.State()); ok {
				named[t.ID]++
			}
		}
	}
	return named
}

func (c *call) deleteTopic(ctx context.Context, t *kmsg.DeleteTopicsRequestTopic, named map[vtop.TopicID]int, rt *kmsg.DeleteTopicsResponseTopic) error {
	if err := c.node.Ready(); err != nil {
		return err
	}
	ref, err := refToDelete(t)
	if err != nil {
		return err
	}
	topic, ok := ref.in(c.node.State())
	if !ok {
		return ref.unknown()
	}
	if named[topic.ID] > 1 {
		return refuse(kerr.InvalidRequest, "the request names this topic more than once")
	}
	name := topic.Name
	rt.Topic, rt.TopicID = &name, topic.ID
	return c.node.DeleteTopic(ctx, topic.ID)
}
