package kafka

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/topicconfig"
)

// TestApis_EveryVersionIsAnswered: whatever is asked, within the versions of the table, gets an answer of its version.
func TestApis_EveryVersionIsAnswered(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.LeaderWait, cfg.MaxTimeout = 0, 10*time.Millisecond })
	rng := rand.New(rand.NewPCG(5, 6))
	for _, a := range apiTable() {
		conn := dial(t, c.nodes[0])
		for version := a.min; version <= a.max; version++ {
			for range 10 {
				req := randomRequest(rng, &a, version)
				if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
					p.Acks = -1
				}
				conn.ask(t, req)
			}
		}
	}
}

func TestApis_TableIsSortedAndFlexibleWhereKmsgIs(t *testing.T) {
	s := newFakeCluster(t, 1, nil).nodes[0].server
	for i, a := range s.apis {
		if i > 0 && a.key <= s.apis[i-1].key {
			t.Errorf("%s stands out of order", a.name)
		}
		if got := kmsg.NameForKey(a.key); !strings.EqualFold(got, a.name) && got != "AlterPartitionAssignments" {
			t.Errorf("key %d is %s, the table says %s", a.key, got, a.name)
		}
		for v := a.min; v <= a.max; v++ {
			if req := a.newRequest(v); req.IsFlexible() != (v >= s.flexMin[a.key]) {
				t.Errorf("%s v%d: flexible is %v", a.name, v, req.IsFlexible())
			}
		}
		if (a.run == nil) != (a.key == keyProduce || a.key == keyFetch) {
			t.Errorf("%s has no function, or one too many", a.name)
		}
	}
}

func TestIncrementalAlterConfigs_Refusals(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 1)
	type op struct {
		name  string
		op    kmsg.IncrementalAlterConfigOp
		value *string
	}
	str := kmsg.StringPtr
	cases := []struct {
		name string
		kind kmsg.ConfigResourceType
		on   string
		ops  []op
		want *kerr.Error
	}{
		{"set", kmsg.ConfigResourceTypeTopic, "t", []op{{"segment.bytes", 0, str("2000000")}}, nil},
		{"nothing to do", kmsg.ConfigResourceTypeTopic, "t", nil, nil},
		{"a value out of range", kmsg.ConfigResourceTypeTopic, "t", []op{{"segment.bytes", 0, str("1")}}, kerr.InvalidConfig},
		{"an unknown key", kmsg.ConfigResourceTypeTopic, "t", []op{{"flush.ms", 0, str("1")}}, kerr.InvalidConfig},
		{"deleting an unknown key", kmsg.ConfigResourceTypeTopic, "t", []op{{"flush.ms", 1, nil}}, kerr.InvalidConfig},
		{"append to a list", kmsg.ConfigResourceTypeTopic, "t", []op{{"cleanup.policy", 2, str("compact")}}, kerr.InvalidConfig},
		{"null", kmsg.ConfigResourceTypeTopic, "t", []op{{"segment.bytes", 0, nil}}, kerr.InvalidRequest},
		{"a key twice", kmsg.ConfigResourceTypeTopic, "t", []op{{"segment.ms", 0, str("5")}, {"segment.ms", 1, nil}}, kerr.InvalidRequest},
		{"one good, one bad: neither", kmsg.ConfigResourceTypeTopic, "t", []op{{"segment.ms", 0, str("5")}, {"segment.bytes", 0, str("x")}}, kerr.InvalidConfig},
		{"an unknown topic", kmsg.ConfigResourceTypeTopic, "none", []op{{"segment.ms", 0, str("5")}}, kerr.UnknownTopicOrPartition},
		{"a broker", kmsg.ConfigResourceTypeBroker, "1", []op{{"num.partitions", 0, str("5")}}, kerr.InvalidRequest},
	}
	conn := dial(t, c.nodes[0])
	for _, tc := range cases {
		for version := int16(0); version <= 1; version++ {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.Version = version
			rr := kmsg.NewIncrementalAlterConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = tc.kind, tc.on
			for _, o := range tc.ops {
				rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
				rc.Name, rc.Op, rc.Value = o.name, o.op, o.value
				rr.Configs = append(rr.Configs, rc)
			}
			req.Resources = append(req.Resources, rr)
			got := conn.ask(t, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
			if err := kerr.ErrorForCode(got.ErrorCode); tc.want == nil && err != nil || tc.want != nil && (!errors.Is(err, tc.want) || got.ErrorMessage == nil) {
				t.Errorf("%s, v%d: %v, want %v", tc.name, version, err, tc.want)
			}
		}
	}
	topic, _ := c.state.TopicByName("t")
	if len(topic.Config) != 1 || topicconfig.Parse(topic.Config).SegmentBytes != 2_000_000 {
		t.Errorf("configuration %v: a refused change took effect", topic.Config)
	}
}

