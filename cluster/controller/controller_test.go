package controller

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/fsm"
)

// world is a controller over a real state machine, with a Raft group of one that takes every command.
type world struct {
	t       *testing.T
	machine *fsm.Machine
	tracker *liveness.Tracker
	control *Controller
	start   time.Time
	index   uint64
	topic   vtop.TopicID
	lives   map[vtop.NodeName]vtop.Incarnation
	racks   map[vtop.NodeName]string
	extends atomic.Int64

	healAfter time.Duration
	// jump is what the clock has gone on while the process did not run.
	jump atomic.Int64

	mu      sync.Mutex
	deposed bool
	verify  error
	ends    map[vtop.NodeName][]LogEnd
	silent  map[vtop.NodeName]bool
}

// set changes what the controller's goroutines read.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) IsLeader() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.deposed
}

func (w *world) Term() uint64 { return 1 }

func (w *world) VerifyLeader(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.verify
}

func (w *world) Propose(_ context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	return w.apply(cmd)[0], nil
}

// apply has the commands take effect together: the controller never sees the state between two of them.
func (w *world) apply(cmds ...fsm.Command) []fsm.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.index + 1
	w.index += uint64(len(cmds))
	return w.machine.ApplyCommands(first, cmds...)
}

// must applies the commands as apply does and returns the outcome of the first.
func (w *world) must(cmds ...fsm.Command) fsm.Outcome {
	w.t.Helper()
	outs := w.apply(cmds...)
	for i, out := range outs {
		if out.Err() != nil {
			w.t.Fatalf("%T: %v", cmds[i], out.Err())
		}
		for _, item := range out.Items {
			if item.Err() != nil {
				w.t.Fatalf("%T: %v", cmds[i], item.Err())
			}
		}
	}
	return outs[0]
}

func (w *world) clock() time.Duration { return time.Since(w.start) + time.Duration(w.jump.Load()) }

func (w *world) register(node vtop.NodeName, life vtop.Incarnation) {
	w.lives[node] = life
	w.must(&fsm.RegisterNode{
		Name: node, Expected: life - 1, At: 1,
		Identity: fsm.Identity{
			Storage: vtop.UUID{1, node[1]}, RaftID: "raft-" + string(node), Incarnation: life, BootNonce: vtop.UUID{2, node[1], byte(life)},
			Addresses: fsm.Addresses{Peer: string(node) + ":1"}, Rack: w.racks[node], MaxLevel: fsm.LevelMax,
		},
	})
}

// run makes a world of three nodes and one topic of one range on all of them, and runs fn in virtual time while the
// nodes that are not silent go on sending beats.
func run(t *testing.T, fn func(w *world)) { runHealing(t, 0, fn) }

// runHealing is run with a cluster that heals after some time.
func runHealing(t *testing.T, after time.Duration, fn func(w *world)) {
	runJudging(t, 3*time.Second, after, fn)
}

// runJudging is runHealing with a silence limit.
func runJudging(t *testing.T, silence, after time.Duration, fn func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, machine: fsm.New(fsm.Options{}), start: time.Now().Add(-time.Hour), topic: vtop.UUID{9},
			ends: map[vtop.NodeName][]LogEnd{}, silent: map[vtop.NodeName]bool{}, lives: map[vtop.NodeName]vtop.Incarnation{},
			racks: map[vtop.NodeName]string{}, healAfter: after,
		}
		w.tracker = liveness.NewTracker(liveness.Limits{Silence: silence, DiskStall: 2 * time.Second}, w.clock)
		w.must(&fsm.BootstrapCluster{ID: vtop.UUID{7}, Level: fsm.LevelMax, At: 1})
		for _, n := range []vtop.NodeName{"n1", "n2", "n3"} {
			w.register(n, 1)
		}
		w.must(&fsm.CreateTopic{ID: w.topic, Name: "t", Ranges: [][]vtop.NodeName{{"n2", "n1", "n3"}}, At: 1})
		receiver := liveness.NewReceiver(liveness.ReceiverConfig{
			Tracker: w.tracker, Address: func(vtop.NodeName) (string, bool) { return "", false }, Evidence: func(vtop.NodeName) {}, Log: hclog.NewNullLogger(),
		})
		w.beat() // or the controller could begin before it has heard of the preferred node
		w.control = Start(Config{
			Self: "n1", Machine: w.machine, Quorum: w, Tracker: w.tracker, Receiver: receiver,
			SelfHealth: func() liveness.Health { return liveness.Health{Incarnation: 1} },
			LogEnds: func(_ context.Context, node vtop.NodeName, _ []Ask) ([]LogEnd, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.silent[node] {
					return nil, errors.New("silent")
				}
				return w.ends[node], nil
			},
			Extend:   func(time.Duration) { w.extends.Add(1) },
			Interval: 200 * time.Millisecond, LogEndTimeout: 200 * time.Millisecond, PromotionDeadline: 5 * time.Second,
			BalanceEvery: 10 * time.Second, HomeAfter: 30 * time.Second, HealAfter: w.healAfter, MaxHeals: 2, Clock: w.clock, Log: hclog.NewNullLogger(),
		})
		defer w.control.Close()
		fn(w)
	})
}

