package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

// recoverOf makes the node's replica the whole of r0, which ends at from and lost all up to to.
func (w *world) recoverOf(node vtop.NodeName, from, to vtop.Offset) *RecoverRange {
	w.t.Helper()
	r := w.rng(r0)
	return &RecoverRange{
		Range: r0, Keep: w.replicaOn(node), Config: r.ConfigVersion, Epoch: r.LastEpoch, From: from, To: to, Reason: "two disks burnt", At: 7,
	}
}

// Two of three are gone for good: the third is the range from here on, what is lost is written down, and the next
// leader may begin where the kept log ends, below what was promised.
func TestRecoverRange_LostMajority(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(60, 60)
	e := w.lead("n1", 100)
	w.ok(w.segmentOf(0, 40))
	w.ok(w.segmentOf(40, 90))
	w.ok(w.segmentOf(90, 120))
	w.report(150, 150)
	learner := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	before := w.rng(r0)
	late := []Command{w.reportOf(160, 160), w.segmentOf(120, 130), w.changeOf(RemoveLearner, "", learner)}
	out := w.ok(w.recoverOf("n3", 100, 170))

	r := w.rng(r0)
	if voters := w.voters(); !slices.Equal(voters, []vtop.NodeName{"n3"}) || len(r.Replicas) != 1 || r.ConfigVersion != before.ConfigVersion+1 || out.ConfigVersion != r.ConfigVersion {
		t.Errorf("I10: range %+v", r)
	}
	if r.Floor != 100 || r.LogEnd != 100 || r.CatalogueEnd != 90 || r.LogStart != 0 {
		t.Errorf("floor %d, log end %d, catalogue end %d", r.Floor, r.LogEnd, r.CatalogueEnd)
	}
	if seg, _ := w.s.LastSegment(r0); seg.End != 90 {
		t.Errorf("I9: segment %+v is not on the kept replica", seg)
	}
	if r.Lease.Holder != "" || r.LastEpoch != e || r.Changes[len(r.Changes)-1].Event != LeaseRevoked {
		t.Errorf("I5: lease %+v, last epoch %d", r.Lease, r.LastEpoch)
	}
	want := LostOffsets{From: 100, To: 170, Epoch: e, Kept: r.Replicas[0].Replica, Floor: 150, Reason: "two disks burnt", Index: w.s.Index(), At: 7}
	if len(r.LostOffsets) != 1 || r.LostOffsets[0] != want || len(r.Losses) != 3 || !strings.Contains(r.Losses[0].Reason, `"n3": two disks burnt`) {
		t.Errorf("lost offsets %+v, losses %+v", r.LostOffsets, r.Losses)
	}
	if len(r.Preferred) != 3 {
		t.Errorf("preferred %v: how many voters are wanted is not forgotten", r.Preferred)
	}
	for _, cmd := range late { // words of the old leader
		w.refused(cmd, CodeStaleEpoch)
	}
	w.refused(w.grantOf("n1"), CodeNotVoter)

	next := w.lead("n3", 100)
	if start, end, bounded, ok := w.rng(r0).Epochs.Span(e); next != e+1 || ok {
		t.Errorf("I8: epoch %d owns [%d, %d) (bounded %t) beside epoch %d", e, start, end, bounded, next)
	}
	w.ok(w.segmentOf(90, 105)) // the catalogue goes on where the first lost segment began
	w.report(110, 110)
	if r := w.rng(r0); r.Floor != 110 || len(r.LostOffsets) != 1 {
		t.Errorf("range %+v", r)
	}
}

// The next epoch may start at the end of the kept log wherever that lies among the epochs, and every table entry at or above is
// then gone: no two epochs own one offset (I2).
func TestRecoverRange_NextEpochStartsAtTheKeptEnd(t *testing.T) {
	for end := vtop.Offset(5); end <= 45; end += 5 {
		w := newWorld(t)
		w.lead("n1", 0)
		w.report(10, 10)
		e := w.lead("n2", 10)
		w.ok(&MoveLogStart{Range: r0, Epoch: e, Start: 5})
		w.report(20, 20)
		w.lead("n1", 20)
		w.report(30, 30)
		w.lead("n2", 35)
		w.report(40, 40)
		before := w.rng(r0)
		w.ok(w.recoverOf("n3", end, max(end, 41)))
		if now := w.rng(r0); !slices.Equal(now.Epochs, before.Epochs) || now.Floor != min(end, 40) {
			t.Errorf("end %d: I8: the table changed before the next epoch: %v → %v, floor %d", end, before.Epochs, now.Epochs, now.Floor)
		}
		w.lead("n3", end)
		table := w.rng(r0).Epochs
		if last, _ := table.Last(); last.Start != end {
			t.Errorf("end %d: table %v", end, table)
		}
		for o := vtop.Offset(5); o < end; o++ {
			was, _ := before.Epochs.At(o)
			if is, ok := table.At(o); !ok || is != was {
				t.Errorf("I2: end %d: offset %d went from epoch %d to %d", end, o, was, is)
			}
		}
	}
}

