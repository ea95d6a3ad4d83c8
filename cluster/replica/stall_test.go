package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

// hangAll has the disks of all nodes hang in the sync of a segment.
func (c *cluster) hangAll() (open func()) {
	var opens []func()
	for _, name := range c.names {
		_, _, open := c.gate(name)
		opens = append(opens, open)
		c.t.Cleanup(open) // before the cluster closes
	}
	return func() {
		for _, open := range opens {
			open()
		}
	}
}

// Who waits at a leader whose disk hangs is answered at once, once, and with "look for the next leader"; what was admitted is
// still there, and the retry of an idempotent producer gets the offset of the original.
func TestEngine_RefuseWaiting(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	open := c.hangAll()
	all, one := a.send(r, -1, idempotent(7, 0, "y")), a.send(r, 1, plain("z"))
	for _, n := range c.nodes {
		c.await("both batches to be in every log", func() bool { return n.store.Get(r).End() == 3 })
	}
	a.engine.RefuseWaiting("the disk hangs")
	for want, ch := range []<-chan vtop.AppendResult{all, one} {
		if res := c.answer(ch); !errors.Is(res.Err, vtop.ErrNotLeader) || res.Base != vtop.Offset(want+1) {
			t.Fatalf("batch at %d: %+v", want+1, res)
		}
	}
	a.engine.RefuseWaiting("nobody waits any more")
	open()
	c.awaitSame("a", r)
	for i, ch := range []<-chan vtop.AppendResult{all, one} {
		select {
		case res := <-ch:
			t.Fatalf("batch %d is answered twice: %+v", i, res)
		default:
		}
	}
	if res := c.answer(a.send(r, -1, idempotent(7, 0, "y"))); res.Err != nil || res.Base != 1 {
		t.Fatalf("I2: the retry is answered %+v, want the offset 1 of the original", res)
	}
}

// I7: a holder whose deadline has passed acknowledges nothing, though a majority has the record: somebody else may lead by now.
func TestEngine_NothingIsAcknowledgedAfterTheDeadline(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	open := c.hangAll()
	waiting := a.send(r, -1, idempotent(7, 0, "y"))
	for _, n := range c.nodes {
		c.await("the batch to be in every log", func() bool { return n.store.Get(r).End() == 2 })
	}
	a.machine.Leases().Expire()
	open()
	if res := c.answer(waiting); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("I7: acknowledged after the deadline: %+v", res)
	}
	c.awaitSame("a", r)
	a.machine.Leases().SetDeadline(1000 * time.Hour)
	if res := c.answer(a.send(r, -1, idempotent(7, 0, "y"))); res.Err != nil || res.Base != 1 {
		t.Fatalf("I2: the retry is answered %+v, want the offset 1 of the original", res)
	}
}
