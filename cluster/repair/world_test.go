package repair

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport/transporttest"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a cluster of which only the destination's runner, machine and store are real, and the store of a leader. The other
// nodes are faces of peers over that one store, whose bytes are the same as theirs would be; the engine is a method here.
type world struct {
	t       testing.TB
	machine *fsm.Machine
	peers   *peers
	rng     vtop.Range
	topic   vtop.TopicID
	self    vtop.NodeName

	leader *storage.Log // node a's
	source *storage.Store
	dest   *storage.Store
	fs     *vfs.FaultFS // the destination's
	dirs   [2]string
	runner *Runner
	tune   func(*Config)

	// mu orders the commands; the rest is under it.
	mu          sync.Mutex
	index       uint64
	incarnation map[vtop.NodeName]vtop.Incarnation
	updates     int
	lostReply   bool // the next answer to a proposal is lost
}

type anyFence struct{}

// Hold implements storage.Fence.
func (anyFence) Hold(_ vtop.Range, _ vtop.Epoch, _ vtop.FenceMode, fn func() error) error {
	return fn()
}

func id(n uint64) (u vtop.UUID) {
	binary.BigEndian.PutUint64(u[8:], n)
	u[0] = 7
	return u
}

func testLog() hclog.Logger {
	if os.Getenv("VTOP_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Level: hclog.LevelFromString(os.Getenv("VTOP_TEST_LOG")), Output: os.Stderr})
}

// newWorld is a range with voters on a, which leads, b and c, and a node d. self is the destination.
func newWorld(t testing.TB, self vtop.NodeName) *world {
	w := &world{
		t: t, machine: fsm.New(fsm.Options{}), topic: id(9), self: self, incarnation: map[vtop.NodeName]vtop.Incarnation{},
		dirs: [2]string{t.TempDir(), t.TempDir()}, fs: vfs.NewFaultFS(vfs.OS()),
	}
	w.rng = vtop.Range{Topic: w.topic}
	w.peers = newPeers(w)
	w.source = w.openStore(vfs.OS(), w.dirs[0])
	w.dest = w.openStore(w.fs, w.dirs[1])
	w.must(&fsm.BootstrapCluster{ID: id(1), Level: fsm.LevelMax})
	for i, name := range []vtop.NodeName{"a", "b", "c", "d"} {
		w.incarnation[name] = 1
		w.must(&fsm.RegisterNode{Name: name, Identity: fsm.Identity{
			Storage: id(uint64(100 + i)), RaftID: string(name), Incarnation: 1, BootNonce: id(uint64(200 + i)), MaxLevel: fsm.LevelMax,
			Addresses: fsm.Addresses{Kafka: "h:1", Peer: "h:2", Gossip: "h:3", Admin: "h:4"},
		}})
	}
	w.must(&fsm.CreateTopic{ID: w.topic, Name: "lines", Ranges: [][]vtop.NodeName{{"a", "b", "c"}}})
	w.lead("a", 0)
	var err error
	w.leader, err = w.source.Create(w.rng, w.replicaOf("a"), 0)
	ok(t, err)
	t.Cleanup(w.close)
	return w
}

func (w *world) openStore(fsys vfs.FS, dir string) *storage.Store {
	s, err := storage.Open(fsys, dir, storage.Options{Fence: anyFence{}, Reserve: 1, TickInterval: -1, ZeroStepBytes: -1, Log: testLog()})
	ok(w.t, err)
	return s
}

func (w *world) close() {
	w.stop()
	ok(w.t, w.dest.Close())
	ok(w.t, w.source.Close())
}

// start starts the runner of the destination.
func (w *world) start() {
	cfg := Config{
		Self: w.self, Incarnation: w.incarnation[w.self], Machine: w.machine, Store: w.dest, Peers: w.peers, Propose: w.propose,
		CaughtUp: func() bool { return true }, Follows: func(vtop.Range) Following { return Following{HighWatermark: fsm.NoOffset} },
		Alive: w.peers.alive, Log: testLog(),
	}
	if w.tune != nil {
		w.tune(&cfg)
	}
	r, err := New(cfg)
	ok(w.t, err)
	w.runner = r
}

func (w *world) stop() {
	if w.runner != nil {
		w.runner.Close()
	}
	w.runner = nil
}

// crash ends the process of the destination and begins another one on the same directory.
func (w *world) crash() {
	w.stop()
	ok(w.t, w.dest.Close())
	w.dest = w.openStore(w.fs, w.dirs[1])
	w.start()
}

// propose is what the metadata leader does with a command.
func (w *world) propose(_ context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	raw, err := fsm.Encode(cmd)
	if err != nil {
		return fsm.Outcome{}, err
	}
	if cmd, err = fsm.Decode(raw); err != nil {
		return fsm.Outcome{}, err
	}
	if _, update := cmd.(*fsm.UpdateRepairs); update {
		w.updates++
	}
	w.index++
	out := w.machine.ApplyCommands(w.index, cmd)[0]
	if w.lostReply {
		w.lostReply = false
		return fsm.Outcome{}, vtop.ErrTimeout
	}
	return out, nil
}

func (w *world) must(cmd fsm.Command) fsm.Outcome {
	w.t.Helper()
	out, err := w.propose(context.Background(), cmd)
	if err == nil {
		err = out.Err()
	}
	for _, item := range out.Items {
		if err == nil {
			err = item.Err()
		}
	}
	if err != nil {
		w.t.Fatalf("%s: %v", cmd.Op(), err)
	}
	return out
}

func (w *world) state() *fsm.Range {
	rg, found := w.machine.State().Range(w.rng)
	if !found {
		w.t.Fatal("the range is gone")
	}
	return rg
}

func (w *world) replicaOf(node vtop.NodeName) vtop.ReplicaID {
	for _, rep := range w.state().Replicas {
		if rep.Node == node && rep.Lost == "" {
			return rep.ID
		}
	}
	w.t.Fatalf("node %q has no replica", node)
	return 0
}

// lead gives the lease to a node.
func (w *world) lead(node vtop.NodeName, start vtop.Offset) {
	w.t.Helper()
	rg := w.state()
	out := w.must(&fsm.GrantLeases{Items: []fsm.Grant{{
		Range: w.rng, Holder: node, Incarnation: w.incarnation[node], Expected: rg.LastEpoch, Reason: "test",
	}}})
	w.must(&fsm.StartEpochs{Items: []fsm.EpochStart{{Range: w.rng, Epoch: out.Items[0].Epoch, Start: start}}})
}

// write appends records until the segment has about so many bytes.
func (w *world) write(bytes int) {
	w.t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(w.leader.End())))
	for size := 0; size < bytes; {
		value := make([]byte, min(bytes-size, 200_000))
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		b := batch.Build(batch.Spec{
			Producer: &batch.Producer{ID: 5, Sequence: int32(w.leader.End())}, Records: []batch.Record{{Value: value}},
		})
		_, _, err := w.leader.AppendLead(w.state().Lease.Epoch, b)
		ok(w.t, err)
		size += len(b)
		ok(w.t, w.leader.Flush(context.Background()))
	}
	w.floor()
}

