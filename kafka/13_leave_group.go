package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/cluster/group"
)

// LeaveGroup: v0-5
//
//   - Takes members out of a group at once: up to v2 one, from v3 on many, each named by its id, or, as operators do with static
//     members, by its instance id. It works on groups of both protocols.
//   - The answer comes when what follows from it for the group is durable.

func runLeaveGroup(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	leavers := []group.Leaver{{MemberID: req.MemberID}}
	if req.Version >= 3 {
		leavers = leavers[:0]
		for _, m := range req.Members {
			leavers = append(leavers, group.Leaver{MemberID: m.MemberID, InstanceID: m.InstanceID})
		}
	}
	left, err := c.leaveGroup(req.Group, leavers)
	switch {
	case req.Version < 3 && err == nil:
		err = left[0].Err
		fallthrough
	case req.Version < 3, err != nil:
		resp.ErrorCode = c.groupCode(err)
		return resp, nil
	}
	for _, l := range left {
		rm := kmsg.NewLeaveGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ErrorCode = l.MemberID, l.InstanceID, c.groupCode(l.Err)
		resp.Members = append(resp.Members, rm)
	}
	return resp, nil
}

// leaveGroup: a group that is not there has none of the members.
func (c *call) leaveGroup(id string, leavers []group.Leaver) ([]group.Left, error) {
	groups, err := c.node.Groups()
	if err != nil {
		return nil, err
	}
	left, err := groups.Leave(c, id, leavers)
	if !errors.Is(err, group.ErrUnknownMember) {
		return left, err
	}
	left = nil
	for _, l := range leavers {
		left = append(left, group.Left{Leaver: l, Err: err})
	}
	return left, nil
}
