package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/transport/transporttest"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	t.Cleanup(cancel)
	return ctx
}

func (c *fakeCluster) seeds() (out []string) {
	for _, n := range c.nodes {
		out = append(out, n.addr)
	}
	return out
}

func newClient(t testing.TB, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// consume reads n records of the topic from the beginning.
func consume(t testing.TB, seeds []string, topic string, n int) []*kgo.Record {
	t.Helper()
	cl := newClient(t, seeds, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	var out []*kgo.Record
	for ctx := testContext(t); len(out) < n; {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(out), n, err)
		}
		fetches.EachError(func(topic string, p int32, err error) { t.Errorf("fetch %s/%d: %v", topic, p, err) })
		out = append(out, fetches.Records()...)
	}
	return out
}

func TestClient_ProduceAndConsume(t *testing.T) {
	cases := []struct {
		name string
		opts []kgo.Opt
	}{
		{"idempotent, snappy", nil},
		{"no compression", []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}},
		{"gzip", []kgo.Opt{kgo.ProducerBatchCompression(kgo.GzipCompression())}},
		{"lz4", []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}},
		{"zstd", []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression())}},
		{"acks=1", []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}},
		{"acks=0", []kgo.Opt{kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}},
	}
	c := newFakeCluster(t, 3, func(cfg *Config) { cfg.DefaultRanges = 3 })
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			topic := fmt.Sprintf("topic-%d", i)
			cl := newClient(t, c.seeds(), append(tc.opts, kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))...)
			want := map[string]bool{}
			for k := range 300 {
				v := fmt.Sprintf("%s value %d %s", tc.name, k, strings.Repeat("x", k))
				want[v] = true
				cl.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(v), Key: []byte{byte(k)}}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			}
			if err := cl.Flush(testContext(t)); err != nil {
				t.Fatal(err)
			}
			for _, r := range consume(t, c.seeds(), topic, len(want)) {
				if !want[string(r.Value)] {
					t.Fatalf("consumed %q, which was not produced or came twice", r.Value)
				}
				delete(want, string(r.Value))
			}
		})
	}
}

func TestClient_GoesOnAfterLeaseMoves(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	r := c.topic("moves", 1)[0]
	cl := newClient(t, c.seeds(), kgo.DefaultProduceTopic("moves"))
	for k := range 30 {
		if err := cl.ProduceSync(testContext(t), kgo.StringRecord(fmt.Sprint(k))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if k%3 == 2 {
			c.grant(r, c.nodes[k%len(c.nodes)].name, true)
		}
	}
	for i, rec := range consume(t, c.seeds(), "moves", 30) {
		if string(rec.Value) != fmt.Sprint(i) || rec.Offset != int64(i) {
			t.Fatalf("record %d is %q at offset %d", i, rec.Value, rec.Offset)
		}
	}
}

func TestClient_Admin(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	ctx := testContext(t)
	adm := kadm.NewClient(newClient(t, c.seeds()))
	week := "604800000"
	if r, err := adm.CreateTopic(ctx, 2, 3, map[string]*string{"retention.ms": &week}, "a.b_c-1"); err != nil || r.NumPartitions != 2 || r.ReplicationFactor != 3 {
		t.Fatalf("create: %+v %v", r, err)
	}
	bad := "compact"
	for name, try := range map[string]func() error{
		kerr.TopicAlreadyExists.Message: func() error { _, err := adm.CreateTopic(ctx, 1, 1, nil, "a.b_c-1"); return err },
		kerr.InvalidPartitions.Message:  func() error { _, err := adm.CreateTopic(ctx, 0, 1, nil, "x"); return err },
		kerr.InvalidReplicationFactor.Message: func() error {
			_, err := adm.CreateTopic(ctx, 1, 4, nil, "x")
			return err
		},
		kerr.InvalidTopicException.Message: func() error { _, err := adm.CreateTopic(ctx, 1, 1, nil, "no/slash"); return err },
		kerr.InvalidConfig.Message: func() error {
			_, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &bad}, "x")
			return err
		},
	} {
		var ke *kerr.Error
		if err := try(); !errors.As(err, &ke) || ke.Message != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	if up, err := adm.UpdatePartitions(ctx, 5, "a.b_c-1"); err != nil || up.Error() != nil {
		t.Fatalf("partitions: %v %v", err, up.Error())
	}
	minutes := "60000"
	alter := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &minutes}, {Op: kadm.DeleteConfig, Name: "retention.ms"}}
	if r, err := adm.AlterTopicConfigs(ctx, alter, "a.b_c-1"); err != nil || r[0].Err != nil {
		t.Fatalf("alter: %v %+v", err, r)
	}
	if r, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: kadm.StringPtr("3")}}, "a.b_c-1"); err != nil || !errors.Is(r[0].Err, kerr.InvalidConfig) {
		t.Fatalf("min.insync.replicas=3 of 3: %v %+v", err, r)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, "a.b_c-1")
	if err != nil || configs[0].Err != nil {
		t.Fatalf("describe: %v %+v", err, configs)
	}
	got := map[string]string{}
	for _, kv := range configs[0].Configs {
		got[kv.Key] = kv.MaybeValue() + "/" + kv.Source.String()
	}
	if got["segment.ms"] != "60000/DYNAMIC_TOPIC_CONFIG" || got["retention.ms"] != "604800000/DEFAULT_CONFIG" {
		t.Errorf("configs %v", got)
	}
	if m, err := adm.Metadata(ctx); err != nil || len(m.Brokers) != 3 || len(m.Topics["a.b_c-1"].Partitions) != 5 || m.Controller != 3 || m.Cluster != c.state.Cluster().ID.String() {
		t.Errorf("metadata %+v %v", m, err)
	}
	if bc, err := adm.DescribeBrokerConfigs(ctx, 1); err != nil || bc[0].Err != nil || len(bc[0].Configs) == 0 {
		t.Errorf("broker configs %+v %v", bc, err)
	}
	if d, err := adm.DeleteTopics(ctx, "a.b_c-1", "none"); err != nil || d["a.b_c-1"].Err != nil || !errors.Is(d["none"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete %+v %v", d, err)
	}
}

