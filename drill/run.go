package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/transport/adminapi"
)

const (
	// lookEvery is the pause between two looks at the leases, and between two questions whether something is over.
	lookEvery = 100 * time.Millisecond
	// warmUp is how many records are acknowledged before the first blow, so that there is something to lose.
	warmUp = 100
	// endLimit bounds each step of the end.
	endLimit = time.Minute
)

// runner is one drill under way.
type runner struct {
	cfg    Config
	admin  Admin
	fault  fault
	topic  string
	seeds  []string
	began  map[int32]int64 // the ends of the ranges before the first record
	report *Report
	ledger *Ledger
	eyes   *Observer
	leases *Leases
	phase  atomic.Value
	struck atomic.Int32
}

// Run runs one drill. When ctx ends it lets no other blow fall, heals, checks what there is, and returns a Report that says so. The
// error is of what kept it from beginning, as an *adminapi.Error with CodeNotAllowed where nodes were not started for it;
// with it there is no report, and nothing is left of the drill. cfg must have been checked.
func Run(ctx context.Context, cfg Config, admin Admin) (*Report, error) {
	r := &runner{cfg: cfg, admin: admin, fault: faultOf(cfg.Kind), topic: cfg.Topic, report: &Report{
		Drill: cfg.Kind, Load: Load{PerSecond: cfg.PerSecond, RecordSize: cfg.Size}, Blows: []Blow{}, Notes: []string{}, Failures: []string{},
	}}
	r.enter("looking at the cluster")
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.load(ctx); err != nil {
		return nil, errors.Join(err, r.leave(ctx, false))
	}
	r.blows(ctx)
	r.report.Interrupted = ctx.Err() != nil
	r.conclude(context.WithoutCancel(ctx))
	broken := slices.ContainsFunc(r.report.Checks, func(c Check) bool { return !c.Held })
	if err := r.leave(ctx, broken); err != nil {
		r.note("topic %s could not be deleted: %v", r.topic, err)
	}
	return r.report, nil
}

func (r *runner) tell(format string, args ...any) {
	if r.cfg.Progress != nil {
		r.cfg.Progress.Tell(fmt.Sprintf(format, args...))
	}
}

func (r *runner) enter(phase string) { r.phase.Store(phase) }

func (r *runner) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.report.Notes, text) {
		r.report.Notes = append(r.report.Notes, text)
		r.tell("note: %s", text)
	}
}

func (r *runner) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.report.Failures = append(r.report.Failures, text)
	r.tell("failed: %s", text)
}

// settingsAreRight is for the clients that come after one to which the cluster has answered. A connection that ends before its first
// answer is a node that dies to them, and no sign that TLS is set up wrongly, on which a client gives up all records that wait.
var settingsAreRight = kgo.AlwaysRetryEOF()

// client has the options of a client that follows a new leader as fast as a good one can.
func (r *runner) client(more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(r.seeds...),
		kgo.ClientID("vtop-drill"),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.DialTimeout(time.Second),
		kgo.RetryTimeout(2 * time.Minute),
		// A node that hangs is given up after two seconds instead of twenty.
		kgo.ProduceRequestTimeout(time.Second),
		kgo.RequestTimeoutOverhead(time.Second),
	}
	return kgo.NewClient(append(append(opts, more...), r.cfg.Client...)...)
}

// load starts what writes, reads and looks, and returns when the first records are acknowledged.
func (r *runner) load(ctx context.Context) error {
	r.enter("starting the load")
	asks, err := r.client()
	if err != nil {
		return err
	}
	defer asks.Close()
	ends, err := kadm.NewClient(asks).ListEndOffsets(ctx, r.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return adminapi.Errorf(adminapi.CodeUnreachable, "the Kafka ports %s do not tell where topic %s ends: %v", strings.Join(r.seeds, ","), r.topic, err).
			WithHint("say --bootstrap HOST:PORT if clients reach them elsewhere, and --kafka-tls-ca if they speak TLS")
	}
	r.began = map[int32]int64{}
	from := map[int32]kgo.Offset{}
	ends.Each(func(l kadm.ListedOffset) {
		r.began[l.Partition], from[l.Partition] = l.Offset, kgo.NewOffset().At(l.Offset)
	})
	writes, err := r.client(settingsAreRight, kgo.DefaultProduceTopic(r.topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.RecordRetries(1_000_000), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	reads, err := r.client(settingsAreRight, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: from}))
	if err != nil {
		writes.Close()
		return err
	}
	r.report.Started = time.Now()
	r.leases = NewLeases(r.report.Started)
	r.eyes = StartObserver(reads, r.topic)
	r.ledger = StartLedger(writes, LedgerConfig{Run: r.run(), Ranges: r.report.Ranges, Size: r.cfg.Size, PerSecond: r.cfg.PerSecond})
	err = r.await(ctx, endLimit, func(context.Context) error {
		if _, acked := r.ledger.Counts(); acked < warmUp {
			return fmt.Errorf("%d of the first %d records are acknowledged", acked, warmUp)
		}
		return nil
	})
	if err != nil {
		r.eyes.Stop()
		now, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = r.ledger.Stop(now) // the reason stands in err
		return fmt.Errorf("no drill begins: %w", err)
	}
	return nil
}

