package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/meta"
	"github.com/vtop-log/vtop/cluster/repair"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
)

// Node is one vtopd: all parts of it but the client face and the admin port. All methods are safe for concurrent use.
type Node struct {
	cfg     Config
	log     hclog.Logger
	machine *fsm.Machine
	store   *storage.Store
	who     *meta.Who
	mux     *transport.Mux
	dialer  *transport.Dialer
	client  *transport.Client
	gate    *raftGate
	meta    *meta.Meta
	tracker *liveness.Tracker
	receive *liveness.Receiver
	disk    *liveness.Disk
	control *controller.Controller

	// Set once the node has joined its cluster and knows its incarnation for certain.
	engine atomic.Pointer[replica.Engine]
	sender atomic.Pointer[liveness.Sender]
	runner atomic.Pointer[repair.Runner]
	groups atomic.Pointer[group.Coordinator]

	leaving atomic.Bool
	ids     producerIDs

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	fatal  chan error
}

// monotonic is the clock of deadlines and verdicts. It counts the time that the machine sleeps, so that a holder
// that slept through its lease finds the deadline passed.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime: %v", err)) // the clock is always there on the systems we build for
	}
	return time.Duration(ts.Nano())
}

// Start opens the data directory and the peer port, and starts to found, find or rejoin the cluster. It returns
// before that is done: see Ready. The error says what is wrong with the directory, the ports or the settings.
func Start(cfg Config) (_ *Node, err error) {
	cfg.withDefaults()
	if err := cfg.Groups.CheckLease(cfg.LeaseTime); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Log, fatal: make(chan error, 1)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeParts(context.Background()))
		}
	}()
	n.machine = fsm.New(fsm.Options{Clock: monotonic, OnFault: cfg.OnFault, Log: cfg.Log})
	if err := n.openStore(); err != nil {
		return nil, err
	}
	if err := n.openPeerPlane(); err != nil {
		return nil, err
	}
	if err := n.openMeta(); err != nil {
		return nil, err
	}
	n.tracker = liveness.NewTracker(liveness.Limits{Silence: cfg.NodeTimeout, DiskStall: diskStallSuspect, Behind: cfg.LeaseTime}, monotonic)
	n.disk = liveness.StartDisk(liveness.DiskConfig{
		Probe: n.store.Probe, InFlight: n.meta.LogStall, Interval: probeInterval, Limit: cfg.DiskStallLimit,
		OnStall: n.endHung, Clock: monotonic, Log: cfg.Log.Named("disk"),
	})
	n.startLiveness()
	n.wg.Add(4)
	go n.join()
	go n.scrub()
	go n.watchRaftGate()
	go n.watchMeta()
	return n, nil
}

func (n *Node) openStore() (err error) {
	n.store, err = storage.Open(n.cfg.FS, filepath.Join(n.cfg.DataDir, "store"), storage.Options{
		Fence: n.machine.Leases(), Log: n.cfg.Log, Reserve: n.cfg.DiskReserve, OnDamage: n.onDamage, PinIdle: n.cfg.PinIdle,
	})
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	id := n.store.Identity()
	n.who = meta.NewWho(n.cfg.Name, id.Storage, id.Incarnation)
	return nil
}

func (n *Node) openPeerPlane() (err error) {
	opt := transport.Options{Self: n.who.Self, TLS: n.cfg.TLS, Log: n.cfg.Log, AllowTransfer: n.allowTransfer}
	if n.mux, err = transport.Listen(n.cfg.PeerBind, opt); err != nil {
		return fmt.Errorf("peer port: %w", err)
	}
	if n.dialer, err = transport.NewDialer(opt); err != nil {
		return err
	}
	n.client, err = transport.NewClient(opt)
	return err
}

