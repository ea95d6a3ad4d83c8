package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/batch"
)

func TestListOffsets_SpecialTimes(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	r := c.topic("t", 1)[0]
	conn := dial(t, c.nodes[0])
	for _, ts := range []int64{10, 30, 20} {
		b := batch.Build(batch.Spec{Records: []batch.Record{{Timestamp: ts, Value: []byte("x")}}})
		conn.ask(t, produceRequest(9, -1, "t", 0, b))
	}
	c.set(func(c *fakeCluster) { c.log(r).start = 1 })
	unsupported := int64(-1000) // stands for the code
	for _, tc := range []struct {
		what  string
		at    int64
		since int16
		want  int64
	}{
		{"latest", -1, 1, 3}, {"earliest", -2, 1, 1}, {"greatest timestamp", -3, 7, 1}, {"earliest local", -4, 8, 1},
		{"latest tiered", -5, 9, -1}, {"earliest pending upload", -6, 11, unsupported}, {"nonsense", -7, 11, unsupported}, {"a time", 15, 1, 1},
	} {
		for version := int16(1); version <= 10; version++ {
			req := listOffsets(version, 0, tc.at)
			got := conn.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			want, code := tc.want, int16(0)
			if version < tc.since || want == unsupported {
				want, code = -1, kerr.UnsupportedVersion.Code
			}
			if got.Offset != want || got.ErrorCode != code {
				t.Errorf("%s in v%d: offset %d code %d, want %d code %d", tc.what, version, got.Offset, got.ErrorCode, want, code)
			}
		}
	}
	// Case: a range that is named twice.
	req := listOffsets(7, 0, -1)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0], kmsg.ListOffsetsRequestTopicPartition{Partition: 1})
	for i, p := range conn.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
		want := kerr.InvalidRequest.Code
		if i == 2 {
			want = kerr.UnknownTopicOrPartition.Code
		}
		if p.ErrorCode != want {
			t.Errorf("partition %d: code %d, want %d", i, p.ErrorCode, want)
		}
	}
}

func listOffsets(version int16, index int32, at int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = index, at, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic, rt.Partitions = "t", append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// KIP-320: a consumer whose last records were cut from the log learns of it, and goes on where the logs part.
func TestClient_LearnsOfATruncation(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	r := c.topic("t", 1)[0]
	c.fill(t, "t", 0, 5, 10)
	cl := newClient(t, c.seeds(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	read := func() (records []*kgo.Record, loss *kgo.ErrDataLoss) {
		fetches := cl.PollFetches(testContext(t))
		fetches.EachError(func(_ string, _ int32, err error) {
			var lost *kgo.ErrDataLoss
			if !errors.As(err, &lost) {
				t.Fatalf("fetch: %v", err)
			}
			loss = lost
		})
		return fetches.Records(), loss
	}
	for n := 0; n < 5; {
		records, _ := read()
		n += len(records)
	}
	c.set(func(c *fakeCluster) { l := c.log(r); l.batches, l.end, l.high = l.batches[:3], 3, 3 })
	c.grant(r, "n1", true) // the new epoch begins at 3
	c.fill(t, "t", 0, 1, 20)
	var loss *kgo.ErrDataLoss
	var records []*kgo.Record
	for len(records) == 0 {
		var lost *kgo.ErrDataLoss
		if records, lost = read(); lost != nil {
			loss = lost
		}
	}
	if loss == nil || loss.ResetTo != 3 {
		t.Errorf("the client was told of %v, want the loss of 3 and above", loss)
	}
	if records[0].Offset != 3 || len(records[0].Value) != 20 {
		t.Errorf("it goes on at offset %d with %d bytes", records[0].Offset, len(records[0].Value))
	}
}
