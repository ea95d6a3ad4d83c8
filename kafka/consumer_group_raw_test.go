package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shortBackoff keeps the tests short.
func shortBackoff(int) time.Duration { return 20 * time.Millisecond }

// beat is a heartbeat that joins group g.
func beat(member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, "g", member, 60_000
	req.SubscribedTopicNames, req.Topics = append([]string{}, topics...), []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return req
}

// lives is one that says nothing but that.
func lives(member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = 1, "g", member, epoch
	return req
}

func assigned(resp *kmsg.ConsumerGroupHeartbeatResponse) (n int) {
	if resp.Assignment == nil {
		return -1
	}
	for _, t := range resp.Assignment.Topics {
		n += len(t.Partitions)
	}
	return n
}

// consumerScenarios are played against kfake, too. Epochs after the first are not told: Kafka leaves it open by how much they rise.
var consumerScenarios = []scenario{
	{"a member by hand", func(s *side) {
		cl := s.client()
		if _, err := kadm.NewClient(cl).CreateTopic(s.ctx, 3, 1, nil, "t"); err != nil {
			s.t.Fatal(err)
		}
		ask := func(what string, req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
			resp, err := req.RequestWith(s.ctx, cl)
			if err != nil {
				s.t.Fatal(err)
			}
			s.tell("%s: %s, %d assigned, joined %v", what, word(kerr.ErrorForCode(resp.ErrorCode)), assigned(resp), resp.MemberEpoch > 0)
			return resp
		}
		bad := beat("a", "t")
		bad.Topics = nil
		ask("joining without its ranges", bad)
		bad = beat("a", "t")
		bad.ServerAssignor = kmsg.StringPtr("fair")
		ask("joining with an unknown assignor", bad)
		first := ask("joining", beat("a", "t"))
		ask("living", lives("a", first.MemberEpoch))
		ask("in an epoch to come", lives("a", first.MemberEpoch+7))
		ask("a stranger", lives("x", 1))
		ask("a second", beat("b", "t"))
		told := ask("told to revoke", lives("a", first.MemberEpoch))
		still := lives("a", told.MemberEpoch)
		still.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: s.id("t"), Partitions: []int32{0, 1, 2}}}
		ask("still has them", still)
		done := lives("a", told.MemberEpoch)
		for _, t := range told.Assignment.Topics {
			done.Topics = append(done.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
		after := ask("has revoked", done)
		ask("the second leaves", lives("b", -1))
		ask("the second leaves again", lives("b", -1))
		ask("it has all", lives("a", after.MemberEpoch))
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = "g", 6000, 6000, "consumer"
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0}}}
		joined, err := join.RequestWith(s.ctx, cl)
		if err != nil {
			s.t.Fatal(err)
		}
		s.tell("a classic member: %v", joined.ErrorCode != 0)
		ask("leaves", lives("a", -1))
	}},
	{"commits by epoch", func(s *side) {
		cl := s.client()
		if _, err := kadm.NewClient(cl).CreateTopic(s.ctx, 1, 1, nil, "t"); err != nil {
			s.t.Fatal(err)
		}
		joined, err := beat("a", "t").RequestWith(s.ctx, cl)
		if err != nil {
			s.t.Fatal(err)
		}
		commit := func(what, member string, epoch int32) {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group, req.MemberID, req.Generation = "g", member, epoch
			req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: s.id("t"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0, Offset: 0, LeaderEpoch: -1}}}}
			resp, err := req.RequestWith(s.ctx, cl)
			if err != nil {
				s.t.Fatal(err)
			}
			s.tell("commit %s: %s", what, word(kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)))
		}
		commit("in its epoch", "a", joined.MemberEpoch)
		commit("in an epoch to come", "a", joined.MemberEpoch+1)
		commit("of a stranger", "x", 1)
		commit("of nobody", "", -1)
		if _, err := lives("a", -1).RequestWith(s.ctx, cl); err != nil {
			s.t.Fatal(err)
		}
		commit("of nobody to an empty group", "", -1)
		fetched, err := kadm.NewClient(cl).FetchOffsets(s.ctx, "g")
		o, _ := fetched.Lookup("t", 0)
		s.tell("fetched %d %s", o.At, word(err))
	}},
}

func TestOracle_ConsumerGroups(t *testing.T) { runScenarios(t, newestOnly(consumerScenarios)) }

