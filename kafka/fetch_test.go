package kafka

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

type nil2 struct{}

func (nil2) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (nil2) Close() error              { return nil }
func (nil2) Addr() net.Addr            { return &net.TCPAddr{} }

// fill appends n batches whose values have size bytes.
func (c *fakeCluster) fill(t testing.TB, topic string, index int32, n, size int) {
	t.Helper()
	conn := dial(t, c.nodes[0])
	for range n {
		b := batch.Build(batch.Spec{Records: []batch.Record{{Value: make([]byte, size)}}})
		if p := produced(conn.ask(t, produceRequest(9, 1, topic, index, b))); p.ErrorCode != 0 {
			t.Fatalf("produce: code %d", p.ErrorCode)
		}
	}
}

func TestFetch_EveryVersionReadsBack(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	r := c.topic("t", 1)[0]
	for _, size := range []int{1, 100, 20_000, 900 << 10} { // compact lengths of one to three bytes
		c.fill(t, "t", 0, 1, size)
	}
	conn := dial(t, c.nodes[0])
	for version := int16(4); version <= 18; version++ {
		for offset := range int64(4) {
			req := fetchRequest(version, "t", 0, offset)
			req.Topics[0].TopicID = r.Topic
			req.MaxBytes = 1 // only the first batch, whatever its size
			p := fetched(conn.ask(t, req))
			if want := c.log(r).batches[offset]; p.ErrorCode != 0 || !bytes.Equal(p.RecordBatches, want) || p.HighWatermark != 4 {
				t.Fatalf("v%d offset %d: code %d, %d bytes, high watermark %d", version, offset, p.ErrorCode, len(p.RecordBatches), p.HighWatermark)
			}
		}
	}
}

func TestFetch_Limits(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.FetchBytes = 40_000 })
	c.topic("t", 3)
	for i := range int32(3) {
		c.fill(t, "t", i, 10, 1000)
	}
	conn := dial(t, c.nodes[0])
	ask := func(total, part int32) (sizes []int) {
		req := fetchRequest(12, "t", 0, 0)
		req.MaxBytes = total
		req.Topics[0].Partitions[0].PartitionMaxBytes = part
		for i := range int32(2) {
			p := req.Topics[0].Partitions[0]
			p.Partition = i + 1
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		}
		for _, p := range conn.ask(t, req).(*kmsg.FetchResponse).Topics[0].Partitions {
			sizes = append(sizes, len(p.RecordBatches)/1000)
		}
		return sizes
	}
	for _, tc := range []struct {
		total, part int32
		want        []int
	}{
		{1 << 20, 1 << 20, []int{10, 10, 10}},
		{1 << 20, 3500, []int{3, 3, 3}},
		{1 << 20, 10, []int{1, 0, 0}},
		{5000, 3500, []int{3, 1, 0}},
		{0, 0, []int{1, 0, 0}},
		{-5, -5, []int{1, 0, 0}},
	} {
		if got := ask(tc.total, tc.part); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("max bytes %d, for each range %d: batches %v, want %v", tc.total, tc.part, got, tc.want)
		}
	}
}

func TestFetch_ParksWithoutPolling(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 2)
	conn := dial(t, c.nodes[0])
	req := fetchRequest(12, "t", 0, 0)
	req.MaxWaitMillis = 60_000
	conn.send(t, req)
	eventually(t, "parked", func() bool { return c.watched.Load() == 1 && c.fetches.Load() == 2 })
	c.fill(t, "t", 1, 3, 10) // another range wakes nobody
	c.fill(t, "t", 0, 1, 10)
	if _, resp := conn.receive(t, req); len(fetched(resp).RecordBatches) == 0 {
		t.Fatal("woke up with nothing")
	}
	if n := c.fetches.Load(); n > 4 {
		t.Errorf("looked %d times at the range: it polls", n)
	}
	eventually(t, "the watch is gone", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.watches) == 0
	})
}

