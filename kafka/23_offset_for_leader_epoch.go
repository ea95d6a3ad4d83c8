package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// OffsetForLeaderEpoch: v2-4
//
//   - Clients ask where an epoch ended, to learn whether what they have read was cut since. The answer is the largest epoch at
//     or below the one asked for that has records or serves, and its end; -1, -1 where there is none.
//   - The client's leader epoch is checked first: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
//   - An epoch above the leader's own is UNKNOWN_LEADER_EPOCH too: the client has read from a later leader, and asks elsewhere.

func runOffsetForLeaderEpoch(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	state, unready := c.server.metadata()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		topic, known := state.TopicByName(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			var end vtop.EpochOffset
			err := unlessUnready(unready, fmt.Errorf("%w: %s/%d", vtop.ErrUnknownRange, t.Topic, p.Partition))
			if known && p.Partition >= 0 && p.Partition < topic.Ranges {
				r := vtop.Range{Topic: topic.ID, Index: p.Partition}
				end, err = c.node.EpochEnd(r, vtop.Epoch(p.CurrentLeaderEpoch), vtop.Epoch(p.LeaderEpoch))
			}
			if err != nil {
				rp.ErrorCode = c.readCode(err)
			} else {
				c.frame.note(false)
				rp.LeaderEpoch, rp.EndOffset = int32(end.Epoch), int64(end.Offset)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}
