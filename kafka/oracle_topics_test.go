package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func TestOracle_TopicsByID(t *testing.T) { runScenarios(t, topicScenarios) }

var topicScenarios = []scenario{
	{"a topic is deleted and made again", func(s *side) {
		cl := s.client()
		adm := kadm.NewClient(cl)
		make := func() [16]byte {
			if _, err := adm.CreateTopic(s.ctx, 1, 1, nil, "t"); err != nil {
				s.t.Fatal(err)
			}
			return s.id("t")
		}
		put := func(what string, id [16]byte) {
			req := produceRequest(9, -1, "t", 0, oneBatch(what, nil))
			req.Topics[0].TopicID = id
			resp, err := req.RequestWith(s.ctx, cl)
			if err != nil {
				s.t.Fatal(err)
			}
			s.tell("produce by %s: %s", what, word(kerr.ErrorForCode(produced(resp).ErrorCode)))
		}
		get := func(what string, id [16]byte) {
			req := fetchRequest(12, "t", 0, 0)
			req.Topics[0].TopicID = id
			resp, err := req.RequestWith(s.ctx, cl)
			if err != nil {
				s.t.Fatal(err)
			}
			s.tell("fetch by %s: %d bytes, %s", what, len(fetched(resp).RecordBatches), word(kerr.ErrorForCode(fetched(resp).ErrorCode)))
		}
		first := make()
		put("the id", first)
		get("the id", first)
		gone, err := adm.DeleteTopics(s.ctx, "t")
		s.tell("delete: %s %s", word(err), word(gone["t"].Err))
		put("the id of a deleted topic", first)
		get("the id of a deleted topic", first)
		second := make()
		s.tell("another id: %v", first == [16]byte{} || first != second)
		put("the old id", first)
		get("the old id", first)
		put("the new id", second)
		get("the new id", second)
	}},
	{"topics are deleted by id", func(s *side) {
		cl := s.client()
		adm := kadm.NewClient(cl)
		for _, name := range []string{"a", "b"} {
			if _, err := adm.CreateTopic(s.ctx, 1, 1, nil, name); err != nil {
				s.t.Fatal(err)
			}
		}
		remove := func(topics ...kmsg.DeleteTopicsRequestTopic) {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis, req.Topics = 5000, topics
			for _, t := range topics {
				if t.Topic != nil {
					req.TopicNames = append(req.TopicNames, *t.Topic)
				}
			}
			resp, err := req.RequestWith(s.ctx, cl)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, t := range resp.Topics { // (of an unknown id, kfake says that its name is empty; Kafka, that there is none)
				s.tell("delete: %s", word(kerr.ErrorForCode(t.ErrorCode)))
			}
		}
		if s.id("a") != [16]byte{} {
			remove(kmsg.DeleteTopicsRequestTopic{TopicID: s.id("a")})
			remove(kmsg.DeleteTopicsRequestTopic{TopicID: randomUUID()})
		}
		remove(kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("b")}, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("none")})
		left, err := adm.ListTopics(s.ctx)
		s.tell("left: %v %s", left.Names(), word(err))
	}},
	{"offsets at special times", func(s *side) {
		cl := s.client(kgo.DefaultProduceTopic("t"), kgo.AllowAutoTopicCreation())
		for _, ms := range []int64{10, 30, 20} {
			if err := cl.ProduceSync(s.ctx, &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(ms)}).FirstErr(); err != nil {
				s.t.Fatal(err)
			}
		}
		ask := func(times ...int64) {
			req := listOffsets(1, 0, 0)
			req.Topics[0].Partitions = nil
			for _, at := range times {
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, listOffsets(1, 0, at).Topics[0].Partitions[0])
			}
			for _, shard := range cl.RequestSharded(s.ctx, req) {
				if shard.Err != nil {
					s.tell("%v: %v", times, shard.Err)
					continue
				}
				for _, p := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
					s.tell("%v: offset %d at %d %s", times, p.Offset, p.Timestamp, word(kerr.ErrorForCode(p.ErrorCode)))
				}
			}
		}
		for at := int64(-8); at < 0; at++ {
			ask(at)
		}
		ask(15)
		ask(31)
		ask(-1, -2)
	}},
	{"topics in pages", func(s *side) {
		cl := s.client()
		adm := kadm.NewClient(cl)
		for name, ranges := range map[string]int32{"c": 1, "a": 3, "b": 2} {
			if _, err := adm.CreateTopic(s.ctx, ranges, 1, nil, name); err != nil {
				s.t.Fatal(err)
			}
		}
		for _, limit := range []int32{1, 2, 4, 100} {
			for _, names := range [][]string{nil, {"c", "none", "a", "a"}} {
				s.pages(cl, limit, names)
			}
		}
	}},
	{"a consumer and a topic that is made again", func(s *side) {
		adm, put := kadm.NewClient(s.client()), s.producer("t")
		adm.CreateTopic(s.ctx, 1, 1, nil, "t")
		if s.id("t") == [16]byte{} {
			return // where names are all there is, kfake's new topic takes the old one's offsets: see TestClient_RecreatedTopicByName
		}
		put("old")
		cl := s.consumer("t")
		s.tell("read %s", s.next(cl))
		adm.DeleteTopics(s.ctx, "t")
		adm.CreateTopic(s.ctx, 1, 1, nil, "t")
		put = s.producer("t")
		put("new")
		put("newer")
		for told := ""; told != "UNKNOWN_TOPIC_ID"; told = s.next(cl) { // this client asks to be told anew what to read
		}
		cl.PurgeTopicsFromClient("t")
		cl.AddConsumeTopics("t")
		s.tell("read %s %s", s.next(cl), s.next(cl))
	}},
}

