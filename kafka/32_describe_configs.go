package kafka

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
)

// DescribeConfigs: v1-4
//
//   - Topics: every key of topicconfig with its value, and whether it was set on the topic or is the default.
//   - Brokers: settings that tools ask for, read-only. Any node answers for any broker, from its own settings: they are meant
//     to be the same everywhere. The defaults of topics are among them, under Kafka's names.
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
		if err := c.knowsBroker(q.ResourceName); err != nil || q.ResourceName == "" {
			return nil, err // (the defaults of all brokers are set nowhere)
		}
		return c.brokerConfigs(q.ResourceName), nil
	}
	return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d: topics (2) and brokers (4) have configurations here", q.ResourceType))
}

// knowsBroker refuses the name of a broker that is none. The empty name is that of all.
func (c *call) knowsBroker(name string) error {
	if err := c.node.Ready(); err != nil || name == "" {
		return err
	}
	if _, ok := c.brokerNamed(name); ok {
		return nil
	}
	return refuse(kerr.InvalidRequest, fmt.Sprintf("broker %.40q: no such broker id", name))
}

func (c *call) brokerNamed(name string) (*fsm.Node, bool) {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil || name != brokerName(int32(id)) {
		return nil, false
	}
	return c.node.State().NodeByBroker(vtop.BrokerID(id))
}

// brokerName is how configurations name a broker.
func brokerName(id int32) string { return strconv.FormatInt(int64(id), 10) }

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

// topicDefaults are the settings that Kafka has for topics as defaults of its brokers, and the topic's own names.
var topicDefaults = [...][2]string{
	{"compression.type", topicconfig.CompressionType}, {"log.cleanup.policy", topicconfig.CleanupPolicy},
	{"log.message.timestamp.type", topicconfig.MessageTimestampType}, {"log.retention.bytes", topicconfig.RetentionBytes},
	{"log.retention.ms", topicconfig.RetentionMs}, {"log.roll.ms", topicconfig.SegmentMs}, {"log.segment.bytes", topicconfig.SegmentBytes},
	{"message.max.bytes", topicconfig.MaxMessageBytes}, {"min.insync.replicas", topicconfig.MinInsyncReplicas},
}

// brokerConfigs are what tools ask brokers for, by name; none can be changed over the protocol.
func (c *call) brokerConfigs(name string) []kmsg.DescribeConfigsResponseResourceConfig {
	cfg := c.server.cfg
	var out []kmsg.DescribeConfigsResponseResourceConfig
	add := func(key, value string, source kmsg.ConfigSource, kind kmsg.ConfigType) {
		out = append(out, configEntry(key, value, source, kind))
	}
	number := func(key string, n int64) {
		add(key, strconv.FormatInt(n, 10), kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeLong)
	}
	if n, ok := c.brokerNamed(name); ok {
		add("advertised.listeners", n.Addresses.Kafka, kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeString)
		add("broker.id", name, kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeInt)
		add("broker.rack", n.Rack, kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeString)
		add("node.id", name, kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeInt)
	}
	add("auto.create.topics.enable", strconv.FormatBool(cfg.AutoCreate), kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeBoolean)
	add("delete.topic.enable", "true", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeBoolean)
	add("unclean.leader.election.enable", "false", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeBoolean)
	number("connections.max.idle.ms", cfg.IdleTimeout.Milliseconds())
	number("default.replication.factor", int64(cfg.DefaultReplicas))
	number("fetch.max.bytes", int64(cfg.FetchBytes))
	number("max.connections", int64(cfg.MaxConnections))
	if cfg.MaxConnectionsPerIP > 0 {
		number("max.connections.per.ip", int64(cfg.MaxConnectionsPerIP))
	}
	number("num.partitions", int64(cfg.DefaultRanges))
	number("queued.max.request.bytes", cfg.RequestBytes)
	number("socket.request.max.bytes", int64(cfg.MaxProduceFrame))
	for _, d := range topicDefaults {
		if key, ok := topicconfig.Lookup(d[1]); ok {
			add(d[0], key.Default, kmsg.ConfigSourceDefaultConfig, kmsg.ConfigType(key.Type))
		}
	}
	slices.SortFunc(out, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return cmp.Compare(a.Name, b.Name) })
	for i := range out {
		out[i].ReadOnly = true
		out[i].ConfigSynonyms = append(out[i].ConfigSynonyms, synonym(out[i].Name, *out[i].Value, out[i].Source))
	}
	return out
}
