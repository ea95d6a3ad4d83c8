package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
)

func TestEngine_ProduceIsOnAMajorityAndReadBack(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	epoch := c.lead("a", r)
	a := c.nodes["a"]
	if base := a.mustProduce(r, "one", "two"); base != 0 {
		t.Fatalf("first base is %d", base)
	}
	if base := a.mustProduce(r, "three"); base != 2 {
		t.Fatalf("second base is %d", base)
	}
	got := c.awaitSame("a", r)
	want := []string{fmt.Sprintf("0@%d=one", epoch), fmt.Sprintf("1@%d=two", epoch), fmt.Sprintf("2@%d=three", epoch)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("have %v, want %v", got, want)
	}
	res, err := a.engine.Fetch(r, vtop.FetchSpec{Offset: 0, MaxBytes: 1 << 20, AtLeastOne: true, ClientEpoch: epoch, LastFetchedEpoch: -1}, nil)
	if err != nil || res.HighWatermark != 3 || res.LogStart != 0 {
		t.Fatalf("fetch: %+v %v", res, err)
	}
	n := 0
	for b, err := range batch.All(res.Dst) {
		if err != nil {
			t.Fatal(err)
		}
		n += int(b.Count())
	}
	if n != 3 {
		t.Fatalf("fetched %d records, want 3", n)
	}
	if at, err := a.engine.EndOffset(r, vtop.AnyEpoch); err != nil || at.Offset != 3 || at.Epoch != epoch {
		t.Fatalf("end offset: %+v %v", at, err)
	}
}

func TestEngine_FailoverKeepsWhatWasAcknowledged(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	for i := range 20 {
		c.nodes["a"].mustProduce(r, fmt.Sprintf("v%d", i))
	}
	c.kill("a")
	epoch := c.lead("b", r)
	if base := c.nodes["b"].mustProduce(r, "after"); base != 20 {
		t.Fatalf("I1: the first record of the next leader is at %d, want 20", base)
	}
	c.start("a")
	got := c.awaitSame("b", r)
	if len(got) != 21 || got[20] != fmt.Sprintf("20@%d=after", epoch) {
		t.Fatalf("I1: %v", got)
	}
}

// Two quick failovers, the first leaders dying with records that nobody acknowledged (B2, Raft's figure 8).
func TestEngine_TwoQuickFailoversCutOnlyWhatDiverged(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "kept")
	a.isolate()
	lone := a.send(r, -1, plain("lost1"))
	c.await("a to have its lone record on disk", func() bool { return a.store.Get(r).Durable() == 2 })
	c.kill("a")
	if res := c.answer(lone); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("C3: a record of a dead leader is answered %v", res.Err)
	}
	c.lead("b", r)
	b := c.nodes["b"]
	b.mustProduce(r, "kept2")
	b.isolate()
	b.send(r, -1, plain("lost2"))
	c.await("b to have its lone record on disk", func() bool { return b.store.Get(r).Durable() == 3 })
	c.kill("b")
	// a has kept, lost1; c has kept, kept2. Whoever of them leads, kept2 must survive (I1), lost1 must not (I2).
	c.start("a")
	c.lead("c", r)
	c.nodes["c"].mustProduce(r, "kept3")
	c.start("b")
	got := c.awaitSame("c", r)
	if len(got) != 3 {
		t.Fatalf("I1/I2: %v", got)
	}
}

// A record of an old epoch survives on the longest log, and the new leader must fetch it before it leads.
func TestEngine_PromotionFetchesTheLongestLog(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	resume := c.stallFollower("a", "c")
	for i := range 50 {
		a.mustProduce(r, fmt.Sprintf("v%d", i))
	}
	if end := c.nodes["c"].store.Get(r).End(); end != 1 {
		t.Fatalf("c should have been left behind, ends at %d", end)
	}
	c.kill("a")
	resume()
	c.lead("c", r) // b has the longest log
	if end := c.nodes["c"].store.Get(r).End(); end != 51 {
		t.Fatalf("I1: c leads from %d, want 51", end)
	}
	c.nodes["c"].mustProduce(r, "after")
	c.awaitSame("c", r)
}

