package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func metadataRequest(version int16, create bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, create
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func TestMetadata_EveryVersionTellsTheSame(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("a", 2)
	c.topic("b", 1)
	conn := dial(t, c.nodes[1])
	for version := int16(0); version <= 13; version++ {
		resp := conn.ask(t, metadataRequest(version, false)).(*kmsg.MetadataResponse)
		if len(resp.Brokers) != 3 || len(resp.Topics) != 2 {
			t.Fatalf("v%d: %d brokers, %d topics", version, len(resp.Brokers), len(resp.Topics))
		}
		p := resp.Topics[0].Partitions[1]
		if *resp.Topics[0].Topic != "a" || p.Leader != 1 || !slices.Equal(p.Replicas, []int32{2, 3, 1}) || !slices.Equal(p.ISR, p.Replicas) {
			t.Fatalf("v%d: %+v", version, p)
		}
		if version >= 1 && (resp.ControllerID != 3 || *resp.Brokers[0].Rack != "rack-n1") {
			t.Fatalf("v%d: controller %d", version, resp.ControllerID)
		}
		if version >= 7 && p.LeaderEpoch < 1 {
			t.Fatalf("v%d: leader epoch %d", version, p.LeaderEpoch)
		}
	}
	// From v1 on an empty list asks for no topic.
	none := metadataRequest(1, false)
	none.Topics = []kmsg.MetadataRequestTopic{}
	if resp := conn.ask(t, none).(*kmsg.MetadataResponse); len(resp.Topics) != 0 || len(resp.Brokers) != 3 {
		t.Fatalf("%d topics for an empty list", len(resp.Topics))
	}
}

func TestMetadata_UnknownAndInvalidNames(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	resp := dial(t, c.nodes[0]).ask(t, metadataRequest(9, false, "none", "a/b", "", strings.Repeat("x", 250))).(*kmsg.MetadataResponse)
	want := []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.InvalidTopicException, kerr.InvalidTopicException, kerr.InvalidTopicException}
	for i, rt := range resp.Topics {
		if rt.ErrorCode != want[i].Code {
			t.Errorf("%q: code %d, want %s", *rt.Topic, rt.ErrorCode, want[i].Message)
		}
	}
	if c.state.TopicCount() != 0 {
		t.Error("a topic was created against the client's word")
	}
}

func TestMetadata_CreatesOnFirstUseWithAGoodFirstAnswer(t *testing.T) {
	c := newFakeCluster(t, 3, func(cfg *Config) { cfg.DefaultRanges = 2; patientServer(cfg) })
	c.set(func(c *fakeCluster) { c.noLeases = true })
	conn := dial(t, c.nodes[0])
	req := metadataRequest(4, true, "new")
	conn.send(t, req)
	eventually(t, "created, and a watch for its leaders", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.state.TopicByName("new")
		return ok && len(c.watches) == 1
	})
	topic, _ := c.nodes[0].State().TopicByName("new")
	for i := range int32(2) {
		c.grant(vtop.Range{Topic: topic.ID, Index: i}, "n2", false)
	}
	_, resp := conn.receive(t, req)
	rt := resp.(*kmsg.MetadataResponse).Topics[0]
	if rt.ErrorCode != 0 || len(rt.Partitions) != 2 || rt.Partitions[0].Leader != 2 || rt.Partitions[1].ErrorCode != 0 {
		t.Fatalf("first answer: %+v", rt)
	}
}

func TestMetadata_AutoCreateTakesAsManyReplicasAsThereAreNodes(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.DefaultReplicas = 3 })
	dial(t, c.nodes[0]).ask(t, metadataRequest(4, true, "new"))
	topic, ok := c.nodes[0].State().TopicByName("new")
	if !ok {
		t.Fatal("not created")
	}
	r, _ := c.nodes[0].State().Range(vtop.Range{Topic: topic.ID})
	if len(r.Voters()) != 1 {
		t.Errorf("%d voters on a cluster of one", len(r.Voters()))
	}
}

func TestMetadata_AutoCreateRefused(t *testing.T) {
	off := newFakeCluster(t, 1, func(cfg *Config) { cfg.AutoCreate = false })
	rt := dial(t, off.nodes[0]).ask(t, metadataRequest(4, true, "new")).(*kmsg.MetadataResponse).Topics[0]
	if rt.ErrorCode != kerr.UnknownTopicOrPartition.Code || off.state.TopicCount() != 0 {
		t.Errorf("auto-create off: code %d, %d topics", rt.ErrorCode, off.state.TopicCount())
	}
}

