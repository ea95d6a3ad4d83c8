//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/vtop-log/vtop/test/harness"
)

func admin(t *testing.T, c *harness.Cluster) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(harness.ClientOptions(c.Bootstrap())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// Small segments and a small retention while an idempotent producer writes and holders are killed: segments are
// rolled, sealed with one root on every replica, and removed; disks stay small; what is above the log start is whole.
func TestTopic_RollSealAndRetentionUnderLoad(t *testing.T) {
	const segment, keep = 1 << 20, 6 << 20
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3, "--config", fmt.Sprintf("segment.bytes=%d", segment), "--config", fmt.Sprintf("retention.bytes=%d", keep))
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, Size: 4096, InFlight: 64, PerSecond: harness.Unbounded})
	for range 3 {
		ledger.WaitMore(3000, 60*time.Second)
		victim, _ := c.Holder("ledger", 0)
		victim.Kill()
		ledger.WaitMore(1000, 60*time.Second)
		victim.Start()
		victim.WaitReady()
		c.WaitInSync("ledger", 60*time.Second)
	}
	acks := ledger.Stop(60 * time.Second)
	var lease harness.Lease
	c.Eventually(60*time.Second, "retention on every replica", func() error {
		_, lease = c.Holder("ledger", 0)
		if lease.LogStart == 0 {
			return errors.New("the log start has not moved")
		}
		for _, n := range c.Nodes {
			if size := bytesOf(t, n); size > keep+4*segment {
				return fmt.Errorf("%s keeps %d bytes, retention.bytes is %d", n.Name, size, keep)
			}
			// The list forgets a segment before its files are gone.
			files, err := filepath.Glob(filepath.Join(n.Dir, "store", "ranges", "*", "*.log"))
			if err != nil || len(files) > (keep+4*segment)/segment+2 {
				return fmt.Errorf("%s still has %d segment files (%v)", n.Name, len(files), err)
			}
			// Each replica publishes its manifests on its own clock.
			manifests, err := filepath.Glob(filepath.Join(n.Dir, "store", "ranges", "*", "*.manifest"))
			if err != nil || len(manifests) < keep/segment-1 {
				return fmt.Errorf("%s has %d manifests for %d segment files (%v)", n.Name, len(manifests), len(files), err)
			}
		}
		return nil
	})
	leases := c.WaitCaughtUp("ledger", 60*time.Second)
	read := harness.ReadAll(t, c.Bootstrap(), "ledger", map[int32]int64{0: leases[0].HighWatermark})
	var kept []harness.Ack
	for _, a := range acks {
		if a.Offset >= leases[0].LogStart {
			kept = append(kept, a)
		}
	}
	if err := errors.Join(harness.CheckLedger(kept, read), c.CompareReplicas(leases)); err != nil {
		t.Error(err)
	}
	sameRoots(t, c)
	t.Logf("%d records acknowledged, log start %d, %d above it read back", len(acks), leases[0].LogStart, len(read))
}

func bytesOf(t *testing.T, n *harness.Node) int64 {
	t.Helper()
	var segs []segmentLine
	n.CtlJSON(&segs, "segment", "list", "ledger/0", "--node", n.Name)
	var size int64
	for _, s := range segs {
		size += s.Size
	}
	return size
}

type segmentLine struct {
	Node  string `json:"node"`
	Base  int64  `json:"base"`
	End   int64  `json:"end"`
	Size  int64  `json:"size_bytes"`
	State string `json:"state"`
	Root  string `json:"root"`
}

// sameRoots holds that every sealed segment has one root on all replicas (I9), and that vtopctl segment verify finds
// the files whole.
func sameRoots(t *testing.T, c *harness.Cluster) {
	t.Helper()
	roots, sealed := map[int64]string{}, 0
	for _, n := range c.Nodes {
		var segs []segmentLine
		n.CtlJSON(&segs, "segment", "list", "ledger/0", "--node", n.Name)
		for _, s := range segs {
			if s.State != "sealed" {
				continue
			}
			sealed++
			if other, ok := roots[s.Base]; ok && other != s.Root {
				t.Errorf("I9: segment %d has root %s on %s and %s elsewhere", s.Base, s.Root, n.Name, other)
			}
			roots[s.Base] = s.Root
		}
		files, err := filepath.Glob(filepath.Join(n.Dir, "store", "ranges", "*", "*.manifest"))
		if err != nil || len(files) == 0 {
			t.Errorf("no manifest on %s (%v)", n.Name, err)
			continue
		}
		if _, errOut, code := n.Ctl("segment", "verify", filepath.Dir(files[0])); code != 0 {
			t.Errorf("vtopctl segment verify on %s: exit %d: %s", n.Name, code, errOut)
		}
	}
	if sealed == 0 {
		t.Error("no segment was sealed")
	}
}

