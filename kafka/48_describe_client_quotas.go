package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

// DescribeClientQuotas: v0-1
//
//   - Quotas that AlterClientQuotas has set, which are of client ids and of the default for all others. What a node's own
//     settings say (--produce-quota, --fetch-quota) is not among them.
//   - Users and addresses have no quotas here: what asks for one of them finds nothing.

// The names of entities and of what can be set for them.
const (
	entityUser, entityClient, entityIP = "user", "client-id", "ip"
	quotaProducer, quotaConsumer       = "producer_byte_rate", "consumer_byte_rate"
)

func runDescribeClientQuotas(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	match, err := quotaFilter(req)
	if err == nil {
		err = c.node.Ready()
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = c.adminAnswer(err)
		return resp, nil
	}
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{} // null is for errors
	for q := range c.node.State().ClientQuotas() {
		if match(q) {
			resp.Entries = append(resp.Entries, quotaEntry(q))
		}
	}
	return resp, nil
}

func quotaEntry(q *fsm.ClientQuota) kmsg.DescribeClientQuotasResponseEntry {
	entity := kmsg.NewDescribeClientQuotasResponseEntryEntity()
	entity.Type = entityClient
	if !q.Default {
		entity.Name = &q.Client
	}
	entry := kmsg.NewDescribeClientQuotasResponseEntry()
	entry.Entity = append(entry.Entity, entity)
	add := func(key string, n int64) {
		if n > 0 {
			v := kmsg.NewDescribeClientQuotasResponseEntryValue()
			v.Key, v.Value = key, float64(n)
			entry.Values = append(entry.Values, v)
		}
	}
	add(quotaProducer, q.Produce)
	add(quotaConsumer, q.Fetch)
	return entry
}

// quotaFilter turns the components of a request into one question. An entry has a client id and nothing else.
func quotaFilter(req *kmsg.DescribeClientQuotasRequest) (func(*fsm.ClientQuota) bool, error) {
	seen := map[string]bool{}
	match := func(*fsm.ClientQuota) bool { return !req.Strict }
	none := false
	for i := range req.Components {
		q := &req.Components[i]
		if seen[q.EntityType] {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("entity type %.40q: named more than once", q.EntityType))
		}
		seen[q.EntityType] = true
		switch q.EntityType {
		case entityUser, entityIP:
			none = true
			continue
		case entityClient:
		default:
			return nil, refuse(kerr.UnsupportedVersion, fmt.Sprintf("entity type %.40q: only %s has quotas", q.EntityType, entityClient))
		}
		switch {
		case q.MatchType == kmsg.QuotasMatchTypeExact && q.Match != nil:
			name := *q.Match
			match = func(e *fsm.ClientQuota) bool { return !e.Default && e.Client == name }
		case q.MatchType == kmsg.QuotasMatchTypeDefault && q.Match == nil:
			match = func(e *fsm.ClientQuota) bool { return e.Default }
		case q.MatchType == kmsg.QuotasMatchTypeAny && q.Match == nil:
			match = func(*fsm.ClientQuota) bool { return true }
		default:
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("match type %d: want 0 with a name, or 1 or 2 without", q.MatchType))
		}
	}
	if none {
		return func(*fsm.ClientQuota) bool { return false }, nil
	}
	return match, nil
}
