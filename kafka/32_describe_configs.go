package kafka

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/topicconfig"
)

// DescribeConfigs: v1-4
//
//   - Topics: every key of topicconfig with its value, and whether it was set on the topic or is the default.
//   - Brokers: a few read-only settings that tools ask for. Any node answers for any broker: they are the same.
//   - No names, or null, means all. A name that is not known is left out, as Kafka does.

func runDescribeConfigs(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	seen := make(map[resource]bool, len(req.Resources))
	for i := range req.Resources {
		q := &req.Resources[i]
		if id := (resource{q.ResourceType, q.ResourceName}); seen[id] {
			continue // each once: a small request must not have a huge answer
		} else {
			seen[id] = true
		}
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = q.ResourceType, q.ResourceName
		configs, err := c.describeResource(q)
		if err != nil {
			rr.ErrorCode, rr.ErrorMessage = c.adminAnswer(err)
		}
		for _, entry := range configs {
			if !wanted(q.ConfigNames, entry.Name) {
				continue
			}
			if !req.IncludeSynonyms {
				entry.ConfigSynonyms = nil
			}
			if !req.IncludeDocumentation {
				entry.Documentation = nil
			}
			rr.Configs = append(rr.Configs, entry)
		}
		resp.Resources = append(resp.Resources, rr)
	}
	return resp, nil
}

func wanted(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return len(names) == 0
}

func (c *call) describeResource(q *kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, error) {
	if err := c.node.Ready(); err != nil {
		return nil, err
	}
	switch q.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		t, ok := c.node.State().TopicByName(q.ResourceName)
		if !ok {
			return nil, fmt.Errorf("%w: %q", vtop.ErrUnknownRange, q.ResourceName)
		}
		return topicConfigs(t.Config), nil
	case kmsg.ConfigResourceTypeBroker:
		id, err := strconv.ParseInt(q.ResourceName, 10, 32)
		if err == nil && q.ResourceName == strconv.FormatInt(id, 10) {
			if _, ok := c.node.State().NodeByBroker(vtop.BrokerID(id)); ok {
				return c.brokerConfigs(), nil
			}
		}
		if q.ResourceName == "" { // the defaults of all brokers, which are set nowhere
			return nil, nil
		}
		return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("broker %.40q: no such broker id", q.ResourceName))
	}
	return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d: topics (2) and brokers (4) have configurations here", q.ResourceType))
}

// configValue is the value of a key of a topic and where it comes from.
func configValue(key topicconfig.Key, set map[string]string) (string, kmsg.ConfigSource) {
	if value, ok := set[key.Name]; ok {
		return value, kmsg.ConfigSourceDynamicTopicConfig
	}
	return key.Default, kmsg.ConfigSourceDefaultConfig
}

func topicConfigs(set map[string]string) []kmsg.DescribeConfigsResponseResourceConfig {
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, key := range topicconfig.Keys() {
		value, source := configValue(key, set)
		doc := key.Doc + " Allowed: " + key.Allowed() + "."
		entry := configEntry(key.Name, value, source, kmsg.ConfigType(key.Type))
		entry.Documentation = &doc
		if source == kmsg.ConfigSourceDynamicTopicConfig {
			entry.ConfigSynonyms = append(entry.ConfigSynonyms, synonym(key.Name, value, source))
		}
		entry.ConfigSynonyms = append(entry.ConfigSynonyms, synonym(key.Name, key.Default, kmsg.ConfigSourceDefaultConfig))
		out = append(out, entry)
	}
	return out
}

func configEntry(name, value string, source kmsg.ConfigSource, kind kmsg.ConfigType) kmsg.DescribeConfigsResponseResourceConfig {
	entry := kmsg.NewDescribeConfigsResponseResourceConfig()
	entry.Name, entry.Value, entry.Source, entry.ConfigType = name, &value, source, kind
	entry.IsDefault = source == kmsg.ConfigSourceDefaultConfig
	return entry
}

func synonym(name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	s.Name, s.Value, s.Source = name, &value, source
	return s
}

// brokerConfigs are what tools ask brokers for; none can be changed over the protocol.
func (c *call) brokerConfigs() []kmsg.DescribeConfigsResponseResourceConfig {
	cfg := c.server.cfg
	const broker = kmsg.ConfigSourceStaticBrokerConfig
	out := []kmsg.DescribeConfigsResponseResourceConfig{
		configEntry("auto.create.topics.enable", strconv.FormatBool(cfg.AutoCreate), broker, kmsg.ConfigTypeBoolean),
		configEntry("default.replication.factor", strconv.Itoa(int(cfg.DefaultReplicas)), broker, kmsg.ConfigTypeInt),
		configEntry("delete.topic.enable", "true", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeBoolean),
		configEntry("fetch.max.bytes", strconv.Itoa(cfg.FetchBytes), broker, kmsg.ConfigTypeInt),
		configEntry("message.max.bytes", strconv.Itoa(topicconfig.BatchLimit(nil)), kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeInt),
		configEntry("min.insync.replicas", "1", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeInt),
		configEntry("num.partitions", strconv.Itoa(int(cfg.DefaultRanges)), broker, kmsg.ConfigTypeInt),
		configEntry("socket.request.max.bytes", strconv.Itoa(cfg.MaxProduceFrame), broker, kmsg.ConfigTypeInt),
	}
	for i := range out {
		out[i].ReadOnly = true
	}
	return out
}
