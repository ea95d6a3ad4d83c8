package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/repair"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Times of the simulated cluster: those of cluster.Config and its constants, shorter, and with fewer beats.
const (
	beatInterval      = 400 * time.Millisecond
	nodeTimeout       = 2 * time.Second
	leaseTime         = 4 * time.Second
	promotionDeadline = 4 * time.Second
	healAfter         = 8 * time.Second
)

// process is one start of vtopd on a host: the parts of cluster.Node, put together as there.
type process struct {
	host *host
	disk *disk
	log  hclog.Logger

	ctx     context.Context
	cancel  context.CancelFunc
	dead    atomic.Bool // it does nothing any more that others could see
	goal    atomic.Int64
	leaving atomic.Bool

	id       storage.Identity
	serverID string
	boot     vtop.UUID
	machine  *fsm.Machine
	store    *storage.Store
	mux      *transport.Mux
	dialer   *transport.Dialer
	tracker  *liveness.Tracker
	receive  *liveness.Receiver
	control  *controller.Controller

	engine atomic.Pointer[replica.Engine]
	runner atomic.Pointer[repair.Runner]
	sender atomic.Pointer[liveness.Sender]

	mu      sync.Mutex
	closing bool
	closed  chan struct{} // once close is done
	wg      sync.WaitGroup
}

func (p *process) name() string { return string(p.host.name) }

func (p *process) self() transport.Self {
	return transport.Self{
		Name: p.host.name, Cluster: p.host.life.cluster, Generation: 1, Storage: p.id.Storage, Incarnation: p.id.Incarnation, ServerID: p.serverID,
	}
}

// start starts a process on the host, which has power again, unless one is there.
func (h *host) start() {
	h.mu.Lock()
	taken := h.starting || h.proc != nil
	h.starting = h.starting || !taken
	h.mu.Unlock()
	if taken {
		return
	}
	p := h.open()
	h.mu.Lock()
	h.starting, h.proc = false, p
	h.mu.Unlock()
	if p == nil {
		return
	}
	l := h.life
	l.ledger.join(p)
	l.trace.note("%s: started, incarnation %d", h.name, p.id.Incarnation)
	p.spawn(func(context.Context) { l.ledger.feed(p) })
	p.spawn(p.join)
	p.spawn(p.catchUp)
}

// open makes a process up to where it begins to listen; nil if that failed.
func (h *host) open() *process {
	l := h.life
	l.net.setOff(string(h.name), false)
	p := &process{host: h, closed: make(chan struct{}), boot: l.uuid(), serverID: fmt.Sprintf("%s-%d", h.name, h.disks), log: l.log.Named(string(h.name))}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.goal.Store(-1)
	p.disk = &disk{p: p, rng: rngOf(l.seed, fmt.Sprintf("disk %s %d", h.name, l.starts.Add(1)))}
	h.fs.SetHook(p.disk.hook)
	p.machine = fsm.New(fsm.Options{Clock: l.clock})
	var err error
	if p.store, err = storage.Open(h.fs, "/store", storage.Options{
		Fence: p.machine.Leases(), Log: p.log, Reserve: 1, ZeroStepBytes: l.plan.zeros, OpenFiles: 64, IndexBytes: 512, GatherSyncs: l.plan.gather, OnDamage: p.damaged,
	}); err != nil {
		l.oracle.fail("open the store of %s: %v", h.name, err)
		return nil
	}
	p.id = p.store.Identity()
	if p.id.Cluster.IsZero() {
		if err := p.store.SetCluster(l.cluster); err != nil {
			l.oracle.fail("name the cluster in the store of %s: %v", h.name, err)
			return nil
		}
	}
	l.oracle.opened(p)
	if index := h.snapshot; index > 0 {
		p.machine.Replace(reload(l.ledger.at(index)))
	}
	opt := transport.Options{Self: p.self, Log: p.log, Dialer: p}
	p.mux, err = transport.Serve(l.net.listen(p), opt)
	if err == nil {
		p.dialer, err = transport.NewDialer(opt)
	}
	if err != nil {
		l.oracle.fail("start %s: %v", h.name, err)
		return nil
	}
	p.tracker = liveness.NewTracker(liveness.Limits{Silence: nodeTimeout, DiskStall: time.Second, Behind: leaseTime}, l.clock)
	p.startControl()
	p.disk.with(func() { p.disk.live = true })
	return p
}

