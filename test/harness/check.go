package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/drill"
)

// Read is one record read back.
type Read struct {
	ID     uint64
	Range  int32
	Offset int64
	// Epoch is the leader epoch under which it was written.
	Epoch int32
}

// ReadAll reads the topic from the beginning up to the given end of each range (exclusive).
func ReadAll(t testing.TB, seeds []string, topic string, ends map[int32]int64, opts ...kgo.Opt) []Read {
	t.Helper()
	offsets := map[int32]kgo.Offset{}
	for r := range ends {
		offsets[r] = kgo.NewOffset().AtStart()
	}
	opts = append(append(ClientOptions(seeds), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets})), opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := WithLimit(context.Background(), 2*time.Minute)
	defer cancel()
	var out []Read
	next := map[int32]int64{}
	for !reached(next, ends) {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("read back of %s: reached %v of %v: %v", topic, next, ends, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			id, err := PayloadID(r.Value)
			if err != nil {
				t.Fatalf("%s/%d offset %d: %v", topic, r.Partition, r.Offset, err)
			}
			next[r.Partition] = r.Offset + 1
			out = append(out, Read{id, r.Partition, r.Offset, r.LeaderEpoch})
		})
	}
	return out
}

func reached(next, ends map[int32]int64) bool {
	for r, end := range ends {
		if next[r] < end {
			return false
		}
	}
	return true
}

// NotInLedger is the id of records that a test writes beside its ledger.
const NotInLedger = drill.NotInLedger

// CheckLedger holds what was read against what was acknowledged: K1, K2, K4, and the order within each range.
func CheckLedger(acks []Ack, read []Read) error {
	return told(drill.CheckLedger(acks, drillReads(read), nil))
}

// CheckPlainLedger is CheckLedger for a producer that isn't idempotent: its records may be there twice, and out of order.
func CheckPlainLedger(acks []Ack, read []Read) error {
	return told(drill.CheckPlainLedger(acks, drillReads(read), nil))
}

func drillReads(read []Read) []drill.Read {
	out := make([]drill.Read, len(read))
	for i, r := range read {
		out[i] = drill.Read{ID: r.ID, Range: r.Range, Offset: r.Offset, Epoch: r.Epoch}
	}
	return out
}

// told joins the first breaches.
func told(breaches []drill.Breach) error {
	var errs []error
	for _, b := range breaches[:min(len(breaches), 10)] {
		errs = append(errs, b)
	}
	if more := len(breaches) - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// VerifyLedger waits until all replicas have caught up, reads everything back and fails the test on any breach
// of K1 to K5. It returns what stands in the topic. opts are of the client that reads.
func (c *Cluster) VerifyLedger(topic string, acks []Ack, opts ...kgo.Opt) []Read {
	c.T.Helper()
	leases := c.WaitCaughtUp(topic, 60*time.Second)
	ends := map[int32]int64{}
	for _, l := range leases {
		ends[l.Range] = l.HighWatermark
	}
	read := ReadAll(c.T, c.Bootstrap(), topic, ends, opts...)
	if err := CheckLedger(acks, read); err != nil {
		c.T.Error(err)
	}
	if err := c.CompareReplicas(leases); err != nil {
		c.T.Error(err)
	}
	c.T.Logf("%d records acknowledged, %d read back, %d ranges compared on disk", len(acks), len(read), len(leases))
	return read
}

// VerifyReadable is VerifyLedger for a cluster in which replicas are missing: what the serving leaders have is read
// back and held against the ledger, and nothing is compared on disk.
func (c *Cluster) VerifyReadable(topic string, acks []Ack) {
	c.T.Helper()
	ends := map[int32]int64{}
	c.Eventually(60*time.Second, "all ranges of "+topic+" served up to their log end", func() error {
		leases, err := c.Leases(topic)
		if err != nil {
			return err
		}
		for _, l := range leases {
			if l.State != "serving" || l.HighWatermark != l.LogEnd {
				return fmt.Errorf("%+v", l)
			}
			ends[l.Range] = l.HighWatermark
		}
		return nil
	})
	read := ReadAll(c.T, c.Bootstrap(), topic, ends)
	if err := CheckLedger(acks, read); err != nil {
		c.T.Error(err)
	}
	c.T.Logf("%d records acknowledged, %d read back", len(acks), len(read))
}

// CompareReplicas holds the segments of all replicas against one another below the floor, by name, byte by byte (K5).
func (c *Cluster) CompareReplicas(leases []Lease) error {
	var errs []error
	for _, l := range leases {
		ref := map[string][]byte{}
		refNode := ""
		for _, r := range l.Replicas {
			segs, err := c.segmentsBelow(c.Node(r.Node), l)
			if err != nil {
				errs = append(errs, fmt.Errorf("K5: %s/%d on %s: %w", l.Topic, l.Range, r.Node, err))
				continue
			}
			if refNode == "" {
				ref, refNode = segs, r.Node
				continue
			}
			errs = append(errs, compareSegments(l, refNode, ref, r.Node, segs))
		}
	}
	return errors.Join(errs...)
}

func compareSegments(l Lease, aNode string, a map[string][]byte, bNode string, b map[string][]byte) error {
	var names []string
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !bytes.Equal(a[name], b[name]) {
			return fmt.Errorf("K5: %s/%d segment %s: %d bytes below the floor on %s, %d on %s, not the same", l.Topic, l.Range, name, len(a[name]), aNode, len(b[name]), bNode)
		}
	}
	return nil
}

// segmentsBelow reads the bytes below the floor of every segment of the range on a node's disk.
func (c *Cluster) segmentsBelow(n *Node, l Lease) (map[string][]byte, error) {
	id, err := c.topicID(l.Topic)
	if err != nil {
		return nil, err
	}
	pattern := filepath.Join(n.Dir, "store", "ranges", fmt.Sprintf("%s-%d", id, l.Range), "*.log")
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no segment matches %s", pattern)
	}
	out := map[string][]byte{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".log"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("segment %s isn't named by its base offset: %w", file, err)
		}
		if base < l.LogStart {
			continue // may be deleted here and not yet there
		}
		if below := belowFloor(b, l.Floor); len(below) > 0 {
			out[strings.TrimSuffix(filepath.Base(file), ".log")] = below
		}
	}
	return out, nil
}

// belowFloor cuts b behind its last whole batch that ends at or below floor.
func belowFloor(b []byte, floor int64) []byte {
	rest := b
	for len(rest) > 0 {
		one, next, err := batch.Parse(rest, 1<<30)
		if err != nil || int64(one.LastOffset()) >= floor || one.Check() != nil {
			break
		}
		rest = next
	}
	return b[:len(b)-len(rest)]
}

// WholeBatches is the length of the whole, good batches at the start of a segment.
func WholeBatches(b []byte) int { return len(belowFloor(b, 1<<62)) }

// TopicID asks for the id of a topic.
func (c *Cluster) TopicID(name string) (string, error) { return c.topicID(name) }

func (c *Cluster) topicID(name string) (string, error) {
	for _, n := range c.Running() {
		var out struct {
			ID string `json:"id"`
		}
		if err := n.Get("/v1/topics/"+name, &out); err == nil && out.ID != "" {
			return out.ID, nil
		}
	}
	return "", fmt.Errorf("no node told the id of topic %s", name)
}
