package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
)

func admin(t *testing.T, c *fakeCluster) (*kadm.Client, context.Context) {
	return kadm.NewClient(newClient(t, c.seeds())), testContext(t)
}

// is reports whether err is a Kafka error; nil wants none.
func is(err error, want *kerr.Error) bool {
	if want == nil {
		return err == nil
	}
	return errors.Is(err, want)
}

// Case: what a cluster without security says of ACLs, users and transactions.
func TestAdmin_WhatIsNotThere(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	adm, ctx := admin(t, c)
	acl := kadm.NewACLs().Topics("t").Allow("User:a").AllowHosts("*").Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	if rs, err := adm.DescribeACLs(ctx, acl); err != nil || len(rs) != 1 || !is(rs[0].Err, kerr.SecurityDisabled) {
		t.Errorf("describe ACLs: %+v %v", rs, err)
	}
	if rs, err := adm.CreateACLs(ctx, acl); err != nil || len(rs) != 1 || !is(rs[0].Err, kerr.SecurityDisabled) || rs[0].ErrMessage == "" {
		t.Errorf("create ACLs: %+v %v", rs, err)
	}
	if rs, err := adm.DeleteACLs(ctx, acl); err != nil || len(rs) != 1 || !is(rs[0].Err, kerr.SecurityDisabled) {
		t.Errorf("delete ACLs: %+v %v", rs, err)
	}
	if rs, err := adm.DescribeUserSCRAMs(ctx); err != nil || len(rs) != 0 {
		t.Errorf("users: %+v %v", rs, err)
	}
	if rs, err := adm.DescribeUserSCRAMs(ctx, "a"); err != nil || !is(rs["a"].Err, kerr.ResourceNotFound) {
		t.Errorf("user: %+v %v", rs, err)
	}
	if rs, err := adm.ListTransactions(ctx, nil, []string{"Ongoing"}); err != nil || len(rs) != 0 {
		t.Errorf("transactions: %+v %v", rs, err)
	}
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters = []string{"Ongoing", "Odd"}
	if resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.ListTransactionsResponse); !slices.Equal(resp.UnknownStateFilters, []string{"Odd"}) {
		t.Errorf("unknown states %v", resp.UnknownStateFilters)
	}
	ask := kmsg.NewPtrDescribeTransactionsRequest()
	ask.TransactionalIDs = []string{"a"}
	if resp := dial(t, c.nodes[0]).ask(t, ask).(*kmsg.DescribeTransactionsResponse); resp.TransactionStates[0].ErrorCode != kerr.TransactionalIDNotFound.Code {
		t.Errorf("transaction: %+v", resp.TransactionStates)
	}
}

func TestAlterConfigs_ReplacesAll(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 1)
	adm, ctx := admin(t, c)
	state := func(configs ...kadm.AlterConfig) error {
		t.Helper()
		rs, err := adm.AlterTopicConfigsState(ctx, configs, "t")
		if err != nil {
			t.Fatal(err)
		}
		return rs[0].Err
	}
	config := func() map[string]string { topic, _ := c.nodes[0].State().TopicByName("t"); return topic.Config }
	str := kadm.StringPtr
	if err := state(kadm.AlterConfig{Name: "segment.ms", Value: str("5")}, kadm.AlterConfig{Name: "retention.ms", Value: str("6")}); err != nil {
		t.Fatal(err)
	}
	if err := state(kadm.AlterConfig{Name: "segment.ms", Value: str("7")}); err != nil || len(config()) != 1 || config()["segment.ms"] != "7" {
		t.Errorf("%v: what is not named goes: %v", err, config())
	}
	for name, bad := range map[string]struct {
		configs []kadm.AlterConfig
		want    *kerr.Error
	}{
		"an unknown key":       {[]kadm.AlterConfig{{Name: "flush.ms", Value: str("5")}}, kerr.InvalidConfig},
		"a value not allowed":  {[]kadm.AlterConfig{{Name: "cleanup.policy", Value: str("compact")}}, kerr.InvalidConfig},
		"null":                 {[]kadm.AlterConfig{{Name: "segment.ms"}}, kerr.InvalidRequest},
		"a key twice":          {[]kadm.AlterConfig{{Name: "segment.ms", Value: str("5")}, {Name: "segment.ms", Value: str("6")}}, kerr.InvalidRequest},
		"more than a majority": {[]kadm.AlterConfig{{Name: "min.insync.replicas", Value: str("3")}}, kerr.InvalidConfig},
	} {
		if err := state(bad.configs...); !is(err, bad.want) || config()["segment.ms"] != "7" {
			t.Errorf("%s: %v, then %v", name, err, config())
		}
	}
	if err := state(); err != nil || len(config()) != 0 {
		t.Errorf("nothing named: %v %v", err, config())
	}
	rs, err := adm.AlterBrokerConfigsState(ctx, []kadm.AlterConfig{{Name: "num.partitions", Value: str("5")}}, 1)
	if err != nil || !is(rs[0].Err, kerr.InvalidRequest) {
		t.Errorf("a broker: %+v %v", rs, err)
	}
}

