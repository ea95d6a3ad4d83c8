package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

// DescribeProducers: v0
//
//   - The idempotent producers that the leader of each range knows, those that wrote last first, and no more in one answer
//     than a bound. They are forgotten by age, so that one that is gone stays for a while.
//   - There are no transactions: no coordinator epoch and no start of one, which are -1.
//   - The time is the latest that the range had seen when the producer's last batch came.
//   - Leader checks as in Fetch: NOT_LEADER_OR_FOLLOWER elsewhere.

// maxProducers bounds the producers in one answer.
const maxProducers = 10_000

func runDescribeProducers(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	state, unready := c.server.metadata()
	left := maxProducers
	seen := map[vtop.Range]bool{}
	for i := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for _, index := range req.Topics[i].Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = index
			rg, err := rangeNamed(state, rt.Topic, index)
			if err != nil {
				err = unlessUnready(unready, err)
			}
			var found []Producer
			if err == nil && !seen[rg.ID] {
				seen[rg.ID] = true
				found, err = c.node.Producers(rg.ID, left)
			}
			if err != nil {
				rp.ErrorCode, rp.ErrorMessage = c.readCode(err), text(err)
			}
			left -= len(found)
			rp.ActiveProducers = activeProducers(found)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func activeProducers(found []Producer) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, 0, len(found))
	for _, p := range found {
		ap := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		ap.ProducerID, ap.ProducerEpoch, ap.LastSequence, ap.LastTimestamp = p.ID, int32(p.Epoch), p.LastSequence, p.Timestamp
		ap.CoordinatorEpoch, ap.CurrentTxnStartOffset = -1, -1
		out = append(out, ap)
	}
	return out
}