func TestFetch_MinBytesGather(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	req := fetchRequest(12, "t", 0, 0)
	req.MaxWaitMillis, req.MinBytes = 60_000, 5000
	conn.send(t, req)
	c.fill(t, "t", 0, 6, 1000)
	if _, resp := conn.receive(t, req); len(fetched(resp).RecordBatches) < 5000 {
		t.Fatalf("%d bytes, asked for 5000", len(fetched(resp).RecordBatches))
	}
	// Case: time runs out first, and what is there is given.
	req.MaxWaitMillis, req.MinBytes = 50, 1<<20
	if p := fetched(conn.ask(t, req)); len(p.RecordBatches) < 6000 {
		t.Fatalf("%d bytes after the wait", len(p.RecordBatches))
	}
}

func TestFetch_ParkedClientThatLeavesIsForgotten(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	req := fetchRequest(12, "t", 0, 0)
	req.MaxWaitMillis = 60_000
	conn.send(t, req)
	eventually(t, "parked", func() bool { return c.watched.Load() == 1 })
	conn.Close()
	eventually(t, "the watch is gone", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.watches) == 0
	})
}

func TestFetch_WaitsForPromotion(t *testing.T) {
	c := newFakeCluster(t, 2, patientServer)
	r := c.topic("t", 1)[0]
	c.fill(t, "t", 0, 1, 10)
	c.grant(r, "n2", false)
	conn := dial(t, c.nodes[1])
	req := fetchRequest(12, "t", 0, 0) // MaxWait 0: the wait is ours
	conn.send(t, req)
	eventually(t, "parked", func() bool { return c.watched.Load() >= 1 })
	c.start(r)
	if _, resp := conn.receive(t, req); fetched(resp).ErrorCode != 0 || len(fetched(resp).RecordBatches) == 0 {
		t.Fatalf("code %d", fetched(resp).ErrorCode)
	}
}

