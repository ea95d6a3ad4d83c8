package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// DeleteTopics: v1-5
//
//   - By name: the present life of the name is deleted, and no other. The answer comes when it is applied here; the bytes go
//     later, on each node by itself.
//   - A new topic of the same name begins above every epoch that this one used.

func runDeleteTopics(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	for i := range req.TopicNames {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic = &req.TopicNames[i]
		if err := c.deleteTopic(ctx, req.TopicNames[i]); err != nil {
			rt.ErrorCode, rt.ErrorMessage = c.adminAnswer(err)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (c *call) deleteTopic(ctx context.Context, name string) error {
	if err := c.node.Ready(); err != nil {
		return err
	}
	t, ok := c.node.State().TopicByName(name)
	if !ok {
		return fmt.Errorf("%w: %q", vtop.ErrUnknownRange, name)
	}
	return c.node.DeleteTopic(ctx, t.ID)
}
