package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/batch"
)

// A topic with LogAppendTime gives records the leader's time, whatever the producer said; clients are told, and read it.
func TestProduce_LogAppendTime(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	adm, ctx := admin(t, c)
	how := "LogAppendTime"
	if rs, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"message.timestamp.type": &how}, "t"); err != nil || rs.Err != nil {
		t.Fatal(rs.Err, err)
	}
	c.topic("own", 1)
	cl := newClient(t, c.seeds(), kgo.ConsumeTopics("t"), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	before := time.Now().Truncate(time.Millisecond)
	for range 3 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("x"), Timestamp: time.UnixMilli(5)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	after := time.Now()
	for seen := 0; seen < 3; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		for _, r := range fetches.Records() {
			seen++
			if r.Timestamp.Before(before) || r.Timestamp.After(after) || r.Attrs.TimestampType() != 1 {
				t.Errorf("record at %s, type %d: want %s to %s", r.Timestamp, r.Attrs.TimestampType(), before, after)
			}
		}
	}
	found, err := adm.ListOffsetsAfterMilli(ctx, before.UnixMilli(), "t")
	if o, _ := found.Lookup("t", 0); err != nil || o.Offset != 0 || o.Timestamp < before.UnixMilli() {
		t.Errorf("by time: %+v %v", o, err)
	}
	if found, err = adm.ListOffsetsAfterMilli(ctx, after.UnixMilli()+1, "t"); err != nil {
		t.Fatal(err)
	} else if o, _ := found.Lookup("t", 0); o.Timestamp != -1 {
		t.Errorf("after all: %+v", o)
	}
	// Case: a client that would tell the time of the append itself; and a topic whose records keep their own.
	b := oneBatch("x", nil)
	b.SetAppendTime(5)
	conn := dial(t, c.nodes[0])
	if p := produced(conn.ask(t, produceRequest(9, -1, "own", 0, b))); p.ErrorCode != kerr.InvalidRecord.Code {
		t.Errorf("code %d", p.ErrorCode)
	}
	if p := produced(conn.ask(t, produceRequest(9, -1, "own", 0, oneBatch("x", nil)))); p.ErrorCode != 0 || p.LogAppendTime != -1 {
		t.Errorf("%+v", p)
	}
	// Case: a retry is recognised though its bytes were changed.
	again := oneBatch("y", &batch.Producer{ID: 9, Epoch: 0, Sequence: 0})
	first := produced(conn.ask(t, produceRequest(9, -1, "t", 0, again)))
	second := produced(conn.ask(t, produceRequest(9, -1, "t", 0, again)))
	if first.LogAppendTime < before.UnixMilli() || first.LogAppendTime > time.Now().UnixMilli() {
		t.Errorf("told %d", first.LogAppendTime)
	}
	if first.ErrorCode != 0 || second.ErrorCode != 0 || first.BaseOffset != second.BaseOffset {
		t.Errorf("%+v, then %+v", first, second)
	}
}
