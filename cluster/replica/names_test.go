package replica

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// I10: somebody removes the directory of a replica while its node lives, under a follower or under the leader. It is lost at the next
// look, and rebuilt in this life of the node; nothing that was acknowledged is missing.
func TestNames_DirectoryRemovedUnderALiveNode(t *testing.T) {
	for _, victim := range []vtop.NodeName{"c", "a"} {
		t.Run(string(victim), func(t *testing.T) {
			c := newCluster(t, 3, 1, withCrashFS())
			r := c.r(0)
			c.lead("a", r)
			for i := range 20 {
				c.nodes["a"].mustProduce(r, fmt.Sprint(i))
			}
			c.awaitSame("a", r)
			old, _ := c.rangeOf(r).On(victim)
			wipe(t, c, victim, r)
			c.duties(victim)
			c.await("the loss to be known", func() bool { rep, _ := c.rangeOf(r).Replica(old.ID); return rep.Lost != "" })
			if d, err := c.nodes[victim].engine.Describe(r); err != nil || d.Role == RoleLeading || d.Role == RoleFollowing {
				t.Fatalf("%+v, %v", d, err)
			}
			leader := vtop.NodeName("a")
			if victim == "a" {
				c.await("the lease to end", func() bool { return !c.rangeOf(r).Lease.HeldBy("a", c.nodes["a"].self.Incarnation) })
				leader = "b"
				c.lead(leader, r)
			}
			ld := c.nodes[leader]
			ld.mustProduce(r, "two are enough")
			c.await("the replica to be replaced", func() bool {
				c.duties(leader)
				ld.engine.Heal(context.Background())
				rep, ok := c.rangeOf(r).VoterOn(victim)
				return ok && rep.ID != old.ID && len(c.rangeOf(r).Replicas) == 3
			})
			ld.mustProduce(r, "three again")
			if got := c.awaitSame(leader, r); len(got) != 22 {
				t.Fatalf("I1: %d records: %v", len(got), got)
			}
		})
	}
}

// A disk that goes on failing is asked again and again with growing pauses, whatever else brings the range to its slow step.
func TestNames_ReopeningBacksOff(t *testing.T) {
	c := newCluster(t, 3, 1, withCrashFS())
	r := c.r(0)
	c.lead("a", r)
	c.nodes["a"].mustProduce(r, "1")
	c.awaitSame("a", r)
	n := c.nodes["c"]
	var opened atomic.Int64
	fs := crashFS(c, "c")
	fs.SetHook(vfs.Chain(func(op vfs.Op) error {
		if vfs.On(vfs.OpOpen, "*.log")(op) {
			opened.Add(1)
		}
		return nil
	}, vfs.Fail(func(op vfs.Op) bool {
		return vfs.On(vfs.OpOpen, "*.log")(op) || vfs.On(vfs.OpWrite, "*.log")(op)
	}, syscall.EIO)))
	defer fs.SetHook(nil)
	c.nodes["a"].mustProduce(r, "2")
	c.await("the log to fail", func() bool { return errors.Is(n.store.Get(r).Err(), vtop.ErrStorage) })
	c.await("an attempt to read it anew", func() bool { return opened.Swap(0) > 0 })
	began := time.Now()
	for range 300 {
		n.engine.slow.add(r)
		time.Sleep(time.Millisecond)
	}
	files := opened.Load()
	took := time.Since(began) // on a busy machine long enough for some attempts that are due
	if most := 4 * int64(1+took/(reopenFirst/2)); files > most {
		t.Errorf("%d files were opened in %s, want at most %d", files, took, most)
	}
	if err := n.store.Get(r).Err(); errors.Is(err, vtop.ErrReplicaLost) {
		t.Fatalf("EIO says nothing of what is there: %v", err)
	}
	fs.SetHook(nil)
	c.awaitSame("a", r)
}

func TestReopenPause(t *testing.T) {
	for n := range 100 {
		if d := reopenPause(n); d < reopenFirst/2 || d > reopenLast || n > 4 && d < reopenLast/2 {
			t.Fatalf("after %d: %s", n, d)
		}
	}
}
