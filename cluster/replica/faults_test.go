package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
)

func crashFS(c *cluster, name vtop.NodeName) *vfs.CrashFS { return c.fs[name].(*vfs.CrashFS) }

// failSync makes the next syncs of segment files fail until the function returned is called.
func failSync(fs *vfs.CrashFS) (heal func()) {
	var off atomic.Bool
	fs.SetHook(func(op vfs.Op) error {
		if !off.Load() && strings.HasSuffix(op.Name, ".log") &&
			(op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncData) {
			return &vfsError{op: op.Name}
		}
		return nil
	})
	return func() { off.Store(true) }
}

type vfsError struct{ op string }

func (e *vfsError) Error() string        { return "sync " + e.op + ": input/output error" }
func (e *vfsError) Is(target error) bool { return target == syscall.EIO }

// A leader whose disk fails ends its epoch: nothing that was admitted is acknowledged, the lease goes back, the log is read
// anew, and the node follows the next leader without a restart.
func TestFaults_LeaderWithAFailedSyncStepsDown(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	epoch := c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	heal := failSync(crashFS(c, "a"))
	res := a.produce(r, "y")
	if res.Err != nil && !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("answered %v: the client must look for the next leader", res.Err)
	}
	c.await("the lease to be given back", func() bool { return c.rangeOf(r).Lease.Holder == "" })
	heal()
	if got := c.lead("b", r); got <= epoch {
		t.Fatalf("I5: epoch %d after %d", got, epoch)
	}
	c.nodes["b"].mustProduce(r, "z")
	got := c.awaitSame("b", r)
	if res.Err == nil && (len(got) != 3 || !strings.HasSuffix(got[1], "=y")) {
		t.Fatalf("I1: y was acknowledged by the others' disks: %v", got)
	}
	if a.engine.Metrics().StorageFailures == 0 {
		t.Fatal("the failure was not counted")
	}
}

func TestFaults_FollowerWithAFailedSyncIsFedAgain(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	heal := failSync(crashFS(c, "c"))
	a.mustProduce(r, "y") // a and b are a majority
	c.await("c to notice", func() bool { return c.nodes["c"].engine.Metrics().StorageFailures > 0 })
	heal()
	a.mustProduce(r, "z")
	c.awaitSame("a", r) // G7: without a restart of anything
}

func TestFaults_FullDiskRefusesWritesKeepsReadsAndHeals(t *testing.T) {
	told := make(chan []vtop.Range, 100)
	c := newCluster(t, 3, 1, withCrashFS(), withConfig(func(name vtop.NodeName, cfg *Config) {
		if name == "a" {
			cfg.OnNoSpace = func(r []vtop.Range) { told <- r }
		}
	}))
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	crashFS(c, "a").SetCapacity(1)
	if err := a.store.Tick(); err != nil && !errors.Is(err, vtop.ErrNoSpace) && !errors.Is(err, syscall.ENOSPC) {
		t.Logf("tick on a full disk: %v", err)
	}
	if res := a.produce(r, "y"); !errors.Is(res.Err, vtop.ErrNoSpace) {
		t.Fatalf("full disk: %+v", res)
	}
	if _, err := a.engine.Fetch(r, vtop.FetchSpec{Offset: 0, MaxBytes: 1 << 10, AtLeastOne: true, ClientEpoch: -1, LastFetchedEpoch: -1}, nil); err != nil {
		t.Fatalf("reads must go on: %v", err)
	}
	c.duties("a")
	select {
	case got := <-told:
		if len(got) != 1 || got[0] != r {
			t.Fatalf("told of %v", got)
		}
	default:
		t.Fatal("nobody was told that there is no space")
	}
	crashFS(c, "a").SetCapacity(1 << 40)
	if err := a.store.Tick(); err != nil {
		t.Fatal(err)
	}
	a.mustProduce(r, "z")
	c.awaitSame("a", r)
}

