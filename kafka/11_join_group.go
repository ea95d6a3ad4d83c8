package kafka

import (
	"bytes"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/cluster/group"
)

// JoinGroup: v0-9
//
//   - Waits until the next generation of the group is made: until all members joined, or their time is over. The first members of
//     an empty group wait a moment for others. If the connection ends, the member does not hold the others up any longer.
//   - From v4 on a new member is first told its id (MEMBER_ID_REQUIRED), unless it is static (v5).
//   - The generation is durable before it is given out, so that no coordinator gives it out again.
//   - v0 names no rebalance timeout: it is the session timeout.

func runJoinGroup(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.JoinGroupRequest)
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	j := c.joinGroup(req)
	resp.ErrorCode, resp.Generation, resp.MemberID = c.groupCode(j.Err), j.Generation, j.MemberID
	if errors.Is(j.Err, group.ErrMemberIDRequired) {
		c.frame.succeeded = true // a step of the protocol, not a failure
	}
	resp.ProtocolType, resp.Protocol = &j.ProtocolType, &j.Protocol
	if j.Err != nil && req.Version >= 7 {
		resp.ProtocolType, resp.Protocol = nil, nil
	}
	resp.LeaderID, resp.SkipAssignment = j.Leader, j.SkipAssignment
	for _, m := range j.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = m.MemberID, m.InstanceID, m.Metadata
		resp.Members = append(resp.Members, rm)
	}
	return resp, nil
}

func (c *call) joinGroup(req *kmsg.JoinGroupRequest) group.Joined {
	groups, err := c.node.Groups()
	if err != nil {
		return group.Joined{Err: err, Generation: -1, MemberID: req.MemberID}
	}
	rebalance := req.RebalanceTimeoutMillis
	if req.Version < 1 || rebalance < 0 {
		rebalance = req.SessionTimeoutMillis
	}
	j := group.Join{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, ClientID: c.frame.client, ClientHost: c.clientHost(),
		Session: millis(req.SessionTimeoutMillis), Rebalance: millis(rebalance), ProtocolType: req.ProtocolType,
		NeedsID: req.Version >= 4, SkipsAssignment: req.Version >= 9,
	}
	for _, p := range req.Protocols {
		j.Protocols = append(j.Protocols, group.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)}) // the frame's bytes are used again
	}
	return groups.Join(c, j)
}

func millis(n int32) time.Duration { return time.Duration(n) * time.Millisecond }
