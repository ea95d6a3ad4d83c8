// Franz is the program of franz-go (github.com/twmb/franz-go).
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/clients/programs/go/program"
)

type client struct{ seeds []string }

func main() {
	program.Main(program.Hello{Client: "franz-go", Version: program.Version("github.com/twmb/franz-go")},
		func(seeds []string) program.Client { return client{seeds} })
}

func (c client) open(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.seeds...)}, opts...)...)
}

func (c client) CreateTopic(ctx context.Context, cmd program.Command) error {
	cl, err := c.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, int32(cmd.Ranges), int16(cmd.Replicas), nil, cmd.Topic)
	return errors.Join(err, resp.Err)
}

var codecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (c client) Produce(ctx context.Context, cmd program.Command, _ *program.Out) (int, error) {
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(cmd.Topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(codecs[cmd.Codec]),
	}
	if !cmd.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := c.open(opts...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	var mu sync.Mutex
	var acked int
	var failed error
	program.Values(ctx, cmd, func(value []byte) {
		cl.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked++
			} else if failed == nil {
				failed = err
			}
		})
	})
	err = cl.Flush(context.Background())
	mu.Lock()
	defer mu.Unlock()
	return acked, errors.Join(failed, err)
}

func (c client) Consume(ctx context.Context, cmd program.Command, out *program.Out) error {
	cl, err := c.open(kgo.ConsumeTopics(cmd.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for n := 0; ctx.Err() == nil && (cmd.Count == 0 || n < cmd.Count); {
		got, err := poll(ctx, cl, out)
		if err != nil {
			return err
		}
		n += got
	}
	return nil
}

func poll(ctx context.Context, cl *kgo.Client, out *program.Out) (int, error) {
	fetches := cl.PollFetches(ctx)
	var failed error
	fetches.EachError(func(t string, p int32, err error) {
		if ctx.Err() == nil {
			failed = errors.Join(failed, fmt.Errorf("%s/%d: %w", t, p, err))
		}
	})
	var records []program.Record
	fetches.EachRecord(func(r *kgo.Record) { records = append(records, program.Read(r.Partition, r.Offset, r.Value)) })
	out.Records(records...)
	return len(records), failed
}

func (c client) Group(ctx context.Context, cmd program.Command, out *program.Out) error {
	opts := []kgo.Opt{
		kgo.ConsumeTopics(cmd.Topic), kgo.ConsumerGroup(cmd.Group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}
	if cmd.Protocol == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer())
	} else {
		opts = append(opts, kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second))
	}
	if cmd.Instance != "" {
		opts = append(opts, kgo.InstanceID(cmd.Instance))
	}
	cl, err := c.open(opts...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	for ctx.Err() == nil {
		if _, err := poll(ctx, cl, out); err != nil {
			return err
		}
		if err := cl.CommitUncommittedOffsets(context.Background()); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		cl.AllowRebalance()
	}
	return nil
}
