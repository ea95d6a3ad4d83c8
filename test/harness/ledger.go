package harness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/drill"
)

// Ack is one acknowledged record.
type Ack = drill.Ack

// Attempt is a record that the client gave up: it may be in the log or not.
type Attempt struct {
	ID    uint64
	Range int32
	Sent  time.Time
}

// Ledger is an idempotent producer that remembers every acknowledged record. Records carry a rising id and a
// checksum of their own.
type Ledger struct {
	t      testing.TB
	topic  string
	client *kgo.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup
	sent   atomic.Uint64

	turn sync.Mutex // held while a record is handed to the client, and from Pause to Resume

	mu     sync.Mutex
	acks   []Ack
	failed []error
	given  []Attempt
	notify chan struct{} // closed and replaced at each acknowledgement
}

// LedgerOptions say how a ledger writes.
type LedgerOptions struct {
	// Ranges of the topic; ids go round.
	Ranges int32
	// Base is the first of them.
	Base int32
	// Size of a record in bytes, at least 24.
	Size int
	// InFlight records at most.
	InFlight int
	// PerSecond bounds the records begun in a second; 0 means 4000, which keeps long drills short to verify, and
	// Unbounded as many as go.
	PerSecond int
	// First is the id of the first record; 0 means 1. Of two ledgers on one topic the later one has the higher ids.
	First uint64
	// Plain leaves the client's timing at its defaults.
	Plain bool
	// Client options on top of the ledger's.
	Client []kgo.Opt
}

// Unbounded as LedgerOptions.PerSecond lets the ledger write as fast as it can.
const Unbounded = -1

// ClientOptions make a franz-go client follow a leader as fast as a good client can.
func ClientOptions(seeds []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RequestRetries(10_000), // the time ends them: twenty, the default, are over before a failover is
		kgo.DialTimeout(2 * time.Second),
		kgo.RetryTimeout(2 * time.Minute),
		// A node that hangs is given up after eight seconds instead of twenty.
		kgo.ProduceRequestTimeout(5 * time.Second),
		kgo.RequestTimeoutOverhead(3 * time.Second),
		// A node that dies may have read the first request of a connection and not answered it. The client takes that for a setting of
		// ours that is wrong, and gives up all records that wait, unless it is told that the settings are right.
		kgo.AlwaysRetryEOF(),
	}
}

// StartLedger begins to write to topic until Stop.
func StartLedger(t testing.TB, seeds []string, topic string, opt LedgerOptions) *Ledger {
	t.Helper()
	opt.Size = max(opt.Size, 24)
	opt.InFlight = max(opt.InFlight, 1)
	base := ClientOptions(seeds)
	if opt.Plain {
		base = []kgo.Opt{kgo.SeedBrokers(seeds...)}
	}
	opts := append(base,
		kgo.DefaultProduceTopic(topic),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.RecordRetries(1_000_000),
		kgo.MaxBufferedRecords(opt.InFlight),
	)
	client, err := kgo.NewClient(append(opts, opt.Client...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Ledger{t: t, topic: topic, client: client, cancel: cancel, notify: make(chan struct{})}
	t.Cleanup(func() { cancel(); client.Close() })
	l.wg.Add(1)
	go l.write(ctx, opt)
	return l
}

func (l *Ledger) write(ctx context.Context, opt LedgerOptions) {
	defer l.wg.Done()
	if opt.PerSecond == 0 {
		opt.PerSecond = 4000
	}
	started := time.Now()
	opt.First = max(opt.First, 1)
	for id := opt.First; ctx.Err() == nil; id++ {
		started = started.Add(l.waitTurn()) // what was not written while paused is not made up for
		if ahead := float64(id-opt.First)/float64(opt.PerSecond) - time.Since(started).Seconds(); opt.PerSecond > 0 && ahead > 0.01 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(ahead * float64(time.Second))):
			}
		}
		l.produce(id, opt)
	}
}

// waitTurn returns once the ledger isn't paused, and how long it was.
func (l *Ledger) waitTurn() time.Duration {
	since := time.Now()
	l.turn.Lock()
	defer l.turn.Unlock()
	return time.Since(since)
}

