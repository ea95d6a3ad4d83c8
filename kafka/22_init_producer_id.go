package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId: v0-5
//
//   - Idempotent producers only: each request gets an id that no producer of this cluster ever had, and epoch 0. That
//     holds also for a producer that names the id and epoch it had (v3): as in Kafka a new id is its new epoch, and
//     two processes that share an old id can never be given the same new one.
//   - A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is final in every client.
//   - An id that the cluster cannot give out now is asked for again: COORDINATOR_NOT_AVAILABLE.

func runInitProducerID(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		c.server.log.Info("refusing a transactional producer", "transactional-id", *req.TransactionalID, "reason", errTransactional)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp, nil
	}
	ctx, cancel := c.within(0)
	defer cancel()
	id, err := c.node.ProducerID(ctx)
	if err != nil {
		c.server.log.Warn("cannot give out a producer id", "error", err)
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		c.server.metrics.failed(keyInitProducerID, resp.ErrorCode)
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp, nil
}
