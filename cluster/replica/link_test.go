package replica

import (
	"errors"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// aside is a session that nobody reads: what it would send stays in answers.
func (n *node) aside(from *node) *session {
	return &session{
		engine: n.engine, from: transport.Caller{Self: from.self},
		wake: make(chan struct{}, 1), links: map[uint32]*link{},
	}
}

func (s *session) refused(f *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.over && len(s.answers) > 0
}

// A deposed leader that has not heard of it asks to be followed again, and over and over. It is refused, and the link of the
// present leader stays what it is: the present one would not ask again.
func TestLink_DeposedLeaderTakesNothingAway(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "x")
	epoch := c.lead("b", r)
	c.nodes["b"].mustProduce(r, "y")
	c.awaitSame("b", r)
	node := c.nodes["c"]
	sl := node.engine.slotOf(r, false)
	present := sl.following.Load()
	if present == nil || !present.active.Load() || present.epoch != epoch {
		t.Fatalf("c follows %+v, want epoch %d", present, epoch)
	}
	stale := &link{session: node.aside(c.nodes["a"]), handle: 9, r: r, replica: present.replica, epoch: epoch - 1}
	sl.park(stale)
	node.engine.slow.add(r)
	c.await("the stale request to be refused", func() bool { return stale.session.refused(stale) })
	if sl.following.Load() != present || !present.active.Load() {
		t.Fatalf("A9: the link of epoch %d was taken away by a request of epoch %d", epoch, epoch-1)
	}
	c.nodes["b"].mustProduce(r, "z")
	c.awaitSame("b", r)
}

// Of two requests that wait to be judged the one of the higher epoch stays, whichever came first, and the other is told.
func TestSlot_ParkKeepsTheHigherEpoch(t *testing.T) {
	c := newCluster(t, 2, 1)
	s := newSlot(c.nodes["a"].engine, vtop.Range{Index: 77})
	request := func(epoch vtop.Epoch) *link {
		return &link{session: c.nodes["a"].aside(c.nodes["b"]), handle: 1, r: s.r, epoch: epoch}
	}
	second, first, third := request(2), request(1), request(3)
	s.park(second)
	s.park(first)
	if !first.session.refused(first) || second.session.refused(second) {
		t.Fatal("the older epoch is to be refused, and only that")
	}
	s.park(third)
	if !second.session.refused(second) || third.session.refused(third) {
		t.Fatal("the request that was pushed out is to be told")
	}
	third.session.forget(third, errors.New("its connection broke"))
	again := request(2)
	s.park(again)
	if s.takeParked() != again || again.session.refused(again) {
		t.Fatal("a request that is gone holds up another")
	}
}
