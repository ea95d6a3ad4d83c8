// Sarama is the program of sarama (github.com/IBM/sarama).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/vtop-log/vtop/test/clients/programs/go/program"
)

type client struct{ seeds []string }

func main() {
	sarama.Logger = log.New(os.Stderr, "", log.Lmicroseconds)
	program.Main(program.Hello{Client: "sarama", Version: program.Version("github.com/IBM/sarama")},
		func(seeds []string) program.Client { return client{seeds} })
}

func config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "sarama-program"
	return cfg
}

func (c client) CreateTopic(_ context.Context, cmd program.Command) error {
	admin, err := sarama.NewClusterAdmin(c.seeds, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic(cmd.Topic, &sarama.TopicDetail{NumPartitions: int32(cmd.Ranges), ReplicationFactor: int16(cmd.Replicas)}, false)
}

var codecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func (c client) Produce(ctx context.Context, cmd program.Command, _ *program.Out) (int, error) {
	cfg := config()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Compression = codecs[cmd.Codec]
	cfg.Producer.Return.Successes = true
	// The default of three tries, 100 ms apart, is shorter than a change of leader.
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 60, 250*time.Millisecond
	if cmd.Idempotent {
		cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	}
	p, err := sarama.NewAsyncProducer(c.seeds, cfg)
	if err != nil {
		return 0, err
	}
	var acked int
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		for range p.Successes() {
			acked++
		}
	})
	wg.Go(func() {
		for err := range p.Errors() {
			failed = errors.Join(failed, err)
		}
	})
	program.Values(ctx, cmd, func(value []byte) {
		p.Input() <- &sarama.ProducerMessage{Topic: cmd.Topic, Value: sarama.ByteEncoder(value)}
	})
	p.AsyncClose()
	wg.Wait()
	return acked, failed
}

func (c client) Consume(ctx context.Context, cmd program.Command, out *program.Out) error {
	cfg := config()
	cfg.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(c.seeds, cfg)
	if err != nil {
		return err
	}
	defer consumer.Close()
	ranges, err := consumer.Partitions(cmd.Topic)
	if err != nil {
		return err
	}
	messages, ended := make(chan *sarama.ConsumerMessage), make(chan int32)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, r := range ranges {
		pc, err := consumer.ConsumePartition(cmd.Topic, r, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		wg.Go(func() { follow(ctx, r, pc, messages, ended) })
		// sarama's default is to log these errors; it goes on by itself. Closed messages are the end.
		wg.Go(func() {
			for err := range pc.Errors() {
				out.Warn("%v", err)
			}
		})
	}
	for n := 0; cmd.Count == 0 || n < cmd.Count; n++ {
		select {
		case m := <-messages:
			out.Records(program.Read(m.Partition, m.Offset, m.Value))
		case r := <-ended:
			return fmt.Errorf("the consumer of range %d ended by itself", r)
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// follow hands on what pc reads until ctx ends, closes pc, and drains it, as sarama asks.
func follow(ctx context.Context, r int32, pc sarama.PartitionConsumer, messages chan<- *sarama.ConsumerMessage, ended chan<- int32) {
	stop := context.AfterFunc(ctx, pc.AsyncClose)
	defer stop()
	for m := range pc.Messages() {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	}
	select {
	case ended <- r:
	case <-ctx.Done():
	}
}

func (c client) Group(ctx context.Context, cmd program.Command, out *program.Out) error {
	if cmd.Protocol == "consumer" {
		return program.Unsupported("its ConsumerGroup speaks the classic protocol only")
	}
	cfg := config()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond // what a Commit did not get through is not tried again by it
	cfg.Consumer.Group.Session.Timeout = 6 * time.Second
	cfg.Consumer.Group.Heartbeat.Interval = time.Second
	cfg.Consumer.Group.InstanceId = cmd.Instance
	cfg.Consumer.Return.Errors = true
	group, err := sarama.NewConsumerGroup(c.seeds, cmd.Group, cfg)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for err := range group.Errors() {
			out.Warn("%v", err)
		}
	})
	defer wg.Wait()
	defer group.Close()
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{cmd.Topic}, handler{out})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("consume: %w", err)
		}
	}
	return nil
}

type handler struct{ out *program.Out }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim commits once for all that has come meanwhile.
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			records := []program.Record{program.Read(m.Partition, m.Offset, m.Value)}
			s.MarkMessage(m, "")
			for len(claim.Messages()) > 0 {
				if m, ok = <-claim.Messages(); ok {
					records = append(records, program.Read(m.Partition, m.Offset, m.Value))
					s.MarkMessage(m, "")
				}
			}
			h.out.Records(records...)
			s.Commit()
		case <-s.Context().Done():
			return nil
		}
	}
}
