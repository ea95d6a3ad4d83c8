//go:build cluster

package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
)

const (
	ranges = 3
	// rounds in which vtop and kfake take turns, so that what else the machine does hits both; the median counts.
	rounds      = 3
	produceTime = 4 * time.Second
	syncTime    = 4 * time.Second
	// kfakeBytes bounds what kfake is given: it keeps everything in memory.
	kfakeBytes = 512 << 20
)

var sizes = []int{100, 1 << 10, 16 << 10}

// rate is what a client reached.
type rate struct {
	records, mb float64
	gap         time.Duration // the longest time without an acknowledgement
}

func (r rate) String() string {
	return fmt.Sprintf("%8.0f rec/s %7.1f MB/s (longest gap %4d ms)", r.records, r.mb, r.gap.Milliseconds())
}

func median(of []rate) rate {
	slices.SortFunc(of, func(a, b rate) int { return cmp.Compare(a.mb, b.mb) })
	return of[len(of)/2]
}

// BenchmarkThroughput prints the figures of three nodes on loopback, every acknowledgement fsynced on a majority:
// pipelined production by record size, consumption, memory; beside them the
// disk by itself and the same client against kfake, an in-memory Kafka without a disk. VTOP_PROFILE names a directory
// for CPU profiles of the nodes under load.
func BenchmarkThroughput(b *testing.B) {
	for range b.N {
		throughput(b)
	}
}

func throughput(b *testing.B) {
	before := measureDisk(b)
	c := harness.Start(b, harness.Options{Nodes: 3})
	fake, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DefaultNumPartitions(ranges))
	if err != nil {
		b.Fatal(err)
	}
	defer fake.Close()
	var out strings.Builder
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&out, "\nload average at the start: %s", load)
	fmt.Fprintf(&out, "three nodes on loopback, %d ranges, 3 replicas, acks=all, fsynced on a majority; medians of %d rounds\n", ranges, rounds)
	for _, size := range sizes {
		topic := fmt.Sprintf("size-%d", size)
		makeTopic(b, c.Bootstrap(), topic, ranges)
		makeTopic(b, fake.ListenAddrs(), topic, ranges)
		var us, them []rate
		for range rounds {
			stop := profile(b, c, topic)
			us = append(us, produce(b, c.Bootstrap(), topic, size, 1<<62))
			stop()
			them = append(them, produce(b, fake.ListenAddrs(), topic, size, kfakeBytes))
		}
		ours, theirs := median(us), median(them)
		fmt.Fprintf(&out, "produce %6d B  vtop %s | kfake %s | ratio %.2f%s\n", size, ours, theirs, ours.mb/theirs.mb, aim(size == 1<<10, " (aim 0.25)"))
		b.ReportMetric(ours.mb, fmt.Sprintf("MB/s-%dB", size))
	}
	makeTopic(b, c.Bootstrap(), "one", 1)
	var ones []rate
	for range rounds {
		ones = append(ones, produce(b, c.Bootstrap(), "one", 1<<10, 1<<62))
	}
	one := median(ones)
	fmt.Fprintf(&out, "produce   1024 B  vtop %s into one range\n", one)
	eaten := consume(b, c.Bootstrap(), "size-1024")
	theirs := consume(b, fake.ListenAddrs(), "size-1024")
	fmt.Fprintf(&out, "consume   1024 B  vtop %s | kfake %s | ratio %.2f\n", eaten, theirs, eaten.mb/theirs.mb)
	rss(&out, c, "after the load")
	fmt.Fprintf(&out, "%s (before)\n%s (after)\n", before, measureDisk(b))
	fmt.Print(out.String())
}

func aim(applies bool, text string) string {
	if applies {
		return text
	}
	return ""
}

// makeTopic makes a topic and writes a record to each range, so that what is timed next finds its leaders.
func makeTopic(b testing.TB, seeds []string, topic string, ranges int32) {
	b.Helper()
	client, err := kgo.NewClient(append(harness.ClientOptions(seeds), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	harness.Eventually(b, 20*time.Second, "topic "+topic, func() error {
		_, err := kadm.NewClient(client).CreateTopic(ctx, ranges, 3, nil, topic)
		return err
	})
	for i := range ranges {
		if err := client.ProduceSync(ctx, &kgo.Record{Value: []byte("first"), Partition: i}).FirstErr(); err != nil {
			b.Fatal(err)
		}
	}
}

// produce writes for a while as fast as a pipelined idempotent producer can, and counts what was acknowledged.
func produce(b *testing.B, seeds []string, topic string, size int, maxBytes int64) rate {
	b.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(1<<18), kgo.MaxBufferedBytes(64<<20), kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(256<<10, false, false, nil)),
	)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	value := harness.Payload(1, size)
	var acked, failed, last, gap atomic.Int64 // gap: the longest time without an acknowledgement
	started := time.Now()
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
			return
		}
		acked.Add(1)
		now := int64(time.Since(started))
		gap.Store(max(gap.Load(), now-last.Swap(now)))
	}
	for sent := int64(0); sent < maxBytes; sent += int64(size) {
		if sent%(64*int64(size)) == 0 && time.Since(started) > produceTime {
			break
		}
		client.Produce(context.Background(), &kgo.Record{Value: value}, done)
	}
	if err := client.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	took := time.Since(started).Seconds()
	if failed.Load() > 0 {
		b.Fatalf("%d records failed", failed.Load())
	}
	n := float64(acked.Load())
	return rate{n / took, n * float64(size) / 1e6 / took, time.Duration(gap.Load())}
}

