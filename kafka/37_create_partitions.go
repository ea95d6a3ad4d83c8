package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// CreatePartitions: v0-3
//
//   - The count is the new total, and can only rise: else INVALID_PARTITIONS. Records stay where they are.
//   - A manual assignment is refused, as in CreateTopics.

func runCreatePartitions(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = t.Topic
		if err := c.createPartitions(ctx, t, req.ValidateOnly); err != nil {
			rt.ErrorCode, rt.ErrorMessage = c.adminAnswer(err)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (c *call) createPartitions(ctx context.Context, t *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	if err := c.node.Ready(); err != nil {
		return err
	}
	topic, ok := c.node.State().TopicByName(t.Topic)
	switch {
	case !ok:
		return fmt.Errorf("%w: %q", vtop.ErrUnknownRange, t.Topic)
	case len(t.Assignment) > 0:
		return errAssignment
	case t.Count <= topic.Ranges || t.Count > fsm.MaxRangesPerTopic:
		return refuse(kerr.InvalidPartitions, fmt.Sprintf("%d partitions: topic %q has %d: want more, up to %d", t.Count, t.Topic, topic.Ranges, fsm.MaxRangesPerTopic))
	case validateOnly:
		return nil
	}
	return c.node.CreateRanges(ctx, topic.ID, topic.Ranges, t.Count)
}