// beat has every node that is not silent send one.
func (w *world) beat() {
	for n, life := range w.lives {
		if !w.silent[n] {
			w.tracker.Beat(n, 1, liveness.Health{Incarnation: life})
		}
	}
}

// pass lets time go by with beats from all nodes that are not silent. When it returns the controller has come to rest.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		w.beat()
		synctest.Wait()
	}
	synctest.Wait()
}

func (w *world) rangeOf() *fsm.Range {
	r, ok := w.machine.State().Range(vtop.Range{Topic: w.topic})
	if !ok {
		w.t.Fatal("no range")
	}
	return r
}

// started has the holder start its epoch.
func (w *world) started(at vtop.Offset) *fsm.Range {
	w.t.Helper()
	r := w.rangeOf()
	w.must(&fsm.StartEpochs{At: 1, Items: []fsm.EpochStart{{Range: r.ID, Epoch: r.Lease.Epoch, Start: at}}})
	return w.rangeOf()
}

func (w *world) wantHolder(node vtop.NodeName, epoch vtop.Epoch) {
	w.t.Helper()
	if r := w.rangeOf(); r.Lease.Holder != node || r.Lease.Epoch != epoch {
		w.t.Fatalf("lease is %s under epoch %d, want %s under %d", r.Lease.Holder, r.Lease.Epoch, node, epoch)
	}
}

func TestController_NewRangeGoesToItsPreferredNode(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		w.wantHolder("n2", 1)
		if w.extends.Load() == 0 {
			t.Fatal("the leader's own deadline was never extended")
		}
	})
}

func TestController_SilentHolderLosesTheLeaseToTheOneFurthestAhead(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		r := w.started(0)
		w.set(func() { w.ends["n1"] = []LogEnd{{Range: r.ID, End: 10, LastEpoch: 1}} })
		w.set(func() { w.ends["n3"] = []LogEnd{{Range: r.ID, End: 12, LastEpoch: 1}} })
		w.set(func() { w.silent["n2"] = true })
		w.pass(2 * time.Second)
		w.wantHolder("n2", 1)
		w.pass(2 * time.Second)
		w.wantHolder("n3", 2)
	})
}

func TestController_RefusedConnectionMovesTheLeaseAtOnce(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		w.started(0)
		w.set(func() { w.silent["n2"] = true })
		w.tracker.Lost("n2", 1, true)
		w.control.Wake()
		synctest.Wait()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if r := w.rangeOf(); r.Lease.Holder == "n2" {
			t.Fatal("a process that is gone still holds the lease")
		}
	})
}

// I5: a new incarnation of the holder holds nothing; the lease is granted anew under a higher epoch.
func TestController_RestartedHolderGetsANewEpoch(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		w.started(0)
		w.register("n2", 2)
		w.pass(time.Second)
		if r := w.rangeOf(); r.Lease.Epoch < 2 || !r.Lease.HeldBy(r.Lease.Holder, w.lives[r.Lease.Holder]) {
			t.Fatalf("lease is %+v", r.Lease)
		}
	})
}

func TestController_HolderThatDoesNotStartLosesTheLeaseWithGrowingPatience(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		w.wantHolder("n2", 1)
		w.pass(5 * time.Second)
		if r := w.rangeOf(); r.Lease.Holder == "n2" || r.Lease.Epoch != 2 {
			t.Fatalf("after the deadline: %+v", r.Lease)
		}
		w.pass(8 * time.Second)
		if e := w.rangeOf().Lease.Epoch; e != 2 {
			t.Fatalf("the second holder has ten seconds, epoch is %d after eight", e)
		}
		w.pass(4 * time.Second)
		if e := w.rangeOf().Lease.Epoch; e != 3 {
			t.Fatalf("epoch is %d", e)
		}
	})
}

