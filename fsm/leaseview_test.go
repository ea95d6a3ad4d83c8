package fsm

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

// viewUnder is a machine that led r0 through newWorld, for process n1 in incarnation 1, with the clock in the test's hand.
func viewUnder(t *testing.T) (*Machine, *atomic.Int64) {
	t.Helper()
	now := new(atomic.Int64)
	m := New(Options{Clock: func() time.Duration { return time.Duration(now.Load()) }})
	m.Replace(newWorld(t).s)
	m.Leases().SetIdentity("n1", 1)
	m.Leases().SetDeadline(100)
	return m, now
}

// step applies one command to a machine; it must be taken.
func step(t testing.TB, m *Machine, cmd Command) Outcome {
	t.Helper()
	out := m.ApplyCommands(m.Applied()+1, cmd)[0]
	if out.Refusal != nil {
		t.Fatalf("%s: %v", cmd.Op(), out.Refusal)
	}
	for _, item := range out.Items {
		if item.Refusal != nil {
			t.Fatalf("%s: %v", cmd.Op(), item.Refusal)
		}
	}
	return out
}

// grantTo gives a range to a node by whatever the state says; it returns the epoch.
func grantTo(t testing.TB, m *Machine, id vtop.Range, node vtop.NodeName) vtop.Epoch {
	t.Helper()
	r, _ := m.State().Range(id)
	n, _ := m.State().Node(node)
	return step(t, m, &GrantLeases{Items: []Grant{{
		Range: id, Holder: node, Incarnation: n.Incarnation, Expected: r.LastEpoch, Reason: "test",
	}}}).Items[0].Epoch
}

// held returns why a fence did not hold, "" if it did.
func held(t testing.TB, v *LeaseView, id vtop.Range, e vtop.Epoch, mode vtop.FenceMode) string {
	t.Helper()
	ran := false
	err := v.Hold(id, e, mode, func() error { ran = true; return nil })
	var fenced *vtop.FencedError
	if err != nil && (!errors.As(err, &fenced) || !errors.Is(err, vtop.ErrFenced) || ran) {
		t.Fatalf("hold: %v, ran %t", err, ran)
	}
	if fenced != nil {
		return fenced.Reason
	}
	return ""
}

func TestLeaseView_Modes(t *testing.T) {
	m, _ := viewUnder(t)
	v := m.Leases()
	modes := []vtop.FenceMode{vtop.FenceLead, vtop.FencePromote, vtop.FenceFollow, vtop.FenceCut, 0}
	expect := func(when string, id vtop.Range, e vtop.Epoch, want ...string) {
		t.Helper()
		for i, mode := range modes {
			if got := held(t, v, id, e, mode); got != want[i] {
				t.Errorf("%s, mode %s: %q, want %q", when, mode, got, want[i])
			}
		}
	}
	const gone, none, moved = "unknown or deleted range", "no lease", "lease moved"
	expect("a range that never was", rangeID(9, 0), 1, gone, gone, gone, gone, gone)
	expect("before any grant", r0, 1, none, none, none, none, none)
	expect("before any grant, epoch 0", r0, 0, none, none, none, none, none)
	e := grantTo(t, m, r0, "n1")
	expect("granted to me", r0, e, "not started", "", "the holder does not follow itself", "", "unknown mode")
	expect("an older epoch", r0, e-1, moved, moved, moved, moved, moved)
	expect("a newer epoch", r0, e+1, moved, moved, moved, moved, moved)
	step(t, m, startOf(e, 0))
	expect("started by me", r0, e, "", "already started", "the holder does not follow itself", "", "unknown mode")
	if l, started := v.Get(r0); !l.HeldBy("n1", 1) || l.Epoch != e || !started {
		t.Errorf("lease %+v, started %t", l, started)
	}

	const other = "held by another process"
	e = grantTo(t, m, r0, "n2")
	expect("granted to another", r0, e, other, other, "not started", "", "unknown mode")
	step(t, m, startOf(e, 0))
	expect("started by another", r0, e, other, other, "", "", "unknown mode")
	step(t, m, &ReleaseLeases{Items: []Release{{r0, e, ""}}})
	expect("released", r0, e, none, none, none, none, none)

	// Case: I5. The lease of an earlier life of this process.
	e = grantTo(t, m, r0, "n1")
	v.SetIdentity("n1", 2)
	expect("held by my earlier life", r0, e, other, other, "not started", "", "unknown mode")

	found := v.shard(r0).get(r0)
	step(t, m, &DeleteTopic{ID: uuid(1)})
	if got := v.refuses(found, e, vtop.FenceCut); got != none {
		t.Errorf("a cell that was found before its range was deleted: %q, want %q", got, none)
	}
	expect("deleted", r0, e, gone, gone, gone, gone, gone)
	if l, _ := v.Get(r0); l != (vtop.Lease{}) {
		t.Errorf("lease of a deleted range: %+v", l)
	}
}

