package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// prepare looks whether the drill can be done at all, and makes its topic.
func (r *runner) prepare(ctx context.Context) error {
	s, err := r.admin.Status(ctx)
	if err != nil {
		return err
	}
	if s.ClusterID == "" || !s.Ready {
		return adminapi.Errorf(adminapi.CodeNotReady, "node %s is not ready: %s", s.Node, dash(s.Reason))
	}
	r.report.Cluster = s.ClusterID
	nodes, err := r.admin.Nodes(ctx)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n adminapi.Node) bool { return n.State == "gone" })
	if err := r.allowed(nodes); err != nil {
		return err
	}
	if r.seeds = r.cfg.Bootstrap; len(r.seeds) == 0 {
		for _, n := range nodes {
			if n.KafkaAddr != "" {
				r.seeds = append(r.seeds, n.KafkaAddr)
			}
		}
	}
	return r.prepareTopic(ctx, len(nodes))
}

// allowed refuses a drill that no node was started for.
func (r *runner) allowed(nodes []adminapi.Node) error {
	if !r.fault.strikes {
		return nil
	}
	var not []string
	for _, n := range nodes {
		if !n.AllowsDrills {
			not = append(not, n.Name)
		}
	}
	if len(not) == len(nodes) {
		return adminapi.Errorf(adminapi.CodeNotAllowed, "drill %s needs nodes that were started with --allow-drills, and none was (or none of them answers)", r.cfg.Kind).
			WithHint("start vtopd with --allow-drills (vtopd dev does so), or run a drill that needs no help: leader-transfer or repair")
	}
	if len(not) > 0 {
		r.note("%s: not started with --allow-drills, or no answer: spared", strings.Join(not, ", "))
	}
	return nil
}

func (r *runner) prepareTopic(ctx context.Context, nodes int) error {
	most := min(3, nodes)
	if r.cfg.Kind == "repair" {
		most = min(3, nodes-1)
	}
	want := map[string]int{"leader-transfer": 2, "repair": 2, "wipe-replica": 3}[r.cfg.Kind]
	if r.cfg.Topic == "" {
		if r.cfg.Replicas == 0 {
			r.cfg.Replicas = max(most, 1)
		}
		if r.cfg.Replicas < want || r.cfg.Kind == "repair" && r.cfg.Replicas >= nodes {
			return adminapi.Errorf(adminapi.CodeConflict, "drill %s does not work with %d replicas on %d nodes", r.cfg.Kind, r.cfg.Replicas, nodes).
				WithHint("leader-transfer and repair want 2 replicas or more, wipe-replica 3, repair a node more than there are replicas")
		}
		r.topic = "vtop-drill-" + r.cfg.Kind + "-" + time.Now().UTC().Format("20060102-150405.000")
		t, err := r.admin.CreateTopic(ctx, adminapi.CreateTopic{Name: r.topic, Ranges: r.cfg.Ranges, Replicas: r.cfg.Replicas})
		if err != nil {
			return err
		}
		r.report.OwnTopic = true
		r.tell("topic %s: %d ranges, %d replicas", t.Name, t.Ranges, t.Replicas)
	}
	r.report.Topic = r.topic
	err := r.await(ctx, r.cfg.Patience, r.whole)
	if err == nil {
		var leases []adminapi.Lease
		if leases, err = r.admin.Leases(ctx, r.topic); err == nil {
			r.report.Ranges, r.report.Replicas = len(leases), len(leases[0].Replicas)
			return nil
		}
	}
	var told *adminapi.Error
	if !errors.As(err, &told) && ctx.Err() == nil {
		err = adminapi.Errorf(adminapi.CodeConflict, "topic %s is not whole, so no drill begins: %v", r.topic, err).WithHint("vtopctl status says what is missing")
	}
	return errors.Join(err, r.leave(ctx, false))
}

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
	writes, err := r.client(kgo.DefaultProduceTopic(r.topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.RecordRetries(1_000_000), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	reads, err := r.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: from}))
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

// blows lets them fall until the time is over or ctx ends, and returns when the last one is healed.
func (r *runner) blows(ctx context.Context) {
	looking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { r.watch(looking) })
	wg.Go(func() { r.tick(looking) })
	defer wg.Wait()
	defer stop()
	timed, cancel := context.WithDeadline(ctx, r.report.Started.Add(r.cfg.Duration))
	defer cancel()
	for n := 0; timed.Err() == nil; {
		began := time.Now()
		struck, healed := r.round(timed, ctx, n)
		n += struck
		if !healed {
			return
		}
		r.enter("waiting for the next blow")
		select {
		case <-timed.Done():
		case <-time.After(r.cfg.Interval - time.Since(began)):
		}
	}
}