// A fresh loss is waited for, and the new leader is the first answer.
func TestMetadata_DeadLeaderThatIsReplaced(t *testing.T) {
	c := newFakeCluster(t, 3, patientServer)
	r := c.topic("t", 1)[0]
	before, _ := c.state.Range(r)
	c.set(func(c *fakeCluster) { c.down["n1"] = true })
	conn := dial(t, c.nodes[1])
	req := metadataRequest(9, false, "t")
	conn.send(t, req)
	eventually(t, "it waits", func() bool { return c.watched.Load() == 1 })
	c.grant(r, "n3", false)
	_, resp := conn.receive(t, req)
	p := resp.(*kmsg.MetadataResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.Leader != 3 || p.LeaderEpoch <= int32(before.Lease.Epoch) || !slices.Equal(p.OfflineReplicas, []int32{1}) || !slices.Equal(p.ISR, []int32{2, 3}) {
		t.Fatalf("%+v", p)
	}
	for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
		if b.NodeID == 1 {
			t.Error("a dead node is listed as a broker")
		}
	}
}

// Nobody takes over: LEADER_NOT_AVAILABLE, and the epoch does not go back.
func TestMetadata_DeadLeaderThatIsNotReplaced(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	r := c.topic("t", 1)[0]
	before, _ := c.state.Range(r)
	c.grant(r, "n3", false)
	c.set(func(c *fakeCluster) { c.down["n1"], c.down["n3"] = true, true })
	conn, req := dial(t, c.nodes[1]), metadataRequest(9, false, "t")
	began := time.Now()
	p := conn.ask(t, req).(*kmsg.MetadataResponse).Topics[0].Partitions[0]
	if p.ErrorCode != kerr.LeaderNotAvailable.Code || p.Leader != -1 || p.LeaderEpoch < int32(before.Lease.Epoch) {
		t.Fatalf("%+v", p)
	}
	if waited := time.Since(began); waited < 500*time.Millisecond {
		t.Errorf("waited %s only", waited)
	}

	// Case: a loss that lasts is no longer waited for. The table is told that it is old.
	c.nodes[1].server.leaders.mu.Lock()
	c.nodes[1].server.leaders.since[r] = time.Now().Add(-freshLoss)
	c.nodes[1].server.leaders.mu.Unlock()
	watched := c.watched.Load()
	conn.ask(t, req)
	if c.watched.Load() != watched {
		t.Error("an old loss is still waited for")
	}
}

func TestMetadata_LeaseOfAnEarlierProcessIsNoLeader(t *testing.T) {
	c := newFakeCluster(t, 2, func(cfg *Config) { cfg.LeaderWait = 0 })
	c.topic("t", 1)
	n, _ := c.state.Node("n1")
	id := n.Identity
	id.Incarnation, id.BootNonce = 2, randomUUID()
	if err := c.apply(&fsm.RegisterNode{Name: "n1", Identity: id, Expected: 1}); err != nil {
		t.Fatal(err)
	}
	p := dial(t, c.nodes[1]).ask(t, metadataRequest(9, false, "t")).(*kmsg.MetadataResponse).Topics[0].Partitions[0]
	if p.ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Fatalf("code %d leader %d (I5)", p.ErrorCode, p.Leader)
	}
}

func TestMetadata_NodeThatHasNotCaughtUp(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.MaxTimeout = 300 * time.Millisecond })
	c.topic("t", 1)
	c.set(func(c *fakeCluster) { c.notReady = true })
	resp := dial(t, c.nodes[0]).ask(t, metadataRequest(9, true, "t", "new")).(*kmsg.MetadataResponse)
	for _, rt := range resp.Topics {
		if rt.ErrorCode != kerr.LeaderNotAvailable.Code {
			t.Errorf("%s: code %d", *rt.Topic, rt.ErrorCode)
		}
	}
	for _, topics := range []kmsg.Request{metadataRequest(9, false), noTopics(9)} {
		conn := dial(t, c.nodes[0])
		conn.send(t, topics)
		conn.closed(t) // to tell that there are no brokers and that the cluster has no id would be a lie
	}
	// Case: it catches up while the client waits.
	late := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, req := range []kmsg.Request{metadataRequest(9, false), late} {
		c.set(func(c *fakeCluster) { c.notReady, c.unready = false, 3 })
		switch resp := dial(t, c.nodes[0]).ask(t, req).(type) {
		case *kmsg.MetadataResponse:
			if len(resp.Topics) != 1 {
				t.Errorf("all topics of a node that caught up meanwhile: %+v", resp.Topics)
			}
		case *kmsg.DescribeTopicPartitionsResponse:
			if len(resp.Topics) != 1 {
				t.Errorf("all topics of a node that caught up meanwhile: %+v", resp.Topics)
			}
		}
	}
	c.set(func(c *fakeCluster) { c.notReady = true })
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 5
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = "x", 1, 1
	create.Topics = append(create.Topics, ct)
	if got := dial(t, c.nodes[0]).ask(t, create).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; got != kerr.NotController.Code {
		t.Errorf("create: code %d", got)
	}
}