// All nodes lose power at once, again and again, under load: what was acknowledged is there (I1), at its offset (I2).
func TestFaults_PowerCutOfAllNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	acked := map[vtop.Offset]string{}
	for round := range 6 {
		leader := c.names[round%3]
		c.lead(leader, r)
		n := c.nodes[leader]
		var answers []<-chan vtop.AppendResult
		var values []string
		for i := range 20 {
			v := fmt.Sprintf("r%d-%d", round, i)
			values, answers = append(values, v), append(answers, n.send(r, -1, plain(v)))
		}
		for i := range 10 { // the rest is on its way when the power goes
			if res := c.answer(answers[i]); res.Err == nil {
				acked[res.Base] = values[i]
			}
		}
		c.powerCut(rng, c.names...)
		for i := 10; i < 20; i++ { // what was acknowledged before the cut is promised too
			if res := c.answer(answers[i]); res.Err == nil {
				acked[res.Base] = values[i]
			}
		}
		for _, name := range c.names {
			c.start(name)
		}
	}
	if len(acked) < 60 {
		t.Fatalf("only %d records were acknowledged", len(acked))
	}
	c.lead("b", r)
	c.nodes["b"].mustProduce(r, "last")
	got := map[string]bool{}
	for _, rec := range c.awaitSame("b", r) {
		got[rec[:strings.Index(rec, "@")]+rec[strings.Index(rec, "="):]] = true
	}
	for at, v := range acked {
		if !got[fmt.Sprintf("%d=%s", at, v)] {
			t.Errorf("I1: %s was acknowledged at %d and is gone", v, at)
		}
	}
}

// A replica whose directory is gone does not vote (I10); it is replaced on its node under a new id and votes again.
func TestHeal_WipedReplicaIsReplacedOnItsNode(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	for i := range 20 {
		a.mustProduce(r, fmt.Sprint(i))
	}
	c.awaitSame("a", r)
	old, _ := c.rangeOf(r).On("c")
	c.kill("c")
	wipe(t, c, "c", r)
	n := c.start("c")
	c.await("the loss to be known", func() bool { rep, _ := c.rangeOf(r).Replica(old.ID); return rep.Lost != "" })
	// Its promise is gone with it: it must not help anybody to lead.
	resp, err := n.engine.Fence(context.Background(), transport.Caller{Self: a.self}, fenceRequest(c.rangeOf(r), old.ID))
	if err != nil || transport.ErrorOf(resp.Results[0].Code, resp.Results[0].Message) == nil {
		t.Fatalf("I10: a lost replica promised: %+v %v", resp, err)
	}
	a.mustProduce(r, "two are enough")
	c.await("the replica to be replaced", func() bool {
		c.duties("a")
		a.engine.Heal(context.Background())
		rep, ok := c.rangeOf(r).VoterOn("c")
		return ok && rep.ID != old.ID && len(c.rangeOf(r).Replicas) == 3
	})
	a.mustProduce(r, "three again")
	c.awaitSame("a", r)
	c.kill("b")
	c.lead("c", r) // B6: with its history and state it can lead
	c.nodes["c"].mustProduce(r, "led by the new one")
	c.awaitSame("c", r)
}

func wipe(t *testing.T, c *cluster, name vtop.NodeName, r vtop.Range) {
	t.Helper()
	found := 0
	var walk func(dir string)
	walk = func(dir string) {
		names, err := c.fs[name].ReadDir(dir)
		if err != nil {
			return
		}
		for _, base := range names {
			path := filepath.Join(dir, base)
			info, err := c.fs[name].Stat(path)
			if err != nil || !info.IsDir {
				continue
			}
			if strings.Contains(path, r.Topic.String()) {
				if err := c.fs[name].RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				found++
				continue
			}
			walk(path)
		}
	}
	walk(c.dirs[name])
	if found == 0 {
		t.Fatalf("no directory of %s under %s", r, c.dirs[name])
	}
}

