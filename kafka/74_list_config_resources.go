package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources: v0-1
//
//   - Topics and nodes, by name, of the types that are asked for, or of all. Client metrics (the one type of v0) and groups
//     have no configurations here, and are empty.

func runListConfigResources(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if err := c.node.Ready(); err != nil {
		resp.ErrorCode, _ = c.adminAnswer(err)
		return resp, nil
	}
	const (
		topic, broker, logger = int8(kmsg.ConfigResourceTypeTopic), int8(kmsg.ConfigResourceTypeBroker), int8(kmsg.ConfigResourceTypeBrokerLogger)
		metrics, group        = int8(16), int8(32)
	)
	for _, kind := range req.ResourceTypes {
		if !slices.Contains([]int8{topic, broker, logger, metrics, group}, kind) {
			resp.ErrorCode, _ = c.adminAnswer(refuse(kerr.UnsupportedVersion, "no such type of resource"))
			return resp, nil
		}
	}
	asked := func(kind int8) bool {
		return req.Version >= 1 && (len(req.ResourceTypes) == 0 || slices.Contains(req.ResourceTypes, kind))
	}
	add := func(kind int8, name string) {
		r := kmsg.NewListConfigResourcesResponseConfigResource()
		r.Type, r.Name = kind, name
		resp.ConfigResources = append(resp.ConfigResources, r)
	}
	v := &view{c.node.State(), c.node}
	if asked(topic) {
		for t := range v.state.Topics() {
			add(topic, t.Name)
		}
	}
	if asked(broker) {
		for _, b := range v.brokers() {
			add(broker, brokerName(b.id))
		}
	}
	return resp, nil
}