// floor reports what the leader has as safe.
func (w *world) floor() {
	w.t.Helper()
	rg := w.state()
	w.must(&fsm.ReportFloors{Items: []fsm.FloorReport{{
		Range: w.rng, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Floor: w.leader.End(), QuorumPosition: w.leader.End(), LogEnd: w.leader.End(),
	}}})
}

// seal closes the tail, and catalogues and seals what is closed.
func (w *world) seal() (records int64) {
	w.t.Helper()
	closed, err := w.leader.CloseTail(w.state().Lease.Epoch)
	ok(w.t, err)
	ok(w.t, w.leader.Flush(context.Background()))
	for !w.finished() { // by the flusher, in its time
		time.Sleep(time.Millisecond)
	}
	for _, seg := range w.leader.Closed() {
		root, size, err := w.leader.Root(seg.Base)
		ok(w.t, err)
		rg := w.state()
		w.must(&fsm.RegisterSegment{
			Range: w.rng, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Base: seg.Base, End: seg.End, Bytes: size, Root: root, SealedAt: 1,
		})
		ok(w.t, w.leader.Seal(seg.Base, root))
	}
	return closed.Records
}

// finished says that the files of all closed segments are.
func (w *world) finished() bool {
	closed := 0
	for _, seg := range w.leader.Segments() {
		if seg.State == storage.SegmentClosed {
			closed++
		}
	}
	return len(w.leader.Closed()) == closed
}

// segments makes so many sealed segments of a size.
func (w *world) segments(n, bytes int) {
	for range n {
		w.write(bytes)
		w.seal()
	}
}

// reclaim is retention: the log start moves to the base of the sealed segment i.
func (w *world) reclaim(i int) {
	w.t.Helper()
	start := w.leader.Segments()[i].Base
	w.must(&fsm.MoveLogStart{Range: w.rng, Epoch: w.state().Lease.Epoch, Start: start})
	ok(w.t, w.leader.SetLogStart(start))
}

// submit asks for a repair to the destination.
func (w *world) submit(edit ...func(*fsm.RepairRequest)) fsm.RepairID {
	w.t.Helper()
	q := fsm.RepairRequest{Range: w.rng, Destination: w.self, Origin: fsm.OriginOperator, Reason: "test"}
	for _, fn := range edit {
		fn(&q)
	}
	return w.must(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{q}}).Items[0].Repair
}

func sealTail(q *fsm.RepairRequest) { q.SealTail = true }

func (w *world) job(id fsm.RepairID) *fsm.RepairJob {
	job, found := w.machine.State().Repair(id)
	if !found {
		w.t.Fatalf("no repair %d", id)
	}
	return job
}

// await waits, in the bubble's time, until the job is as wanted.
func (w *world) await(id fsm.RepairID, what string, as func(*fsm.RepairJob) bool) *fsm.RepairJob {
	w.t.Helper()
	for deadline := time.Now().Add(time.Hour); ; {
		if job := w.job(id); as(job) {
			return job
		}
		if !time.Now().Before(deadline) {
			w.t.Fatalf("the repair never was: %s; it is %+v", what, w.job(id))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *world) awaitStep(id fsm.RepairID, step fsm.RepairStep) *fsm.RepairJob {
	w.t.Helper()
	return w.await(id, step.String(), func(j *fsm.RepairJob) bool { return j.Step >= step })
}

// finish lets the engine and the leader do their part until the job has ended.
func (w *world) finish(id fsm.RepairID) *fsm.RepairJob {
	w.t.Helper()
	return w.await(id, "ended", func(j *fsm.RepairJob) bool {
		w.engine()
		return !j.Active()
	})
}
