package replica

import (
	"errors"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop"
)

// E9: a follower whose disk is full reconciles, follows, and refuses the next batch, over and over. Each round is one refusal more, so that the leader asks less and less often, and its log has one
// line; with room the replica is fed again, and then its first refusal is one again.
func TestFaults_FollowerWithoutRoomIsAskedLessAndLess(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	a, b := c.nodes["a"], c.nodes["b"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	crashFS(c, "b").SetCapacity(1)
	if err := b.store.Tick(); err != nil && !errors.Is(err, vtop.ErrNoSpace) && !errors.Is(err, syscall.ENOSPC) {
		t.Logf("tick on a full disk: %v", err)
	}
	refusals := func() int { return refusalsOf(a, "b") }
	c.await("the fifth refusal in a row", func() bool {
		a.mustProduce(r, "y")
		return refusals() >= 5
	})
	crashFS(c, "b").SetCapacity(1 << 40)
	if err := b.store.Tick(); err != nil {
		t.Fatal(err)
	}
	a.mustProduce(r, "z")
	c.awaitSame("a", r)
	c.await("no refusal to be remembered of a replica that follows", func() bool { return refusals() == 0 })
}

// refusalsOf is how often in a row a node has refused the one range that it is fed; a connection that is built anew begins to count anew.
func refusalsOf(from *node, to vtop.NodeName) (n int) {
	p := from.engine.peerOf(to)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flows {
		n = f.refusals
	}
	return n
}