// newestOnly leaves out what clients before Kafka 3.7 cannot ask.
func newestOnly(list []scenario) (out []scenario) {
	for _, sc := range list {
		out = append(out, scenario{sc.name, func(s *side) {
			if !s.newest.HasKey(keyConsumerGroupHeartbeat) {
				s.t.Skip("this client does not know the protocol")
			}
			sc.run(s)
		}})
	}
	return out
}

// TestConsumerGroup_Converts: a group changes its kind when it has no members, goes on counting, and keeps its offsets.
func TestConsumerGroup_Converts(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 2)
	producer := newClient(t, c.seeds(), kgo.DefaultProduceTopic("t"))
	put(t, producer, 0, 10)
	ctx := testContext(t)
	classic := func() *kgo.Client {
		cl := newClient(t, c.seeds(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
		return cl
	}
	cl := classic()
	for n := 0; n < 10; {
		n += cl.PollFetches(ctx).NumRecords()
		if ctx.Err() != nil {
			t.Fatal("the classic member does not read")
		}
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	raw := dial(t, c.nodes[0])
	// Case: with members of the classic protocol it is no consumer group.
	if resp := raw.ask(t, beat("a", "t")).(*kmsg.ConsumerGroupHeartbeatResponse); resp.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Fatalf("a heartbeat to a classic group: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	_, generation := cl.GroupMetadata()
	cl.Close() // leaves
	resp := raw.ask(t, beat("a", "t")).(*kmsg.ConsumerGroupHeartbeatResponse)
	if resp.ErrorCode != 0 || resp.MemberEpoch <= generation || assigned(resp) != 2 {
		t.Fatalf("a heartbeat to an empty classic group of generation %d: %+v", generation, resp)
	}
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Version = 1
	describe.Groups = []string{"g", "none", ""}
	described := raw.ask(t, describe).(*kmsg.ConsumerGroupDescribeResponse)
	g := described.Groups[0]
	if g.ErrorCode != 0 || g.State != "Stable" || g.Epoch != resp.MemberEpoch || len(g.Members) != 1 || g.Members[0].MemberType != 1 ||
		len(g.Members[0].Assignment.TopicPartitions) != 1 || g.Members[0].Assignment.TopicPartitions[0].Topic != "t" {
		t.Errorf("described as %+v", g)
	}
	for i, want := range []*kerr.Error{kerr.GroupIDNotFound, kerr.InvalidGroupID} {
		if got := described.Groups[i+1].ErrorCode; got != want.Code {
			t.Errorf("group %q is described with %v, want %v", described.Groups[i+1].Group, kerr.ErrorForCode(got), want)
		}
	}
	// Case: and back, with the offsets that were committed before.
	if resp := raw.ask(t, lives("a", -1)).(*kmsg.ConsumerGroupHeartbeatResponse); resp.ErrorCode != 0 {
		t.Fatalf("leaving: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	cl = classic()
	put(t, producer, 10, 1)
	fetches := cl.PollFetches(ctx)
	for fetches.NumRecords() == 0 && ctx.Err() == nil {
		fetches = cl.PollFetches(ctx)
	}
	if recs := fetches.Records(); len(recs) == 0 || string(recs[0].Value) != "10" {
		t.Errorf("after two conversions the group reads %v, want only what is new", recs)
	}
	if _, now := cl.GroupMetadata(); now <= resp.MemberEpoch {
		t.Errorf("generation %d after epoch %d", now, resp.MemberEpoch)
	}
}

// TestConsumerGroup_Version0: the coordinator makes the id of a member that has none; from version 1 on it must have one.
func TestConsumerGroup_Version0(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	raw := dial(t, c.nodes[0])
	if resp := raw.ask(t, beat("", "t")).(*kmsg.ConsumerGroupHeartbeatResponse); resp.ErrorCode != kerr.InvalidRequest.Code {
		t.Fatalf("version 1 without a member id: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	req := beat("", "t")
	req.Version = 0
	resp := raw.ask(t, req).(*kmsg.ConsumerGroupHeartbeatResponse)
	if resp.ErrorCode != 0 || resp.MemberID == nil || *resp.MemberID == "" || assigned(resp) != 1 {
		t.Fatalf("version 0: %+v", resp)
	}
	req = lives(*resp.MemberID, resp.MemberEpoch)
	req.Version = 0
	if resp := raw.ask(t, req).(*kmsg.ConsumerGroupHeartbeatResponse); resp.ErrorCode != 0 {
		t.Fatalf("version 0 lives: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
}