func TestClient_OffsetsAndDeleteRecords(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	ctx := testContext(t)
	cl := newClient(t, c.seeds(), kgo.DefaultProduceTopic("t"))
	for k := range 10 {
		rec := &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 * (k + 1)))}
		if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	adm := kadm.NewClient(cl)
	offset := func(l kadm.ListedOffsets, err error) int64 {
		t.Helper()
		o, _ := l.Lookup("t", 0)
		if err != nil || o.Err != nil {
			t.Fatalf("list offsets: %v %v", err, o.Err)
		}
		return o.Offset
	}
	if got := offset(adm.ListOffsetsAfterMilli(ctx, 4500, "t")); got != 4 {
		t.Errorf("offset after 4500 ms is %d, want 4", got)
	}
	if got := offset(adm.ListMaxTimestampOffsets(ctx, "t")); got != 9 {
		t.Errorf("offset of the greatest timestamp is %d, want 9", got)
	}
	del, err := adm.DeleteRecords(ctx, kadm.Offsets{"t": {0: {Topic: "t", Partition: 0, At: 6}}})
	if d, _ := del.Lookup("t", 0); err != nil || d.Err != nil || d.LowWatermark != 6 {
		t.Errorf("delete records: %+v %v", del, err)
	}
	if from, to := offset(adm.ListStartOffsets(ctx, "t")), offset(adm.ListEndOffsets(ctx, "t")); from != 6 || to != 10 {
		t.Errorf("offsets %d to %d, want 6 to 10", from, to)
	}
	del, err = adm.DeleteRecords(ctx, kadm.Offsets{"t": {0: {Topic: "t", Partition: 0, At: 11}}})
	if d, _ := del.Lookup("t", 0); err != nil || !errors.Is(d.Err, kerr.OffsetOutOfRange) {
		t.Errorf("delete above the end: %+v %v", del, err)
	}
}

func TestClient_TransactionIsRefusedForGood(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	c.hold() // nothing may be admitted
	conn := dial(t, c.nodes[0])
	if code := conn.initProducerID(t, "tx"); code != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("InitProducerId answered %d", code)
	}
	if kerr.IsRetriable(kerr.TransactionalIDAuthorizationFailed) {
		t.Error("the code would be retried for ever")
	}
	if c.appends.Load() != 0 {
		t.Error("something was appended")
	}
}

