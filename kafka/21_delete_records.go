package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// DeleteRecords: v0-2
//
//   - Moves the log start of ranges that this node leads up to the offset given, or, with -1, to the high watermark. It never
//     goes back: a lower offset changes nothing. The answer is the log start when the move was applied.
//   - Above the high watermark: OFFSET_OUT_OF_RANGE.

func runDeleteRecords(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = p.Partition, -1
			start, err := c.deleteRecords(ctx, t.Topic, p.Partition, vtop.Offset(p.Offset))
			if err != nil {
				rp.ErrorCode = c.readCode(err)
			} else {
				rp.LowWatermark = int64(start)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (c *call) deleteRecords(ctx context.Context, name string, index int32, before vtop.Offset) (vtop.Offset, error) {
	state, unready := c.server.metadata()
	t, ok := state.TopicByName(name)
	if !ok || index < 0 || index >= t.Ranges {
		return -1, unlessUnready(unready, fmt.Errorf("%w: %s/%d", vtop.ErrUnknownRange, name, index))
	}
	if before < -1 {
		return -1, fmt.Errorf("%w: %d", vtop.ErrOffsetOutOfRange, before)
	}
	return c.node.DeleteRecords(ctx, vtop.Range{Topic: t.ID, Index: index}, before)
}
