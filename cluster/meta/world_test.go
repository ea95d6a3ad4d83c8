package meta

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// disk is what a node's data directory remembers; the Raft and state directories stand beside it.
type disk struct {
	dir         string
	storage     vtop.StorageID
	incarnation vtop.Incarnation

	mu   sync.Mutex
	born vtop.ClusterID
}

// cluster is what the data directory says it belongs to.
func (d *disk) cluster() vtop.ClusterID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.born
}

func (d *disk) setCluster(id vtop.ClusterID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.born.IsZero() && d.born != id {
		return fmt.Errorf("disk of cluster %s told to be of %s", d.born, id)
	}
	d.born = id
	return nil
}

// box is a machine: a name, addresses, a disk, and at times a process.
type box struct {
	w            *world
	name         vtop.NodeName
	peer, gossip string
	disk         *disk

	who    *Who
	mux    *transport.Mux
	client *transport.Client
	fsm    *fsm.Machine
	meta   *Meta
}

// world is a few boxes on loopback.
type world struct {
	t      *testing.T
	boxes  map[vtop.NodeName]*box
	join   []string
	expect int
	heal   time.Duration
	gossip bool
	tune   func(*Config)
	disks  int
	pace   time.Duration // the least heartbeat timeout that this machine keeps at present
}

func newWorld(t *testing.T, expect int, names ...string) *world {
	w := &world{t: t, boxes: map[vtop.NodeName]*box{}, expect: expect, heal: time.Hour, pace: pace(t)}
	for _, n := range names {
		w.addBox(n)
	}
	for _, n := range names[:min(expect, len(names))] {
		w.join = append(w.join, w.box(n).peer)
	}
	t.Cleanup(w.stopAll)
	return w
}

// pace measures what a vote takes here and now, where other tests may have the processors and the disk: an election whose timeout is not
// many times that ends in the next one, for ever.
func pace(t *testing.T) time.Duration {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "pace"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	slowest := time.Duration(0)
	for range 10 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	return min(20*slowest, 5*time.Second)
}

func (w *world) box(name string) *box { return w.boxes[vtop.NodeName(name)] }

func (w *world) addBox(name string) *box {
	b := &box{w: w, name: vtop.NodeName(name), peer: transporttest.FreeAddr(w.t), gossip: transporttest.FreeAddr(w.t)}
	b.wipe()
	w.boxes[b.name] = b
	return b
}

func randomUUID() (u vtop.UUID) {
	_, _ = rand.Read(u[:])
	return u
}

// wipe gives the box an empty disk.
func (b *box) wipe() {
	b.w.disks++
	b.disk = &disk{dir: filepath.Join(b.w.t.TempDir(), fmt.Sprintf("%s-%d", b.name, b.w.disks)), storage: randomUUID()}
}

// copyDisk is a copy of the disk as it is now.
func (b *box) copyDisk() *disk {
	b.w.disks++
	c := &disk{
		dir: filepath.Join(b.w.t.TempDir(), fmt.Sprintf("%s-copy-%d", b.name, b.w.disks)), storage: b.disk.storage,
		incarnation: b.disk.incarnation, born: b.disk.cluster(),
	}
	if err := os.CopyFS(c.dir, os.DirFS(b.disk.dir)); err != nil {
		b.w.t.Fatal(err)
	}
	return c
}

func testLog(t *testing.T) hclog.Logger {
	level := hclog.Off
	if testing.Verbose() && os.Getenv("VTOP_TEST_LOG") != "" {
		level = hclog.LevelFromString(os.Getenv("VTOP_TEST_LOG"))
	}
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: os.Stderr, Name: t.Name()})
}

// start starts the process. It does not wait for anything.
func (b *box) start() {
	b.w.t.Helper()
	if err := b.tryStart(); err != nil {
		b.w.t.Fatalf("start %s: %v", b.name, err)
	}
}

