package drill

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Ack is one acknowledged record.
type Ack struct {
	ID     uint64
	Range  int32
	Offset int64
	// Sent is when the record was given to the client, At when its acknowledgement came.
	Sent, At time.Time
}

// runHeader names the drill that a record is of: others may write to the same topic.
const runHeader = "vtop-drill"

// LedgerConfig says how a ledger writes.
type LedgerConfig struct {
	// Run is told in a header of every record.
	Run string
	// Ranges of the topic; records go round.
	Ranges int
	// Size of a value in bytes.
	Size int
	// PerSecond is how many records are begun in a second.
	PerSecond int
}

// Ledger is an idempotent producer that remembers every acknowledged record. Values are Payloads with rising ids.
type Ledger struct {
	client *kgo.Client
	cfg    LedgerConfig
	cancel context.CancelFunc
	wg     sync.WaitGroup

	sent, acked atomic.Int64

	mu     sync.Mutex
	acks   []Ack
	failed []error
	lost   int
}

// StartLedger begins to write with client, whose default topic it writes to, until Stop. The client is the ledger's from
// now on.
func StartLedger(client *kgo.Client, cfg LedgerConfig) *Ledger {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Ledger{client: client, cfg: cfg, cancel: cancel}
	l.wg.Go(func() { l.write(ctx) })
	return l
}

// write keeps its pace whatever the cluster does: what the client has no room for is not written.
func (l *Ledger) write(ctx context.Context) {
	const step = 5 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	started, id := time.Now(), uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		due := uint64(time.Since(started).Seconds() * float64(l.cfg.PerSecond))
		for id < due && ctx.Err() == nil {
			id++
			l.send(id)
		}
	}
}

func (l *Ledger) send(id uint64) {
	rec := &kgo.Record{
		Value: Payload(id, l.cfg.Size), Partition: int32(id % uint64(l.cfg.Ranges)),
		Headers: []kgo.RecordHeader{{Key: runHeader, Value: []byte(l.cfg.Run)}},
	}
	at := time.Now()
	l.sent.Add(1)
	l.client.TryProduce(context.Background(), rec, func(r *kgo.Record, err error) { l.done(id, at, r, err) })
}

func (l *Ledger) done(id uint64, sent time.Time, r *kgo.Record, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, kgo.ErrMaxBuffered): // it never left
		l.sent.Add(-1)
		l.lost++
	case err != nil:
		l.failed = append(l.failed, err)
	default:
		l.acks = append(l.acks, Ack{ID: id, Range: r.Partition, Offset: r.Offset, Sent: sent, At: now})
		l.acked.Add(1)
	}
}

// Counts are the records sent and acknowledged so far.
func (l *Ledger) Counts() (sent, acked int64) { return l.sent.Load(), l.acked.Load() }

// Since gives the acknowledgements from the n-th on.
func (l *Ledger) Since(n int) []Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Ack(nil), l.acks[min(n, len(l.acks)):]...)
}

// Failed are the errors of records that the client gave up. They may or may not be in the log.
func (l *Ledger) Failed() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.failed...)
}

// HeldBack counts records that were not begun because the client was full.
func (l *Ledger) HeldBack() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Stop ends writing and waits until everything sent was answered or ctx ends; then it closes the client.
func (l *Ledger) Stop(ctx context.Context) error {
	l.cancel()
	l.wg.Wait()
	err := l.client.Flush(ctx)
	l.client.Close()
	return err
}
