package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
)

// settleLimit is how long, in virtual time, a healed cluster may take until every replica is whole again.
const settleLimit = 10 * time.Minute

// life is one run of a cluster. All of it happens in one bubble of virtual time.
type life struct {
	seed   uint64
	plan   *plan
	began  time.Time
	log    hclog.Logger
	trace  *trace
	oracle *oracle
	net    *network
	ledger *ledger
	hosts  []*host

	cluster vtop.ClusterID
	topic   vtop.TopicID
	starts  atomic.Int64
	graves  sync.WaitGroup // of processes that are being buried
	faults  sync.WaitGroup // what undoes a fault

	idMu sync.Mutex
	ids  *rand.Rand
}

// Result is what a life found.
type Result struct {
	Seed     uint64
	Failures []string
	// Hash is of the trace: two lives of one seed that have the same went the same way.
	Hash   uint64
	Events int
	// Took is virtual time.
	Took   time.Duration
	Tail   string
	counts counts
}

// Live runs one life and returns what it found. It is to be called in a bubble of testing/synctest.
func Live(seed uint64) Result {
	l := newLife(seed, newPlan(seed))
	return l.tell(l.adventures)
}

func newLife(seed uint64, p *plan) *life {
	l := &life{seed: seed, plan: p, began: time.Now(), net: newNetwork(seed), ids: rngOf(seed, "ids"), log: hclog.NewNullLogger()}
	if level := os.Getenv("VTOP_TEST_LOG"); level != "" {
		l.log = hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(level), Output: os.Stderr})
	}
	l.trace, l.oracle, l.ledger = newTrace(l.began), newOracle(l), newLedger(l)
	l.cluster, l.topic = l.uuid(), l.uuid()
	for i := range l.plan.hosts {
		l.hosts = append(l.hosts, newHost(l, vtop.NodeName(fmt.Sprintf("h%d", i))))
	}
	return l
}

// tell runs the life, with a story for what happens in it.
func (l *life) tell(story func(context.Context)) Result {
	l.run(story)
	return Result{
		Seed: l.seed, Failures: l.oracle.failed(), Hash: l.trace.hash(), Events: l.trace.count, Took: time.Since(l.began),
		Tail: l.trace.tail(traceLines), counts: l.oracle.counts,
	}
}

func (l *life) clock() time.Duration { return time.Since(l.began) + time.Hour }

func (l *life) uuid() (u vtop.UUID) {
	l.idMu.Lock()
	defer l.idMu.Unlock()
	for i := range u {
		u[i] = byte(1 + l.ids.IntN(255))
	}
	return u
}

// process is what runs on a host, or nil.
func (l *life) process(name vtop.NodeName) *process {
	if h := l.host(name); h != nil {
		return h.running()
	}
	return nil
}

func (l *life) host(name vtop.NodeName) *host {
	for _, h := range l.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

func (l *life) r(i int) vtop.Range { return vtop.Range{Topic: l.topic, Index: int32(i)} }

func (l *life) run(story func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { every(ctx, electionLook, l.ledger.elect) })
	background.Go(func() { every(ctx, time.Second, func() { l.admit(ctx) }) })
	l.birth(ctx)
	if len(l.oracle.failed()) == 0 {
		story(ctx)
	}
	for _, h := range l.hosts {
		h.kill(false)
	}
	cancel()
	background.Wait()
	l.graves.Wait()
}

// birth starts the hosts and creates the topic.
func (l *life) birth(ctx context.Context) {
	for _, h := range l.hosts {
		h.start()
	}
	topic := &fsm.CreateTopic{ID: l.topic, Name: "events", Config: l.plan.config}
	for i := range l.plan.ranges {
		var on []vtop.NodeName
		for k := range l.plan.replicas {
			on = append(on, l.hosts[(i+k)%len(l.hosts)].name)
		}
		topic.Ranges = append(topic.Ranges, on)
	}
	for _, cmd := range []fsm.Command{&fsm.BootstrapCluster{ID: l.cluster, Level: fsm.LevelMax}, topic} {
		l.await(ctx, "the birth of the cluster", time.Minute, func() bool {
			out, err := l.ledger.propose(ctx, l.hosts[0].running(), cmd)
			return err == nil && out.Err() == nil
		})
	}
	l.await(ctx, "the first leaders, and a directory of each replica", time.Minute, func() bool { return l.missing() == "" })
}

// await looks again and again until ok; the life fails if that takes longer than the limit.
func (l *life) await(ctx context.Context, what string, limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) || sleep(ctx, 100*time.Millisecond) != nil {
			l.oracle.fail("waited %s for: %s", limit, what)
			return false
		}
	}
	return true
}

