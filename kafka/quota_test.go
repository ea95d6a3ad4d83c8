package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/fsm"
)

func TestBucket(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bucket
	steps := []struct {
		what  string
		after time.Duration
		bytes int
		rate  int64
		want  time.Duration
	}{
		{"a full second is free", 0, 1000, 1000, 0},
		{"the next byte is owed, for a millisecond at least", 0, 1, 1000, time.Millisecond},
		{"asking adds nothing", 0, 0, 1000, time.Millisecond},
		{"two seconds' worth", 0, 1999, 1000, 2 * time.Second},
		{"half of it has passed", time.Second, 0, 1000, time.Second},
		{"paid", time.Second, 0, 1000, 0},
		{"rest fills it, but not above one second's worth", time.Hour, 1500, 1000, 500 * time.Millisecond},
		{"a higher rate is paid back sooner", 0, 0, 5000, 100 * time.Millisecond},
		{"never longer than the bound", 0, 1 << 30, 1000, maxThrottle},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		if got := b.take(s.bytes, s.rate, now); got != s.want {
			t.Errorf("%s: %s, want %s", s.what, got, s.want)
		}
	}
}

func TestClientQuotas_EntriesAreBounded(t *testing.T) {
	q := clientQuotas{limit: 3, byID: map[string]*clientQuota{}}
	owe := func(name string) {
		e := q.acquire(name)
		e.buckets[quotaProduce].take(100, 1, time.Now())
		q.release(e)
	}
	for i := range 3 {
		owe(fmt.Sprint(i))
	}
	q.release(q.acquire("owes nothing"))
	again := q.acquire("1")
	if owed := again.buckets[quotaProduce].take(0, 1, time.Now()); owed == 0 || len(q.byID) != 3 || q.idle != 2 {
		t.Errorf("a client that comes back owes %s; %d entries, %d idle", owed, len(q.byID), q.idle)
	}
	for i := range 100 {
		owe(fmt.Sprint("other ", i))
	}
	if len(q.byID) > 1+q.limit {
		t.Errorf("%d entries for one connection", len(q.byID))
	}
	if q.acquire("1") != again {
		t.Error("the entry of a connected client was forgotten")
	}
}

// muted reports whether one of the node's connections is not being read because of a quota.
func (n *fakeNode) muted() bool {
	n.server.mu.Lock()
	defer n.server.mu.Unlock()
	for c := range n.server.conns {
		if c.mute.left() > 0 {
			return true
		}
	}
	return false
}

func TestQuota_ProduceIsAnsweredAtOnceAndTheClientMuted(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.ProduceQuota = 500 << 10 })
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	small := produceRequest(9, -1, "t", 0, oneBatch("x", nil))
	if resp := conn.ask(t, small).(*kmsg.ProduceResponse); resp.ThrottleMillis != 0 || c.nodes[0].muted() {
		t.Fatalf("within the quota: throttled for %d ms", resp.ThrottleMillis)
	}
	// 50 KiB more than a second's worth.
	resp := conn.ask(t, produceRequest(9, -1, "t", 0, oneBatch(strings.Repeat("x", 550<<10-300), nil))).(*kmsg.ProduceResponse)
	if p := produced(resp); p.ErrorCode != 0 || p.BaseOffset != 1 {
		t.Fatalf("beyond the quota: %+v", p)
	}
	if resp.ThrottleMillis <= 0 || resp.ThrottleMillis > 200 {
		t.Errorf("throttled for %d ms", resp.ThrottleMillis)
	}
	if p := produced(conn.ask(t, small)); p.ErrorCode != 0 || p.BaseOffset != 2 { // read again when the time is over
		t.Errorf("after the mute: %+v", p)
	}
	if _, err := c.nodes[0].AlterClientQuotas(t.Context(), []fsm.QuotaChange{{Client: "raw", SetProduce: true, Produce: 1}}); err != nil {
		t.Fatal(err)
	}
	other := dial(t, c.nodes[0]) // the quota is the client id's, not the connection's, and this debt is not paid in a day
	conn.ask(t, produceRequest(9, -1, "t", 0, oneBatch(strings.Repeat("x", 550<<10), nil)))
	if resp := other.ask(t, small).(*kmsg.ProduceResponse); resp.ThrottleMillis == 0 {
		t.Error("another connection of the client is not throttled")
	}
}

