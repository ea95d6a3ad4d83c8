package kafka

import (
	"context"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/topicconfig"
)

// IncrementalAlterConfigs: v0-1
//
//   - Topics only: set and delete, each resource in one step, or validated only. What comes out is held to topicconfig.
//   - Append and subtract are refused: the only list, cleanup.policy, has one allowed value.
//   - Broker settings come from flags, environment and file of each node, and are refused here with that hint.

func runIncrementalAlterConfigs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := c.within(0)
	defer cancel()
	for i := range req.Resources {
		q := &req.Resources[i]
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = q.ResourceType, q.ResourceName
		if err := c.alterResource(ctx, q, req.ValidateOnly); err != nil {
			rr.ErrorCode, rr.ErrorMessage = c.adminAnswer(err)
		}
		resp.Resources = append(resp.Resources, rr)
	}
	return resp, nil
}

func (c *call) alterResource(ctx context.Context, q *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	if err := c.node.Ready(); err != nil {
		return err
	}
	switch q.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
	case kmsg.ConfigResourceTypeBroker:
		return refuse(kerr.InvalidRequest, "broker settings come from the flags, environment and file of each vtopd: change them there and restart it")
	default:
		return refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d: only topics (2) have configurations to change", q.ResourceType))
	}
	v := &view{c.node.State(), c.node}
	t, ok := v.state.TopicByName(q.ResourceName)
	if !ok {
		return fmt.Errorf("%w: %q", vtop.ErrUnknownRange, q.ResourceName)
	}
	set, unset, err := configChange(q)
	if err != nil {
		return err
	}
	after := maps.Clone(t.Config)
	if after == nil {
		after = map[string]string{}
	}
	for _, name := range unset {
		delete(after, name)
	}
	maps.Copy(after, set)
	if err := topicconfig.Validate(after, v.replicaCount(t)); err != nil || validateOnly || len(set)+len(unset) == 0 {
		return err
	}
	return c.node.AlterTopicConfig(ctx, t.ID, set, unset)
}

// configChange reads the operations of one resource; a key may stand in one only.
func configChange(q *kmsg.IncrementalAlterConfigsRequestResource) (set map[string]string, unset []string, err error) {
	set = map[string]string{}
	seen := map[string]bool{}
	for i := range q.Configs {
		op := &q.Configs[i]
		if seen[op.Name] {
			return nil, nil, refuse(kerr.InvalidRequest, fmt.Sprintf("%s: named more than once", op.Name))
		}
		seen[op.Name] = true
		if _, known := topicconfig.Lookup(op.Name); !known {
			return nil, nil, topicconfig.Validate(map[string]string{op.Name: ""}, 0)
		}
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			if op.Value == nil {
				return nil, nil, refuse(kerr.InvalidRequest, fmt.Sprintf("%s: null is no value", op.Name))
			}
			set[op.Name] = *op.Value
		case kmsg.IncrementalAlterConfigOpDelete:
			unset = append(unset, op.Name)
		default:
			return nil, nil, refuse(kerr.InvalidConfig, fmt.Sprintf("%s: operation %d: only set (0) and delete (1) are supported", op.Name, op.Op))
		}
	}
	return set, unset, nil
}
