package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
)

// A start that was proposed, thought lost, and taken after all, when the candidate's log had meanwhile grown by a longer
// voter's records: to lead from there would give the offsets above the start a second meaning (I2).
func TestPromotion_LateStartBelowTheLogEndIsGivenUp(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("c", r)
	a, last := c.nodes["a"], c.nodes["c"]
	last.mustProduce(r, "x")
	c.awaitSame("c", r)
	last.isolate()
	last.send(r, -1, plain("lone"))
	c.await("c to have its lone record on disk", func() bool { return last.store.Get(r).Durable() == 2 })
	resume := c.stallFollower("a", "c")
	var mu sync.Mutex
	var late *fsm.StartEpochs
	c.refuse(func(cmd fsm.Command) error {
		mu.Lock()
		defer mu.Unlock()
		start, ok := cmd.(*fsm.StartEpochs)
		if !ok || late != nil && start == late {
			return nil
		}
		if late == nil {
			late = start
		}
		return fmt.Errorf("%w: it is on its way", vtop.ErrTimeout)
	})
	epoch := c.grant("a", r)
	c.await("the first start to be proposed", func() bool { mu.Lock(); defer mu.Unlock(); return late != nil })
	resume()
	c.await("the longer log to be fetched", func() bool { return a.store.Get(r).Durable() == 2 })
	if late.Items[0].Start != 1 {
		t.Fatalf("the test wants a start at 1, have %+v", late.Items)
	}
	c.mustPropose(late)
	c.await("a to give the lease back", func() bool { return c.rangeOf(r).Lease.Holder == "" })
	c.refuse(nil)
	last.rejoin()
	if got := c.lead("b", r); got <= epoch {
		t.Fatalf("epoch %d after %d", got, epoch)
	}
	c.nodes["b"].mustProduce(r, "y")
	if got := c.awaitSame("b", r); len(got) != 2 || !strings.HasSuffix(got[1], "=y") {
		t.Fatalf("I2: %v", got)
	}
}

// A majority without the committed records leads nothing: the range says why, and who might have the rest (I1).
func TestPromotion_BelowTheFloorStaysUnavailable(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("c", r)
	for i := range 5 {
		c.nodes["c"].mustProduce(r, fmt.Sprint(i))
	}
	c.awaitSame("c", r)
	c.duties("c")
	if rg := c.rangeOf(r); rg.Floor != 5 {
		t.Fatalf("floor %d", rg.Floor)
	}
	// Two disks forget the same records below the durable mark: more than the quorum can bear. Here by their machines alone:
	// the floor says more than they have.
	for _, name := range []vtop.NodeName{"a", "b"} {
		c.kill(name)
	}
	c.shorten("a", r, 3)
	c.shorten("b", r, 3)
	c.kill("c")
	c.start("a")
	c.start("b")
	c.grant("a", r)
	a := c.nodes["a"]
	c.await("a to say why", func() bool {
		d, err := a.engine.Describe(r)
		return err == nil && d.Role == RolePromoting && strings.Contains(d.Why, "floor is 5") && strings.Contains(d.Why, `on "c"`)
	})
	if err := a.engine.WaitLeading(expired(), r); !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("%v", err)
	}
	c.start("c") // the one who has the rest
	c.await("the range to be served again", func() bool { return len(a.engine.Leading()) == 1 })
	a.mustProduce(r, "after")
	if got := c.awaitSame("a", r); len(got) != 6 {
		t.Fatalf("I1: %v", got)
	}
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// shorten makes the replica of a node that does not run end at offset end, whole and without a trace: as if it had never
// had the rest.
func (c *cluster) shorten(name vtop.NodeName, r vtop.Range, end vtop.Offset) {
	c.t.Helper()
	rg := c.rangeOf(r)
	rep, _ := rg.On(name)
	free := freeFence{}
	src, err := storage.Open(c.fs[name], c.dirs[name], storage.Options{Fence: free, Reserve: 1, TickInterval: -1})
	if err != nil {
		c.t.Fatal(err)
	}
	defer src.Close()
	old := src.Get(r)
	kept, _, base, err := old.Read(0, 1<<20, end, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	kept = append([]byte(nil), kept...)
	if err := src.Delete(r); err != nil {
		c.t.Fatal(err)
	}
	log, err := src.Create(r, rep.ID, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := log.AppendFollow(rg.LastEpoch, vtop.FenceFollow, base, kept); err != nil {
		c.t.Fatal(err)
	}
	if err := log.Flush(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

type freeFence struct{}

func (freeFence) Hold(_ vtop.Range, _ vtop.Epoch, _ vtop.FenceMode, fn func() error) error {
	return fn()
}

// A promise outlives a restart, and a lower epoch is refused for ever, naming the promise (I6).
func TestFence_PromiseOutlivesTheProcess(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	epoch := c.lead("b", r)
	c.kill("c")
	n := c.start("c")
	c.await("c to catch up", func() bool { return n.engine.caughtUp() && n.machine.Applied() == c.state().Index() })
	rep, _ := c.rangeOf(r).On("c")
	if got := n.store.Get(r).Promised(); got != epoch {
		t.Skipf("c was not in the majority that promised: %d", got)
	}
	req := fenceRequest(c.rangeOf(r), rep.ID)
	req.Items[0].Epoch = int32(epoch) - 1
	resp, err := n.engine.Fence(context.Background(), transport.Caller{Self: c.nodes["a"].self}, req)
	if err != nil {
		t.Fatal(err)
	}
	if res := resp.Results[0]; !errors.Is(transport.ErrorOf(res.Code, res.Message), vtop.ErrFenced) || vtop.Epoch(res.Promised) < epoch {
		t.Fatalf("I6: %+v", res)
	}
}

// Metadata that went back grants epochs that were promised before: the next grant is above the promise.
func TestPromotion_RenewsAboveAPromise(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	for _, name := range []vtop.NodeName{"b", "c"} { // promises of a history that the metadata has lost
		n := c.nodes[name]
		rep, _ := c.rangeOf(r).On(name)
		for _, err := range n.store.Promise([]storage.Promise{{Range: r, ReplicaID: rep.ID, Epoch: 40}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	c.grant("a", r)
	a := c.nodes["a"]
	c.await("a to lead above the promise", func() bool {
		rg := c.rangeOf(r)
		return rg.Lease.Epoch > 40 && rg.Started && len(a.engine.Leading()) == 1
	})
	a.mustProduce(r, "y")
	c.awaitSame("a", r)
}

// Until a node has caught up it answers no fence and follows nobody.
func TestEngine_NothingBeforeItHasCaughtUp(t *testing.T) {
	var ready sync.Map
	c := newCluster(t, 3, 1, withConfig(func(name vtop.NodeName, cfg *Config) {
		caught := cfg.CaughtUp
		cfg.CaughtUp = func() bool { _, held := ready.Load(name); return !held && caught() }
	}))
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	c.awaitSame("a", r)
	c.kill("c")
	ready.Store(vtop.NodeName("c"), true)
	n := c.start("c")
	c.nodes["a"].mustProduce(r, "y")
	rep, _ := c.rangeOf(r).On("c")
	if _, err := n.engine.Fence(context.Background(), transport.Caller{Self: c.nodes["a"].self}, fenceRequest(c.rangeOf(r), rep.ID)); !errors.Is(err, vtop.ErrNotReady) {
		t.Fatalf("fence before it has caught up: %v", err)
	}
	if end := n.store.Get(r).End(); end != 1 {
		t.Fatalf("followed before it has caught up: ends at %d", end)
	}
	ready.Delete(vtop.NodeName("c"))
	c.awaitSame("a", r)
}