func TestFetch_Refusals(t *testing.T) {
	c := newFakeCluster(t, 2, func(cfg *Config) { cfg.LeaderWait = 20 * time.Millisecond })
	r := c.topic("t", 1)[0]
	c.fill(t, "t", 0, 3, 10)
	fr, _ := c.state.Range(r)
	epoch := int32(fr.Lease.Epoch)
	edit := func(fn func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition)) *kmsg.FetchRequest {
		req := fetchRequest(12, "t", 0, 0)
		req.MaxWaitMillis = 200_000 // what is refused is refused at once
		fn(req, &req.Topics[0].Partitions[0])
		return req
	}
	cases := []struct {
		name string
		node int
		req  *kmsg.FetchRequest
		want *kerr.Error
	}{
		{"unknown topic", 0, edit(func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.Topics[0].Topic = "none" }), kerr.UnknownTopicOrPartition},
		{"unknown range", 0, edit(func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.Partition = 5 }), kerr.UnknownTopicOrPartition},
		{"not the leader", 1, edit(func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition) {}), kerr.NotLeaderForPartition},
		{"old leader epoch", 0, edit(func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = epoch - 1 }), kerr.FencedLeaderEpoch},
		{"new leader epoch", 0, edit(func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = epoch + 1 }), kerr.UnknownLeaderEpoch},
		{"above the end", 0, edit(func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 4 }), kerr.OffsetOutOfRange},
		{"below the start", 0, edit(func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -1 }), kerr.OffsetOutOfRange},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if p := fetched(dial(t, c.nodes[tc.node]).ask(t, tc.req)); p.ErrorCode != tc.want.Code || len(p.RecordBatches) != 0 {
				t.Fatalf("code %d, want %s", p.ErrorCode, tc.want.Message)
			}
		})
	}
	// Case: a session that is not there: one that goes on; and those that begin, end, or are not wanted.
	req := fetchRequest(12, "t", 0, 0)
	for _, session := range [][2]int32{{5, 1}, {0, 7}, {0, 0}, {5, -1}, {5, 0}, {0, -1}} {
		req.SessionID, req.SessionEpoch = session[0], session[1]
		want := map[bool]int16{true: kerr.FetchSessionIDNotFound.Code}[session[1] > 0]
		resp := dial(t, c.nodes[0]).ask(t, req).(*kmsg.FetchResponse)
		if resp.ErrorCode != want || resp.SessionID != 0 || (want == 0) != (len(resp.Topics) == 1) {
			t.Errorf("session %v: code %d, session %d, %d topics", session, resp.ErrorCode, resp.SessionID, len(resp.Topics))
		}
	}
	// Case: what the client fetched last diverges (J5): told before any offset out of range.
	c.grant(r, "n1", true)
	req = fetchRequest(12, "t", 0, 9)
	req.MaxWaitMillis = 200_000
	req.Topics[0].Partitions[0].LastFetchedEpoch = epoch
	p := fetched(dial(t, c.nodes[0]).ask(t, req))
	if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != epoch || p.DivergingEpoch.EndOffset != 3 {
		t.Errorf("diverging: code %d %+v, want epoch %d end 3", p.ErrorCode, p.DivergingEpoch, epoch)
	}
	// Case: a promotion that does not end.
	c.grant(r, "n1", false)
	if p := fetched(dial(t, c.nodes[0]).ask(t, fetchRequest(12, "t", 0, 0))); p.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("in promotion: code %d", p.ErrorCode)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	r := c.topic("t", 1)[0]
	c.fill(t, "t", 0, 3, 10)
	fr, _ := c.state.Range(r)
	first := int32(fr.Lease.Epoch)
	c.grant(r, "n1", true)
	c.grant(r, "n1", true) // an empty epoch before it vanishes
	c.fill(t, "t", 0, 2, 10)
	conn := dial(t, c.nodes[0])
	ask := func(version int16, current, epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version, req.ReplicaID = version, -1
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.CurrentLeaderEpoch, p.LeaderEpoch = current, epoch
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic, rt.Partitions = "t", append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		return conn.ask(t, req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	}
	for version := int16(2); version <= 4; version++ {
		for _, tc := range []struct{ current, asked, code, epoch, end int32 }{
			{-1, first, 0, first, 3},
			{-1, first + 1, 0, first, 3},
			{-1, first + 2, 0, first + 2, 5},
			{-1, 0, 0, -1, -1},
			{first, first, int32(kerr.FencedLeaderEpoch.Code), -1, -1},
			{first + 9, first, int32(kerr.UnknownLeaderEpoch.Code), -1, -1},
		} {
			if p := ask(version, tc.current, tc.asked); int32(p.ErrorCode) != tc.code || p.LeaderEpoch != tc.epoch || int32(p.EndOffset) != tc.end {
				t.Errorf("v%d epoch %d under %d: code %d epoch %d end %d, want %+v", version, tc.asked, tc.current, p.ErrorCode, p.LeaderEpoch, p.EndOffset, tc)
			}
		}
	}
}

func TestListOffsets_NewLeaderDoesNotGoBack(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	r := c.topic("t", 1)[0]
	c.hold()
	conn := dial(t, c.nodes[0])
	pending := produceRequest(9, -1, "t", 0, oneBatch("x", nil))
	conn.send(t, pending)
	eventually(t, "admitted", func() bool { return c.appends.Load() == 1 })
	c.grant(r, "n1", true) // the epoch starts above the high watermark that it knows
	beyond := fetched(dial(t, c.nodes[0]).ask(t, fetchRequest(12, "t", 0, 1)))
	if beyond.ErrorCode != 0 || beyond.HighWatermark != -1 || len(beyond.RecordBatches) != 0 {
		t.Errorf("fetch of a client that has read further: code %d high watermark %d (I7)", beyond.ErrorCode, beyond.HighWatermark)
	}
	for version, want := range map[int16]*kerr.Error{1: kerr.LeaderNotAvailable, 4: kerr.LeaderNotAvailable, 5: kerr.OffsetNotAvailable, 7: kerr.OffsetNotAvailable} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID = version, -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = -1, -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic, rt.Partitions = "t", append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		got := dial(t, c.nodes[0]).ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.ErrorCode != want.Code || got.Offset != -1 {
			t.Errorf("v%d: code %d offset %d, want %s (I7)", version, got.ErrorCode, got.Offset, want.Message)
		}
	}
	c.release(false)
}

