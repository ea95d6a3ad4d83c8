package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Records that only the leader has are closed and never catalogued; when a majority is back the same question is answered.
func TestSealTail_NotCommitted(t *testing.T) {
	c := newCluster(t, 3, 1, impatient("a", 100*time.Millisecond))
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "committed")
	c.awaitSame("a", r)
	a.isolate()
	lonely := a.send(r, -1, plain("lonely"))
	c.await("it to be durable on a", func() bool { return a.store.Get(r).Durable() == 2 })
	for range 2 {
		_, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
		var open *transport.NotCommittedError
		if !errors.As(err, &open) || open.ClosedEnd != 2 || open.HighWatermark != 1 {
			t.Fatalf("followers are cut off: %v", err)
		}
	}
	c.duties("a")
	if entry, ok := c.state().LastSegment(r); ok {
		t.Fatalf("a root of records that are not committed was catalogued: %+v", entry)
	}
	if pins := a.store.Pins(); len(pins) != 0 {
		t.Fatalf("pins left behind: %+v", pins)
	}
	a.rejoin()
	if res := c.answer(lonely); res.Err != nil {
		t.Fatal(res.Err)
	}
	var resp *peerpb.SealTailResponse
	c.await("the same question to be answered", func() bool {
		var err error
		resp, err = c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
		return err == nil
	})
	c.wantSealed("a", r, resp, 2, 0)
}

// The lonely tail is closed, then another leads without its records: what was closed is cut, and its root is never catalogued.
func TestSealTail_ClosedAndNeverCommittedIsCut(t *testing.T) {
	c := newCluster(t, 3, 1, impatient("a", 50*time.Millisecond))
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "committed")
	c.awaitSame("a", r)
	a.isolate()
	lonely := a.send(r, -1, plain("lonely"))
	c.await("it to be durable on a", func() bool { return a.store.Get(r).Durable() == 2 })
	if _, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r)); !errors.Is(err, transport.ErrNotCommitted) {
		t.Fatal(err)
	}
	c.nodes["b"].mu.Lock()
	c.nodes["b"].cut["a"] = true // b does not ask a for its log
	c.nodes["b"].mu.Unlock()
	c.lead("b", r)
	if res := c.answer(lonely); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("deposed: %v", res.Err)
	}
	c.nodes["b"].mustProduce(r, "other", "more")
	c.nodes["b"].rejoin()
	c.awaitSame("b", r)
	resp, err := c.sealAt(waiting(t), "c", "b", c.sealRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	c.wantSealed("b", r, resp, 3, 3)
	if log := a.readLog(r); len(log) != 3 || !strings.HasSuffix(log[1], "=other") {
		t.Fatalf("I2: a has %v", log)
	}
}

// A follower that heard of a segment before it had its last record closes its own copy when it has it, though no record follows (I9): what
// is idle is scrubbed on every replica and sent from any.
func TestSealTail_FollowerThatHeardOfItTooEarly(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a, b := c.nodes["a"], c.nodes["b"]
	a.mustProduce(r, "first")
	c.awaitSame("a", r)
	resume := c.stallFollower("a", "b")
	a.mustProduce(r, "last")
	if _, err := c.sealAt(waiting(t), "c", "a", c.sealRequest(r)); err != nil {
		t.Fatal(err)
	}
	if err := b.machine.WaitApplied(waiting(t), c.state().Index()); err != nil {
		t.Fatal(err)
	}
	if end := b.store.Get(r).End(); end != 1 {
		t.Fatalf("b has %d records though nobody sends it any", end)
	}
	resume()
	c.awaitSame("a", r)
	c.await("b to have sealed it", func() bool { _ = b.engine.Duties(waiting(t)); return sealedBelow(b.store.Get(r), 2) })
}

// A lost answer is asked for again: nothing is sealed twice, the end is the same (G6).
func TestSealTail_LostAnswer(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x", "y", "z")
	ctx, cancel := context.WithCancel(waiting(t))
	resume := c.stallFollower("a", "b")
	resumeC := c.stallFollower("a", "c")
	pending := c.nodes["a"].send(r, -1, plain("w"))
	gone := make(chan error, 1)
	go func() {
		_, err := c.sealAt(ctx, "b", "a", c.sealRequest(r))
		gone <- err
	}()
	c.await("the tail to be closed", func() bool { return len(c.nodes["a"].store.Get(r).Segments()) == 2 })
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("answered, though nothing was committed")
	}
	resume()
	resumeC()
	if res := c.answer(pending); res.Err != nil {
		t.Fatal(res.Err)
	}
	resp, err := c.sealAt(waiting(t), "b", "a", c.sealRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	c.wantSealed("a", r, resp, 4, 0)
}
