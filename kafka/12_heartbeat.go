package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/cluster/group"
)

// Heartbeat: v0-4
//
//   - Keeps a member's session alive. REBALANCE_IN_PROGRESS asks it to join.
//   - While the coordinator is loading the answer is success, as Kafka's: clients take COORDINATOR_LOAD_IN_PROGRESS for an
//     error here, and the session begins anew with the load.

func runHeartbeat(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	groups, err := c.node.Groups()
	if err == nil {
		err = groups.Heartbeat(c, req.Group, group.Claim{MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation})
	}
	if errors.Is(err, group.ErrLoading) {
		err = nil
	}
	resp.ErrorCode = c.groupCode(err)
	return resp, nil
}