// BenchmarkSynchronous prints the latency of one producer that waits for each acknowledgement; beside it the disk's own fdatasync,
// the bare quorum, and the same client against kfake.
func BenchmarkSynchronous(b *testing.B) {
	for range b.N {
		latency(b)
	}
}

func latency(b *testing.B) {
	before := measureDisk(b)
	c := harness.Start(b, harness.Options{Nodes: 3})
	fake, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DefaultNumPartitions(1))
	if err != nil {
		b.Fatal(err)
	}
	defer fake.Close()
	var out strings.Builder
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&out, "\nload average at the start: %s", load)
	makeTopic(b, c.Bootstrap(), "sync", 1)
	makeTopic(b, fake.ListenAddrs(), "sync", 1)
	p50, p99, worst, n := synchronous(b, c.Bootstrap(), "sync")
	q50, q99 := bareQuorum(b)
	f50, f99, _, _ := synchronous(b, fake.ListenAddrs(), "sync")
	disk := measureDisk(b)
	fmt.Fprintf(&out, "one synchronous producer, 1 KiB: p50 %.3f ms, p99 %.3f ms, max %.0f ms (%d records); kfake p50 %.3f ms, p99 %.3f ms\n",
		p50.Seconds()*1e3, p99.Seconds()*1e3, worst.Seconds()*1e3, n, f50.Seconds()*1e3, f99.Seconds()*1e3)
	fmt.Fprintf(&out, "the same through three bare processes without a protocol: p50 %.3f ms, p99 %.3f ms; vtop's p50 is %.2f of it\n",
		q50.Seconds()*1e3, q99.Seconds()*1e3, p50.Seconds()/q50.Seconds())
	fmt.Fprintf(&out, "%s (before)\n%s (after)\n", before, disk)
	fmt.Fprintf(&out, "synchronous p50 / fdatasync p50: %.1f (aim 4)\n", p50.Seconds()/min(before.p50, disk.p50).Seconds())
	b.ReportMetric(p50.Seconds()*1e3, "sync-p50-ms")
	fmt.Print(out.String())
}

// synchronous writes one record after the other.
func synchronous(b *testing.B, seeds []string, topic string) (p50, p99, worst time.Duration, n int) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	value := harness.Payload(1, 1<<10)
	var times []time.Duration
	for end := time.Now().Add(syncTime); time.Now().Before(end); {
		started := time.Now()
		if err := client.ProduceSync(context.Background(), &kgo.Record{Value: value}).FirstErr(); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(started))
	}
	times = times[len(times)/10:] // the first find the leader and warm the caches
	p50, p99 = quantiles(times)
	return p50, p99, times[len(times)-1], len(times)
}

// consume reads the topic from its start to its present end.
func consume(b *testing.B, seeds []string, topic string) rate {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(32<<20), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		b.Fatal(err)
	}
	var want int64
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	var got, bytes int64
	var started time.Time
	for got < want {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			b.Fatalf("read %d of %d records: %v", got, want, ctx.Err())
		}
		if started.IsZero() {
			started = time.Now() // what came with the first answer isn't counted
			got += int64(fetches.NumRecords())
			want, got = want-got, 0
			continue
		}
		fetches.EachRecord(func(r *kgo.Record) { got++; bytes += int64(len(r.Value)) })
	}
	took := time.Since(started).Seconds()
	return rate{records: float64(got) / took, mb: float64(bytes) / 1e6 / took}
}

func rss(out io.Writer, c *harness.Cluster, when string) {
	fmt.Fprintf(out, "resident memory %s:", when)
	for _, n := range c.Nodes {
		fmt.Fprintf(out, " %s %d MB", n.Name, n.RSS()/1e6)
	}
	fmt.Fprintln(out, " (aim 150)")
}

// profile takes a CPU profile of every node while the load runs, if VTOP_PROFILE says where to.
func profile(b *testing.B, c *harness.Cluster, name string) (wait func()) {
	dir := os.Getenv("VTOP_PROFILE")
	if dir == "" {
		return func() {}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	for _, n := range c.Nodes {
		all.Go(func() {
			resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=3", n.Admin))
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			f, err := os.Create(filepath.Join(dir, name+"-"+n.Name+".prof"))
			if err != nil {
				b.Error(err)
				return
			}
			defer f.Close()
			if _, err := io.Copy(f, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				b.Errorf("profile of %s: %s, %v", n.Name, resp.Status, err)
			}
		})
	}
	return all.Wait
}
