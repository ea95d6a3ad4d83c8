// Kafkago is the program of kafka-go (github.com/segmentio/kafka-go).
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/vtop-log/vtop/test/clients/programs/go/program"
)

type client struct{ seeds []string }

func main() {
	program.Main(program.Hello{Client: "kafka-go", Version: program.Version("github.com/segmentio/kafka-go")},
		func(seeds []string) program.Client { return client{seeds} })
}

func (c client) CreateTopic(ctx context.Context, cmd program.Command) error {
	cl := &kafka.Client{Addr: kafka.TCP(c.seeds...)}
	resp, err := cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: cmd.Topic, NumPartitions: cmd.Ranges, ReplicationFactor: cmd.Replicas,
	}}})
	if err != nil {
		return err
	}
	return resp.Errors[cmd.Topic]
}

var codecs = map[string]kafka.Compression{"": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

func (c client) Produce(ctx context.Context, cmd program.Command, _ *program.Out) (int, error) {
	if cmd.Idempotent {
		return 0, program.Unsupported("its Writer has no idempotent mode")
	}
	var mu sync.Mutex
	var acked int
	var failed error
	w := &kafka.Writer{
		Addr: kafka.TCP(c.seeds...), Topic: cmd.Topic, RequiredAcks: kafka.RequireAll, Compression: codecs[cmd.Codec],
		BatchTimeout: 10 * time.Millisecond, Async: true,
		// The default of ten tries, at most a second apart, is kept; so are all timeouts.
		Completion: func(m []kafka.Message, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked += len(m)
			} else {
				failed = errors.Join(failed, err)
			}
		},
	}
	var wrong error
	program.Values(ctx, cmd, func(value []byte) {
		if err := w.WriteMessages(context.Background(), kafka.Message{Value: value}); err != nil && wrong == nil {
			wrong = err
		}
	})
	err := w.Close()
	mu.Lock()
	defer mu.Unlock()
	return acked, errors.Join(failed, wrong, err)
}

func (c client) reader(topic string) kafka.ReaderConfig {
	return kafka.ReaderConfig{Brokers: c.seeds, Topic: topic, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond}
}

func (c client) Consume(ctx context.Context, cmd program.Command, out *program.Out) error {
	conn, err := (&kafka.Client{Addr: kafka.TCP(c.seeds...)}).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{cmd.Topic}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := make(chan kafka.Message)
	ended := make(chan error)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, p := range conn.Topics[0].Partitions {
		cfg := c.reader(cmd.Topic)
		cfg.Partition = p.ID
		wg.Go(func() { read(ctx, kafka.NewReader(cfg), messages, ended) })
	}
	for n := 0; cmd.Count == 0 || n < cmd.Count; n++ {
		select {
		case m := <-messages:
			out.Records(program.Read(int32(m.Partition), m.Offset, m.Value))
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func read(ctx context.Context, r *kafka.Reader, messages chan<- kafka.Message, ended chan<- error) {
	defer r.Close()
	for {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			select {
			case ended <- err:
			case <-ctx.Done():
			}
			return
		}
		select {
		case messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

func (c client) Group(ctx context.Context, cmd program.Command, out *program.Out) error {
	if cmd.Protocol == "consumer" {
		return program.Unsupported("its Reader speaks the classic protocol only")
	}
	if cmd.Instance != "" {
		return program.Unsupported("its Reader has no static members")
	}
	cfg := c.reader(cmd.Topic)
	cfg.GroupID, cfg.StartOffset = cmd.Group, kafka.FirstOffset
	cfg.SessionTimeout, cfg.HeartbeatInterval = 6*time.Second, time.Second
	// A synchronous commit is tried again on the connection to the coordinator that died, and its error given to the caller.
	cfg.CommitInterval = 100 * time.Millisecond
	cfg.ErrorLogger = kafka.LoggerFunc(func(format string, args ...any) { out.Warn(format, args...) })
	r := kafka.NewReader(cfg)
	defer r.Close()
	for {
		m, err := r.FetchMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		out.Records(program.Read(int32(m.Partition), m.Offset, m.Value))
		if err := r.CommitMessages(context.Background(), m); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
}
