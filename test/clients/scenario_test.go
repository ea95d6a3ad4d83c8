//go:build cluster

package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop/test/harness"
)

// cell is one client at one feature.
type cell struct {
	t      *testing.T
	target target
	client *client
	topic  string // a name that no other cell uses
	kgo    *kgo.Client
	admin  *kadm.Client
}

const (
	// some is the limit of what a healthy cluster does at once; JVMs on two busy cores take seconds to begin.
	some = 90 * time.Second
	// codecNone to codecZstd are the numbers in a batch's attributes.
	codecNone, codecGzip, codecSnappy, codecLZ4, codecZstd = 0, 1, 2, 3, 4
)

// feature is a column of the table.
type feature struct {
	name string
	what string // one line under the table
	run  func(x *cell) error
	// waits marks what disturbs nobody, and waits long: the consumer protocol's session timeout is the server's, 45 s.
	waits bool
}

// allFeatures are the columns, in the order in which they run.
func allFeatures() []feature {
	out := []feature{
		{"topic", "creates a topic of three ranges (kcat: by producing to it)", createTopic, false},
		{"acks=all", "produces 500 records with acks=all and without idempotence; all are there once, in order", produce("", codecNone, false), false},
		{"gzip", "200 records, stored as gzip batches, and reads such", produce("gzip", codecGzip, false), false},
		{"snappy", "the same with snappy", produce("snappy", codecSnappy, false), false},
		{"lz4", "the same with lz4", produce("lz4", codecLZ4, false), false},
		{"zstd", "the same with zstd", produce("zstd", codecZstd, false), false},
		{"idempotent", "500 records under a producer id; all are there once, in order", produce("", codecNone, true), false},
		{"consume", "reads three ranges with batches of all codecs from the start; nothing lacks, each range in order", consume, false},
		{"lease transfer", "produces (idempotent if it can) and consumes while the lease moves twice; no error, nothing lost, nothing twice", fault(moveTwice), false},
		{"holder killed", "the same while kill -9 hits the holder of the lease", fault(killHolder), false},
	}
	return append(out, groupFeatures()...)
}

// value is the value of record id; the programs make the same.
func value(id int) string { return fmt.Sprintf("%08d-%s", id, strings.Repeat("vtop", 16)) }

// valueID checks a value and gives its id.
func valueID(v string) (int, error) {
	var id int
	if _, err := fmt.Sscanf(v, "%08d-", &id); err != nil || v != value(id) {
		return 0, fmt.Errorf("the value %.40q is none that was written", v)
	}
	return id, nil
}

// program starts the client; the test ends it.
func (x *cell) program() (*process, error) {
	p, err := startProgram(x.t, x.client, x.target.seeds())
	if err == nil {
		x.client.version = p.hello
	}
	return p, err
}

// makeTopic makes the topic of the cell, and waits until each range has a leader.
func (x *cell) makeTopic(ranges int) error {
	err := eventually(some, "topic "+x.topic, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		resp, err := x.admin.CreateTopic(ctx, int32(ranges), int16(x.target.replicas()), nil, x.topic)
		if errors.Is(errors.Join(err, resp.Err), kerr.TopicAlreadyExists) {
			return nil
		}
		return errors.Join(err, resp.Err)
	})
	if err != nil {
		return err
	}
	return x.hasRanges(ranges)
}

// hasRanges waits until every node knows the topic with so many ranges, each with a leader that answers.
func (x *cell) hasRanges(ranges int) error {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(x.topic)
	req.Topics = append(req.Topics, topic)
	err := eventually(some, "ranges of "+x.topic, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		brokers, err := x.admin.ListBrokers(ctx)
		if err != nil {
			return err
		}
		for _, b := range brokers {
			resp, err := req.RequestWith(ctx, x.kgo.Broker(int(b.NodeID)))
			if err != nil {
				return err
			}
			if err := leads(resp.Topics[0], ranges); err != nil {
				return fmt.Errorf("node %d: %w", b.NodeID, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = x.ends()
	return err
}

func leads(topic kmsg.MetadataResponseTopic, ranges int) error {
	if err := kerr.ErrorForCode(topic.ErrorCode); err != nil || len(topic.Partitions) != ranges {
		return fmt.Errorf("%d ranges, wanted %d: %w", len(topic.Partitions), ranges, err)
	}
	for _, p := range topic.Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil || p.Leader < 0 {
			return fmt.Errorf("range %d: leader %d: %w", p.Partition, p.Leader, err)
		}
	}
	return nil
}

// open makes a client of the driver's own.
func (x *cell) open(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(harness.ClientOptions(x.target.seeds()), opts...)...)
}

// ends gives the end offset of each range of the topic.
func (x *cell) ends() (map[int32]int64, error) {
	var out map[int32]int64
	return out, eventually(some, "end offsets of "+x.topic, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		listed, err := x.admin.ListEndOffsets(ctx, x.topic)
		if err = errors.Join(err, listed.Error()); err != nil {
			return err
		}
		out = map[int32]int64{}
		listed.Each(func(l kadm.ListedOffset) { out[l.Partition] = l.Offset })
		return nil
	})
}

// stored reads all that stands in the topic, by range and in order, with a client of the driver's own.
func (x *cell) stored() (map[int32][]*kgo.Record, error) {
	ends, err := x.ends()
	if err != nil {
		return nil, err
	}
	cl, err := x.open(kgo.ConsumeTopics(x.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), some)
	defer cancel()
	out, left := map[int32][]*kgo.Record{}, int64(0)
	for _, end := range ends {
		left += end
	}
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d records still to read: %w", left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out[r.Partition] = append(out[r.Partition], r); left-- })
	}
	return out, nil
}

