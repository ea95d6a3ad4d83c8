package kafka

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// AlterClientQuotas: v0-1
//
//   - producer_byte_rate and consumer_byte_rate of a client id, or with a null name of all that have none of their own:
//     whole bytes a second, above 0. Each node holds to them by itself, from when it has applied the change.
//   - Users and addresses are not known, and other rates are not measured: INVALID_REQUEST.
//   - Each entry is one step: all its operations or none.

func runAlterClientQuotas(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.AlterClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	ctx, cancel := c.within(0)
	defer cancel()
	for i := range req.Entries {
		q := &req.Entries[i]
		entry := kmsg.NewAlterClientQuotasResponseEntry()
		for _, e := range q.Entity {
			entity := kmsg.NewAlterClientQuotasResponseEntryEntity()
			entity.Type, entity.Name = e.Type, e.Name
			entry.Entity = append(entry.Entity, entity)
		}
		if err := c.alterQuota(ctx, q, req.ValidateOnly); err != nil {
			entry.ErrorCode, entry.ErrorMessage = c.adminAnswer(err)
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}

func (c *call) alterQuota(ctx context.Context, q *kmsg.AlterClientQuotasRequestEntry, validateOnly bool) error {
	if err := c.node.Ready(); err != nil {
		return err
	}
	change, err := quotaChange(q)
	if err != nil || validateOnly || !change.SetProduce && !change.SetFetch {
		return err
	}
	items, err := c.node.AlterClientQuotas(ctx, []fsm.QuotaChange{change})
	if err != nil {
		return err
	}
	return items[0].Err()
}

// quotaChange reads one entry.
func quotaChange(q *kmsg.AlterClientQuotasRequestEntry) (out fsm.QuotaChange, err error) {
	if len(q.Entity) != 1 || q.Entity[0].Type != entityClient {
		return out, refuse(kerr.InvalidRequest, "quotas are of one "+entityClient+" here: there are no users, and addresses have none")
	}
	if name := q.Entity[0].Name; name != nil {
		out.Client = *name
	} else {
		out.Default = true
	}
	if len(out.Client) > maxClientID {
		return out, refuse(kerr.InvalidRequest, fmt.Sprintf("client id of %d bytes: at most %d are told apart", len(out.Client), maxClientID))
	}
	for i := range q.Ops {
		op := &q.Ops[i]
		field, set := &out.Produce, &out.SetProduce
		switch op.Key {
		case quotaProducer:
		case quotaConsumer:
			field, set = &out.Fetch, &out.SetFetch
		default:
			return out, refuse(kerr.InvalidRequest, fmt.Sprintf("quota %.60q: known are %s and %s", op.Key, quotaProducer, quotaConsumer))
		}
		if *set {
			return out, refuse(kerr.InvalidRequest, fmt.Sprintf("%s: named more than once", op.Key))
		}
		*set = true
		if op.Remove {
			continue
		}

		if !(op.Value >= 1 && op.Value <= fsm.MaxQuota) || op.Value != math.Trunc(op.Value) {
			return out, refuse(kerr.InvalidRequest, fmt.Sprintf("%s=%g: want whole bytes a second, 1 to %d", op.Key, op.Value, int64(fsm.MaxQuota)))
		}
		*field = int64(op.Value)
	}
	return out, nil
}
