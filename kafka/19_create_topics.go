package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
)

// CreateTopics: v2-7
//
//   - Any node takes it. Each topic is one step: all its ranges or nothing. The answer comes when it is applied here.
//   - -1 for partitions or replication factor takes Config's default.
//   - Replicas are placed by the cluster: a manual assignment is refused with INVALID_REPLICA_ASSIGNMENT.
//   - Configuration is held to topicconfig; INVALID_CONFIG says what is allowed.
//   - validate_only checks all that this node can check and changes nothing.
//   - v7 tells the new topic's id; none where nothing was created.
//   - A repeat is refused with TOPIC_ALREADY_EXISTS, also after a REQUEST_TIMED_OUT whose creation did happen.

func runCreateTopics(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := c.within(req.TimeoutMillis)
	defer cancel()
	named := map[string]int{}
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		if named[t.Topic] == 0 {
			continue // answered once already
		}
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = t.Topic
		spec, err := c.topicSpec(t)
		if named[t.Topic] > 1 {
			named[t.Topic] = 0
			err = refuse(kerr.InvalidRequest, "the request names this topic more than once")
		}
		if err == nil && !req.ValidateOnly {
			rt.TopicID, err = c.node.CreateTopic(ctx, spec)
		}
		if err != nil {
			rt.TopicID = vtop.TopicID{}
			rt.ErrorCode, rt.ErrorMessage = c.adminAnswer(err)
		} else {
			rt.NumPartitions, rt.ReplicationFactor = spec.Ranges, spec.Replicas
			rt.Configs = createdConfigs(spec.Config)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// topicSpec checks what a client wants.
func (c *call) topicSpec(t *kmsg.CreateTopicsRequestTopic) (TopicSpec, error) {
	spec := TopicSpec{Name: t.Topic, Ranges: t.NumPartitions, Replicas: t.ReplicationFactor, Config: map[string]string{}}
	if err := c.node.Ready(); err != nil {
		return spec, err
	}
	v := &view{c.node.State(), c.node}
	if err := checkTopicName(t.Topic); err != nil {
		return spec, err
	}
	if _, ok := v.state.TopicByName(t.Topic); ok {
		return spec, refuse(kerr.TopicAlreadyExists, fmt.Sprintf("topic %q already exists", t.Topic))
	}
	if len(t.ReplicaAssignment) > 0 {
		return spec, errAssignment
	}
	if spec.Ranges == -1 {
		spec.Ranges = c.server.cfg.DefaultRanges
	}
	if spec.Ranges < 1 || spec.Ranges > fsm.MaxRangesPerTopic {
		return spec, refuse(kerr.InvalidPartitions, fmt.Sprintf("%d partitions: want 1 to %d, or -1 for the default", spec.Ranges, fsm.MaxRangesPerTopic))
	}
	if spec.Replicas == -1 {
		spec.Replicas = c.server.defaultReplicas(v)
	}
	if err := checkReplicas(v, spec.Replicas); err != nil {
		return spec, err
	}
	for _, kv := range t.Configs {
		if kv.Value == nil {
			return spec, refuse(kerr.InvalidConfig, fmt.Sprintf("%s: null is no value", kv.Name))
		}
		spec.Config[kv.Name] = *kv.Value
	}
	return spec, topicconfig.Validate(spec.Config, int(spec.Replicas))
}

var errAssignment = refuse(kerr.InvalidReplicaAssignment, "vtop places replicas itself: leave the assignment out and give a replication factor")

// defaultReplicas is the configured number, or as many as the cluster has nodes: a cluster of one takes topics too. Nodes
// that are down count, so that an outage never makes a topic with fewer copies than usual.
func (s *Server) defaultReplicas(v *view) int16 {
	return int16(max(1, min(int(s.cfg.DefaultReplicas), v.active())))
}

// checkReplicas refuses a replication factor that the cluster has not the nodes for.
func checkReplicas(v *view, replicas int16) error {
	most := min(v.active(), fsm.MaxReplicas)
	if replicas < 1 || int(replicas) > most {
		return refuse(kerr.InvalidReplicationFactor, fmt.Sprintf("replication factor %d: want 1 to %d, the active nodes", replicas, most))
	}
	return nil
}

// maxTopicName is Kafka's limit, which its clients check too.
const maxTopicName = 249

// checkTopicName holds a name to Kafka's rules.
func checkTopicName(name string) error {
	ok := len(name) > 0 && len(name) <= maxTopicName && name != "." && name != ".."
	for i := 0; ok && i < len(name); i++ {
		b := name[i]
		ok = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
	}
	if ok {
		return nil
	}
	return refuse(kerr.InvalidTopicException, fmt.Sprintf("topic name %.260q: want 1 to %d of a-z A-Z 0-9 . _ -, not . or ..", name, maxTopicName))
}

func createdConfigs(set map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	out := []kmsg.CreateTopicsResponseTopicConfig{}
	for _, key := range topicconfig.Keys() {
		value, source := configValue(key, set)
		rc := kmsg.NewCreateTopicsResponseTopicConfig()
		rc.Name, rc.Value, rc.Source = key.Name, &value, int8(source)
		out = append(out, rc)
	}
	return out
}

// adminAnswer is the code and the text of a refused change, noted in the metrics.
func (c *call) adminAnswer(err error) (int16, *string) {
	code := c.server.adminCode(err)
	c.server.metrics.failed(c.frame.api.key, code)
	return code, text(err)
}

// readCode is the code of a failed read, noted in the metrics.
func (c *call) readCode(err error) int16 {
	code := c.server.code(faceRead, err)
	c.frame.note(true)
	c.server.metrics.failed(c.frame.api.key, code)
	return code
}