// If metadata went back, a promise higher than any epoch it knows asks for an epoch above the promise.
func TestController_GrantIsAboveEveryPromise(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		r := w.started(0)
		w.set(func() { w.ends["n1"] = []LogEnd{{Range: r.ID, End: 1, LastEpoch: 1, Promised: 41}} })
		w.set(func() { w.silent["n2"] = true })
		w.pass(4 * time.Second)
		if e := w.rangeOf().Lease.Epoch; e != 42 {
			t.Fatalf("epoch %d after a promise of 41", e)
		}
	})
}

func TestController_NoVoterLeftIsSaidAndHealsByItself(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		w.started(0)
		for n := range w.lives {
			w.set(func() { w.silent[n] = true })
		}
		delete(w.lives, "n1") // this node itself goes on, but has no voter that is whole
		w.must(&fsm.MarkReplicasLost{Node: "n1", Storage: vtop.UUID{1, '1'}, Incarnation: 1, Reason: "test", Items: []fsm.LostReplica{{Range: w.rangeOf().ID, ReplicaID: w.voter("n1")}}})
		w.pass(5 * time.Second)
		if why := w.control.Stuck()[w.rangeOf().ID]; why == "" {
			t.Fatalf("nothing is said of a range without a voter; lease %+v", w.rangeOf().Lease)
		}
		w.set(func() { w.silent["n3"] = false })
		w.pass(time.Second)
		w.wantHolder("n3", 2)
		if why := w.control.Stuck()[w.rangeOf().ID]; why != "" {
			t.Fatalf("still stuck: %s", why)
		}
	})
}

func (w *world) voter(n vtop.NodeName) vtop.ReplicaID {
	for _, rep := range w.rangeOf().Replicas {
		if rep.Node == n {
			return rep.ID
		}
	}
	w.t.Fatalf("no replica on %s", n)
	return 0
}

func TestController_LeaseReturnsHomeOnceTheNodeHasBeenWellForAWhile(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		r := w.started(0)
		w.set(func() { w.silent["n2"] = true })
		w.pass(4 * time.Second)
		w.started(0)
		for n := range w.lives {
			w.set(func() { w.ends[n] = []LogEnd{{Range: r.ID, End: 5, LastEpoch: 2}} })
		}
		w.set(func() { w.silent["n2"] = false })
		w.pass(20 * time.Second)
		if w.rangeOf().Lease.Holder == "n2" {
			t.Fatal("returned before the node had been well for half a minute")
		}
		for waited := 0; waited < 30 && w.rangeOf().Lease.Epoch < 3; waited++ {
			w.pass(time.Second)
		}
		w.wantHolder("n2", 3)
	})
}

func TestController_TransferRefusesWhoCannotLead(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		r := w.started(0)
		w.set(func() { w.silent["n3"] = true })
		w.pass(4 * time.Second)
		w.spare("n4")
		for _, c := range []struct {
			to   vtop.NodeName
			have vtop.Epoch
			want string
		}{
			{"n3", 0, "can't move to n3: it is not alive"},
			{"n4", 0, "can't move to n4: it has no replica of that range that votes; the voters are on n1, n2, n3"},
			{"nobody", 0, "can't move to nobody: there is no node of that name"},
			{"n1", 9, "can't move to n1: the lease has epoch 1, expected is 9"},
		} {
			_, err := w.control.Transfer(t.Context(), r.ID, c.to, c.have)
			var refused *TransferError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("transfer to %s expecting epoch %d: %v, want %q", c.to, c.have, err, c.want)
			}
		}
		epoch, err := w.control.Transfer(t.Context(), r.ID, "n1", 1)
		if err != nil || epoch != 2 {
			t.Fatalf("transfer: epoch %d, %v", epoch, err)
		}
		w.wantHolder("n1", 2)
		if _, err := w.control.Transfer(t.Context(), vtop.Range{Topic: vtop.UUID{3}}, "n1", 0); !errors.Is(err, vtop.ErrUnknownRange) {
			t.Fatalf("a range that is not there: %v", err)
		}
	})
}

func TestController_DeposedLeaderDoesNothing(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		w.started(0)
		w.set(func() { w.deposed = true })
		before := w.extends.Load()
		w.set(func() { w.silent["n2"] = true })
		w.pass(10 * time.Second)
		w.wantHolder("n2", 1)
		if w.extends.Load() > before+1 {
			t.Fatal("a node that does not lead extended its own deadline")
		}
	})
}

func TestController_UnverifiedLeaderExtendsNothing(t *testing.T) {
	run(t, func(w *world) {
		w.set(func() { w.verify = errors.New("no majority") })
		before := w.extends.Load()
		w.pass(2 * time.Second)
		if w.extends.Load() > before+1 {
			t.Fatalf("extended %d times without a verified quorum", w.extends.Load()-before)
		}
	})
}