func (l *Ledger) produce(id uint64, opt LedgerOptions) {
	l.turn.Lock()
	defer l.turn.Unlock()
	rec := &kgo.Record{Value: Payload(id, opt.Size), Partition: opt.Base + int32(id%uint64(max(opt.Ranges, 1)))}
	l.sent.Store(id)
	sent := time.Now()
	// Produce blocks while InFlight records are buffered; its context must outlive the record, so that Stop
	// lets what was sent be answered.
	l.client.Produce(context.Background(), rec, func(r *kgo.Record, err error) { l.done(id, sent, r, err) })
}

func (l *Ledger) done(id uint64, sent time.Time, r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("record %d: %w", id, err))
		l.given = append(l.given, Attempt{ID: id, Range: r.Partition, Sent: sent})
		return
	}
	l.acks = append(l.acks, Ack{ID: id, Range: r.Partition, Offset: r.Offset, Sent: sent, At: time.Now()})
	close(l.notify)
	l.notify = make(chan struct{})
}

// Count is the number of acknowledged records so far.
func (l *Ledger) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acks)
}

// Acks are the records acknowledged so far, in the order in which the client heard of them.
func (l *Ledger) Acks() []Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Ack(nil), l.acks...)
}

// WaitMore waits until n more records were acknowledged from now on, and returns when the first of them was.
func (l *Ledger) WaitMore(n int, limit time.Duration) time.Time {
	l.t.Helper()
	from := l.Count()
	limit = patient(limit)
	ctx, cancel := WithLimit(context.Background(), limit)
	defer cancel()
	for {
		l.mu.Lock()
		have, wait := len(l.acks), l.notify
		var first time.Time
		if have > from {
			first = l.acks[from].At
		}
		l.mu.Unlock()
		if have >= from+n {
			return first
		}
		select {
		case <-wait:
		case <-ctx.Done():
			l.t.Fatalf("%d of %d more records acknowledged within %s (failed: %v)", have-from, n, limit, l.Failed())
		}
	}
}

// Failed are the errors of records that the client gave up.
func (l *Ledger) Failed() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.failed...)
}

// Given are the records that the client gave up.
func (l *Ledger) Given() []Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Attempt(nil), l.given...)
}

// Pause lets no more records begin and returns when all that were sent were answered. Resume must follow. After limit it
// returns an error, and the ledger goes on.
func (l *Ledger) Pause(limit time.Duration) error {
	ctx, cancel := WithLimit(context.Background(), limit)
	defer cancel()
	for !l.turn.TryLock() {
		if ctx.Err() != nil {
			return fmt.Errorf("a record has waited for room among those in flight for %s", limit)
		}
		time.Sleep(time.Millisecond)
	}
	if err := l.client.Flush(ctx); err != nil {
		l.Resume()
		return fmt.Errorf("records sent were not answered within %s: %w", limit, err)
	}
	return nil
}

// Resume lets records begin again.
func (l *Ledger) Resume() { l.turn.Unlock() }

// Stop ends writing, waits until everything sent was answered, and returns the acknowledged records. A record
// that the client gave up fails the test: nothing here should exhaust its retries.
func (l *Ledger) Stop(limit time.Duration) []Ack {
	l.t.Helper()
	acks := l.StopKeepingFailures(limit)
	if failed := l.Failed(); len(failed) > 0 {
		l.t.Errorf("%d records were given up, the first: %v", len(failed), failed[0])
	}
	return acks
}

// StopKeepingFailures is Stop for drills in which records may fail.
func (l *Ledger) StopKeepingFailures(limit time.Duration) []Ack {
	l.t.Helper()
	l.cancel()
	limit = patient(limit)
	ctx, cancel := WithLimit(context.Background(), limit)
	defer cancel()
	if err := l.client.Flush(ctx); err != nil {
		l.t.Errorf("records sent were not answered within %s: %v", limit, err)
	}
	l.wg.Wait() // the first flush made room for the record that the writer was about to send; it goes with the second
	if err := l.client.Flush(ctx); err != nil {
		l.t.Errorf("the last record was not answered within %s: %v", limit, err)
	}
	l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Ack(nil), l.acks...)
}

// Payload is the value of record id: the id, a filler that follows from it, and a checksum.
func Payload(id uint64, size int) []byte { return drill.Payload(id, size) }

// PayloadID checks a payload and gives its id.
func PayloadID(b []byte) (uint64, error) { return drill.PayloadID(b) }