// run names this drill in its records.
func (r *runner) run() string { return r.report.Started.UTC().Format(time.RFC3339Nano) }

// await asks until check returns nil, says that waiting is of no use, or limit is over; then the error is check's last one.
func (r *runner) await(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := check(bounded)
		var over *final
		if err == nil || errors.As(err, &over) || hopeless(err) {
			return err
		}
		if bounded.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-bounded.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", context.Cause(ctx), last)
			}
			return fmt.Errorf("not within %s: %w", limit, last)
		case <-time.After(lookEvery):
		}
	}
}

// hopeless reports whether asking again changes nothing.
func hopeless(err error) bool {
	var e *adminapi.Error
	return errors.As(err, &e) && (e.Code == adminapi.CodeNotAllowed || e.Code == adminapi.CodeInvalid || e.Code == adminapi.CodeCertificate)
}

func (r *runner) lease(ctx context.Context, n int32) (adminapi.Lease, error) {
	leases, err := r.admin.Leases(ctx, r.topic)
	if err != nil {
		return adminapi.Lease{}, err
	}
	for _, l := range leases {
		if l.Range == n {
			return l, nil
		}
	}
	return adminapi.Lease{}, fmt.Errorf("range %d of %s is not listed", n, r.topic)
}

func (r *runner) node(ctx context.Context, name string) (adminapi.Node, error) {
	nodes, err := r.admin.Nodes(ctx)
	if err != nil {
		return adminapi.Node{}, err
	}
	for _, n := range nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return adminapi.Node{}, fmt.Errorf("node %s is not listed", name)
}

// watch looks at the leases over and over.
func (r *runner) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if leases, err := r.admin.Leases(ctx, r.topic); err == nil {
			r.leases.Saw(time.Now(), leases)
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// tick tells the progress once a second.
func (r *runner) tick(ctx context.Context) {
	if r.cfg.Progress == nil {
		return
	}
	every := time.NewTicker(time.Second)
	defer every.Stop()
	from := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		acks := r.ledger.Since(from)
		from += len(acks)
		lat := make([]float64, len(acks))
		for i, a := range acks {
			lat[i] = millis(a.At.Sub(a.Sent))
		}
		slices.Sort(lat)
		phase, _ := r.phase.Load().(string)
		r.cfg.Progress.Tick(Snapshot{
			Elapsed: time.Since(r.report.Started), Duration: r.cfg.Duration, Acked: len(acks), P99MS: quantile(lat, 0.99), Total: int64(from),
			Blows: int(r.struck.Load()), Phase: phase, Leases: r.leases.Now(),
		})
	}
}

// Now says who leads how many ranges.
func (l *Leases) Now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := map[string]int{}
	for _, i := range l.open {
		by[l.spans[i].Node]++
	}
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s:%d", node, by[node]))
	}
	return strings.Join(parts, " ")
}

// leave deletes the drill's own topic, unless it is to be kept or somebody must look at it.
func (r *runner) leave(ctx context.Context, keep bool) error {
	if !r.report.OwnTopic {
		return nil
	}
	if r.cfg.Keep || keep {
		r.report.Kept = true
		if !r.cfg.Keep {
			r.note("topic %s is kept, since a check did not hold: look at it, then vtopctl topic delete %s", r.topic, r.topic)
		}
		return nil
	}
	on, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	err := r.admin.DeleteTopic(on, r.topic)
	var e *adminapi.Error
	if errors.As(err, &e) && e.Code == adminapi.CodeNotFound {
		err = nil
	}
	r.report.Kept = err != nil
	return err
}