func TestCreateTopics_Refusals(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	one := func(name string, fn func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, -1, -1
		if fn != nil {
			fn(&ct)
		}
		return ct
	}
	for version := int16(2); version <= 7; version++ {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version, req.TimeoutMillis = version, 5000
		name := fmt.Sprintf("v%d", version)
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Replicas = []int32{1, 2}
		req.Topics = append(req.Topics, one(name, nil), one("twice", nil), one("twice", nil),
			one("assigned", func(ct *kmsg.CreateTopicsRequestTopic) {
				ct.ReplicaAssignment = append(ct.ReplicaAssignment, assignment)
			}),
			one("many", func(ct *kmsg.CreateTopicsRequestTopic) { ct.NumPartitions = fsm.MaxRangesPerTopic + 1 }),
			one("null", func(ct *kmsg.CreateTopicsRequestTopic) {
				ct.Configs = append(ct.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: "retention.ms"})
			}))
		want := []*kerr.Error{nil, kerr.InvalidRequest, kerr.InvalidReplicaAssignment, kerr.InvalidPartitions, kerr.InvalidConfig}
		resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.CreateTopicsResponse)
		if len(resp.Topics) != len(want) {
			t.Fatalf("v%d: %d answers", version, len(resp.Topics))
		}
		for i, rt := range resp.Topics {
			if (want[i] == nil) != (rt.ErrorCode == 0) || want[i] != nil && (rt.ErrorCode != want[i].Code || rt.ErrorMessage == nil) {
				t.Errorf("v%d %s: code %d %v", version, rt.Topic, rt.ErrorCode, rt.ErrorMessage)
			}
		}
		if version >= 5 && (resp.Topics[0].NumPartitions != 1 || resp.Topics[0].ReplicationFactor != 3 || len(resp.Topics[0].Configs) == 0) {
			t.Errorf("v%d: %+v", version, resp.Topics[0])
		}
		if created, _ := c.state.TopicByName(name); version >= 7 && vtop.TopicID(resp.Topics[0].TopicID) != created.ID {
			t.Errorf("v%d: id %v, want %v", version, resp.Topics[0].TopicID, created.ID)
		}
		// Case: only validated.
		req.Topics = []kmsg.CreateTopicsRequestTopic{one("dry", nil)}
		req.ValidateOnly = true
		if rt := dial(t, c.nodes[0]).ask(t, req).(*kmsg.CreateTopicsResponse).Topics[0]; rt.ErrorCode != 0 || rt.TopicID != [16]byte{} {
			t.Errorf("v%d validate only: code %d, id %v", version, rt.ErrorCode, rt.TopicID)
		}
	}
	if _, ok := c.state.TopicByName("dry"); ok || c.state.TopicCount() != 6 {
		t.Errorf("%d topics: validate_only or a refusal created one", c.state.TopicCount())
	}
}

func TestMetrics_RegisterOnceAndCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(reg); err == nil {
		t.Error("a second set in one registry was taken")
	}
	m.watch(&Server{requests: newBudget(1), responses: newBudget(1), work: newBudget(1)})
	m.failed(keyProduce, 6)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, name := range []string{"requests_total", "request_seconds", "errors_total", "received_bytes_total", "sent_bytes_total",
		"connections", "refused_connections_total", "bad_requests_total", "request_inflight_bytes", "response_inflight_bytes"} {
		if !names["vtop_kafka_"+name] {
			t.Errorf("vtop_kafka_%s is missing", name)
		}
	}
}

// noTopics asks for the brokers alone.
func noTopics(version int16) *kmsg.MetadataRequest {
	req := metadataRequest(version, false)
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req
}