// Kafka's tool deletes its throttles on every topic and node at the end of a reassignment, whether it set any or not.
func TestIncrementalAlterConfigs_ThrottlesOfReassignments(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	adm, ctx := admin(t, c)
	var del, set []kadm.AlterConfig
	for _, name := range throttles {
		del = append(del, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
		set = append(set, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr("*")})
	}
	for what, alter := range map[string]func([]kadm.AlterConfig) (kadm.AlterConfigsResponses, error){
		"topic": func(cs []kadm.AlterConfig) (kadm.AlterConfigsResponses, error) {
			return adm.AlterTopicConfigs(ctx, cs, "t")
		},
		"broker": func(cs []kadm.AlterConfig) (kadm.AlterConfigsResponses, error) {
			return adm.AlterBrokerConfigs(ctx, cs, 1)
		},
		"all brokers": func(cs []kadm.AlterConfig) (kadm.AlterConfigsResponses, error) {
			return adm.AlterBrokerConfigs(ctx, cs)
		},
	} {
		if rs, err := alter(del); err != nil || rs[0].Err != nil {
			t.Errorf("%s: deleting: %+v %v", what, rs, err)
		}
		if rs, err := alter(set); err != nil || !is(rs[0].Err, kerr.InvalidConfig) {
			t.Errorf("%s: setting: %+v %v", what, rs, err)
		}
	}
}

func TestDescribeConfigs_BrokersAndResources(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("t", 1)
	adm, ctx := admin(t, c)
	rs, err := adm.DescribeBrokerConfigs(ctx, 2)
	if err != nil || len(rs) != 1 || rs[0].Err != nil {
		t.Fatalf("%+v %v", rs, err)
	}
	got := map[string]string{}
	for _, kv := range rs[0].Configs {
		got[kv.Key] = kv.MaybeValue()
	}
	retention, _ := topicconfig.Lookup("retention.ms")
	for key, want := range map[string]string{"node.id": "2", "broker.rack": "rack-n2", "advertised.listeners": c.nodes[1].addr, "log.retention.ms": retention.Default, "default.replication.factor": "2"} {
		if got[key] != want {
			t.Errorf("%s=%q, want %q", key, got[key], want)
		}
	}
	if !sort.SliceIsSorted(rs[0].Configs, func(i, j int) bool { return rs[0].Configs[i].Key < rs[0].Configs[j].Key }) {
		t.Error("not sorted")
	}
	listed, err := adm.ListConfigResources(ctx)
	var names []string
	for _, l := range listed.Sorted() {
		names = append(names, fmt.Sprint(int8(l.Type), l.Name))
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"2t", "41", "42"}) {
		t.Errorf("resources %v %v", names, err)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("a", 2)
	c.topic("b", 1)
	conn := dial(t, c.nodes[0])
	size := int64(len(oneBatch("x", nil)))
	conn.ask(t, produceRequest(9, -1, "a", 1, oneBatch("x", nil)))
	adm, ctx := admin(t, c)
	all, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v %v", all, err)
	}
	dir := all[1]["/data/n1"]
	if dir.Err != nil || len(dir.Topics) != 2 || dir.Topics["a"][1].Size != size || dir.Topics["a"][0].Size != 0 || dir.TotalBytes != 1<<40 || dir.UsableBytes != 1<<39 {
		t.Errorf("%+v", dir)
	}
	some, err := adm.DescribeBrokerLogDirs(ctx, 2, kadm.TopicsSet{"a": {1: {}}, "none": {0: {}}})
	if err != nil || len(some["/data/n2"].Topics) != 1 || len(some["/data/n2"].Topics["a"]) != 1 {
		t.Errorf("%+v %v", some, err)
	}
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version, req.Topics = 4, []kmsg.DescribeLogDirsRequestTopic{}
	if resp := conn.ask(t, req).(*kmsg.DescribeLogDirsResponse); len(resp.Dirs) != 1 || len(resp.Dirs[0].Topics) != 0 {
		t.Errorf("no topics asked for: %+v", resp.Dirs)
	}
}

