package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/repair"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/transporttest"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

// patience ends a test that hangs; a machine that is busy may need many times what it needs alone. Nothing is asserted of how
// long anything takes.
const patience = 2 * time.Minute

// cluster is some engines over loopback, with real stores.
type cluster struct {
	t      testing.TB
	log    hclog.Logger
	ledger *ledger
	id     vtop.ClusterID
	names  []vtop.NodeName
	nodes  map[vtop.NodeName]*node // written by the test's goroutine under nodesMu
	topic  vtop.TopicID
	tune   func(vtop.NodeName, *Config)
	runs   bool // repair jobs are carried out
	fs     map[vtop.NodeName]vfs.FS
	dirs   map[vtop.NodeName]string

	nodesMu sync.Mutex
}

// node is one life of one node.
type node struct {
	c       *cluster
	name    vtop.NodeName
	machine *fsm.Machine
	store   *storage.Store
	mux     *transport.Mux
	dialer  *transport.Dialer
	client  *transport.Client
	engine  *Engine
	runner  *repair.Runner // nil unless cluster.runs
	self    transport.Self

	stop chan struct{}
	wg   sync.WaitGroup
	gate sync.Mutex // held: the machine applies nothing
	goal uint64     // the index that stood when the node started

	dead atomic.Bool // its proposals reach nobody

	mu      sync.Mutex
	cut     map[vtop.NodeName]bool              // nothing is dialed to these
	streams map[vtop.NodeName]*transport.Stream // the last one dialed to each, open or not
}

type option func(*cluster)

func withConfig(fn func(vtop.NodeName, *Config)) option { return func(c *cluster) { c.tune = fn } }

// withRepairs has every node carry out the repair jobs to it.
func withRepairs() option { return func(c *cluster) { c.runs = true } }
func withCrashFS() option {
	return func(c *cluster) {
		for i, name := range c.names {
			c.fs[name] = vfs.NewCrashFS(uint64(i) + 1)
		}
	}
}

// newCluster starts nodes a, b, c, … and creates a topic of some ranges with a voter on each node.
func newCluster(t testing.TB, nodes, ranges int, opts ...option) *cluster {
	t.Helper()
	level := hclog.Error
	if os.Getenv("VTOP_TEST_LOG") != "" {
		level = hclog.LevelFromString(os.Getenv("VTOP_TEST_LOG"))
	}
	c := &cluster{t: t, ledger: newLedger(), nodes: map[vtop.NodeName]*node{}, fs: map[vtop.NodeName]vfs.FS{}, dirs: map[vtop.NodeName]string{},
		log: hclog.New(&hclog.LoggerOptions{Level: level, Output: os.Stderr})}
	for i := range nodes {
		c.names = append(c.names, vtop.NodeName(rune('a'+i)))
	}
	for _, opt := range opts {
		opt(c)
	}
	c.id = uuid()
	c.mustPropose(&fsm.BootstrapCluster{ID: c.id, Level: fsm.LevelMax})
	for _, name := range c.names {
		c.dirs[name] = "/store"
		if c.fs[name] == nil {
			c.fs[name], c.dirs[name] = vfs.OS(), t.TempDir()
		}
		c.start(name)
	}
	for _, n := range c.nodes {
		c.await("the engine to catch up", n.engine.caughtUp)
	}
	c.topic = c.createTopic("events", ranges, nil, c.names...)
	t.Cleanup(c.close)
	return c
}

func uuid() (u vtop.UUID) {
	for i := range u {
		u[i] = byte(rand.N(255) + 1)
	}
	return u
}

func (c *cluster) createTopic(name string, ranges int, config map[string]string, on ...vtop.NodeName) vtop.TopicID {
	c.t.Helper()
	cmd := &fsm.CreateTopic{ID: uuid(), Name: name, Config: config}
	for range ranges {
		cmd.Ranges = append(cmd.Ranges, on)
	}
	c.mustPropose(cmd)
	for _, name := range on { // a node that dies before it has made its directory has lost its replica, by the rule
		for i := range ranges {
			c.await("the directories", func() bool { return c.nodes[name].store.Get(vtop.Range{Topic: cmd.ID, Index: int32(i)}) != nil })
		}
	}
	return cmd.ID
}

