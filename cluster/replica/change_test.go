package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func TestChangeReplicas_RemoveAndAddAgain(t *testing.T) {
	c := newCluster(t, 4, 1)
	c.topic = c.createTopic("three", 1, nil, "a", "b", "c")
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 10 {
		a.mustProduce(r, fmt.Sprint(i))
	}
	c.duties("a")
	id, err := a.engine.ChangeReplicas(ctx, r, fsm.AddLearner, "d", 0)
	if err != nil || id == 0 {
		t.Fatalf("add learner: %d %v", id, err)
	}
	c.await("the learner to catch up", func() bool {
		c.duties("a")
		log := c.nodes["d"].store.Get(r)
		return log != nil && log.Durable() == 10 && c.rangeOf(r).Settled()
	})
	c.await("its acknowledgement to be counted", func() bool { return following(t, a.engine, r) == 3 })
	if _, err := a.engine.ChangeReplicas(ctx, r, fsm.PromoteLearner, "", id); err != nil {
		t.Fatalf("promote: %v", err)
	}
	a.mustProduce(r, "four voters")
	c.await("the change to settle", func() bool { c.duties("a"); return c.rangeOf(r).Settled() })
	victim, _ := c.rangeOf(r).VoterOn("b")
	if _, err := a.engine.ChangeReplicas(ctx, r, fsm.RemoveVoter, "", victim.ID); err != nil {
		t.Fatalf("remove: %v", err)
	}
	own, _ := c.rangeOf(r).VoterOn("a")
	if _, err := a.engine.ChangeReplicas(ctx, r, fsm.RemoveVoter, "", own.ID); err == nil {
		t.Fatal("a leader removed itself")
	}
	a.mustProduce(r, "a, c and d")
	c.kill("b")
	c.kill("a")
	c.lead("d", r)
	c.nodes["d"].mustProduce(r, "led by d")
	if got := c.nodes["d"].readLog(r); len(got) != 13 {
		t.Fatalf("I1: %v", got)
	}
}

// While a change's fate is unknown both sets must acknowledge, however long that takes.
func TestChangeReplicas_UnknownFateStaysJoint(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	c.await("the epoch to settle", func() bool { c.duties("a"); return c.rangeOf(r).Settled() })
	c.refuse(func(cmd fsm.Command) error {
		if cmd.Op() == fsm.OpChangeReplicas {
			return fmt.Errorf("%w: the metadata does not answer", vtop.ErrTimeout)
		}
		return nil
	})
	victim, _ := c.rangeOf(r).VoterOn("c")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.engine.ChangeReplicas(ctx, r, fsm.RemoveVoter, "", victim.ID); !errors.Is(err, vtop.ErrTimeout) {
		t.Fatalf("unknown fate: %v", err)
	}
	// {a, b, c} would commit with a and c, {a, b} does not.
	resume := c.stallFollower("a", "b")
	waiting := a.send(r, -1, plain("y"))
	c.await("a and c to have it", func() bool {
		return a.store.Get(r).Durable() == 2 && c.nodes["c"].store.Get(r).Durable() == 2
	})
	if items, ok := a.engine.slotOf(r, false).leading.Load().floorReport(); ok {
		t.Fatalf("a floor would be reported in the joint phase: %+v", items)
	}
	select {
	case res := <-waiting:
		t.Fatalf("committed by one of two sets: %+v", res)
	case <-time.After(50 * time.Millisecond): // an absence, not a moment: more time could only make it fail more often
	}
	c.refuse(nil)
	resume()
	if res := c.answer(waiting); res.Err != nil {
		t.Fatal(res.Err)
	}
	c.await("the change to be taken", func() bool { return len(c.rangeOf(r).Voters()) == 2 })
}

// What only the set of a refused change held back is committed when it is refused, not with the next acknowledgement: on an idle range
// there may be none.
func TestChangeReplicas_RefusedHoldsNothingBack(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	c.await("the epoch to settle", func() bool { c.duties("a"); return c.rangeOf(r).Settled() })
	refused := make(chan struct{})
	c.refuse(func(cmd fsm.Command) error {
		if cmd, ok := cmd.(*fsm.ChangeReplicas); ok {
			cmd.ReplicaID = 99 // nobody: the state machine refuses it when it is asked again
			select {
			case <-refused:
			default:
				return fmt.Errorf("%w: the metadata does not answer", vtop.ErrTimeout)
			}
		}
		return nil
	})
	victim, _ := c.rangeOf(r).VoterOn("c")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.engine.ChangeReplicas(ctx, r, fsm.RemoveVoter, "", victim.ID); !errors.Is(err, vtop.ErrTimeout) {
		t.Fatalf("unknown fate: %v", err)
	}
	c.stallFollower("a", "b") // and it stays so: a and c are a majority of what is there, not of {a, b}
	waiting := a.send(r, -1, plain("y"))
	c.await("a to count c's acknowledgement", func() bool {
		id, _ := c.rangeOf(r).VoterOn("c")
		ld := a.engine.slotOf(r, false).leading.Load()
		ld.mu.Lock()
		defer ld.mu.Unlock()
		return ld.book.Marks().Of(id.ID) == 2 && a.store.Get(r).Durable() == 2
	})
	close(refused)
	if res := c.answer(waiting); res.Err != nil {
		t.Fatal(res.Err)
	}
	if n := len(c.rangeOf(r).Voters()); n != 3 {
		t.Fatalf("%d voters after a refusal", n)
	}
}

func (c *cluster) refuse(fn func(fsm.Command) error) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	c.ledger.refuses = fn
}
