package kafka

import (
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var scenarios = []scenario{
	{"topics come and go", func(s *side) {
		adm := kadm.NewClient(s.client())
		for _, try := range []struct {
			name   string
			ranges int32
			rf     int16
		}{{"a", 3, 1}, {"a", 3, 1}, {"b", 1, 2}, {"c", 0, 1}} {
			_, err := adm.CreateTopic(s.ctx, try.ranges, try.rf, nil, try.name)
			s.tell("create %.20s %d %d: %s", try.name, try.ranges, try.rf, word(err))
		}
		listed, err := adm.ListTopics(s.ctx)
		for _, d := range listed.Sorted() {
			s.tell("topic %s has %d partitions", d.Topic, len(d.Partitions))
		}
		more, _ := adm.UpdatePartitions(s.ctx, 5, "a", "none")
		for _, r := range more.Sorted() {
			s.tell("update %s: %s", r.Topic, word(r.Err))
		}
		less, _ := adm.UpdatePartitions(s.ctx, 2, "a")
		s.tell("fewer: %s %v", word(less.Sorted()[0].Err), err)
		gone, _ := adm.DeleteTopics(s.ctx, "a", "none")
		for _, name := range []string{"a", "none"} {
			s.tell("delete %s: %s", name, word(gone[name].Err))
		}
	}},
	{"records keep their order, keys, headers and timestamps", func(s *side) {
		cl := s.client(kgo.DefaultProduceTopic("r"), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 20 {
			rec := &kgo.Record{Value: []byte(fmt.Sprint(i)), Timestamp: time.UnixMilli(int64(1000 + i)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}}
			if i%3 == 0 {
				rec.Key = []byte("k")
			}
			out, err := cl.ProduceSync(s.ctx, rec).First()
			s.tell("offset %d %s", out.Offset, word(err))
		}
		for _, r := range consume(s.t, s.seeds, "r", 20) {
			s.tell("%d %s key %v headers %v at %d", r.Offset, r.Value, r.Key, r.Headers, r.Timestamp.UnixMilli())
		}
	}},
	{"offsets by name and time", func(s *side) {
		cl := s.client(kgo.DefaultProduceTopic("o"), kgo.AllowAutoTopicCreation())
		for i := range 6 {
			cl.ProduceSync(s.ctx, &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 * i))})
		}
		adm := kadm.NewClient(cl)
		show := func(what string, l kadm.ListedOffsets, err error) {
			o, _ := l.Lookup("o", 0)
			s.tell("%s: %d at %d %s %s", what, o.Offset, o.Timestamp, word(o.Err), word(err))
		}
		del := func(at int64) {
			r, err := adm.DeleteRecords(s.ctx, kadm.Offsets{"o": {0: {Topic: "o", At: at}}})
			d, _ := r.Lookup("o", 0)
			if d.Err != nil {
				d.LowWatermark = -1 // kfake leaves 0 there, Kafka -1
			}
			s.tell("delete before %d: %d %s %s", at, d.LowWatermark, word(d.Err), word(err))
		}
		ask := func() {
			l, err := adm.ListStartOffsets(s.ctx, "o")
			show("start", l, err)
			l, err = adm.ListEndOffsets(s.ctx, "o")
			show("end", l, err)
			for _, ms := range []int64{0, 1, 3000, 5000, 5001} {
				l, err = adm.ListOffsetsAfterMilli(s.ctx, ms, "o")
				show(fmt.Sprint("after ", ms), l, err)
			}
		}
		ask()
		del(2)
		ask()
		del(100)
		del(-1)
		ask()
	}},
	{"a raw producer repeats itself", func(s *side) {
		cl := s.client()
		created, err := kadm.NewClient(cl).CreateTopic(s.ctx, 1, 1, nil, "p")
		if err != nil {
			s.t.Fatal(err)
		}
		pid, epoch, err := idempotentID(s.ctx, cl)
		s.tell("id epoch %d %s", epoch, word(err))
		for _, seq := range []int32{0, 1, 1, 0, 2, 4, 3} {
			req := producerRequest(pid, 0, seq)
			req.Topics[0].TopicID = s.id(created.Topic)
			resp, err := cl.Request(s.ctx, req)
			if err != nil {
				s.t.Fatal(err)
			}
			p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 {
				p.BaseOffset = -1 // kfake leaves 0 there, Kafka -1
			}
			s.tell("sequence %d: offset %d %s", seq, p.BaseOffset, word(kerr.ErrorForCode(p.ErrorCode)))
		}
	}},
	{"consuming beyond the ends", func(s *side) {
		cl := s.client(kgo.DefaultProduceTopic("f"), kgo.AllowAutoTopicCreation())
		for range 3 {
			cl.ProduceSync(s.ctx, kgo.StringRecord("v"))
		}
		for _, offset := range []int64{0, 2, 3, 4} {
			req := fetchRequest(11, "f", 0, offset)
			req.Topics[0].TopicID = s.id("f")
			resp, err := req.RequestWith(s.ctx, cl)
			if err != nil {
				s.t.Fatal(err)
			}
			p := resp.Topics[0].Partitions[0]
			s.tell("fetch %d: %v bytes, %s", offset, len(p.RecordBatches) > 0, word(kerr.ErrorForCode(p.ErrorCode)))
		}
		req := fetchRequest(11, "none", 0, 0)
		req.Topics[0].TopicID = randomUUID()
		resp, err := req.RequestWith(s.ctx, cl)
		if err != nil {
			s.t.Fatal(err)
		}
		s.tell("fetch of an unknown topic: %s", word(kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)))
	}},
	{"settings of a topic", func(s *side) {
		adm := kadm.NewClient(s.client())
		minute := "60000"
		adm.CreateTopic(s.ctx, 1, 1, map[string]*string{"retention.ms": &minute}, "s")
		show := func() {
			rs, err := adm.DescribeTopicConfigs(s.ctx, "s", "none")
			s.tell("describe %s", word(err))
			sort.Slice(rs, func(i, j int) bool { return rs[i].Name < rs[j].Name })
			for _, r := range rs {
				s.tell("%s: %s", r.Name, word(r.Err))
				for _, kv := range r.Configs {
					if kv.Source == kmsg.ConfigSourceDynamicTopicConfig {
						s.tell("%s=%s", kv.Key, kv.MaybeValue())
					}
				}
			}
		}
		show()
		rs, err := adm.AlterTopicConfigs(s.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("2000000")},
			{Op: kadm.DeleteConfig, Name: "retention.ms"}}, "s", "none")
		sort.Slice(rs, func(i, j int) bool { return rs[i].Name < rs[j].Name })
		for _, r := range rs {
			s.tell("alter %s: %s %s", r.Name, word(r.Err), word(err))
		}
		show()
	}},
}