func (c *cluster) r(index int) vtop.Range { return vtop.Range{Topic: c.topic, Index: int32(index)} }

func (c *cluster) mustPropose(cmd fsm.Command) fsm.Outcome {
	c.t.Helper()
	out, err := c.ledger.propose(cmd)
	if err == nil {
		err = out.Err()
	}
	for _, item := range out.Items {
		if err == nil {
			err = item.Err()
		}
	}
	if err != nil {
		c.t.Fatalf("propose %s: %v", cmd.Op(), err)
	}
	return out
}

// start opens the node's store and brings a new life of it into the cluster.
func (c *cluster) start(name vtop.NodeName) *node {
	c.t.Helper()
	n := &node{c: c, name: name, stop: make(chan struct{}), cut: map[vtop.NodeName]bool{}, streams: map[vtop.NodeName]*transport.Stream{}}
	n.machine = fsm.New(fsm.Options{})
	opt := storage.Options{Fence: n.machine.Leases(), Log: c.log.Named(string(name)), Reserve: 1, TickInterval: -1, ZeroStepBytes: 64 << 10, OpenFiles: 64}
	var err error
	if n.store, err = storage.Open(c.fs[name], c.dirs[name], opt); err != nil {
		c.t.Fatalf("open store of %s: %v", name, err)
	}
	id := n.store.Identity()
	if id.Cluster.IsZero() {
		if err := n.store.SetCluster(c.id); err != nil {
			c.t.Fatal(err)
		}
	}
	old, known := c.state().Node(name)
	reg := &fsm.RegisterNode{Name: name, Identity: fsm.Identity{
		Storage: id.Storage, RaftID: string(name), Incarnation: id.Incarnation, BootNonce: uuid(), MaxLevel: fsm.LevelMax,
		Addresses: fsm.Addresses{Peer: "127.0.0.1:1", Kafka: "127.0.0.1:1", Gossip: "127.0.0.1:1", Admin: "127.0.0.1:1"},
	}}
	if known {
		reg.Expected = old.Incarnation
	}
	c.mustPropose(reg)
	n.self = transport.Self{Name: name, Cluster: c.id, Generation: 1, Storage: id.Storage, Incarnation: id.Incarnation, ServerID: string(name)}
	n.machine.Leases().SetIdentity(name, id.Incarnation)
	n.machine.Leases().SetDeadline(1000 * time.Hour)
	n.goal = c.state().Index()
	n.listen()
	n.run()
	c.nodesMu.Lock()
	c.nodes[name] = n
	c.nodesMu.Unlock()
	addresses.Store(addressKey{c, name}, n.mux.Addr().String())
	return n
}

func (n *node) listen() {
	opt := transport.Options{Self: func() transport.Self { return n.self }, Log: n.c.log}
	var err error
	if n.mux, err = transport.Listen("127.0.0.1:0", opt); err != nil {
		n.c.t.Fatal(err)
	}
	if n.dialer, err = transport.NewDialer(opt); err != nil {
		n.c.t.Fatal(err)
	}
	if n.client, err = transport.NewClient(opt); err != nil {
		n.c.t.Fatal(err)
	}
}

func (n *node) run() {
	cfg := Config{
		Self: n.name, Incarnation: n.self.Incarnation, Machine: n.machine, Store: n.store, Network: n,
		Propose: n.propose, CaughtUp: func() bool { return n.machine.Applied() >= n.goal }, Log: n.c.log.Named(string(n.name)),
		DutyInterval: -1, HealInterval: -1, RepairJobs: n.c.runs,
	}
	if n.c.tune != nil {
		n.c.tune(n.name, &cfg)
	}
	var err error
	if n.engine, err = New(cfg); err != nil {
		n.c.t.Fatal(err)
	}
	n.mux.SetHandler(transport.Join(nil, n.engine, nil).WithSegments(n.engine))
	n.mux.HandleStream(transport.Replication, n.engine.ServeStream)
	n.wg.Add(1)
	go n.apply()
	if n.c.runs {
		n.startRunner()
	}
}

