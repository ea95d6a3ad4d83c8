package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator: v0-6
//
//   - Any node answers, from its applied state: the holder of the coordinator lease of the group's slot. If that has just died, the
//     answer waits a moment for the next one, so that clients lose no back-off; then COORDINATOR_NOT_AVAILABLE.
//   - Up to v3 one key, from v4 on many.
//   - Transactions are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is final in every client, as InitProducerId
//     refuses them; share groups (v6) with INVALID_REQUEST.

const (
	coordinatorOfGroup = 0
	coordinatorOfTxn   = 1
)

func runFindCoordinator(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	ctx, cancel := context.WithTimeout(c, c.server.cfg.LeaderWait)
	defer cancel()
	if req.Version < 4 {
		found := c.findCoordinator(ctx, req.CoordinatorType, req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = found.NodeID, found.Host, found.Port
		resp.ErrorCode, resp.ErrorMessage = found.ErrorCode, found.ErrorMessage
		return resp, nil
	}
	asked := map[string]bool{}
	for _, key := range req.CoordinatorKeys {
		if !asked[key] {
			asked[key] = true
			resp.Coordinators = append(resp.Coordinators, c.findCoordinator(ctx, req.CoordinatorType, key))
		}
	}
	return resp, nil
}

func (c *call) findCoordinator(ctx context.Context, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	rc := kmsg.NewFindCoordinatorResponseCoordinator()
	rc.Key, rc.NodeID, rc.Port = key, -1, -1
	at, err := c.coordinator(ctx, kind, key)
	rc.ErrorCode, rc.ErrorMessage = c.groupCode(err), text(err)
	if err == nil {
		rc.NodeID, rc.Host, rc.Port = at.id, at.host, at.port
	}
	return rc
}

func (c *call) coordinator(ctx context.Context, kind int8, key string) (broker, error) {
	switch kind {
	case coordinatorOfGroup:
	case coordinatorOfTxn:
		c.server.log.Info("refusing a transactional producer", "transactional-id", key, "reason", errTransactional)
		return broker{}, refuse(kerr.TransactionalIDAuthorizationFailed, errTransactional.Error())
	default:
		return broker{}, refuse(kerr.InvalidRequest, fmt.Sprintf("coordinator type %d: only consumer groups (0) have coordinators here", kind))
	}
	groups, err := c.node.Groups()
	if err != nil {
		return broker{}, refuse(kerr.CoordinatorNotAvailable, err.Error())
	}
	name, err := groups.Holder(ctx, key)
	if err != nil {
		return broker{}, err
	}
	v := &view{state: c.node.State(), node: c.node}
	n, _ := v.state.Node(name)
	for _, b := range v.brokers() {
		if n != nil && b.id == int32(n.Broker) {
			return b, nil
		}
	}
	return broker{}, refuse(kerr.CoordinatorNotAvailable, fmt.Sprintf("coordinator %q has no address for clients", name))
}
