package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs: v0-2
//
//   - Old tools use it: what is named is set, and every other key of the topic goes back to its default.
//   - Otherwise as IncrementalAlterConfigs: each topic in one step, held to topicconfig; nodes' own settings are refused.

func runAlterConfigs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := c.within(0)
	defer cancel()
	for i := range req.Resources {
		q := &req.Resources[i]
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = q.ResourceType, q.ResourceName
		if err := c.replaceConfigs(ctx, q, req.ValidateOnly); err != nil {
			rr.ErrorCode, rr.ErrorMessage = c.adminAnswer(err)
		}
		resp.Resources = append(resp.Resources, rr)
	}
	return resp, nil
}

func (c *call) replaceConfigs(ctx context.Context, q *kmsg.AlterConfigsRequestResource, validateOnly bool) error {
	t, err := c.alterable(q.ResourceType, q.ResourceName)
	if err != nil {
		return err
	}
	set := map[string]string{}
	for _, kv := range q.Configs {
		if _, twice := set[kv.Name]; twice {
			return refuse(kerr.InvalidRequest, fmt.Sprintf("%s: named more than once", kv.Name))
		}
		if kv.Value == nil {
			return refuse(kerr.InvalidRequest, fmt.Sprintf("%s: null is no value", kv.Name))
		}
		set[kv.Name] = *kv.Value
	}
	var unset []string
	for name := range t.Config {
		if _, stays := set[name]; !stays {
			unset = append(unset, name)
		}
	}
	return c.alterTopic(ctx, t, set, unset, validateOnly)
}
