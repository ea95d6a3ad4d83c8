package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// OffsetDelete: v0
//
//   - Forgets the committed offsets of ranges that no member of the group reads: GROUP_SUBSCRIBED_TO_TOPIC for others. A group with
//     members that are no consumers: NON_EMPTY_GROUP.
//   - An offset that is not there is deleted with success.

func runOffsetDelete(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	state, unready := c.server.metadata()
	var ranges []vtop.Range
	names := map[vtop.TopicID]string{}
	var of []int
	for i := range req.Topics {
		t, known := state.TopicByName(req.Topics[i].Topic)
		for _, p := range req.Topics[i].Partitions {
			if !known || p.Partition < 0 || p.Partition >= t.Ranges {
				of = append(of, -1)
				continue
			}
			of = append(of, len(ranges))
			ranges = append(ranges, vtop.Range{Topic: t.ID, Index: p.Partition})
			names[t.ID] = t.Name
		}
	}
	errs, err := c.deleteOffsets(req.Group, ranges, names)
	if resp.ErrorCode = c.groupCode(err); err != nil {
		return resp, nil
	}
	for i := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			own := unlessUnready(unready, fmt.Errorf("%w: %q/%d", vtop.ErrUnknownRange, rt.Topic, p.Partition))
			if at := of[0]; at >= 0 {
				own = errs[at]
			}
			of = of[1:]
			rp.ErrorCode = c.groupCode(own)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (c *call) deleteOffsets(id string, ranges []vtop.Range, names map[vtop.TopicID]string) ([]error, error) {
	groups, err := c.node.Groups()
	if err != nil {
		return nil, err
	}
	return groups.DeleteOffsets(c, id, ranges, func(r vtop.Range) string { return names[r.Topic] })
}