// J3: a topic is deleted and made again under the same name while a producer and a consumer stay connected. Nothing
// of the old one is seen in the new one, epochs go on above the old ones, and the old one's files go.
func TestTopic_DeletedAndMadeAgainUnderConnectedClients(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: append([]string{"--auto-create-topics=false"}, steady...)})
	createTopic(t, c, "ledger", 2, 3)
	// One client is from before topics had ids, and goes on with whatever has the name. The other takes a topic with another
	// id for another one, as long as it is not told to forget the first: this library says so, to whatever cluster.
	var clients []*kgo.Client
	for _, opts := range [][]kgo.Opt{{kgo.MaxVersions(kversion.V2_7_0())}, nil} {
		client, err := kgo.NewClient(append(append(harness.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic("ledger"),
			kgo.UnknownTopicRetries(-1), kgo.RecordPartitioner(kgo.ManualPartitioner())), opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	adm := admin(t, c)
	var epoch int32
	for round := range uint64(4) {
		if round > 0 {
			if _, err := adm.DeleteTopics(ctx, "ledger"); err != nil {
				t.Fatal(err)
			}
			createAgain(ctx, t, adm, "ledger", 2)
			clients[1].PurgeTopicsFromClient("ledger")
		}
		var acks []harness.Ack
		for i := range uint64(200) {
			id := round*1000 + i + 1
			rec := &kgo.Record{Value: harness.Payload(id, 64), Partition: int32(i % 2)}
			if err := clients[i/2%2].ProduceSync(ctx, rec).FirstErr(); err != nil {
				t.Fatalf("round %d, client %d: %v", round, i/2%2, err)
			}
			acks = append(acks, harness.Ack{ID: id, Range: rec.Partition, Offset: rec.Offset})
		}
		_, lease := c.Holder("ledger", 0)
		if lease.Epoch <= epoch {
			t.Errorf("round %d: the topic made again has epoch %d, the deleted one had %d", round, lease.Epoch, epoch)
		}
		epoch = lease.Epoch
		c.VerifyLedger("ledger", acks)
	}
	c.Eventually(60*time.Second, "files of deleted topics gone", func() error {
		for _, n := range c.Nodes {
			dirs, err := filepath.Glob(filepath.Join(n.Dir, "store", "ranges", "*"))
			if err != nil || len(dirs) != 2 {
				return fmt.Errorf("%s has %d range directories, want 2 (%v)", n.Name, len(dirs), err)
			}
		}
		return nil
	})
}

func createAgain(ctx context.Context, t *testing.T, adm *kadm.Client, topic string, ranges int32) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "topic made again", func() error {
		resp, err := adm.CreateTopic(ctx, ranges, 3, nil, topic)
		return errors.Join(err, resp.Err)
	})
}

// DeleteRecords moves the log start on every replica, is refused above the high watermark, and survives a failover.
func TestTopic_DeleteRecords(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: steady})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 64})
	ledger.WaitMore(1000, 30*time.Second)
	acks := ledger.Stop(30 * time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	adm := admin(t, c)
	deleteBelow := func(offset int64) error {
		var offsets kadm.Offsets
		offsets.AddOffset("ledger", 0, offset, -1)
		resp, err := adm.DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		r, ok := resp.Lookup("ledger", 0)
		if !ok {
			return errors.New("no answer for the range")
		}
		return r.Err
	}
	if err := deleteBelow(500); err != nil {
		t.Fatal(err)
	}
	if err := deleteBelow(1 << 40); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("deletion above the high watermark: %v, want OFFSET_OUT_OF_RANGE", err)
	}
	victim, _ := c.Holder("ledger", 0)
	victim.Kill()
	c.Eventually(30*time.Second, "log start after a failover", func() error {
		starts, err := adm.ListStartOffsets(ctx, "ledger")
		if err != nil {
			return err
		}
		if got, ok := starts.Lookup("ledger", 0); !ok || got.Err != nil || got.Offset != 500 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	victim.Start()
	victim.WaitReady()
	leases := c.WaitCaughtUp("ledger", 60*time.Second)
	read := harness.ReadAll(t, c.Bootstrap(), "ledger", map[int32]int64{0: leases[0].HighWatermark})
	var kept []harness.Ack
	for _, a := range acks {
		if a.Offset >= 500 {
			kept = append(kept, a)
		}
	}
	if err := harness.CheckLedger(kept, read); err != nil {
		t.Error(err)
	}
	if len(read) == 0 || read[0].Offset < 500 {
		t.Errorf("%d records read from the start, the first %+v", len(read), read[:min(1, len(read))])
	}
}