// round is one blow, or several at once, with the healing. timed is until when it may fall; ctx ends with the operator's
// patience. healed is false if no other one may follow.
func (r *runner) round(timed, ctx context.Context, n int) (struck int, healed bool) {
	targets, err := r.aim(timed, n)
	if err != nil {
		if timed.Err() == nil {
			r.note("a blow was held back: %v", err)
		}
		return 0, true
	}
	first := len(r.report.Blows)
	for i := range targets {
		t := &targets[i]
		r.enter("striking: " + t.what)
		b := Blow{N: n + i + 1, What: t.what, Node: t.node.Name, Range: t.rng, AtMS: time.Since(r.report.Started).Milliseconds(), WholeMS: -1, DownFromMS: -1, DownRange: -1}
		r.tell("blow %d: %s", b.N, t.what)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		err := r.fault.blow(call, r, t)
		cancel()
		if err != nil {
			// It may have fallen although nobody said so: it is healed like any other.
			r.note("blow %d (%s) was answered with: %v", b.N, t.what, err)
		}
		r.report.Blows = append(r.report.Blows, b)
		r.struck.Add(1)
	}
	return len(targets), r.heal(ctx, targets, r.report.Blows[first:])
}

// aim waits until the cluster is whole and the target safe to stop. Further targets at once were asked for: they are not
// asked about.
func (r *runner) aim(ctx context.Context, n int) ([]target, error) {
	r.enter("waiting until the cluster is whole")
	if err := r.await(ctx, r.cfg.Patience, r.whole); err != nil {
		return nil, err
	}
	var targets []target
	err := r.await(ctx, r.cfg.Patience, func(ctx context.Context) error {
		w, err := r.look(ctx)
		if err != nil {
			return err
		}
		targets = targets[:0]
		for i := range r.cfg.AtOnce {
			t, err := r.fault.aim(w, n+i, targets)
			if err != nil && len(targets) == 0 {
				return err
			} else if err != nil {
				break
			}
			targets = append(targets, t)
		}
		if !r.fault.strikes {
			return nil
		}
		r.enter("asking whether " + targets[0].node.Name + " is safe to stop")
		return r.safe(ctx, targets[0].node.Name)
	})
	return targets, err
}

// safe returns nil if the node may be stopped now.
func (r *runner) safe(ctx context.Context, node string) error {
	s, err := r.admin.SafeToStop(ctx, node)
	if err != nil {
		return err
	}
	if s.Safe {
		return nil
	}
	for _, why := range append(slices.Clone(s.Reasons), s.Unknown...) {
		return fmt.Errorf("%s is not safe to stop: %s: %s", node, why.Subject, why.Message)
	}
	return fmt.Errorf("%s is not safe to stop", node)
}

func (r *runner) look(ctx context.Context) (*world, error) {
	nodes, err := r.admin.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := r.admin.Leases(ctx, r.topic)
	if err == nil && len(leases) == 0 {
		err = fmt.Errorf("topic %s has no ranges", r.topic)
	}
	return &world{nodes: nodes, leases: leases}, err
}

// heal waits until the faults have passed and every replica votes and follows. The end of ctx cancels what can be cancelled
// and goes on waiting.
func (r *runner) heal(ctx context.Context, targets []target, blows []Blow) bool {
	r.enter("waiting until it is healed")
	on := context.WithoutCancel(ctx)
	stopped := ctx.Done()
	err := r.await(on, r.cfg.Patience+r.cfg.Pause, func(one context.Context) error {
		select {
		case <-stopped:
			stopped = nil
			r.tell("interrupted: healing, no other blow falls")
			r.cancelJobs(one, targets)
		default:
		}
		for i := range targets {
			if err := r.fault.over(one, r, &targets[i]); err != nil {
				return err
			}
		}
		return r.whole(one)
	})
	for i := range blows {
		if err != nil {
			blows[i].Failed = err.Error()
			continue
		}
		blows[i].WholeMS = time.Since(r.report.Started).Milliseconds() - blows[i].AtMS
	}
	if err != nil {
		r.fail("blow %d (%s) was not healed: %v", blows[0].N, blows[0].What, err)
		return false
	}
	r.tell("whole again after %s", span(blows[0].WholeMS))
	return true
}

func (r *runner) cancelJobs(ctx context.Context, targets []target) {
	for _, t := range targets {
		if t.job == 0 || r.fault.strikes { // what heals a wiped replica goes on
			continue
		}
		if _, err := r.admin.CancelRepair(ctx, t.job); err != nil {
			r.note("repair %d could not be cancelled: %v", t.job, err)
		}
	}
}

// whole returns nil if every range of the topic serves and every replica is a voter that leads or follows.
func (r *runner) whole(ctx context.Context) error {
	leases, err := r.admin.Leases(ctx, r.topic)
	if err != nil {
		return err
	}
	if len(leases) == 0 {
		return fmt.Errorf("topic %s has no ranges", r.topic)
	}
	for _, l := range leases {
		if l.State != "serving" {
			return fmt.Errorf("range %d is %s: %s", l.Range, l.State, dash(l.Reason))
		}
		if len(l.Replicas) < r.report.Replicas {
			return fmt.Errorf("range %d has %d of %d replicas", l.Range, len(l.Replicas), r.report.Replicas)
		}
		for _, rep := range l.Replicas {
			if rep.Role != "voter" || rep.State != "leading" && rep.State != "following" {
				return fmt.Errorf("range %d: the replica of %s is a %s and %s", l.Range, rep.Node, rep.Role, rep.State)
			}
		}
	}
	return nil
}

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
