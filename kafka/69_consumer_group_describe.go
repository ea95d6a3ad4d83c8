package kafka

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// ConsumerGroupDescribe: v0-1
//
//   - Only the coordinator of a group describes it. A group that is not there, or is one of the classic protocol, is GROUP_ID_NOT_FOUND:
//     tools then ask DescribeGroups.
//   - A topic that was deleted while members still have it is shown by its id alone.

func runConsumerGroupDescribe(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ConsumerGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, id := range req.Groups {
		rg := kmsg.NewConsumerGroupDescribeResponseGroup()
		rg.Group, rg.AuthorizedOperations = id, math.MinInt32
		d, err := c.describeConsumers(id)
		if err != nil {
			rg.ErrorCode, rg.ErrorMessage = c.groupCode(err), text(err)
			resp.Groups = append(resp.Groups, rg)
			continue
		}
		if req.IncludeAuthorizedOperations {
			rg.AuthorizedOperations = groupOperations
		}
		rg.State, rg.Epoch, rg.AssignmentEpoch, rg.AssignorName = d.State, d.Epoch, d.AssignmentEpoch, d.Assignor
		st := c.node.State()
		for i := range d.Members {
			rg.Members = append(rg.Members, consumerMember(st, &d.Members[i]))
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp, nil
}

func (c *call) describeConsumers(id string) (group.ConsumerDescription, error) {
	groups, err := c.node.Groups()
	if err != nil {
		return group.ConsumerDescription{}, err
	}
	return groups.ConsumerDescribe(c, id)
}

const (
	// consumerMemberType says that a member speaks the new protocol itself.
	consumerMemberType = 1
	// groupOperations: read, delete, describe.
	groupOperations = 1<<3 | 1<<6 | 1<<8
)

func consumerMember(st *fsm.State, m *group.ConsumerMemberDescription) kmsg.ConsumerGroupDescribeResponseGroupMember {
	rm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	rm.MemberID, rm.ClientID, rm.ClientHost, rm.MemberEpoch, rm.MemberType = m.ID, m.ClientID, m.ClientHost, m.Epoch, consumerMemberType
	rm.InstanceID, rm.RackID, rm.SubscribedTopicRegex = orNil(m.InstanceID), orNil(m.Rack), orNil(m.Regex)
	rm.SubscribedTopics = m.Topics
	rm.Assignment, rm.TargetAssignment = assignmentOf(st, m.Assigned), assignmentOf(st, m.Target)
	return rm
}

func assignmentOf(st *fsm.State, ranges []vtop.Range) (a kmsg.Assignment) {
	eachTopic(ranges, func(id vtop.TopicID, indexes []int32) {
		tp := kmsg.NewAssignmentTopicPartition()
		tp.TopicID, tp.Partitions = id, indexes
		if t, ok := st.Topic(id); ok {
			tp.Topic = t.Name
		}
		a.TopicPartitions = append(a.TopicPartitions, tp)
	})
	return a
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