// TestFetchEncoder_EqualsKmsg holds the bytes laid out by hand to kmsg's encoder.
func TestFetchEncoder_EqualsKmsg(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1, 126, 127, 128, 16382, 16383, 16384, 2<<20 - 2, 2<<20 - 1, 2 << 20, 2<<20 + 1}
	for version := int16(4); version <= 18; version++ {
		for range 60 {
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = version
			committed := rng.IntN(2) == 0
			e := fetchEncoder{version: version, committed: committed}
			topics := rng.IntN(3)
			if version >= 7 && topics == 0 {
				resp.ErrorCode = 70
			}
			e.begin(77, resp.ErrorCode, topics)
			for i := range topics {
				rt := kmsg.NewFetchResponseTopic()
				rt.Topic, rt.TopicID = fmt.Sprintf("topic-%d", i), randomUUID()
				parts := rng.IntN(3)
				e.topic(topicRef{rt.Topic, rt.TopicID, version >= 13}, parts)
				for range parts {
					rt.Partitions = append(rt.Partitions, randomPartition(rng, &e, sizes, version, committed))
				}
				e.endTopic()
				resp.Topics = append(resp.Topics, rt)
			}
			var leaders []broker
			if version >= 16 {
				leaders = randomBrokers(rng, resp)
			}
			e.end(leaders)
			want := resp.AppendTo(nil)
			got := e.b[8:]
			if version >= 12 {
				got = e.b[9:]
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("v%d: %d bytes by hand, %d by kmsg, they differ at %d", version, len(got), len(want), differ(got, want))
			}
		}
	}
}

func randomPartition(rng *rand.Rand, e *fetchEncoder, sizes []int, version int16, committed bool) kmsg.FetchResponseTopicPartition {
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition, rp.ErrorCode = int32(rng.IntN(100)), int16(rng.IntN(80))
	rp.HighWatermark, rp.LogStartOffset = rng.Int64(), rng.Int64()
	rp.LastStableOffset = rp.HighWatermark
	if committed {
		rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	rp.RecordBatches = bytes.Repeat([]byte{byte(rng.IntN(256))}, sizes[rng.IntN(len(sizes))])
	var diverging *vtop.EpochOffset
	if rng.IntN(3) == 0 {
		diverging = &vtop.EpochOffset{Epoch: vtop.Epoch(rng.Int32()), Offset: vtop.Offset(rng.Int64())}
		if version >= 12 {
			rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = int32(diverging.Epoch), int64(diverging.Offset)
		}
	}
	var leader *leaderHint
	if version >= 16 && rng.IntN(3) == 0 {
		leader = &leaderHint{rng.Int32(), rng.Int32()}
		rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = leader.leader, leader.epoch
	}
	e.open(rp.Partition)
	e.b = append(e.b, rp.RecordBatches...)
	e.close(rp.ErrorCode, vtop.Offset(rp.HighWatermark), vtop.Offset(rp.LogStartOffset), fetchTail{diverging, leader})
	return rp
}

// randomBrokers are some addresses, which resp is given as well.
func randomBrokers(rng *rand.Rand, resp *kmsg.FetchResponse) (out []broker) {
	for range rng.IntN(4) {
		b := broker{id: rng.Int32(), host: strings.Repeat("h", rng.IntN(200)), port: rng.Int32()}
		if rng.IntN(2) == 0 {
			b.rack = kmsg.StringPtr("rack")
		}
		rb := kmsg.NewFetchResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.id, b.host, b.port, b.rack
		out, resp.Brokers = append(out, b), append(resp.Brokers, rb)
	}
	return out
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