func (p *process) damaged(d storage.Damage) {
	p.host.life.trace.note("%s: damage: %+v", p.name(), d)
	if e := p.engine.Load(); e != nil {
		e.Damaged(d)
	}
}

func (p *process) startControl() {
	l := p.host.life
	p.receive = liveness.NewReceiver(liveness.ReceiverConfig{
		Tracker: p.tracker, Address: func(n vtop.NodeName) (string, bool) { return string(n), true },
		Evidence: func(vtop.NodeName) { p.control.Wake() }, Log: p.log, Dialer: p,
	})
	p.control = controller.Start(controller.Config{
		Self: p.host.name, Machine: p.machine, Quorum: quorum{p}, Tracker: p.tracker, Receiver: p.receive, SelfHealth: p.health,
		LogEnds: p.logEnds, Extend: p.extend, Interval: beatInterval, LogEndTimeout: 200 * time.Millisecond,
		PromotionDeadline: promotionDeadline, BalanceEvery: 5 * time.Second, HomeAfter: 6 * time.Second, HealAfter: healAfter,
		Clock: l.clock, Log: p.log.Named("controller"),
	})
	p.mux.HandleStream(transport.Heartbeat, p.receive.Serve)
}

// join registers this start, and then starts what needs to know that it is.
func (p *process) join(ctx context.Context) {
	for !p.register(ctx) {
		if sleep(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
	p.machine.Leases().SetIdentity(p.host.name, p.id.Incarnation)
	engine, err := replica.New(replica.Config{
		Self: p.host.name, Incarnation: p.id.Incarnation, Machine: p.machine, Store: p.store, Network: peers{p}, Propose: p.propose,
		CaughtUp: p.caughtUp, Alive: p.alive, RepairJobs: true, HealInterval: 2 * time.Second, Log: p.log,
	})
	if err != nil {
		p.host.life.oracle.fail("engine of %s: %v", p.name(), err)
		return
	}
	runner, err := repair.New(repair.Config{
		Self: p.host.name, Incarnation: p.id.Incarnation, Machine: p.machine, Store: p.store, Peers: peers{p}, Propose: p.propose,
		CaughtUp: p.caughtUp, Alive: p.alive, Wake: engine.WakeRange, Pressure: engine.Pressure, Log: p.log, Chunks: 4,
		Follows: func(r vtop.Range) repair.Following {
			d, err := engine.Describe(r)
			if err != nil {
				return repair.Following{HighWatermark: fsm.NoOffset, Why: err.Error()}
			}
			return repair.Following{HighWatermark: d.HighWatermark, Why: d.Why}
		},
	})
	if err != nil {
		p.host.life.oracle.fail("runner of %s: %v", p.name(), err)
		return
	}
	p.engine.Store(engine)
	p.runner.Store(runner)
	p.mux.HandleStream(transport.Replication, engine.ServeStream)
	p.sender.Store(liveness.StartSender(liveness.SenderConfig{
		Interval: beatInterval, AckTimeout: 2 * nodeTimeout, Voters: p.others, Beat: p.beat, Extend: p.extend, Gone: func(vtop.NodeName) {},
		Clock: p.host.life.clock, Log: p.log,
		Dial: func(ctx context.Context, to transport.Target) (*transport.Stream, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return p.dialer.DialStream(ctx, to, transport.Heartbeat)
		},
	}))
}

func (p *process) register(ctx context.Context) bool {
	cmd := &fsm.RegisterNode{Name: p.host.name, Identity: fsm.Identity{
		Storage: p.id.Storage, RaftID: p.serverID, Incarnation: p.id.Incarnation, BootNonce: p.boot, MaxLevel: fsm.LevelMax,
		Addresses: fsm.Addresses{Peer: p.name() + ":1", Kafka: p.name() + ":2", Gossip: p.name() + ":3", Admin: p.name() + ":4"},
	}}
	if old, known := p.host.life.ledger.now().Node(p.host.name); known {
		cmd.Expected = old.Incarnation
	}
	out, err := p.propose(ctx, cmd)
	if err == nil && out.Refusal != nil && out.Refusal.Code == fsm.CodeRestoredCopy {
		p.host.life.oracle.fail("I10: %s, incarnation %d, is not let in: %v", p.name(), p.id.Incarnation, out.Refusal)
	}
	return err == nil && out.Refusal == nil
}

// catchUp asks for the index that this process must have applied before it does anything.
func (p *process) catchUp(ctx context.Context) {
	for {
		index, err := p.host.life.ledger.readIndex(ctx, p)
		if err == nil {
			p.goal.Store(int64(index))
			return
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

func (p *process) caughtUp() bool {
	goal := p.goal.Load()
	return goal >= 0 && p.machine.Applied() >= uint64(goal)
}

func (p *process) propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	return p.host.life.ledger.propose(ctx, p, cmd)
}

func (p *process) extend(sent time.Duration) { p.machine.Leases().SetDeadline(sent + leaseTime) }

func (p *process) health() liveness.Health {
	return liveness.Health{Storage: p.id.Storage, Incarnation: p.id.Incarnation, Leaving: p.leaving.Load(), Applied: p.machine.Applied()}
}

func (p *process) beat() *peerpb.Beat {
	return &peerpb.Beat{DiskOk: true, Draining: p.leaving.Load(), AppliedIndex: p.machine.Applied()}
}

func (p *process) others() (out []transport.Target) {
	for _, h := range p.host.life.hosts {
		if h != p.host {
			out = append(out, transport.Target{Name: h.name, Addr: string(h.name)})
		}
	}
	return out
}

func (p *process) alive(name vtop.NodeName) bool {
	if p.machine.Leases().Deadline() <= p.host.life.clock() {
		return name != p.host.name
	}
	return p.tracker.Verdict(name).Alive
}

// quorum is the process as its controller sees the metadata group.
type quorum struct{ p *process }

// IsLeader implements controller.Quorum.
func (q quorum) IsLeader() bool { return q.p.host.life.ledger.leads(q.p) }

// Term implements controller.Quorum.
func (q quorum) Term() uint64 { return q.p.host.life.ledger.viewOf(q.p).term }

// VerifyLeader implements controller.Quorum.
func (q quorum) VerifyLeader(ctx context.Context) error { return q.p.host.life.ledger.verify(ctx, q.p) }

// Propose implements controller.Quorum.
func (q quorum) Propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	return q.p.propose(ctx, cmd)
}

// stop is the orderly end: the leases go to others while the process still serves, as far as patience lasts.
func (h *host) stop() {
	p := h.running()
	if p == nil {
		return
	}
	p.leaving.Store(true)
	if s := p.sender.Load(); s != nil {
		s.Now()
	}
	p.control.Wake()
	_ = sleep(p.ctx, 2*time.Second) // whatever happens meanwhile
	if h.running() != p {
		return // it died of something else
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	p.close(ctx)
	h.life.oracle.dies(p)
	if p.dead.Load() { // it died over it
		h.bring(p, true)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proc == p {
		h.proc = nil
		p.dead.Store(true)
		h.life.net.sever(p, false)
		h.life.ledger.leave(p)
	}
}

// bury ends the parts of a process that is dead.
func (p *process) bury() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.close(ctx)
}

// close closes the parts in the order of cluster.Node. A second call waits for the first.
func (p *process) close(ctx context.Context) {
	p.mu.Lock()
	again := p.closing
	p.closing = true
	p.mu.Unlock()
	if again {
		<-p.closed
		return
	}
	defer close(p.closed)
	if p.dead.Load() {
		p.cancel()
		p.wg.Wait()
	}
	if r := p.runner.Load(); r != nil {
		r.Close()
	}
	var err error
	if e := p.engine.Load(); e != nil {
		err = e.Close(ctx)
	}
	p.control.Close()
	if s := p.sender.Load(); s != nil {
		s.Close()
	}
	p.cancel()
	p.wg.Wait()
	_ = errors.Join(err, p.mux.Close(), p.dialer.Close()) // nobody is left to hear it
	if err := p.store.Close(); err != nil && !p.dead.Load() {
		p.host.life.trace.note("%s: close the store: %v", p.name(), err)
	}
}