func TestCreatePartitions_Refusals(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 2)
	conn := dial(t, c.nodes[0])
	cases := []struct {
		name     string
		topic    string
		count    int32
		assigned bool
		validate bool
		want     *kerr.Error
	}{
		{"only validated", "t", 4, false, true, nil},
		{"fewer", "t", 1, false, false, kerr.InvalidPartitions},
		{"the same", "t", 2, false, false, kerr.InvalidPartitions},
		{"far too many", "t", 1 << 30, false, false, kerr.InvalidPartitions},
		{"assigned by hand", "t", 3, true, false, kerr.InvalidReplicaAssignment},
		{"unknown", "none", 3, false, false, kerr.UnknownTopicOrPartition},
		{"more", "t", 3, false, false, nil},
	}
	for _, tc := range cases {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version, req.ValidateOnly, req.TimeoutMillis = 3, tc.validate, 1000
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = tc.topic, tc.count
		if tc.assigned {
			rt.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}
		}
		req.Topics = append(req.Topics, rt)
		got := conn.ask(t, req).(*kmsg.CreatePartitionsResponse).Topics[0]
		if err := kerr.ErrorForCode(got.ErrorCode); tc.want == nil && err != nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	if topic, _ := c.state.TopicByName("t"); topic.Ranges != 3 {
		t.Errorf("%d ranges, want 3", topic.Ranges)
	}
}

func TestDescribeCluster(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.set(func(c *fakeCluster) { c.down["n2"] = true })
	req := kmsg.NewPtrDescribeClusterRequest()
	resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.DescribeClusterResponse)
	if resp.ErrorCode != 0 || resp.ControllerID != 3 || len(resp.Brokers) != 2 || resp.ClusterID != c.state.Cluster().ID.String() {
		t.Errorf("%+v", resp)
	}
}

func TestDescribeConfigs_WhatIsAskedFor(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	ask := func(kind kmsg.ConfigResourceType, name string, synonyms, docs bool, keys ...string) kmsg.DescribeConfigsResponseResource {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, synonyms, docs
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName, rr.ConfigNames = kind, name, keys
		req.Resources = append(req.Resources, rr)
		return conn.ask(t, req).(*kmsg.DescribeConfigsResponse).Resources[0]
	}
	if got := ask(kmsg.ConfigResourceTypeTopic, "t", true, true); len(got.Configs) != len(topicconfig.Keys()) ||
		len(got.Configs[0].ConfigSynonyms) != 1 || got.Configs[0].Documentation == nil {
		t.Errorf("all of a topic: %+v", got)
	}
	if got := ask(kmsg.ConfigResourceTypeTopic, "t", false, false, "retention.ms", "nonsense"); len(got.Configs) != 1 ||
		len(got.Configs[0].ConfigSynonyms) != 0 || got.Configs[0].Documentation != nil {
		t.Errorf("one of a topic: %+v", got)
	}
	if got := ask(kmsg.ConfigResourceTypeBroker, "1", false, false); got.ErrorCode != 0 || !got.Configs[0].ReadOnly {
		t.Errorf("broker: %+v", got)
	}
	for _, name := range []string{"2", "01", "+1", "x"} {
		if got := ask(kmsg.ConfigResourceTypeBroker, name, false, false); got.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("broker %q: code %d", name, got.ErrorCode)
		}
	}
	if got := ask(kmsg.ConfigResourceTypeTopic, "none", false, false); got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown topic: code %d", got.ErrorCode)
	}
}