// write fills the topic: n records from id first on, round robin over the ranges, each range in batches of codec.
func (x *cell) write(ranges, first, n int, codec kgo.CompressionCodec) error {
	cl, err := x.open(kgo.DefaultProduceTopic(x.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), some)
	defer cancel()
	var records []*kgo.Record
	for id := first; id < first+n; id++ {
		records = append(records, &kgo.Record{Partition: int32(id % ranges), Value: []byte(value(id))})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

func createTopic(x *cell) error {
	p, err := x.program()
	if err != nil {
		return err
	}
	if _, err := p.call(command{Op: "create_topic", Topic: x.topic, Ranges: 3, Replicas: x.target.replicas()}, some); err != nil {
		return err
	}
	ranges := 3
	if x.client.madeByProducing {
		ranges = 1
	}
	return errors.Join(x.hasRanges(ranges), p.quit())
}

// produce writes with the client and looks at what stands in the log; with a codec it also reads it back with the client.
func produce(codec string, attribute uint8, idempotent bool) func(x *cell) error {
	return func(x *cell) error {
		count := 500
		if codec != "" {
			count = 200
		}
		if err := x.makeTopic(1); err != nil {
			return err
		}
		p, err := x.program()
		if err != nil {
			return err
		}
		op, err := p.call(command{Op: "produce", Topic: x.topic, Count: count, Codec: codec, Idempotent: idempotent}, some)
		if err != nil {
			return err
		}
		if op.acked() != count {
			return fmt.Errorf("%d of %d records acknowledged", op.acked(), count)
		}
		stored, err := x.stored()
		if err != nil {
			return err
		}
		if err := checkStored(stored[0], count, attribute, idempotent); err != nil {
			return err
		}
		if codec != "" {
			if err := x.readBack(p, map[int32]int{0: count}); err != nil {
				return err
			}
		}
		return p.quit()
	}
}

func checkStored(stored []*kgo.Record, count int, attribute uint8, idempotent bool) error {
	if len(stored) != count {
		return fmt.Errorf("%d records stand in the log, %d were acknowledged", len(stored), count)
	}
	for i, r := range stored {
		if id, err := valueID(string(r.Value)); err != nil || id != i {
			return fmt.Errorf("offset %d holds record %d: %w", i, id, err)
		}
		if got := r.Attrs.CompressionType(); got != attribute {
			return fmt.Errorf("offset %d is stored with codec %d, wanted %d", i, got, attribute)
		}
		if idempotent && r.ProducerID < 0 {
			return fmt.Errorf("offset %d has no producer id", i)
		}
	}
	return nil
}

// readBack reads the topic with the client, and holds it against the number of records of each range.
func (x *cell) readBack(p *process, want map[int32]int) error {
	total := 0
	for _, n := range want {
		total += n
	}
	op, err := p.call(command{Op: "consume", Topic: x.topic, Count: total}, some)
	if err != nil {
		return err
	}
	next := map[int32]int64{}
	for _, r := range op.got() {
		if r.offset != next[r.r] {
			return fmt.Errorf("range %d: offset %d came after offset %d", r.r, r.offset, next[r.r]-1)
		}
		next[r.r]++
		if _, err := valueID(r.value); err != nil {
			return err
		}
	}
	for r, n := range want {
		if next[r] != int64(n) {
			return fmt.Errorf("%d of %d records of range %d came", next[r], n, r)
		}
	}
	return nil
}

func consume(x *cell) error {
	if err := x.makeTopic(3); err != nil {
		return err
	}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for i, codec := range codecs {
		if err := x.write(3, i*300, 300, codec); err != nil {
			return err
		}
	}
	p, err := x.program()
	if err != nil {
		return err
	}
	return errors.Join(x.readBack(p, map[int32]int{0: 500, 1: 500, 2: 500}), p.quit())
}