// adventures is the life proper: clients, faults, healing, and the comparison at the end.
func (l *life) adventures(ctx context.Context) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	var producers []*producer
	for i := range l.plan.ranges {
		for k := range 3 {
			p := &producer{client: newClient(l, fmt.Sprintf("p%d%d", i, k)), r: l.r(i), id: int64(10*i + k + 1), idempotent: k != 1}
			if k == 2 {
				p.retires = 1 + p.rng.Int32N(6)
			}
			producers = append(producers, p)
			clients.Go(func() { p.run(work) })
		}
		for k := range l.plan.readers {
			c := &reader{client: newClient(l, fmt.Sprintf("r%d%d", i, k)), r: l.r(i)}
			clients.Go(func() { c.run(work) })
		}
	}
	for _, e := range l.plan.events {
		_ = sleep(ctx, e.after) // ctx outlives it
		l.strike(ctx, e)
		if len(l.oracle.failed()) > 0 {
			break
		}
	}
	_ = sleep(ctx, time.Second) // let the last one work
	l.restore()
	l.faults.Wait()
	l.restore()
	_ = sleep(ctx, 2*time.Second) // some traffic after the healing
	stop()
	clients.Wait()
	if len(l.oracle.failed()) > 0 {
		return
	}
	last := ""
	if !l.await(ctx, "all replicas to be whole", settleLimit, func() bool { last = l.missing(); return last == "" }) {
		l.oracle.fail("missing at the end: %s", last)
		return
	}
	for _, p := range producers {
		end, cancel := context.WithTimeout(ctx, time.Minute)
		p.last(end)
		cancel()
	}
	l.await(ctx, "the last records to be everywhere", time.Minute, func() bool { last = l.missing(); return last == "" })
	l.compare(ctx)
}

// last sends the newest batch once more, which an idempotent producer must be answered as before, whoever leads now and whatever its
// replica went through (K4); and then one more record, which must be taken.
func (p *producer) last(ctx context.Context) {
	if p.idempotent && p.newest != nil {
		if base, ok := p.insist(ctx, p.newest); ok && base != p.base {
			p.life.oracle.fail("K4: the batch of %s that was acknowledged at %d of range %d is acknowledged at %d when it comes again", p.name, p.base, p.r.Index, base)
		}
	}
	b, values := (&producer{client: p.client, r: p.r, id: p.id + 100}).build(0, 1)
	if base, ok := p.insist(ctx, b); ok {
		p.told(base, values, -1)
	}
}

// insist sends a batch until it is acknowledged.
func (p *producer) insist(ctx context.Context, b batch.Batch) (vtop.Offset, bool) {
	for {
		base, err := p.produce(ctx, p.r, slices.Clone(b), -1)
		if err == nil {
			return base, true
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			p.life.oracle.fail("a settled cluster takes no record of range %d: %v", p.r.Index, err)
			return 0, false
		}
		p.refresh(ctx, p.r)
	}
}

// restore ends every fault that lasts, and starts what does not run.
func (l *life) restore() {
	l.net.heal()
	for _, h := range l.hosts {
		h.unfreeze()
		h.setLag(0)
		if p := h.running(); p != nil {
			p.disk.with(func() { p.disk.slow, p.disk.fail, p.disk.dieIn = 0, false, 0 })
		} else {
			h.kill(false) // what died and was not found yet
			h.start()
		}
	}
}

// wished is how many voters a range is to have: three from the beginning, and one more with each job in nobody's place.
func wished(rg *fsm.Range) int { return max(3, len(rg.Preferred)) }

// missing says what is not whole: a range without a leader, a replica that is lost, learning or behind, a job that has not ended; empty
// if nothing is.
func (l *life) missing() string {
	st := l.ledger.now()
	for i := range l.plan.ranges {
		rg, ok := st.Range(l.r(i))
		if !ok || !rg.Started {
			return fmt.Sprintf("range %d has no leader", i)
		}
		if voters := len(rg.Voters()); voters != wished(rg) || len(rg.Replicas) != voters {
			return fmt.Sprintf("range %d has %d voters of %d replicas, %v are preferred", i, voters, len(rg.Replicas), rg.Preferred)
		}
		for job := range st.ActiveRepairs(rg.ID) {
			return fmt.Sprintf("repair %d of range %d to %s for %q has not ended: it is %s, %s", job.ID, i, job.Destination, job.Replace, job.Step, job.Waiting)
		}
		leader := l.process(rg.Lease.Holder)
		if leader == nil || leader.id.Incarnation != rg.Lease.Incarnation || leader.store.Get(rg.ID) == nil {
			return fmt.Sprintf("the leader of range %d does not run", i)
		}
		end := leader.store.Get(rg.ID).End()
		for _, rep := range rg.Replicas {
			if why := l.replicaLacks(rg, rep, end); why != "" {
				return fmt.Sprintf("range %d, replica %d on %s: %s", i, rep.ID, rep.Node, why)
			}
		}
		if rg.Floor != end {
			return fmt.Sprintf("range %d has floor %d, end %d", i, rg.Floor, end)
		}
	}
	return ""
}

func (l *life) replicaLacks(rg *fsm.Range, rep fsm.Replica, end vtop.Offset) string {
	p := l.process(rep.Node)
	if p == nil {
		return "nothing runs there"
	}
	log := p.store.Get(rg.ID)
	switch {
	case rep.Lost != "":
		return "lost: " + rep.Lost
	case log == nil:
		return "no directory"
	case log.ReplicaID() != rep.ID:
		return fmt.Sprintf("the directory is of replica %d", log.ReplicaID())
	case log.Err() != nil:
		return log.Err().Error()
	case log.End() != end || log.Durable() != end:
		return fmt.Sprintf("end %d, durable %d, want %d", log.End(), log.Durable(), end)
	case log.Start() != rg.LogStart:
		return fmt.Sprintf("start %d, want %d", log.Start(), rg.LogStart)
	}
	for _, info := range log.Segments() {
		if info.Hole != "" {
			return fmt.Sprintf("segment %d is a hole: %s", info.Base, info.Hole)
		}
		if info.State == storage.SegmentClosed && info.End <= rg.CatalogueEnd {
			return fmt.Sprintf("segment %d is catalogued and not sealed", info.Base)
		}
	}
	return ""
}