func TestEngine_EmptyEpochsNeedNoWrite(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	for i := range 6 {
		c.lead(c.names[i%3], r)
	}
	c.kill("b")
	c.start("b")
	leader := c.nodes["c"]
	c.await("everyone to follow without a write (B3)", func() bool { return following(t, leader.engine, r) == 2 })
	leader.mustProduce(r, "x")
	c.awaitSame("c", r)
	c.lead("b", r) // G4: an idle, restarted replica can lead
	if _, err := c.nodes["b"].engine.EndOffset(r, vtop.AnyEpoch); err != nil && !errors.Is(err, vtop.ErrOffsetNotAvailable) {
		t.Fatal(err)
	}
}

// following counts the replicas that follow as their leader sees it.
func following(t testing.TB, e *Engine, r vtop.Range) (n int) {
	t.Helper()
	d, err := e.Describe(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, rep := range d.Replicas {
		if rep.State == "following" && rep.Lag == 0 {
			n++
		}
	}
	return n
}

func TestEngine_LaggingFollowerIsFedFromDisk(t *testing.T) {
	c := newCluster(t, 3, 2)
	r, other := c.r(0), c.r(1)
	c.lead("a", r, other)
	c.kill("c")
	a := c.nodes["a"]
	value := make([]byte, 16<<10)
	for i := range 200 {
		value[0] = byte(i)
		a.mustProduce(r, string(value))
	}
	a.mustProduce(other, "small")
	c.start("c")
	c.awaitSame("a", r)
	c.awaitSame("a", other)
}

// A follower whose metadata lags accepts nothing of an epoch that it has not applied, and catches up when it has.
func TestEngine_LaggingMetadataIsWaitedFor(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	resume := c.nodes["c"].lag()
	defer resume()
	c.lead("b", r) // c applies none of it
	c.nodes["b"].mustProduce(r, "y")
	if end := c.nodes["c"].store.Get(r).End(); end != 1 {
		t.Fatalf("I3: a follower took a record of an epoch it has not applied; it ends at %d", end)
	}
	resume()
	c.awaitSame("b", r)
}

func TestEngine_DuplicateIsAnsweredAsItsOriginal(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	if res := c.answer(a.send(r, -1, idempotent(7, 0, "one", "two"))); res.Err != nil || res.Base != 0 {
		t.Fatalf("original: %+v", res)
	}
	if res := c.answer(a.send(r, -1, idempotent(7, 0, "one", "two"))); res.Err != nil || res.Base != 0 {
		t.Fatalf("D1: duplicate: %+v", res)
	}
	// An uncommitted original: the duplicate must wait as it does.
	a.isolate()
	first := a.send(r, -1, idempotent(7, 2, "three"))
	second := a.send(r, -1, idempotent(7, 2, "three"))
	c.await("the original to be on the leader's disk", func() bool { return a.store.Get(r).Durable() == 3 })
	select {
	case res := <-second:
		t.Fatalf("a duplicate was acknowledged before its original: %+v", res)
	case res := <-first:
		t.Fatalf("I1: acknowledged by a leader alone: %+v", res)
	default:
	}
	a.rejoin()
	if res := c.answer(second); res.Err != nil || res.Base != 2 {
		t.Fatalf("duplicate after its original was committed: %+v", res)
	}
	if res := c.answer(first); res.Err != nil || res.Base != 2 {
		t.Fatalf("original: %+v", res)
	}
	c.lead("b", r) // D3: the state travels with the log
	if res := c.answer(c.nodes["b"].send(r, -1, idempotent(7, 2, "three"))); res.Err != nil || res.Base != 2 {
		t.Fatalf("D3: duplicate at the next leader: %+v", res)
	}
	if got := c.awaitSame("b", r); len(got) != 3 {
		t.Fatalf("K4: %v", got)
	}
}

func TestEngine_AcksOneIsDurableHereAlone(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	a.isolate()
	if res := c.answer(a.send(r, 1, plain("y"))); res.Err != nil || res.Base != 1 {
		t.Fatalf("acks=1: %+v", res)
	}
	if a.store.Get(r).Durable() != 2 {
		t.Fatal("acks=1 before it was durable")
	}
	if res := c.answer(a.send(r, 0, plain("z"))); res.Err != nil || res.Base != 2 {
		t.Fatalf("acks=0: %+v", res)
	}
	if at, err := a.engine.EndOffset(r, vtop.AnyEpoch); err != nil || at.Offset != 1 {
		t.Fatalf("I7: readers see %+v %v, want 1: the rest is on no majority", at, err)
	}
}

func TestEngine_LeaderThatLosesItsLeaseFailsWhatWaits(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	a.isolate()
	waiting := a.send(r, -1, plain("y"))
	c.await("y to be on a's disk", func() bool { return a.store.Get(r).Durable() == 2 })
	c.lead("b", r)
	if res := c.answer(waiting); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("C3: %+v", res)
	}
	c.nodes["b"].mustProduce(r, "z")
	a.rejoin()
	c.awaitSame("b", r)
}

