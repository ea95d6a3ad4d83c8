package fsm

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
)

func TestGrantLeases_EpochIsMintedAboveAllBefore(t *testing.T) {
	w := newWorld(t)
	if e := w.grant("n1"); e != 1 {
		t.Errorf("first epoch is %d", e)
	}
	repeat := w.grantOf("n1")
	if e := w.ok(repeat).Items[0].Epoch; e != 2 {
		t.Errorf("the same holder was granted epoch %d", e)
	}
	w.refused(repeat, CodeStaleEpoch)
	w.ok(&ReleaseLeases{Items: []Release{{r0, 2, "stop"}}})
	if e := w.grant("n2"); e != 3 {
		t.Errorf("after a release: epoch %d", e)
	}
	// Case: a fence was refused because of a promise of 40.
	g := w.grantOf("n2")
	g.Items[0].Minimum = 41
	if e := w.ok(g).Items[0].Epoch; e != 41 {
		t.Errorf("minimum 41 gave epoch %d", e)
	}
	g = w.grantOf("n2")
	g.Items[0].Minimum = 12
	if e := w.ok(g).Items[0].Epoch; e != 42 {
		t.Errorf("minimum 12 gave epoch %d: it went back", e)
	}
	g = w.grantOf("n2")
	g.Items[0].Minimum = math.MaxInt32
	w.ok(g)
	w.refused(w.grantOf("n2"), CodeLimit)
}

func TestGrantLeases_OnlyToPresentVoters(t *testing.T) {
	w := newWorld(t)
	w.refused(w.grantOf("n4"), CodeNotVoter)
	w.lead("n1", 0)
	w.ok(w.changeOf(AddLearner, "n4", 0))
	w.refused(w.grantOf("n4"), CodeNotVoter)
	w.ok(w.lostOf("n2", w.rng(r0).Replicas[1].ID))
	w.refused(w.grantOf("n2"), CodeReplicaLost)
	w.ok(w.changeOf(AddLearner, "n2", 0))
	w.refused(w.grantOf("n2"), CodeReplicaLost) // the learner beside it does not vote either
	g := w.grantOf("n3")
	g.Items[0].Holder = "n9"
	w.refused(g, CodeUnknownNode)
	g = w.grantOf("n3")
	g.Items[0].Range = rangeID(1, 9)
	w.refused(g, CodeUnknownRange)
	w.ok(w.grantOf("n3"))
}

// A batch is not refused for one of its items.
func TestGrantLeases_ItemsStandAlone(t *testing.T) {
	w := newWorld(t)
	out := w.do(&GrantLeases{Items: []Grant{
		{Range: rangeID(1, 0), Holder: "n1", Incarnation: 1},
		{Range: rangeID(1, 7), Holder: "n1", Incarnation: 1},
		{Range: rangeID(1, 1), Holder: "n2", Incarnation: 1},
	}})
	if out.Err() != nil || out.Items[0].Epoch != 1 || out.Items[2].Epoch != 1 || out.Items[0].Err() != nil {
		t.Errorf("outcome %+v", out)
	}
	if !errors.Is(out.Items[1].Err(), vtop.ErrUnknownRange) {
		t.Errorf("item %+v", out.Items[1])
	}
	if l := w.rng(rangeID(1, 1)).Lease; l.Holder != "n2" || w.rng(r0).GrantIndex != out.Index {
		t.Errorf("lease %+v", l)
	}
}

func TestStartEpochs(t *testing.T) {
	w := newWorld(t)
	e := w.grant("n1")
	w.refused(startOf(e+1, 0), CodeStaleEpoch)
	w.ok(startOf(e, 10))
	w.ok(startOf(e, 10)) // a repeat
	w.refused(startOf(e, 11), CodeConflict)
	if r := w.rng(r0); !r.Started || r.SettleMark != 10 || r.QuorumPosition != NoOffset || !r.EverStarted() {
		t.Errorf("range %+v", r)
	}
	w.report(20, 20)
	w.ok(&ReleaseLeases{Items: []Release{{Range: r0, Epoch: e}}})
	w.refused(startOf(e, 10), CodeStaleEpoch)
	e = w.grant("n2")
	w.refused(startOf(e, 19), CodeBelowFloor) // I8
	w.ok(startOf(e, 20))
	if r := w.rng(r0); r.Settled() {
		t.Error("a quorum position of an earlier epoch settled the new one")
	}
}

// A later leader may start lower than an earlier one, whose suffix it never saw: the span ends at the lowest later start.
func TestStartEpochs_LowerStartSwallowsOlderEntries(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.lead("n2", 100)
	w.lead("n3", 50)
	var starts []vtop.Offset
	for _, c := range w.rng(r0).Changes {
		if start, ok := c.Start(); ok {
			starts = append(starts, start)
		}
	}
	if !slices.Equal(starts, []vtop.Offset{0, 100, 50}) { // the history keeps what the table lets go
		t.Errorf("starts %v in %+v", starts, w.rng(r0).Changes)
	}
	want := vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 50}}
	if got := w.rng(r0).Epochs; !reflect.DeepEqual(got, want) {
		t.Errorf("table %v, want %v", got, want)
	}
}

func TestReleaseLeases(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	w.refused(&ReleaseLeases{Items: []Release{{r0, e + 1, "x"}}}, CodeStaleEpoch)
	rel := &ReleaseLeases{Items: []Release{{r0, e, "orderly stop"}}, At: 4}
	w.ok(rel)
	w.ok(rel)
	r := w.rng(r0)
	if r.Lease != (vtop.Lease{}) || r.LastEpoch != e || r.GrantIndex != 0 {
		t.Errorf("range %+v", r)
	}
	events := []LeaseEvent{}
	for _, c := range r.Changes {
		events = append(events, c.Event)
	}
	if !slices.Equal(events, []LeaseEvent{LeaseGranted, LeaseStarted, LeaseReleased}) {
		t.Errorf("history %v", events)
	}
	w.grant("n2")
	w.refused(rel, CodeStaleEpoch) // late
	for range 20 {
		w.grant("n3")
	}
	if n := len(w.rng(r0).Changes); n != MaxLeaseChanges {
		t.Errorf("history of %d lines", n)
	}
}