func (n *Node) openMeta() (err error) {
	id := n.store.Identity()
	var boot vtop.UUID
	if _, err := rand.Read(boot[:]); err != nil {
		return err
	}
	raftLayer := n.mux.Raft()
	n.gate = newRaftGate(raftLayer.DialTarget)
	n.meta, err = meta.Open(n.ctx, meta.Config{
		Who: n.who, Boot: boot, Cluster: id.Cluster, HoldsData: len(n.store.List()) > 0 || !id.Cluster.IsZero(),
		SetCluster: n.store.SetCluster,
		RaiseIncarnation: func(above vtop.Incarnation) (vtop.Incarnation, error) {
			return above + 1, n.store.SetIncarnation(above + 1)
		},
		RaftDir: filepath.Join(n.cfg.DataDir, "raft"), StateDir: filepath.Join(n.cfg.DataDir, "meta"),
		Addresses: n.cfg.Advertise, GossipBind: n.cfg.GossipBind, GossipKey: n.cfg.GossipKey,
		Join: n.cfg.Join, BootstrapExpect: n.cfg.BootstrapExpect, Rack: n.cfg.Rack, Version: n.cfg.Version,
		HeartbeatTimeout: n.cfg.RaftHeartbeat, HealAfter: n.cfg.HealAfter,
		Machine: n.machine, Peers: n.client, RaftListener: raftLayer, DialRaft: n.gate.Dial, Log: n.cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	n.mux.SetHandler(n.handlers())
	return nil
}

// join waits until the node belongs to a cluster and is registered, then starts what needs to know its incarnation.
func (n *Node) join() {
	defer n.wg.Done()
	if err := n.meta.WaitJoined(n.ctx); err != nil {
		if n.ctx.Err() == nil {
			n.fail(err)
		}
		return
	}
	self := n.who.Self()
	engine, err := replica.New(replica.Config{
		Self: self.Name, Incarnation: self.Incarnation, Machine: n.machine, Store: n.store, Network: network{n},
		Propose: n.meta.Propose, CaughtUp: n.meta.CaughtUp, Alive: n.Alive, Log: n.cfg.Log,
		RepairJobs: true, RepairRate: n.cfg.RepairRate,
	})
	if err != nil {
		n.fail(err)
		return
	}
	if err := n.startGroups(self.Name, self.Incarnation); err != nil {
		n.fail(err)
		return
	}
	n.engine.Store(engine)
	if err := n.startRepairs(engine); err != nil {
		n.fail(err)
		return
	}
	n.mux.HandleStream(transport.Replication, engine.ServeStream)
	n.sender.Store(n.startSender())
	n.log.Info("joined", "cluster", self.Cluster, "node", self.Name, "incarnation", self.Incarnation)
}

// watchMeta passes on the error with which the metadata cannot go on: another cluster's, an old copy of a disk, a
// hand-over that never ended.
func (n *Node) watchMeta() {
	defer n.wg.Done()
	select {
	case err := <-n.meta.Fatal():
		n.fail(err)
	case <-n.ctx.Done():
	}
}

func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// Fatal gives the error with which the node cannot go on; the process should log it and end.
func (n *Node) Fatal() <-chan error { return n.fatal }

// Ready is nil once the node has joined and caught up with the metadata: it serves. Else it says what it waits for.
func (n *Node) Ready() error {
	if n.engine.Load() == nil {
		return fmt.Errorf("%w: %s", vtop.ErrNotReady, n.meta.Status())
	}
	if !n.meta.CaughtUp() {
		return fmt.Errorf("%w: catching up with the metadata", vtop.ErrNotReady)
	}
	return nil
}

// State is the newest applied metadata.
func (n *Node) State() *fsm.State { return n.machine.State() }

// StateAt is the metadata as it was after the entry at index: see fsm.Machine.
func (n *Node) StateAt(ctx context.Context, index uint64) (*fsm.State, error) {
	return n.machine.StateAt(ctx, index)
}

// Self is this node's name.
func (n *Node) Self() vtop.NodeName { return n.cfg.Name }

// Close stops the node in an orderly way: its leases and coordinator slots go to others while it still serves, floors are reported,
// the log is flushed, Raft leadership is handed over. ctx bounds the whole; what is not done then is what a crash
// would leave undone, and loses nothing.
func (n *Node) Close(ctx context.Context) error {
	n.HandOver(ctx)
	return n.closeParts(ctx)
}

// HandOver says in the beats that the node is leaving, and waits until other nodes have taken its leases and coordinator slots, up to
// four seconds or ctx. The node serves meanwhile. A second call returns at once.
func (n *Node) HandOver(ctx context.Context) {
	n.leaving.Store(true)
	if s := n.sender.Load(); s != nil {
		s.Now()
	}
	n.control.Wake()
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for n.leasesToHandOver()+n.slotsToHandOver() > 0 {
		select {
		case <-ctx.Done():
			n.log.Warn("stopping with leases that nobody took", "leases", n.leasesToHandOver(), "coordinators", n.slotsToHandOver())
			return
		case <-ticker.C:
		}
	}
}

// leasesToHandOver counts the leases of this process that another voter could take.
func (n *Node) leasesToHandOver() int {
	self, count := n.who.Self(), 0
	for r := range n.State().LeasesOf(self.Name) {
		if !r.Lease.HeldBy(self.Name, self.Incarnation) {
			continue
		}
		for _, rep := range r.Voters() {
			if rep.Node != self.Name && rep.CanVote() && n.Alive(rep.Node) {
				count++
				break
			}
		}
	}
	return count
}

// endHung cuts every connection to other nodes, waits for nothing, and has the process end itself. A thread that hangs
// in the disk keeps the process, and so its sockets, alive in the kernel; cut, they are evidence to the others at once.
func (n *Node) endHung(stalled time.Duration) {
	n.gate.Set(true)
	go func() { _ = n.mux.Close() }()
	go func() { _ = n.dialer.Close() }()
	go func() { _ = n.client.Close() }()
	if s := n.sender.Load(); s != nil {
		go s.Close()
	}
	if n.cfg.OnDiskStall != nil {
		n.cfg.OnDiskStall(stalled)
	}
}

// closeParts closes in reverse of the start. Each part waits for what it owns.
func (n *Node) closeParts(ctx context.Context) error {
	var errs []error
	n.cancel()
	n.wg.Wait()
	if r := n.runner.Load(); r != nil {
		r.Close()
	}
	if g := n.groups.Load(); g != nil {
		g.Close()
	}
	if e := n.engine.Load(); e != nil {
		errs = append(errs, e.Close(ctx))
	}
	if n.control != nil {
		n.control.Close()
	}
	n.releaseSlots(ctx) // only now: this node's own controller would grant them again
	if s := n.sender.Load(); s != nil {
		s.Close()
	}
	if n.meta != nil {
		errs = append(errs, n.meta.Close(ctx))
	}
	if n.mux != nil {
		errs = append(errs, n.mux.Close())
	}
	if n.client != nil {
		errs = append(errs, n.client.Close())
	}
	if n.dialer != nil {
		errs = append(errs, n.dialer.Close())
	}
	if n.disk != nil {
		n.disk.Close()
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// Engine holds the replicas; vtop.ErrNotReady until the node has joined.
func (n *Node) Engine() (*replica.Engine, error) {
	if e := n.engine.Load(); e != nil {
		return e, nil
	}
	return nil, n.Ready()
}

// RaftLeader names the Raft leader; ok is false if none is known.
func (n *Node) RaftLeader() (name vtop.NodeName, ok bool) { return n.meta.LeaderName() }
