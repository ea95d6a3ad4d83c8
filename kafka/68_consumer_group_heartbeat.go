package kafka

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
)

// ConsumerGroupHeartbeat: v0-1
//
//   - What a member is told is durable before it is told (KIP-848). From v1 on members make their own ids.
//   - A member of a group that is gone hears UNKNOWN_MEMBER_ID, and joins anew, where Kafka says GROUP_ID_NOT_FOUND, of which the Java
//     client dies. GROUP_ID_NOT_FOUND is for a group with members of the classic protocol.
//   - The interval that is answered is shorter while the member waits for something.

func runConsumerGroupHeartbeat(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	a, err := c.consumerHeartbeat(req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.groupCode(err), text(err)
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &a.MemberID, a.Epoch, int32(a.Interval.Milliseconds())
	if a.Assigned != nil {
		resp.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
		eachTopic(a.Assigned, func(id vtop.TopicID, indexes []int32) {
			resp.Assignment.Topics = append(resp.Assignment.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: id, Partitions: indexes})
		})
	}
	return resp, nil
}

func (c *call) consumerHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) (group.ConsumerAnswer, error) {
	groups, err := c.node.Groups()
	if err != nil {
		return group.ConsumerAnswer{}, err
	}
	if req.Version >= 1 && req.MemberID == "" {
		return group.ConsumerAnswer{}, fmt.Errorf("%w: member id is empty: from version 1 on the client makes it", group.ErrInvalidRequest)
	}
	h := group.ConsumerHeartbeat{
		Group: req.Group, MemberID: req.MemberID, Epoch: req.MemberEpoch, InstanceID: req.InstanceID, Rack: req.RackID,
		ClientID: c.frame.client, ClientHost: c.clientHost(), Rebalance: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		Topics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor,
	}
	if req.Topics != nil {
		h.Owned = []vtop.Range{}
	}
	for i := range req.Topics {
		for _, index := range req.Topics[i].Partitions {
			h.Owned = append(h.Owned, vtop.Range{Topic: req.Topics[i].TopicID, Index: index})
		}
	}
	return groups.ConsumerHeartbeat(c, h)
}

// eachTopic calls fn for each topic of ranges that are in order, with their indexes.
func eachTopic(ranges []vtop.Range, fn func(vtop.TopicID, []int32)) {
	for len(ranges) > 0 {
		n := 0
		var indexes []int32
		for n < len(ranges) && ranges[n].Topic == ranges[0].Topic {
			indexes = append(indexes, ranges[n].Index)
			n++
		}
		fn(ranges[0].Topic, indexes)
		ranges = ranges[n:]
	}
}
