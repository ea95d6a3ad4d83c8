//go:build cluster

package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
	"github.com/vtop-log/vtop/transport/tlsid"
)

const (
	// repairBytes is what is copied, by a repair and plainly.
	repairBytes = 512 << 20
	// clientTime is how long a client is measured without a repair.
	clientTime = 4 * time.Second
)

// BenchmarkRepair prints what a repair of an idle cluster moves in a second, with and without TLS, beside what the disk
// writes and what a plain copy of a file over loopback TCP reaches in the same run; and the latency of a synchronous
// client without and during a repair at the default budget.
func BenchmarkRepair(b *testing.B) {
	for range b.N {
		for _, secure := range []bool{false, true} {
			repairRate(b, secure)
		}
		repairLatency(b)
	}
}

// loaded starts three nodes with a topic that has so many bytes sealed, and a spare node.
func loaded(b *testing.B, secure bool) (c *harness.Cluster, spare *harness.Node) {
	b.Helper()
	c = harness.Start(b, harness.Options{Nodes: 3, TLS: secure})
	harness.Eventually(b, 20*time.Second, "topic", func() error {
		if _, errOut, code := c.Nodes[0].Ctl("topic", "create", "big", "--ranges", "1", "--replicas", "3", "--config", "segment.bytes=67108864"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		return nil
	})
	for written := 0; written < repairBytes; written += 64 << 20 {
		produce(b, c.Bootstrap(), "big", 16<<10, 64<<20)
	}
	spare = c.AddNode()
	spare.Start()
	spare.WaitReady()
	harness.Eventually(b, 30*time.Second, "the spare node is known, and all is sealed", func() error {
		if _, errOut, code := c.Nodes[0].Ctl("seal", "big/0"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, errOut)
		}
		nodes, err := c.NodeLines()
		if err != nil || len(nodes) != 4 || !nodes[3].Alive {
			return fmt.Errorf("nodes are %+v (%w)", nodes, err)
		}
		return nil
	})
	return c, spare
}

// follower is a node with a replica of big/0 that doesn't lead it.
func follower(c *harness.Cluster) string {
	holder, lease := c.Holder("big", 0)
	for _, r := range lease.Replicas {
		if r.Node != holder.Name {
			return r.Node
		}
	}
	return ""
}

func repairRate(b *testing.B, secure bool) {
	b.Helper()
	c, spare := loaded(b, secure)
	disk := measureDisk(b)
	files := harness.SealedFiles(c.RangeDir("big", 0, c.Nodes[0]))
	plain, encrypted := copyRate(b, files, nil), 0.0
	reference, kind := min(plain, disk.sequential), "plaintext"
	if secure {
		encrypted = copyRate(b, files, identity(b, c))
		reference, kind = min(encrypted, disk.sequential), "TLS"
	}
	began := time.Now()
	job, stderr, code := c.Nodes[0].Repair(5*time.Minute, "big/0", "--node", spare.Name, "--replace", follower(c))
	took := time.Since(began)
	if code != 0 {
		b.Fatalf("repair: exit %d: %s: %+v", code, stderr, job)
	}
	moved := stepTime(b, spare, "adopting").Sub(stepTime(b, spare, "transferring"))
	rate := float64(job.Bytes) / 1e6 / moved.Seconds()
	fmt.Printf("repair, idle, %s: %.0f MB transferred in %s: %.0f MB/s (%s from the command to the vote: %.0f MB/s); disk %.0f MB/s, file over loopback TCP %.0f MB/s, with TLS %.0f MB/s; ratio to the slower %.2f (aim 0.70)\n",
		kind, float64(job.Bytes)/1e6, moved, rate, took.Round(time.Millisecond), float64(job.Bytes)/1e6/took.Seconds(), disk.sequential, plain, encrypted, rate/reference)
	b.ReportMetric(rate, "MB/s-"+kind)
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// stepTime is when the node's repair took a step, by its log.
func stepTime(b *testing.B, n *harness.Node, step string) time.Time {
	b.Helper()
	for line := range strings.Lines(n.Log()) {
		if strings.Contains(line, "repair: repair:") && strings.Contains(line, "step="+step) {
			stamp, _, _ := strings.Cut(line, " ")
			at, err := time.Parse("2006-01-02T15:04:05.000Z07:00", stamp)
			if err != nil {
				b.Fatal(err)
			}
			return at
		}
	}
	b.Fatalf("%s does not log the step %s", n.Name, step)
	return time.Time{}
}

func identity(b *testing.B, c *harness.Cluster) *tlsid.Identity {
	b.Helper()
	base := filepath.Join(c.CertDir(), "n1")
	id, err := tlsid.Load(tlsid.Files{Cert: base + ".crt", Key: base + ".key", CA: filepath.Join(c.CertDir(), "ca.crt")})
	if err != nil {
		b.Fatal(err)
	}
	return id
}

// copyRate copies files over one loopback connection into new files, with one fsync each, and returns MB/s. With an
// identity the connection is TLS.
func copyRate(b *testing.B, files []string, id *tlsid.Identity) float64 {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	sent := make(chan error, 1)
	go func() { sent <- sendFiles(ln, files, id) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if id != nil {
		conn = tls.Client(conn, id.ClientConfig("n1", "copy"))
	}
	dir, err := os.MkdirTemp("", "vtop-copy-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	began, total := time.Now(), int64(0)
	buf := make([]byte, 1<<20)
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, filepath.Base(path)))
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(conn, info.Size()), buf)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			b.Fatal(err)
		}
		total += n
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
	return float64(total) / 1e6 / time.Since(began).Seconds()
}