// kcat runs kcat, or skips the test where it is not installed.
func kcat(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed: this test did not run")
	}
	cmd := exec.CommandContext(testContext(t), path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kcat %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

func TestKcat_FileComesBack(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	var lines bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&lines, "line %d of a file that is read back byte for byte\n", i)
	}
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, extra := range [][]string{{"-z", "none"}, {"-z", "gzip"}, {"-z", "snappy"}, {"-z", "lz4"}, {"-z", "zstd"},
		{"-X", "enable.idempotence=true"}, {"-X", "acks=1"}, {"-X", "acks=0"}} {
		t.Run(strings.Join(extra, " "), func(t *testing.T) {
			topic := "kcat" + strings.NewReplacer("-", ".", "=", ".").Replace(strings.Join(extra, ""))
			kcat(t, nil, append([]string{"-P", "-b", c.nodes[1].addr, "-t", topic, "-l", file}, extra...)...)
			got := kcat(t, nil, "-C", "-b", c.nodes[2].addr, "-t", topic, "-e", "-q", "-o", "beginning")
			if !bytes.Equal(got, lines.Bytes()) {
				t.Fatalf("%d bytes came back of %d", len(got), lines.Len())
			}
		})
	}
	list := string(kcat(t, nil, "-L", "-b", c.nodes[0].addr))
	if !strings.Contains(list, "3 brokers") || !strings.Contains(list, c.nodes[2].addr+" (controller)") {
		t.Errorf("kcat -L:\n%s", list)
	}
	// The producer may leave gzip aside without a word where Produce seems to begin at 3.
	var stored int
	for r, l := range c.logs {
		if name := c.state.RangeName(r); strings.HasPrefix(name, "kcat.zgzip") || strings.HasPrefix(name, "kcat.z") && strings.Contains(name, "gzip") {
			for _, b := range l.batches {
				stored += len(b)
			}
		}
	}
	if stored == 0 || stored > lines.Len()/3 {
		t.Errorf("the gzip topic holds %d bytes for a file of %d: not compressed", stored, lines.Len())
	}
}

// faulty makes the cluster refuse one append in five, for every reason that passes.
func (c *fakeCluster) faulty(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	reasons := []error{vtop.ErrNoSpace, vtop.ErrStorage, vtop.ErrNotLeader, vtop.ErrTimeout, vtop.ErrFenced}
	c.set(func(c *fakeCluster) {
		c.refuse = func(vtop.Range, batch.Batch) error { // called under the cluster's lock
			if rng.IntN(5) > 0 {
				return nil
			}
			return fmt.Errorf("%w: injected", reasons[rng.IntN(len(reasons))])
		}
	})
}

// TestClient_ExactlyOnceThroughFaults: with every transient refusal and moving leases, an idempotent producer ends up
// with each record once and in order (D1, D2).
func TestClient_ExactlyOnceThroughFaults(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	r := c.topic("t", 1)[0]
	c.faulty(1)
	cl := newClient(t, c.seeds(), kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(64),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }), kgo.ProducerBatchMaxBytes(2000))
	const n = 1500
	for i := range n {
		cl.Produce(testContext(t), kgo.StringRecord(fmt.Sprintf("%06d %s", i, strings.Repeat("x", 100))), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
		})
		if i%100 == 99 {
			to := c.nodes[i/100%3].name
			c.grant(r, to, i%200 == 99)
			c.start(r)
		}
	}
	if err := cl.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	c.set(func(c *fakeCluster) { c.refuse = nil })
	for i, rec := range consume(t, c.seeds(), "t", n) {
		if got := string(rec.Value[:6]); got != fmt.Sprintf("%06d", i) {
			t.Fatalf("record %d is %s: lost, twice or out of order", i, got)
		}
	}
	if end := c.log(r).end; end != n {
		t.Errorf("log end %d, want %d: something is there twice", end, n)
	}
}

func TestKcat_ExactlyOnceThroughFaults(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	r := c.topic("t", 1)[0]
	c.faulty(2)
	var lines bytes.Buffer
	for i := range 600 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	kcat(t, nil, "-P", "-b", c.nodes[0].addr, "-t", "t", "-l", file, "-X", "enable.idempotence=true", "-X", "batch.num.messages=20",
		"-X", "retry.backoff.ms=5", "-X", "topic.metadata.refresh.fast.interval.ms=5")
	c.set(func(c *fakeCluster) { c.refuse = nil })
	got := kcat(t, nil, "-C", "-b", c.nodes[0].addr, "-t", "t", "-e", "-q", "-o", "beginning")
	if !bytes.Equal(got, lines.Bytes()) {
		t.Fatalf("%d bytes came back of %d, log end %d", len(got), lines.Len(), c.log(r).end)
	}
}
