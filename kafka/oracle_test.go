package kafka

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// scenario is what one client does, told as lines; against kfake, the oracle, it must tell the same.
type scenario struct {
	name string
	run  func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any))
}

// word is an error as a client names it.
func word(err error) string {
	var ke *kerr.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &ke):
		return ke.Message
	}
	return err.Error()
}

var scenarios = []scenario{
	{"topics come and go", func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any)) {
		adm := kadm.NewClient(newClient(t, seeds))
		for _, try := range []struct {
			name   string
			ranges int32
			rf     int16
		}{{"a", 3, 1}, {"a", 3, 1}, {"b", 1, 2}, {"c", 0, 1}} {
			_, err := adm.CreateTopic(ctx, try.ranges, try.rf, nil, try.name)
			tell("create %.20s %d %d: %s", try.name, try.ranges, try.rf, word(err))
		}
		listed, err := adm.ListTopics(ctx)
		for _, d := range listed.Sorted() {
			tell("topic %s has %d partitions", d.Topic, len(d.Partitions))
		}
		more, _ := adm.UpdatePartitions(ctx, 5, "a", "none")
		for _, r := range more.Sorted() {
			tell("update %s: %s", r.Topic, word(r.Err))
		}
		less, _ := adm.UpdatePartitions(ctx, 2, "a")
		tell("fewer: %s %v", word(less.Sorted()[0].Err), err)
		gone, _ := adm.DeleteTopics(ctx, "a", "none")
		for _, name := range []string{"a", "none"} {
			tell("delete %s: %s", name, word(gone[name].Err))
		}
	}},
	{"records keep their order, keys, headers and timestamps", func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any)) {
		cl := newClient(t, seeds, kgo.DefaultProduceTopic("r"), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 20 {
			rec := &kgo.Record{Value: []byte(fmt.Sprint(i)), Timestamp: time.UnixMilli(int64(1000 + i)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}}
			if i%3 == 0 {
				rec.Key = []byte("k")
			}
			out, err := cl.ProduceSync(ctx, rec).First()
			tell("offset %d %s", out.Offset, word(err))
		}
		for _, r := range consume(t, seeds, "r", 20) {
			tell("%d %s key %v headers %v at %d", r.Offset, r.Value, r.Key, r.Headers, r.Timestamp.UnixMilli())
		}
	}},
	{"offsets by name and time", func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any)) {
		cl := newClient(t, seeds, kgo.DefaultProduceTopic("o"), kgo.AllowAutoTopicCreation())
		for i := range 6 {
			cl.ProduceSync(ctx, &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 * i))})
		}
		adm := kadm.NewClient(cl)
		show := func(what string, l kadm.ListedOffsets, err error) {
			o, _ := l.Lookup("o", 0)
			tell("%s: %d at %d %s %s", what, o.Offset, o.Timestamp, word(o.Err), word(err))
		}
		del := func(at int64) {
			r, err := adm.DeleteRecords(ctx, kadm.Offsets{"o": {0: {Topic: "o", At: at}}})
			d, _ := r.Lookup("o", 0)
			if d.Err != nil {
				d.LowWatermark = -1 // kfake leaves 0 there, Kafka -1
			}
			tell("delete before %d: %d %s %s", at, d.LowWatermark, word(d.Err), word(err))
		}
		ask := func() {
			l, err := adm.ListStartOffsets(ctx, "o")
			show("start", l, err)
			l, err = adm.ListEndOffsets(ctx, "o")
			show("end", l, err)
			for _, ms := range []int64{0, 1, 3000, 5000, 5001} {
				l, err = adm.ListOffsetsAfterMilli(ctx, ms, "o")
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
	{"a raw producer repeats itself", func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any)) {
		cl := newClient(t, seeds)
		if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "p"); err != nil {
			t.Fatal(err)
		}
		pid, epoch, err := idempotentID(ctx, cl)
		tell("id epoch %d %s", epoch, word(err))
		for _, seq := range []int32{0, 1, 1, 0, 2, 4, 3} {
			req := producerRequest(pid, 0, seq)
			resp, err := cl.Request(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 {
				p.BaseOffset = -1 // kfake leaves 0 there, Kafka -1
			}
			tell("sequence %d: offset %d %s", seq, p.BaseOffset, word(kerr.ErrorForCode(p.ErrorCode)))
		}
	}},
	{"consuming beyond the ends", func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any)) {
		cl := newClient(t, seeds, kgo.DefaultProduceTopic("f"), kgo.AllowAutoTopicCreation())
		for range 3 {
			cl.ProduceSync(ctx, kgo.StringRecord("v"))
		}
		for _, offset := range []int64{0, 2, 3, 4} {
			resp, err := fetchRequest(11, "f", 0, offset).RequestWith(ctx, cl)
			if err != nil {
				t.Fatal(err)
			}
			p := resp.Topics[0].Partitions[0]
			tell("fetch %d: %v bytes, %s", offset, len(p.RecordBatches) > 0, word(kerr.ErrorForCode(p.ErrorCode)))
		}
		resp, err := fetchRequest(11, "none", 0, 0).RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		tell("fetch of an unknown topic: %s", word(kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)))
	}},
	{"settings of a topic", func(ctx context.Context, t *testing.T, seeds []string, tell func(string, ...any)) {
		adm := kadm.NewClient(newClient(t, seeds))
		minute := "60000"
		adm.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &minute}, "s")
		show := func() {
			rs, err := adm.DescribeTopicConfigs(ctx, "s", "none")
			tell("describe %s", word(err))
			sort.Slice(rs, func(i, j int) bool { return rs[i].Name < rs[j].Name })
			for _, r := range rs {
				tell("%s: %s", r.Name, word(r.Err))
				for _, kv := range r.Configs {
					if kv.Source == kmsg.ConfigSourceDynamicTopicConfig {
						tell("%s=%s", kv.Key, kv.MaybeValue())
					}
				}
			}
		}
		show()
		rs, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("2000000")},
			{Op: kadm.DeleteConfig, Name: "retention.ms"}}, "s", "none")
		sort.Slice(rs, func(i, j int) bool { return rs[i].Name < rs[j].Name })
		for _, r := range rs {
			tell("alter %s: %s %s", r.Name, word(r.Err), word(err))
		}
		show()
	}},
}

func idempotentID(ctx context.Context, cl *kgo.Client) (int64, int16, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, err
	}
	return resp.ProducerID, resp.ProducerEpoch, kerr.ErrorForCode(resp.ErrorCode)
}

func TestOracle_SameAsKfake(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			oracle, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(1), kfake.AllowAutoTopicCreation(), kfake.MaxVersions(kversion.V2_8_0()))
			if err != nil {
				t.Fatal(err)
			}
			defer oracle.Close()
			ours := newFakeCluster(t, 1, nil)
			run := func(seeds []string) (told []string) {
				sc.run(testContext(t), t, seeds, func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) })
				return told
			}
			want, got := run(oracle.ListenAddrs()), run(ours.seeds())
			for i := range max(len(want), len(got)) {
				w, g := "(nothing)", "(nothing)"
				if i < len(want) {
					w = want[i]
				}
				if i < len(got) {
					g = got[i]
				}
				if w != g {
					t.Errorf("line %d\n  kfake: %s\n  vtop:  %s", i, w, g)
				}
			}
		})
	}
}