func sendFiles(ln net.Listener, files []string, id *tlsid.Identity) error {
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if id != nil {
		conn = tls.Server(conn, id.ServerConfig([]tlsid.Role{tlsid.Node}, "copy"))
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(conn, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// repairLatency measures a synchronous client for a while, and again until a repair beside it has ended.
func repairLatency(b *testing.B) {
	b.Helper()
	c, spare := loaded(b, false)
	makeTopic(b, c.Bootstrap(), "sync", 1)
	before50, before99 := clientLatency(b, c, nil)
	run := c.Nodes[0].StartRepair("big/0", "--node", spare.Name, "--replace", follower(c))
	during50, during99 := clientLatency(b, c, func() bool { return !run.Ended() })
	job, stderr, code := run.Wait(5 * time.Minute)
	if code != 0 {
		b.Fatalf("repair: exit %d: %s: %+v", code, stderr, job)
	}
	took := job.UpdatedAt.Sub(job.CreatedAt)
	after50, after99 := clientLatency(b, c, nil)
	fmt.Printf("client beside a repair at the default budget (%.0f MB in %s, %.0f MB/s): p50 %.2f ms, p99 %.2f ms; without: p50 %.2f/%.2f ms, p99 %.2f/%.2f ms (before/after); ratio of p99 %.1f (aim 2)\n",
		float64(job.Bytes)/1e6, took.Round(time.Millisecond), float64(job.Bytes)/1e6/took.Seconds(), millis(during50), millis(during99),
		millis(before50), millis(after50), millis(before99), millis(after99), during99.Seconds()/max(before99, after99).Seconds())
	b.ReportMetric(during99.Seconds()/max(before99, after99).Seconds(), "p99-ratio")
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// clientLatency writes one record after the other for as long as more says; nil means clientTime.
func clientLatency(b *testing.B, c *harness.Cluster, more func() bool) (p50, p99 time.Duration) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.DefaultProduceTopic("sync"), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	value := []byte(strings.Repeat("v", 1<<10))
	if err := client.ProduceSync(context.Background(), &kgo.Record{Value: value}).FirstErr(); err != nil {
		b.Fatal(err)
	}
	var times []time.Duration
	if more == nil {
		end := time.Now().Add(clientTime)
		more = func() bool { return time.Now().Before(end) }
	}
	for more() {
		started := time.Now()
		if err := client.ProduceSync(context.Background(), &kgo.Record{Value: value}).FirstErr(); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(started))
	}
	if len(times) == 0 {
		b.Fatal("nothing was measured")
	}
	return quantiles(times)
}
