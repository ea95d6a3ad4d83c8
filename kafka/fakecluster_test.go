package kafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// fakeCluster is a cluster in memory: real metadata (fsm.State), one log for each range that all nodes share, and a Server
// for each node. It can move leases, hold acknowledgements back, refuse appends and kill nodes.
type fakeCluster struct {
	t     testing.TB
	nodes []*fakeNode

	mu      sync.Mutex
	state   *fsm.State   // machine's
	machine *fsm.Machine // shared by all nodes
	index   uint64
	logs    map[vtop.Range]*fakeLog
	watches map[*fakeWatch]struct{}
	pid     int64
	// proposals, if set, sees what coordinators propose, and refuses it with an error.
	proposals func(fsm.Command) error
	holding   bool
	held      []func()
	refuse    func(vtop.Range, batch.Batch) error
	unknown   error // what admitted batches are answered with
	noLeases  bool  // new topics get no leases
	onlyHeld  bool  // leases of new topics are granted, not started
	down      map[vtop.NodeName]bool
	notReady  bool
	unready   int // times that a node is asked before it is ready

	appends, fetches, watched, states atomic.Int64
}

type fakeWatch struct {
	ranges []vtop.Range
	wake   chan<- struct{}
}

type fakeLog struct {
	batches   []batch.Batch
	start     vtop.Offset
	end, high vtop.Offset
	producers map[int64][]fakeSeq
}

type fakeSeq struct {
	epoch       int16
	first, last int32
	base        vtop.Offset
}

// fakeNode is one node of a fakeCluster.
type fakeNode struct {
	c      *fakeCluster
	name   vtop.NodeName
	server *Server
	addr   string
	groups *group.Coordinator
}

func randomUUID() (u vtop.UUID) {
	rand.Read(u[:])
	return u
}

// newFakeCluster starts n nodes and closes them with the test.
func newFakeCluster(t testing.TB, n int, edit func(*Config)) *fakeCluster {
	t.Helper()
	machine := fsm.New(fsm.Options{})
	c := &fakeCluster{t: t, machine: machine, state: machine.State(), logs: map[vtop.Range]*fakeLog{}, watches: map[*fakeWatch]struct{}{}, down: map[vtop.NodeName]bool{}, pid: 1000}
	c.apply(&fsm.BootstrapCluster{ID: randomUUID(), Level: fsm.LevelFirst})
	cfg := DefaultConfig()
	cfg.DefaultReplicas = int16(n)
	if edit != nil {
		edit(&cfg)
	}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		node := &fakeNode{c: c, name: vtop.NodeName(fmt.Sprintf("n%d", i+1)), addr: l.Addr().String()}
		c.apply(&fsm.RegisterNode{Name: node.name, Identity: fsm.Identity{Storage: randomUUID(), RaftID: string(node.name), Incarnation: 1,
			BootNonce: randomUUID(), MaxLevel: fsm.LevelMax, Rack: "rack-" + string(node.name),
			Addresses: fsm.Addresses{Kafka: node.addr, Peer: "127.0.0.1:1", Gossip: "127.0.0.1:2", Admin: "127.0.0.1:3"}}})
		log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: testWriter{t}})
		node.startGroups(log)
		if node.server, err = New(cfg, node, nil, log); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, node)
		done := make(chan error, 1)
		go func() { done <- node.server.Serve(l) }()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			node.server.Close(ctx)
			if err := <-done; !errors.Is(err, vtop.ErrClosed) {
				t.Errorf("Serve ended with %v, want ErrClosed", err)
			}
		})
	}
	c.spreadSlots()
	return c
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("error without a Kafka code")) { // a bug of ours, whatever the test is about
		w.t.Errorf("server: %s", b)
		return len(b), nil
	}
	w.t.Logf("server: %s", b)
	return len(b), nil
}

func (c *fakeCluster) apply(cmd fsm.Command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applyLocked(cmd)
}

func (c *fakeCluster) applyLocked(cmd fsm.Command) error {
	if err := cmd.Check(); err != nil {
		return err
	}
	out := c.outcomeLocked(cmd)
	for _, item := range out.Items {
		if item.Refusal != nil {
			return item.Refusal
		}
	}
	return out.Err()
}

func (c *fakeCluster) outcomeLocked(cmd fsm.Command) fsm.Outcome {
	c.index++
	outs := c.machine.ApplyCommands(c.index, cmd)
	c.state = c.machine.State()
	return outs[0]
}

func (c *fakeCluster) wakeLocked(r vtop.Range) {
	for w := range c.watches {
		if slices.Contains(w.ranges, r) {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// grant gives the lease of r to a node; it serves at once if started.
func (c *fakeCluster) grant(r vtop.Range, to vtop.NodeName, started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grantLocked(r, to, started)
}

func (c *fakeCluster) grantLocked(r vtop.Range, to vtop.NodeName, started bool) {
	fr, _ := c.state.Range(r)
	if err := c.applyLocked(&fsm.GrantLeases{Items: []fsm.Grant{{Range: r, Holder: to, Incarnation: 1, Expected: fr.LastEpoch, Reason: "test"}}}); err != nil {
		c.t.Errorf("grant: %v", err)
	}
	if started {
		c.startLocked(r)
	}
	c.wakeLocked(r)
}

func (c *fakeCluster) start(r vtop.Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLocked(r)
	c.wakeLocked(r)
}

func (c *fakeCluster) startLocked(r vtop.Range) {
	fr, _ := c.state.Range(r)
	if err := c.applyLocked(&fsm.StartEpochs{Items: []fsm.EpochStart{{Range: r, Epoch: fr.Lease.Epoch, Start: c.log(r).end}}}); err != nil {
		c.t.Errorf("start: %v", err)
	}
}

// cut drops what was not acknowledged: what a new leader would not have.
func (c *fakeCluster) cut(r vtop.Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.log(r)
	l.batches = slices.DeleteFunc(l.batches, func(b batch.Batch) bool { return b.BaseOffset() >= l.high })
	l.end = l.high
}

func (c *fakeCluster) log(r vtop.Range) *fakeLog {
	l := c.logs[r]
	if l == nil {
		l = &fakeLog{producers: map[int64][]fakeSeq{}}
		c.logs[r] = l
	}
	return l
}

// hold keeps acknowledgements back until release.
func (c *fakeCluster) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding = true
}

// release lets all that was held go, in the order given, and holds no more.
func (c *fakeCluster) release(reversed bool) {
	c.mu.Lock()
	held := c.held
	c.holding, c.held = false, nil
	c.mu.Unlock()
	if reversed {
		slices.Reverse(held)
	}
	for _, fn := range held {
		fn()
	}
}

func (c *fakeCluster) set(fn func(c *fakeCluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(c)
}

// topic creates a topic whose leases are all on the first node.
func (c *fakeCluster) topic(name string, ranges int32) []vtop.Range {
	c.t.Helper()
	id, err := c.nodes[0].CreateTopic(context.Background(), TopicSpec{Name: name, Ranges: ranges, Replicas: int16(len(c.nodes))})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []vtop.Range
	for i := range ranges {
		r := vtop.Range{Topic: id, Index: i}
		c.set(func(c *fakeCluster) {
			if fr, _ := c.state.Range(r); fr.Lease.Holder != "n1" && !c.noLeases {
				c.grantLocked(r, "n1", true)
			}
		})
		out = append(out, r)
	}
	return out
}