func TestAlterReplicaLogDirs(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	if _, err := c.nodes[0].CreateTopic(t.Context(), TopicSpec{Name: "t", Ranges: 1, Replicas: 1}); err != nil { // on n1
		t.Fatal(err)
	}
	adm, ctx := admin(t, c)
	for name, tc := range map[string]struct {
		broker int32
		dir    string
		index  int32
		want   *kerr.Error
	}{
		"where it is":           {1, "/data/n1", 0, nil},
		"a directory elsewhere": {1, "/data/n2", 0, kerr.LogDirNotFound},
		"not there yet":         {2, "/data/n2", 0, kerr.ReplicaNotAvailable},
		"an unknown partition":  {1, "/data/n1", 7, kerr.UnknownTopicOrPartition},
	} {
		var req kadm.AlterReplicaLogDirsReq
		req.Add(tc.dir, kadm.TopicsSet{"t": {tc.index: {}}})
		rs, err := adm.AlterBrokerReplicaLogDirs(ctx, tc.broker, req)
		if err != nil || !is(rs["t"][tc.index].Err, tc.want) {
			t.Errorf("%s: %+v %v", name, rs, err)
		}
	}
}

func TestElectLeaders(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	ranges := c.topic("t", 3) // range 1 prefers n2, range 2 n3; all leases are on n1
	adm, ctx := admin(t, c)
	elect := func(how kadm.ElectLeadersHow, s kadm.TopicsSet) map[int32]error {
		t.Helper()
		rs, err := adm.ElectLeaders(ctx, how, s)
		if err != nil {
			t.Fatal(err)
		}
		out := map[int32]error{}
		for _, r := range rs["t"] {
			out[r.Partition] = r.Err
		}
		return out
	}
	holder := func(i int) vtop.NodeName { r, _ := c.nodes[0].State().Range(ranges[i]); return r.Lease.Holder }
	one := func(i int32) kadm.TopicsSet { return kadm.TopicsSet{"t": {i: {}}} }
	if got := elect(kadm.ElectPreferredReplica, one(0)); !is(got[0], kerr.ElectionNotNeeded) {
		t.Errorf("at home: %v", got)
	}
	c.set(func(c *fakeCluster) { c.down["n3"] = true })
	if got := elect(kadm.ElectPreferredReplica, one(2)); !is(got[2], kerr.PreferredLeaderNotAvailable) || holder(2) != "n1" {
		t.Errorf("home is down: %v", got)
	}
	c.set(func(c *fakeCluster) { delete(c.down, "n3") })
	if got := elect(kadm.ElectPreferredReplica, nil); len(got) != 2 || got[1] != nil || got[2] != nil || holder(1) != "n2" || holder(2) != "n3" {
		t.Errorf("all: %v", got)
	}
	if got := elect(kadm.ElectLiveReplica, one(1)); !is(got[1], kerr.ElectionNotNeeded) {
		t.Errorf("unclean, with a leader: %v", got)
	}
	c.set(func(c *fakeCluster) { c.down["n2"] = true })
	if got := elect(kadm.ElectLiveReplica, one(1)); !is(got[1], kerr.EligibleLeadersNotAvailable) || holder(1) != "n2" {
		t.Errorf("unclean, without: %v", got)
	}
	if got := elect(kadm.ElectPreferredReplica, one(7)); !is(got[7], kerr.UnknownTopicOrPartition) {
		t.Errorf("unknown: %v", got)
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = 2, 9
	if resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.ElectLeadersResponse); resp.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("an unknown type: code %d", resp.ErrorCode)
	}
}

