package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/cluster/group"
)

// SyncGroup: v0-5
//
//   - The leader brings the assignments, the others wait for theirs. They are durable before anybody gets one.
//   - A coordinator that is loading, or was changed meanwhile, says REBALANCE_IN_PROGRESS or NOT_COORDINATOR: members join again.

func runSyncGroup(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.SyncGroupRequest)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	s := c.syncGroup(req)
	if errors.Is(s.Err, group.ErrLoading) {
		s.Err = refuse(kerr.RebalanceInProgress, s.Err.Error())
	}
	resp.ErrorCode = c.groupCode(s.Err)
	resp.MemberAssignment = s.Assignment
	if s.Err == nil {
		resp.ProtocolType, resp.Protocol = &s.ProtocolType, &s.Protocol
	}
	return resp, nil
}

func (c *call) syncGroup(req *kmsg.SyncGroupRequest) group.Synced {
	groups, err := c.node.Groups()
	if err != nil {
		return group.Synced{Err: err}
	}
	s := group.Sync{
		Group: req.Group, Claim: group.Claim{MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation},
		ProtocolType: req.ProtocolType, Protocol: req.Protocol,
	}
	for _, a := range req.GroupAssignment {
		s.Assignments = append(s.Assignments, group.Assignment{MemberID: a.MemberID, Data: a.MemberAssignment})
	}
	return groups.Sync(c, s)
}
