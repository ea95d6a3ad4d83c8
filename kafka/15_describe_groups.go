package kafka

import (
	"errors"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/cluster/group"
)

// DescribeGroups: v0-6
//
//   - Only the coordinator of a group describes it; others say NOT_COORDINATOR.
//   - A group that is not there is "Dead", up to v5 without an error, as Kafka has it; one of the consumer protocol is not there for this
//     request (ConsumerGroupDescribe has it).
//   - Metadata and assignments are shown while the group is stable.

func runDescribeGroups(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		rg := kmsg.NewDescribeGroupsResponseGroup()
		rg.Group, rg.AuthorizedOperations = id, math.MinInt32
		if req.IncludeAuthorizedOperations {
			rg.AuthorizedOperations = groupOperations
		}
		d, err := c.describeGroup(id)
		if errors.Is(err, group.ErrGroupNotFound) {
			rg.State = "Dead"
			if req.Version < 6 {
				err = nil
			}
		}
		rg.ErrorCode, rg.ErrorMessage = c.groupCode(err), text(err)
		if d.State != "" {
			rg.State, rg.ProtocolType, rg.Protocol = d.State, d.ProtocolType, d.Protocol
		}
		for _, m := range d.Members {
			rm := kmsg.NewDescribeGroupsResponseGroupMember()
			rm.MemberID, rm.InstanceID, rm.ClientID, rm.ClientHost = m.MemberID, m.InstanceID, m.ClientID, m.ClientHost
			rm.ProtocolMetadata, rm.MemberAssignment = m.Metadata, m.Assignment
			rg.Members = append(rg.Members, rm)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp, nil
}

func (c *call) describeGroup(id string) (group.Description, error) {
	groups, err := c.node.Groups()
	if err != nil {
		return group.Description{}, err
	}
	return groups.Describe(c, id)
}
