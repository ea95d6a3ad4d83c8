package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
)

// IncrementalAlterConfigs: v0-1
//
//   - Topics only: set and delete, each resource in one step, or validated only. What comes out is held to topicconfig.
//   - Append and subtract are refused: the only list, cleanup.policy, has one allowed value.
//   - Broker settings come from flags, environment and file of each node, and are refused here with that hint.
//   - The throttles that Kafka's reassignment tool sets are refused with what to use instead, and deleted with success, since
//     they are never there: the tool deletes them at the end of every reassignment.

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

// throttles are settings of Kafka that bound the bytes a second of a reassignment.
var throttles = []string{
	"follower.replication.throttled.rate", "follower.replication.throttled.replicas",
	"leader.replication.throttled.rate", "leader.replication.throttled.replicas",
	"replica.alter.log.dirs.io.max.bytes.per.second",
}

// withoutThrottles takes the deletion of throttles off a change, and refuses their setting.
func withoutThrottles(ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) ([]kmsg.IncrementalAlterConfigsRequestResourceConfig, error) {
	var out []kmsg.IncrementalAlterConfigsRequestResourceConfig
	for _, op := range ops {
		switch {
		case !slices.Contains(throttles, op.Name):
			out = append(out, op)
		case op.Op != kmsg.IncrementalAlterConfigOpDelete && op.Op != kmsg.IncrementalAlterConfigOpSubtract:
			return nil, refuse(kerr.InvalidConfig, fmt.Sprintf("%s: a reassignment yields to clients by itself; 'vtopctl repair --max-rate' bounds a single one: leave the throttle out", op.Name))
		}
	}
	return out, nil
}

func (c *call) alterResource(ctx context.Context, q *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	ops, err := withoutThrottles(q.Configs)
	if err == nil && len(ops) == 0 && q.ResourceType == kmsg.ConfigResourceTypeBroker {
		return c.knowsBroker(q.ResourceName)
	}
	if err != nil {
		return err
	}
	t, err := c.alterable(q.ResourceType, q.ResourceName)
	if err != nil {
		return err
	}
	set, unset, err := configChange(ops)
	if err != nil {
		return err
	}
	return c.alterTopic(ctx, t, set, unset, validateOnly)
}

// alterable finds the topic that a change of configuration is about, the one kind of resource that has one.
func (c *call) alterable(kind kmsg.ConfigResourceType, name string) (*fsm.Topic, error) {
	if err := c.node.Ready(); err != nil {
		return nil, err
	}
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
	case kmsg.ConfigResourceTypeBroker:
		return nil, refuse(kerr.InvalidRequest, "broker settings come from the flags, environment and file of each vtopd: change them there and restart it")
	default:
		return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d: only topics (2) have configurations to change", kind))
	}
	t, ok := c.node.State().TopicByName(name)
	if !ok {
		return nil, fmt.Errorf("%w: %q", vtop.ErrUnknownRange, name)
	}
	return t, nil
}

// alterTopic holds what would come out to the rules, and changes it.
func (c *call) alterTopic(ctx context.Context, t *fsm.Topic, set map[string]string, unset []string, validateOnly bool) error {
	v := &view{c.node.State(), c.node}
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
func configChange(ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) (set map[string]string, unset []string, err error) {
	set = map[string]string{}
	seen := map[string]bool{}
	for i := range ops {
		op := &ops[i]
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