func TestReportFloors(t *testing.T) {
	w := newWorld(t)
	e := w.grant("n1")
	w.refused(w.reportOf(0, 0), CodeNotStarted)
	w.ok(startOf(e, 0))
	w.report(30, 40)
	w.report(20, 10) // late
	r := w.rng(r0)
	if r.Floor != 30 || r.QuorumPosition != 40 || r.LogEnd != 40 || !r.Settled() {
		t.Errorf("I7: floor %d, quorum position %d", r.Floor, r.QuorumPosition)
	}
	stale := w.reportOf(50, 50)
	stale.Items[0].Config++
	w.refused(stale, CodeStaleConfig)
	stale = w.reportOf(50, 50)
	w.grant("n2")
	if out := w.refused(stale, CodeStaleEpoch); !errors.Is(out.Items[0].Err(), vtop.ErrFenced) {
		t.Errorf("error %v", out.Items[0].Err())
	}
	w.ok(&ReleaseLeases{Items: []Release{{r0, e + 1, ""}}})
	w.refused(stale, CodeStaleEpoch)
}

func TestMoveLogStart(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	for base := vtop.Offset(0); base < 50; base += 10 {
		w.ok(w.segmentOf(base, base+10))
	}
	move := func(start vtop.Offset) *MoveLogStart { return &MoveLogStart{Range: r0, Epoch: e, Start: start} }
	w.refused(move(51), CodeAboveFloor) // I1
	w.ok(move(25))
	w.ok(move(12)) // never back
	bases := []vtop.Offset{}
	for seg := range w.s.Catalogue(r0) {
		bases = append(bases, seg.Base)
	}
	if r := w.rng(r0); r.LogStart != 25 || !slices.Equal(bases, []vtop.Offset{20, 30, 40}) {
		t.Errorf("log start %d, catalogue %v", r.LogStart, bases)
	}
	w.lead("n2", 50)
	w.refused(move(30), CodeStaleEpoch)
	e++
	w.report(60, 60)
	w.ok(move(50))
	if got := w.rng(r0).Epochs; !reflect.DeepEqual(got, vtop.EpochTable{{Epoch: 2, Start: 50}}) {
		t.Errorf("epoch table %v is not trimmed to the log start", got)
	}
	if _, ok := w.s.LastSegment(r0); ok || w.rng(r0).CatalogueEnd != 50 {
		t.Errorf("the catalogue forgot that it ended at 50: %d", w.rng(r0).CatalogueEnd)
	}
}

func TestRegisterSegment(t *testing.T) {
	w := newWorld(t)
	e := w.grant("n1")
	w.refused(w.segmentOf(0, 10), CodeNotStarted)
	w.ok(startOf(e, 0))
	w.refused(w.segmentOf(5, 10), CodeGap)
	first := w.segmentOf(0, 10)
	w.ok(first)
	w.ok(first) // a repeat
	if r := w.rng(r0); r.Floor != 10 || r.CatalogueEnd != 10 {
		t.Errorf("floor %d, catalogue end %d", r.Floor, r.CatalogueEnd)
	}
	other := *first
	other.Root = [32]byte{9}
	w.refused(&other, CodeGap) // I9: an entry never changes
	w.refused(w.segmentOf(11, 20), CodeGap)
	stale := w.segmentOf(10, 20)
	stale.Config++
	w.refused(stale, CodeStaleConfig)
	second := w.segmentOf(10, 20)
	w.ok(second)
	seg, ok := w.s.Segment(r0, 10)
	if !ok || *seg != (Segment{Range: r0, Base: 10, End: 20, Bytes: 100, Root: second.Root, Epoch: e}) {
		t.Errorf("segment %+v", seg)
	}
	if last, _ := w.s.LastSegment(r0); last != seg {
		t.Errorf("last segment %+v", last)
	}
	w.grant("n2")
	third := w.segmentOf(20, 30)
	third.Epoch = e
	w.refused(third, CodeStaleEpoch)
}

// The log start may stand inside, or beyond, what was not catalogued yet.
func TestRegisterSegment_AroundTheLogStart(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	w.report(100, 100)
	w.ok(w.segmentOf(0, 10))
	w.ok(&MoveLogStart{Range: r0, Epoch: e, Start: 35})
	w.ok(w.segmentOf(10, 20)) // wholly below: moves the end, is not kept
	if _, ok := w.s.LastSegment(r0); ok || w.rng(r0).CatalogueEnd != 20 {
		t.Errorf("catalogue end %d", w.rng(r0).CatalogueEnd)
	}
	w.refused(w.segmentOf(15, 40), CodeGap) // overlaps
	w.refused(w.segmentOf(36, 40), CodeGap) // would leave 35 out
	w.ok(w.segmentOf(30, 40))               // the gap is below the log start
	w.ok(w.segmentOf(40, 50))
}

// Two states made from one share what did not change, and neither writes into the other's histories.
func TestState_BranchesDoNotMeet(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.lead("n1", 0)
	}
	w.grant("n1") // an odd number of lines: an appended list would have room left
	a, _ := w.s.Apply(100, w.grantOf("n2"))
	before := a.Hash()
	w.s.Apply(100, w.grantOf("n3"))
	if a.Hash() != before {
		t.Error("applying to a state changed another state that was made from it")
	}
}