// apply is the node's Raft: it applies one command after another, unless the gate is shut.
func (n *node) apply() {
	defer n.wg.Done()
	for index := uint64(1); ; {
		cmd, grown := n.c.ledger.next(index)
		if cmd == nil {
			select {
			case <-grown:
			case <-n.stop:
				return
			}
			continue
		}
		n.gate.Lock()
		select {
		case <-n.stop:
			n.gate.Unlock()
			return
		default:
		}
		n.machine.ApplyCommands(index, cmd)
		n.gate.Unlock()
		index++
	}
}

// lag keeps the node's machine where it is until the function returned is called.
func (n *node) lag() (resume func()) {
	n.gate.Lock()
	return sync.OnceFunc(n.gate.Unlock)
}

func (n *node) propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	if n.dead.Load() {
		return fsm.Outcome{}, errors.New("the process is dead")
	}
	out, err := n.c.ledger.propose(cmd)
	if err != nil {
		return out, err
	}
	return out, n.machine.WaitApplied(ctx, out.Index)
}

// kill ends a node as kill -9 does, as far as one process can: no farewell, no flush by the engine.
func (c *cluster) kill(name vtop.NodeName) {
	c.t.Helper()
	n := c.nodes[name]
	c.nodesMu.Lock()
	delete(c.nodes, name)
	c.nodesMu.Unlock()
	n.end(true)
}

// end stops the node's parts in the order in which the daemon does.
func (n *node) end(abrupt bool) {
	addresses.Delete(addressKey{n.c, n.name})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if abrupt {
		n.dead.Store(true)
		cancel()
	}
	if n.runner != nil {
		n.runner.Close()
	}
	_ = n.engine.Close(ctx)
	n.mux.Close()
	n.client.Close()
	n.dialer.Close()
	close(n.stop)
	n.wg.Wait()
	if err := n.store.Close(); err != nil && !abrupt {
		n.c.t.Errorf("close store of %s: %v", n.name, err)
	}
}

// powerCut kills nodes together, with what a power cut leaves of their disks: unsynced writes survive or not, in any order.
func (c *cluster) powerCut(rng *rand.Rand, names ...vtop.NodeName) {
	c.t.Helper()
	for _, name := range names {
		crashFS(c, name).PowerCut()
	}
	for _, name := range names {
		image := crashFS(c, name).CrashClone(rng, vfs.AnyPolicy(rng))
		c.kill(name)
		c.fs[name] = image
	}
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.end(false)
	}
}

func (c *cluster) state() *fsm.State {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	return c.ledger.state
}

func (c *cluster) rangeOf(r vtop.Range) *fsm.Range {
	c.t.Helper()
	rg, ok := c.state().Range(r)
	if !ok {
		c.t.Fatalf("no range %s", r)
	}
	return rg
}

// grant gives a lease to a node that runs and returns its epoch.
func (c *cluster) grant(to vtop.NodeName, ranges ...vtop.Range) vtop.Epoch {
	c.t.Helper()
	cmd := &fsm.GrantLeases{}
	for _, r := range ranges {
		cmd.Items = append(cmd.Items, fsm.Grant{Range: r, Holder: to, Incarnation: c.nodes[to].self.Incarnation, Expected: c.rangeOf(r).LastEpoch, Reason: "test"})
	}
	out := c.mustPropose(cmd)
	return out.Items[0].Epoch
}

// lead grants and waits until the node leads.
func (c *cluster) lead(to vtop.NodeName, ranges ...vtop.Range) vtop.Epoch {
	c.t.Helper()
	epoch := c.grant(to, ranges...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n := c.nodes[to]
	if err := n.machine.WaitApplied(ctx, c.state().Index()); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range ranges {
		if err := n.engine.WaitLeading(ctx, r); err != nil {
			d, _ := n.engine.Describe(r)
			c.t.Fatalf("%s does not lead %s: %v (%+v)", to, r, err, d)
		}
	}
	return epoch
}

// await looks again and again until ok.
func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			for _, n := range c.nodes {
				d, err := n.engine.Describe(c.r(0))
				c.t.Logf("%s: %+v %v", n.name, d, err)
			}
			c.t.Fatalf("waited %s for: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}