// A leader that the metadata forgot, so to speak: its machine lags. It must not commit anything, since its followers
// have moved on (A9), and its late records must not survive in place of others (I2).
func TestEngine_PausedLeaderCommitsNothing(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	c.awaitSame("a", r)
	resume := a.lag()
	defer resume()
	c.lead("b", r)
	c.nodes["b"].mustProduce(r, "y")
	late := a.send(r, -1, plain("late"))
	c.await("the late record to be on the old leader's disk", func() bool { return a.store.Get(r).Durable() == 2 })
	select {
	case res := <-late:
		t.Fatalf("I1: a deposed leader acknowledged: %+v", res)
	default:
	}
	resume()
	if res := c.answer(late); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("C3: %+v", res)
	}
	if got := c.awaitSame("b", r); len(got) != 2 || a.engine.Metrics().Cuts != 1 {
		t.Fatalf("I2: %v, cuts %d", got, a.engine.Metrics().Cuts)
	}
}

func TestEngine_ManyRangesPromoteTogether(t *testing.T) {
	c := newCluster(t, 3, 200)
	var all []vtop.Range
	for i := range 200 {
		all = append(all, c.r(i))
	}
	c.lead("a", all...)
	a := c.nodes["a"]
	var answers []<-chan vtop.AppendResult
	for _, r := range all {
		answers = append(answers, a.send(r, -1, plain("x")))
	}
	for _, ch := range answers {
		if res := c.answer(ch); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	starts := 0
	c.ledger.mu.Lock()
	for _, cmd := range c.ledger.cmds {
		if cmd.Op() == fsm.OpStartEpochs {
			starts++
		}
	}
	c.ledger.mu.Unlock()
	if starts > 20 {
		t.Fatalf("200 ranges were started in %d commands", starts)
	}
	c.kill("a")
	c.lead("b", all...)
	for _, r := range all {
		c.nodes["b"].mustProduce(r, "y")
	}
}

func TestEngine_CloseAnswersEverythingAndLeavesNothingRunning(t *testing.T) {
	c := newCluster(t, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	a.mustProduce(r, "x")
	a.isolate()
	waiting := a.send(r, -1, plain("y"))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = a.engine.Close(ctx)
	if res := c.answer(waiting); !errors.Is(res.Err, vtop.ErrNotLeader) {
		t.Fatalf("%+v", res)
	}
	if res := a.produce(r, "z"); res.Err == nil {
		t.Fatal("admits after Close")
	}
	if rg := c.rangeOf(r); rg.Lease.Holder != "" && ctx.Err() == nil {
		t.Fatalf("the lease was not given back: %+v", rg.Lease)
	}
}