func TestLeaseView_UnregisteredProcessOnlyCuts(t *testing.T) {
	m := New(Options{})
	m.Replace(newWorld(t).s)
	m.Leases().SetDeadline(time.Hour)
	e := grantTo(t, m, r0, "n1")
	for mode, want := range map[vtop.FenceMode]string{
		vtop.FenceLead: "this process is not registered yet", vtop.FencePromote: "this process is not registered yet",
		vtop.FenceFollow: "this process is not registered yet", vtop.FenceCut: "",
	} {
		if got := held(t, m.Leases(), r0, e, mode); got != want {
			t.Errorf("mode %s: %q", mode, got)
		}
	}
}

// A process that slept beyond its deadline does not slip through, whatever the applied state says.
func TestLeaseView_Deadline(t *testing.T) {
	m, now := viewUnder(t)
	v := m.Leases()
	e := grantTo(t, m, r0, "n1")
	expect := func(mode vtop.FenceMode, want string) {
		t.Helper()
		if got := held(t, v, r0, e, mode); got != want {
			t.Errorf("at %d, deadline %d, mode %s: %q, want %q", now.Load(), v.Deadline(), mode, got, want)
		}
	}
	now.Store(99)
	expect(vtop.FencePromote, "")
	step(t, m, startOf(e, 0))
	expect(vtop.FenceLead, "")
	now.Store(100)
	expect(vtop.FenceLead, "deadline passed")
	expect(vtop.FenceCut, "")
	v.SetDeadline(90) // an answer that was overtaken
	v.SetDeadline(150)
	v.SetDeadline(120)
	now.Store(149)
	expect(vtop.FenceLead, "")
	v.Expire()
	expect(vtop.FenceLead, "deadline passed")
	v.SetDeadline(200)
	expect(vtop.FenceLead, "")
	// Case: another's lease is followed whatever my deadline says.
	e = grantTo(t, m, r0, "n2")
	step(t, m, startOf(e, 0))
	now.Store(1000)
	expect(vtop.FenceFollow, "")
	if fresh := NewLeaseView(func() time.Duration { return 0 }); fresh.Deadline() != 0 {
		t.Error("a new view has a deadline")
	}
}

func TestLeaseView_HoldReturnsWhatTheFunctionReturns(t *testing.T) {
	m, _ := viewUnder(t)
	e := grantTo(t, m, r0, "n1")
	want := errors.New("mine")
	if err := m.Leases().Hold(r0, e, vtop.FenceCut, func() error { return want }); err != want {
		t.Errorf("error %v", err)
	}
	func() { // a function that panics lets go of the cell
		defer func() { _ = recover() }()
		_ = m.Leases().Hold(r0, e, vtop.FenceCut, func() error { panic("boom") })
	}()
	grantTo(t, m, r0, "n2")
}

func TestLeaseView_HoldAllocatesNothing(t *testing.T) {
	m, _ := viewUnder(t)
	e := grantTo(t, m, r0, "n1")
	step(t, m, startOf(e, 0))
	v, n := m.Leases(), 0
	fn := func() error { n++; return nil }
	if got := testing.AllocsPerRun(100, func() { _ = v.Hold(r0, e, vtop.FenceLead, fn) }); got != 0 || n == 0 {
		t.Errorf("%v allocations, %d runs", got, n)
	}
}