// Acknowledgements of another epoch, replica or handle count for nothing (A7).
func TestPeer_StaleAcknowledgementsCountForNothing(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	epoch := c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	a.isolate()
	waiting := a.send(r, -1, plain("y"))
	c.await("y to be on a's disk", func() bool { return a.store.Get(r).Durable() == 2 })
	ld := a.engine.slotOf(r, false).leading.Load()
	for _, f := range *ld.flows.Load() {
		for _, e := range []vtop.Epoch{epoch - 1, epoch, epoch + 1} {
			f.peer.acknowledged(transport.Ack{Handle: f.handle, Epoch: e, Durable: 2, End: 2})
			f.peer.acknowledged(transport.Ack{Handle: f.handle + 100, Epoch: e, Durable: 2, End: 2})
		}
	}
	ld.acknowledge(999, 2)
	select {
	case res := <-waiting:
		t.Fatalf("A7: acknowledged by news of a broken connection: %+v", res)
	default:
	}
	if hw := ld.highWatermark(); hw != 1 {
		t.Fatalf("A7: high watermark %d", hw)
	}
	a.rejoin()
	if res := c.answer(waiting); res.Err != nil {
		t.Fatal(res.Err)
	}
}

// A replica that is behind and makes no progress has its stream built anew, and is then fed (G7).
func TestPeer_WatchdogRebuildsAStuckStream(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	p := a.engine.peerOf("c")
	c.await("c to follow", func() bool { return following(t, a.engine, r) == 2 })
	p.mu.Lock()
	for _, f := range p.flows {
		f.next += 5 // a lost wake-up, or a bug: the follower will never get what it lacks
	}
	p.mu.Unlock()
	a.mustProduce(r, "y")
	c.await("the watchdog to help", func() bool {
		p.watchdog(time.Now().Add(time.Minute), time.Second)
		return c.nodes["c"].store.Get(r).Durable() == 2
	})
	c.awaitSame("a", r)
}

// gate makes each sync of a segment file on a node wait for a token.
func (c *cluster) gate(name vtop.NodeName) (waits, let chan struct{}, open func()) {
	waits, let, opened := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	crashFS(c, name).SetHook(func(op vfs.Op) error {
		if strings.HasSuffix(op.Name, ".log") && (op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncData) {
			select {
			case waits <- struct{}{}:
			default:
			}
			select {
			case <-let:
			case <-opened:
			}
		}
		return nil
	})
	return waits, let, sync.OnceFunc(func() { close(opened) })
}

// An acknowledgement is a majority of syncs (I1): no more, so that a disk that hangs costs nothing, and no less: what a
// replica has in memory counts for nothing, its own leader's included.
func TestEngine_AcknowledgementIsAMajorityOfSyncs(t *testing.T) {
	for _, hung := range [][]vtop.NodeName{{"a"}, {"b"}, {"a", "b"}, {"b", "c"}} {
		t.Run(fmt.Sprint(hung), func(t *testing.T) {
			c := newCluster(t, 3, 1, withCrashFS())
			r := c.r(0)
			c.lead("a", r)
			a := c.nodes["a"]
			a.mustProduce(r, "x")
			c.awaitSame("a", r)
			lets, syncing := map[vtop.NodeName]chan struct{}{}, []chan struct{}{}
			for _, name := range hung {
				waits, let, open := c.gate(name)
				lets[name], syncing = let, append(syncing, waits)
				t.Cleanup(open) // before the cluster closes
				defer open()
			}
			first := a.send(r, -1, plain("y"))
			for _, waits := range syncing {
				<-waits // the sync of the first batch alone
			}
			second := a.send(r, -1, plain("z"))
			for _, n := range c.nodes {
				c.await("both batches to be in every log", func() bool { return n.store.Get(r).End() == 3 })
			}
			if len(hung) == 1 {
				if res := c.answer(second); res.Err != nil {
					t.Fatalf("one hung disk holds up the majority: %v", res.Err)
				}
				return
			}
			for _, name := range hung {
				lets[name] <- struct{}{}
			}
			c.answer(first)
			count := func() (durable int) {
				for _, n := range c.nodes {
					if n.store.Get(r).Durable() == 3 {
						durable++
					}
				}
				return durable
			}
			c.await("the disk that works to have both batches", func() bool { return count() >= 1 })
			durable := count()
			if durable != 1 {
				t.Fatalf("the gate does not hold: %d have the second batch", durable)
			}
			select {
			case res := <-second:
				t.Fatalf("I1: acknowledged with %d syncs of 3: %+v", durable, res)
			case <-time.After(50 * time.Millisecond): // an absence
			}
		})
	}
}