func TestQuota_FetchOfAClientThatOwesGetsNoRecords(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	n := c.nodes[0]
	if _, err := n.AlterClientQuotas(t.Context(), []fsm.QuotaChange{{Client: "raw", SetFetch: true, Fetch: 50_000}}); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, n)
	for range 3 {
		conn.ask(t, produceRequest(9, -1, "t", 0, oneBatch(strings.Repeat("x", 55_000), nil)))
	}
	for versions := []int16{4, 11, 12}; len(versions) > 0; {
		version := versions[0]
		req := fetchRequest(version, "t", 0, 0)
		began := time.Now()
		resp := conn.ask(t, req).(*kmsg.FetchResponse)
		if got := len(fetched(resp).RecordBatches); got == 0 || got > 60_000 {
			t.Errorf("v%d: %d bytes of records: want one batch, whatever its size, and no more", version, got)
		}
		if resp.ThrottleMillis < 1 || resp.ThrottleMillis > 2000 {
			t.Errorf("v%d: throttled for %d ms", version, resp.ThrottleMillis)
		}
		owes := time.Duration(resp.ThrottleMillis-1) * time.Millisecond // it was rounded
		second := dial(t, n).ask(t, req).(*kmsg.FetchResponse)
		if time.Since(began) < owes { // else the machine was held up until all was paid
			if len(second.Topics) != 0 || second.ThrottleMillis == 0 || second.ErrorCode != 0 {
				t.Errorf("v%d: a client that owes: %d topics, %d ms, code %d", version, len(second.Topics), second.ThrottleMillis, second.ErrorCode)
			}
			versions = versions[1:]
		}
		conn.ask(t, kmsg.NewPtrApiVersionsRequest()) // read again
	}
}

// Case: a quota changes while the client is connected, and goes.
func TestQuota_OfTheMetadataCountsBeforeTheNodesOwn(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.ProduceQuota, cfg.FetchQuota = 7, 8 })
	s := c.nodes[0].server
	set := func(items ...fsm.QuotaChange) {
		t.Helper()
		if _, err := c.nodes[0].AlterClientQuotas(context.Background(), items); err != nil {
			t.Fatal(err)
		}
	}
	want := func(client string, produce, fetch int64) {
		t.Helper()
		if p, f := s.rate(client, quotaProduce), s.rate(client, quotaFetch); p != produce || f != fetch {
			t.Errorf("%q: %d and %d, want %d and %d", client, p, f, produce, fetch)
		}
	}
	want("a", 7, 8)
	set(fsm.QuotaChange{Default: true, SetProduce: true, Produce: 100}, fsm.QuotaChange{Client: "a", SetFetch: true, Fetch: 200})
	want("a", 100, 200)
	want("b", 100, 8)
	set(fsm.QuotaChange{Client: "a", SetProduce: true, Produce: 300}, fsm.QuotaChange{Default: true, SetProduce: true})
	want("a", 300, 200)
	want("b", 7, 8)
}

// A client library lives with being throttled: all records arrive, in order.
func TestQuota_ClientGetsThrough(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.ProduceQuota, cfg.FetchQuota = 400<<10, 400<<10 })
	metrics := c.nodes[0].server.metrics
	reg.MustRegister(metrics.throttledVec, metrics.throttleVec)
	c.topic("t", 1)
	cl := newClient(t, c.seeds(), kgo.ConsumeTopics("t"), kgo.ClientID("slow"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	ctx := testContext(t)
	value := []byte(strings.Repeat("x", 500<<10)) // more than a second's worth: each is throttled, however slow the machine
	const n = 3
	for range n {
		cl.Produce(ctx, &kgo.Record{Topic: "t", Value: value}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < n; {
		for _, r := range cl.PollFetches(ctx).Records() {
			if r.Offset != int64(got) {
				t.Fatalf("offset %d, want %d", r.Offset, got)
			}
			got++
		}
		if ctx.Err() != nil {
			t.Fatalf("%d records of %d", got, n)
		}
	}
	throttled := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) > 0 && m.GetCounter() != nil {
				throttled[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	for _, name := range []string{"vtop_kafka_throttled_total produce", "vtop_kafka_throttle_seconds_total fetch"} {
		if throttled[name] == 0 {
			t.Errorf("%s is 0", name)
		}
	}
}

// The client id is one string for all requests of a connection, cut where it is too long.
func TestClientID(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	s := c.nodes[0].server
	nc := &conn{server: s}
	f := &frame{conn: nc}
	nc.identifyClient(f, []byte(strings.Repeat("x", 300)))
	if len(f.client) != maxClientID {
		t.Errorf("%d bytes", len(f.client))
	}
	nc.identifyClient(f, []byte("a"))
	if allocs := testing.AllocsPerRun(100, func() { nc.identifyClient(f, []byte("a")) }); allocs > 0 {
		t.Errorf("%v allocations for a client id that is known", allocs)
	}
	s.quotas.release(nc.quota)
	if len(s.quotas.byID) != 0 {
		t.Errorf("%d entries are left", len(s.quotas.byID))
	}
}