// The kept log may be longer than was measured: then nothing that is really there is cut or refused. If it is
// shorter, the next epoch is refused until it is measured again.
func TestRecoverRange_MeasuredWrong(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(50, 50)
	e := w.lead("n1", 50)
	w.report(80, 80)
	w.ok(w.recoverOf("n3", 30, 80))
	if cut, ok := w.rng(r0).Epochs.Cut([]vtop.EpochRun{{Epoch: 1, Start: 0}, {Epoch: e, Start: 50}}, 70); ok {
		t.Errorf("I8: a log that goes to 70 would be cut at %d", cut)
	}
	w.lead("n3", 70)
	w.report(70, 70)

	w.ok(w.recoverOf("n3", 65, 80))
	late := w.grant("n3")
	w.refused(startOf(late, 60), CodeBelowFloor)
	w.ok(w.recoverOf("n3", 60, 75))
	w.lead("n3", 60)
	if lost := w.rng(r0).LostOffsets; len(lost) != 3 || lost[2].Floor != 65 {
		t.Errorf("lost offsets %+v", lost)
	}
}

// A learner that is whole may be all that is left of a range with one voter.
func TestRecoverRange_KeepsALearner(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(10, 10)
	w.ok(w.changeOf(AddLearner, "n4", 0))
	w.ok(w.recoverOf("n4", 10, 10))
	r := w.rng(r0)
	if _, ok := r.VoterOn("n4"); !ok || len(r.Replicas) != 1 || !slices.Contains(r.Preferred, "n4") || len(r.Preferred) != 3 {
		t.Errorf("range %+v", r)
	}
	if r.LostOffsets[0].From != r.LostOffsets[0].To {
		t.Errorf("lost offsets %+v", r.LostOffsets)
	}
	w.lead("n4", 10)
}

func TestRecoverRange_Refused(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	w.report(50, 50)
	w.ok(&MoveLogStart{Range: r0, Epoch: e, Start: 20})
	with := func(change func(c *RecoverRange)) *RecoverRange {
		c := w.recoverOf("n3", 30, 50)
		change(c)
		return c
	}
	w.refused(with(func(c *RecoverRange) { c.Range = rangeID(9, 0) }), CodeUnknownRange)
	w.refused(with(func(c *RecoverRange) { c.Config++ }), CodeStaleConfig)
	w.refused(with(func(c *RecoverRange) { c.Epoch-- }), CodeStaleEpoch)
	w.refused(with(func(c *RecoverRange) { c.Keep = 999 }), CodeUnknownReplica)
	w.refused(with(func(c *RecoverRange) { c.From = 19 }), CodeBelowFloor)
	w.refused(with(func(c *RecoverRange) { c.To = 49 }), CodeConflict) // less than what is promised
	measured := w.recoverOf("n3", 30, 50)
	w.report(51, 51)
	w.refused(measured, CodeConflict) // somebody writes
	measured = w.recoverOf("n3", 30, 51)
	w.ok(w.lostOf("n3", w.replicaOn("n3")))
	w.refused(measured, CodeStaleConfig)
	measured.Config = w.rng(r0).ConfigVersion
	w.refused(measured, CodeReplicaLost) // I10
	once := w.recoverOf("n2", 30, 51)
	w.ok(once)
	w.refused(once, CodeStaleConfig) // a repeat
	for name, c := range map[string]*RecoverRange{
		"without a reason":    {Range: r0, Keep: 1, Config: 1},
		"a loss upside down":  {Range: r0, Keep: 1, Config: 1, From: 5, To: 4, Reason: "x"},
		"without a replica":   {Range: r0, Config: 1, Reason: "x"},
		"without a version":   {Range: r0, Keep: 1, Reason: "x"},
		"an end that is none": {Range: r0, Keep: 1, Config: 1, From: -1, Reason: "x"},
	} {
		if _, err := Encode(c); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// The record of losses is bounded, too (I13).
func TestRecoverRange_HistoryIsBounded(t *testing.T) {
	w := newWorld(t)
	for range MaxLostOffsets + 2 {
		w.ok(w.recoverOf("n3", 0, 0))
	}
	lost := w.rng(r0).LostOffsets
	if len(lost) != MaxLostOffsets || lost[MaxLostOffsets-1].Index != w.s.Index() {
		t.Errorf("%d kept", len(lost))
	}
}