func TestDescribeQuorum(t *testing.T) {
	c := newFakeCluster(t, 4, nil)
	ask := func(topic string, index int32) *kmsg.DescribeQuorumResponse {
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Version = 2
		rt := kmsg.NewDescribeQuorumRequestTopic()
		rt.Topic = topic
		for range 2 {
			rp := kmsg.NewDescribeQuorumRequestTopicPartition()
			rp.Partition = index
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		return dial(t, c.nodes[0]).ask(t, req).(*kmsg.DescribeQuorumResponse)
	}
	resp := ask("__cluster_metadata", 0)
	p := resp.Topics[0].Partitions[0]
	if resp.ErrorCode != 0 || p.ErrorCode != 0 || p.LeaderID != 4 || p.LeaderEpoch != 7 || p.HighWatermark != int64(c.nodes[0].State().Index()) ||
		len(p.CurrentVoters) != 3 || len(p.Observers) != 1 || len(resp.Nodes) != 3 {
		t.Fatalf("%+v", resp)
	}
	if v := p.CurrentVoters[0]; v.LogEndOffset != p.HighWatermark || v.LastCaughtUpTimestamp <= 0 || v.ReplicaDirectoryID == [16]byte{} {
		t.Errorf("voter %+v", v)
	}
	if v := p.CurrentVoters[1]; v.ReplicaID != 2 || v.LogEndOffset != -1 || v.LastFetchTimestamp != -1 {
		t.Errorf("a voter that was not heard of: %+v", v)
	}
	if l := resp.Nodes[0].Listeners; len(l) != 1 || l[0].Host != "127.0.0.1" || l[0].Port != 1 {
		t.Errorf("listeners %+v", l)
	}
	if again := resp.Topics[0].Partitions[1]; again.ErrorCode != kerr.InvalidRequest.Code || len(again.CurrentVoters) != 0 {
		t.Errorf("asked twice: %+v", again)
	}
	if p := ask("t", 0).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("another topic: %+v", p)
	}
}

func TestDescribeProducers(t *testing.T) {
	c := newFakeCluster(t, 2, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	for id := range int64(3) {
		conn.ask(t, produceRequest(9, -1, "t", 0, oneBatch("x", &batch.Producer{ID: id, Epoch: 2, Sequence: 0})))
	}
	adm, ctx := admin(t, c)
	rs, err := adm.DescribeProducers(ctx, kadm.TopicsSet{"t": {0: {}}})
	if err != nil {
		t.Fatal(err)
	}
	got := rs["t"].Partitions[0]
	if got.Err != nil || len(got.ActiveProducers) != 3 {
		t.Fatalf("%+v", got)
	}
	if p := got.ActiveProducers[1]; p.ProducerID != 1 || p.ProducerEpoch != 2 || p.LastSequence != 0 || p.CurrentTxnStartOffset != -1 || p.CoordinatorEpoch != -1 {
		t.Errorf("%+v", p)
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 5}
	req.Topics = append(req.Topics, rt)
	resp := dial(t, c.nodes[1]).ask(t, req).(*kmsg.DescribeProducersResponse)
	if a, b := resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[0].Partitions[1].ErrorCode; a != kerr.NotLeaderForPartition.Code || b != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("elsewhere %d, unknown %d", a, b)
	}
}

func TestUpdateFeatures(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.Version = version
		for _, f := range []struct {
			name  string
			level int16
		}{{"vtop.level", int16(fsm.LevelMax)}, {"vtop.level", 99}, {"transaction.version", 1}} {
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel = f.name, f.level
			req.FeatureUpdates = append(req.FeatureUpdates, u)
		}
		resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.UpdateFeaturesResponse)
		bad := kerr.InvalidUpdateVersion.Code
		if version == 2 {
			if resp.ErrorCode != bad || resp.ErrorMessage == nil {
				t.Errorf("v2: %+v", resp)
			}
		} else if r := resp.Results; resp.ErrorCode != 0 || len(r) != 3 || r[0].ErrorCode != 0 || r[1].ErrorCode != bad || r[2].ErrorCode != bad {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
}