// producer returns a function that has a client of its own produce one record.
func (s *side) producer(topic string) func(value string) {
	cl := s.client(kgo.DefaultProduceTopic(topic))
	return func(value string) {
		s.t.Helper()
		if err := cl.ProduceSync(s.ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *side) consumer(topic string) *kgo.Client {
	return s.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.MetadataMaxAge(100*time.Millisecond), kgo.KeepRetryableFetchErrors())
}

// A client that knows topics by name only goes on with the new life of a topic: its epochs begin above those of the old, so
// that the client sees that the log it knew has gone (J3).
func TestClient_RecreatedTopicByName(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	s := &side{t: t, ctx: testContext(t), seeds: c.seeds(), newest: kversion.V2_4_0()}
	s.producer("t")("old")
	cl := s.consumer("t")
	if got := s.next(cl); got != "old" {
		t.Fatalf("read %s", got)
	}
	c.again("t")
	put := s.producer("t")
	put("new")
	put("newer")
	if got := s.next(cl); got != "new" {
		t.Errorf("read %s: the client took the new topic for the old one", got)
	}
}

// pages tells page after page of the topics named, all if none are.
func (s *side) pages(cl *kgo.Client, limit int32, names []string) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = limit
	for _, name := range names {
		req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
	}
	for page := 0; ; page++ {
		resp, err := req.RequestWith(s.ctx, cl)
		if err != nil { // a client that does not know the request
			s.tell("%v", err)
			return
		}
		for _, t := range resp.Topics {
			s.tell("limit %d page %d: %s id %v operations %d internal %v %s", limit, page, *t.Topic, t.TopicID != [16]byte{}, t.AuthorizedOperations, t.IsInternal, word(kerr.ErrorForCode(t.ErrorCode)))
			for _, p := range t.Partitions {
				s.tell("  %d replicas %d in sync %d led %v %s", p.Partition, len(p.Replicas), len(p.ISR), p.LeaderID >= 0, word(kerr.ErrorForCode(p.ErrorCode)))
			}
		}
		if resp.NextCursor == nil {
			return
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
}

// next is the value of the next record that a consumer reads, or UNKNOWN_TOPIC_ID. What else passes on the way is no matter.
func (s *side) next(cl *kgo.Client) (told string) {
	s.t.Helper()
	for told == "" {
		fetches := cl.PollRecords(s.ctx, 1)
		if err := s.ctx.Err(); err != nil {
			s.t.Fatalf("no record: %v", err)
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			var lost *kgo.ErrDataLoss
			switch {
			case errors.Is(err, kerr.UnknownTopicID):
				told = "UNKNOWN_TOPIC_ID"
			case !errors.As(err, &lost) && !kerr.IsRetriable(err):
				s.t.Errorf("fetch: %v", err)
			}
		})
		if records := fetches.Records(); len(records) > 0 {
			told = string(records[0].Value)
		}
	}
	return told
}