func (b *box) tryStart() (err error) {
	d := b.disk
	d.incarnation++
	b.who = NewWho(b.name, d.storage, d.incarnation)
	log := testLog(b.w.t).Named(string(b.name))
	b.fsm = fsm.New(fsm.Options{Log: log})
	opt := transport.Options{Self: b.who.Self, Log: log}
	if b.mux, err = transport.Listen(b.peer, opt); err != nil {
		return err
	}
	if b.client, err = transport.NewClient(opt); err != nil {
		return err
	}
	layer := b.mux.Raft()
	cfg := Config{
		Who: b.who, Boot: randomUUID(), Cluster: d.cluster(), HoldsData: !d.cluster().IsZero(),
		SetCluster: d.setCluster,
		RaiseIncarnation: func(above vtop.Incarnation) (vtop.Incarnation, error) {
			d.incarnation = above + 1
			return d.incarnation, nil
		},
		RaftDir: filepath.Join(d.dir, "raft"), StateDir: filepath.Join(d.dir, "meta"),
		Addresses: fsm.Addresses{Kafka: "127.0.0.1:1", Peer: b.peer, Gossip: b.gossip, Admin: "127.0.0.1:2"},
		Join:      b.w.join, BootstrapExpect: b.w.expect,
		HeartbeatTimeout: max(500*time.Millisecond, b.w.pace), HealAfter: b.w.heal, ReconcileEvery: 200 * time.Millisecond,
		GossipProbe: 300 * time.Millisecond, RestoredWait: time.Second,
		Machine: b.fsm, Peers: b.client, RaftListener: layer, DialRaft: layer.DialTarget, Log: log,
	}
	if b.w.gossip {
		cfg.GossipBind = b.gossip
	}
	if b.w.tune != nil {
		b.w.tune(&cfg)
	}
	if b.meta, err = Open(context.Background(), cfg); err != nil {
		return errors.Join(err, b.client.Close(), b.mux.Close())
	}
	b.mux.SetHandler(transport.Join(b.meta.Handler(), nil, nil))
	return nil
}

// kill cuts the network first, as the end of a process does, and then clears up behind it.
func (b *box) kill() {
	if b.meta == nil {
		return
	}
	_ = b.mux.Close()
	_ = b.client.Close()
	b.close()
}

// stop ends the process in good order.
func (b *box) stop() {
	if b.meta == nil {
		return
	}
	b.close()
	_ = b.client.Close()
	_ = b.mux.Close()
}

func (b *box) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := b.meta.Close(ctx); err != nil {
		b.w.t.Logf("close %s: %v", b.name, err)
	}
	b.meta = nil
}

func (w *world) stopAll() {
	var wg sync.WaitGroup
	for _, b := range w.boxes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			b.kill()
		}()
	}
	wg.Wait()
}

func (w *world) startAll(names ...string) {
	w.t.Helper()
	for _, n := range names {
		w.box(n).start()
	}
}

// patience ends a test that hangs; a machine that is busy may need many times what it needs alone.
const patience = 2 * time.Minute

// until waits for what must come about in the end.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) {
			for _, b := range w.boxes {
				if b.meta != nil {
					w.t.Logf("%s: %s; cluster %v; raft %v; state %s", b.name, b.meta.Status(), b.disk.cluster(), b.meta.RaftServers(), b.meta.Stats()["state"])
				}
			}
			w.t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) joined(names ...string) {
	w.t.Helper()
	for _, n := range names {
		b := w.box(n)
		w.until(n+" joined", func() bool { return b.meta.Joined() && b.meta.CaughtUp() })
	}
}

func (w *world) leader() *box {
	w.t.Helper()
	var found *box
	w.until("a leader", func() bool {
		for _, b := range w.boxes {
			if b.meta != nil && b.meta.IsLeader() {
				found = b
				return true
			}
		}
		return false
	})
	return found
}

// voters are the names with a vote, as the box sees it, and all members.
func (b *box) members() (voters, all []string) {
	for _, s := range b.meta.RaftServers() {
		all = append(all, string(s.Name))
		if s.Voter {
			voters = append(voters, string(s.Name))
		}
	}
	slices.Sort(voters)
	slices.Sort(all)
	return voters, all
}

func (w *world) wantVoters(want string) {
	w.t.Helper()
	w.until("voters "+want, func() bool {
		for _, b := range w.boxes {
			if b.meta == nil || !b.meta.IsLeader() {
				continue
			}
			voters, _ := b.members()
			return strings.Join(voters, " ") == want
		}
		return false
	})
}

// wantOneCluster checks that all disks that belong to a cluster belong to the same.
func (w *world) wantOneCluster() vtop.ClusterID {
	w.t.Helper()
	var id vtop.ClusterID
	for _, b := range w.boxes {
		switch c := b.disk.cluster(); {
		case c.IsZero():
		case id.IsZero():
			id = c
		case id != c:
			w.t.Fatalf("two clusters: %s and %s (at %s)", id, c, b.name)
		}
	}
	return id
}

func (w *world) createTopic(b *box, name string) (fsm.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	placement := [][]vtop.NodeName{{b.name}}
	return b.meta.Propose(ctx, &fsm.CreateTopic{ID: randomUUID(), Name: name, Ranges: placement})
}