// While a function runs under a range's cell, that range's lease cannot change (I3), and all other ranges' leases can:
// the entry that takes the lease away waits, those applied before it do not.
func TestLeaseView_ApplyWaitsForTheCellItChangesAndNoOther(t *testing.T) {
	m, _ := viewUnder(t)
	v, r1 := m.Leases(), rangeID(1, 1)
	e := grantTo(t, m, r0, "n1")
	step(t, m, startOf(e, 0))
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		left <- v.Hold(r0, e, vtop.FenceLead, func() error {
			close(inside)
			<-leave // a real function never waits: this stands for one that is slow
			if r, _ := m.State().Range(r0); r.Lease.Epoch != e {
				return fmt.Errorf("I3: lease moved to epoch %d while a function ran under %d", r.Lease.Epoch, e)
			}
			return nil
		})
	}()
	<-inside
	for range 100 { // other ranges, and other fields of this one
		e1 := grantTo(t, m, r1, "n2")
		step(t, m, &StartEpochs{Items: []EpochStart{{r1, e1, 0}}})
		r, _ := m.State().Range(r0)
		step(t, m, &ReportFloors{Items: []FloorReport{{r0, e, r.ConfigVersion, r.Floor + 1, r.Floor + 1, r.Floor + 1}}})
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		grantTo(t, m, r0, "n2")
	}()
	for cell := v.shard(r0).get(r0); cell.mu.TryRLock(); runtime.Gosched() { // until apply waits for the cell
		cell.mu.RUnlock()
		select {
		case <-moved:
			t.Fatal("I3: a lease moved while a function ran under it")
		default:
		}
	}
	close(leave)
	if err := <-left; err != nil {
		t.Error(err)
	}
	<-moved
	if got := held(t, v, r0, e, vtop.FenceLead); got != "lease moved" {
		t.Errorf("after the move: %q", got)
	}
}

// Skipped entries: the cells move by the difference of the states, and the same holder under a higher epoch is another lease.
func TestLeaseView_RestoreActsOnTheDifference(t *testing.T) {
	m, _ := viewUnder(t)
	r1 := rangeID(1, 1)
	e := grantTo(t, m, r0, "n1")
	step(t, m, startOf(e, 0))
	e1 := grantTo(t, m, r1, "n1")
	step(t, m, &StartEpochs{Items: []EpochStart{{r1, e1, 0}}})
	step(t, m, &CreateTopic{ID: uuid(2), Name: "short", Ranges: [][]vtop.NodeName{{"n1"}}})

	far := New(Options{}) // another node, which applied on
	far.Replace(m.State())
	again := grantTo(t, far, r0, "n1")
	step(t, far, startOf(again, 7))
	step(t, far, &DeleteTopic{ID: uuid(2)})
	step(t, far, &CreateTopic{ID: uuid(3), Name: "new", Ranges: [][]vtop.NodeName{{"n1"}}})
	e3 := grantTo(t, far, rangeID(3, 0), "n1")

	var change Change
	m.Observe(func(c Change) { change = c })
	restore(t, m, far)
	v := m.Leases()
	for name, c := range map[string]struct {
		id   vtop.Range
		e    vtop.Epoch
		mode vtop.FenceMode
		want string
	}{
		"the old epoch of the same holder": {r0, e, vtop.FenceLead, "lease moved"},
		"its new one":                      {r0, again, vtop.FenceLead, ""},
		"a lease that did not change":      {r1, e1, vtop.FenceLead, ""},
		"a range that went":                {rangeID(2, 0), 1, vtop.FenceCut, "unknown or deleted range"},
		"a range that came":                {rangeID(3, 0), e3, vtop.FencePromote, ""},
	} {
		if got := held(t, v, c.id, c.e, c.mode); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if len(change.Ranges) != 3 {
		t.Errorf("changed leases %v", change.Ranges)
	}
}

// Deleted ranges leave no cells behind: topics that come and go do not fill the memory (I13).
func TestLeaseView_CellsOfDeletedRangesGo(t *testing.T) {
	m, _ := viewUnder(t)
	for i := range uint64(200) {
		step(t, m, &CreateTopic{ID: uuid(10 + i), Name: "t", Ranges: [][]vtop.NodeName{{"n1"}}})
		step(t, m, &DeleteTopic{ID: uuid(10 + i)})
	}
	cells := 0
	for i := range m.leases.shards {
		cells += len(m.leases.shards[i].cells)
	}
	if cells != 2 {
		t.Errorf("%d cells for 2 ranges", cells)
	}
}
