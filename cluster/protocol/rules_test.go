package protocol

import (
	"errors"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
)

func lease(e vtop.Epoch) vtop.Lease { return vtop.Lease{Holder: "b", Incarnation: 3, Epoch: e} }

func TestFence_SaysWhyNot(t *testing.T) {
	ask := Ask{Lease: lease(5), Grant: 100, Replica: 2}
	view := View{CaughtUp: true, Index: 100, Lease: lease(5)}
	local := Local{Replica: 2, Promise: Promise{Epoch: 4}, Reconciled: Compared{5, false}}
	for _, c := range []struct {
		name string
		edit func(v *View, l *Local)
		want Code
	}{
		{"all is well", func(*View, *Local) {}, 0},
		{"the same holder asks again", func(_ *View, l *Local) { l.Promise = To(lease(5)) }, 0},
		{"another replica id lives here (I10)", func(_ *View, l *Local) { l.Replica = 9 }, WrongReplica},
		{"the replica was lost (I10)", func(_ *View, l *Local) { l.Lost = "wiped" }, ReplicaLost},
		{"the node has just started", func(v *View, _ *Local) { v.CaughtUp = false }, NotCaughtUp},
		{"a higher epoch was promised (I6)", func(_ *View, l *Local) { l.Promise.Epoch = 6 }, Promised},
		{"the epoch was promised before a restart (I6)", func(_ *View, l *Local) { l.Promise.Epoch = 5 }, Promised},
		{"the epoch was promised to another incarnation (I5)", func(_ *View, l *Local) { l.Promise = To(lease(5)); l.Promise.Incarnation-- }, Promised},
		{"the grant is not applied yet", func(v *View, _ *Local) { v.Index = 99 }, Behind},
		{"a later grant is applied", func(v *View, _ *Local) { v.Lease = lease(6) }, Superseded},
		{"the grant was to another process (I5)", func(v *View, _ *Local) { v.Lease.Incarnation = 4 }, NotGranted},
		{"the metadata lost the grant", func(v *View, _ *Local) { v.Lease = lease(4) }, NotGranted},
		{"the log was not compared (I8)", func(_ *View, l *Local) { l.Reconciled = Compared{4, true} }, NotReconciled},
	} {
		v, l := view, local
		c.edit(&v, &l)
		checkCode(t, c.name, Fence(ask, v, l), c.want)
	}
}

func TestFollow_SaysWhyNot(t *testing.T) {
	view := View{CaughtUp: true, Lease: lease(5), Started: true}
	local := Local{Replica: 2, Promise: Promise{Epoch: 5}, Reconciled: Compared{5, true}}
	for _, c := range []struct {
		name string
		edit func(v *View, l *Local)
		want Code
	}{
		{"all is well", func(*View, *Local) {}, 0},
		{"it was not among those asked for a promise", func(_ *View, l *Local) { l.Promise.Epoch = 1 }, 0},
		{"a higher epoch was promised (I6)", func(_ *View, l *Local) { l.Promise.Epoch = 6 }, Promised},
		{"the epoch is not granted here yet", func(v *View, _ *Local) { v.Lease = lease(4) }, Behind},
		{"a later epoch is granted", func(v *View, _ *Local) { v.Lease = lease(6) }, Superseded},
		{"the epoch has not started", func(v *View, _ *Local) { v.Started = false }, NotStarted},
		{"the log was compared before the epoch started (I8)", func(_ *View, l *Local) { l.Reconciled.Started = false }, NotReconciled},
		{"the replica was lost (I10)", func(_ *View, l *Local) { l.Lost = "damaged" }, ReplicaLost},
		{"the node has just started", func(v *View, _ *Local) { v.CaughtUp = false }, NotCaughtUp},
	} {
		v, l := view, local
		c.edit(&v, &l)
		checkCode(t, c.name, Follow(5, 2, v, l), c.want)
	}
}

func TestServe_PromiseBindsTheHolder(t *testing.T) {
	view := View{CaughtUp: true, Lease: lease(5), Started: true}
	local := Local{Replica: 2, Promise: Promise{Epoch: 5}, Reconciled: Compared{5, true}}
	checkCode(t, "all is well", Serve(lease(5), 2, view, local), 0)
	other := lease(5)
	other.Incarnation++
	checkCode(t, "the lease of another life (I5)", Serve(other, 2, view, local), NotGranted)
	local.Promise.Epoch = 6
	checkCode(t, "a higher epoch was promised (I6)", Serve(lease(5), 2, view, local), Promised)
}

func checkCode(t *testing.T, name string, err error, want Code) {
	t.Helper()
	var r *Refusal
	if errors.As(err, &r); (want == 0) != (err == nil) || want != 0 && r.Code != want {
		t.Errorf("%s: got %v, want code %d (%s)", name, err, want, want)
	}
}

// TestReconcile_LastEpochDecidesNotLength: a log (epoch 5, end 100) and a log (epoch 7, end 80) are compared first;
// after that the second is the longest (I8, and the trap of choosing by offset alone).
func TestReconcile_LastEpochDecidesNotLength(t *testing.T) {
	view := View{Table: vtop.EpochTable{{Epoch: 5, Start: 0}, {Epoch: 7, Start: 60}}}
	d := Reconcile(view, 50, []vtop.EpochRun{{Epoch: 5, Start: 0}}, 100)
	if d.Action != Cut || d.At != 60 {
		t.Fatalf("log of epoch 5: %+v", d)
	}
	if d := Reconcile(view, 80, []vtop.EpochRun{{Epoch: 5, Start: 0}, {Epoch: 7, Start: 60}}, 80); d.Action != Keep {
		t.Fatalf("log of epoch 7: %+v", d)
	}
	p := Promotion{Epoch: 8, Self: 1, Voters: NewSet(1, 2, 3), Table: view.Table}
	c := p.Choose([]Answer{{Replica: 1, Epoch: 8, End: 60, Last: 5}, {Replica: 2, Epoch: 8, End: 80, Last: 7}})
	if c.Step != StepFetch || c.End != 80 || !slices.Equal(c.Sources, []vtop.ReplicaID{2}) {
		t.Fatalf("choice %+v", c)
	}
	c = p.Choose([]Answer{{Replica: 1, Epoch: 8, End: 100, Last: 5}, {Replica: 2, Epoch: 8, End: 80, Last: 7}})
	if c.Step != StepConflict {
		t.Fatalf("a log that was not compared passed: %+v", c)
	}
}

// TestReconcile_DivergenceBelowTheFloor: a leader wrote one record that nobody got, and was away while epoch 2 started
// at 0 and committed ten. Its divergence lies below the floor as a matter of course, and is cut (I8).
func TestReconcile_DivergenceBelowTheFloor(t *testing.T) {
	table, err := vtop.EpochTable{{Epoch: 1, Start: 0}}.With(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := Reconcile(View{Table: table, Floor: 10}, 0, []vtop.EpochRun{{Epoch: 1, Start: 0}}, 1)
	if d.Action != Cut || d.At != 0 {
		t.Fatalf("got %+v, want a cut at 0", d)
	}
	if d := Reconcile(View{Table: table, Floor: 10}, 1, []vtop.EpochRun{{Epoch: 1, Start: 0}}, 1); d.Action != Quarantine {
		t.Fatalf("a record known to be committed was to be cut: %+v", d)
	}
}

func TestReconcile_EpochAboveTheTableIsQuarantined(t *testing.T) {
	view := View{Lease: lease(9), Table: vtop.EpochTable{{Epoch: 3, Start: 0}}}
	d := Reconcile(view, 0, []vtop.EpochRun{{Epoch: 3, Start: 0}, {Epoch: 4, Start: 5}}, 6)
	if d.Action != Quarantine || d.At != 5 {
		t.Fatalf("got %+v, want quarantine at 5 (I8)", d)
	}
}

func TestChoose_Steps(t *testing.T) {
	p := Promotion{Epoch: 8, Self: 1, Voters: NewSet(1, 2, 3), Floor: 10, Table: vtop.EpochTable{{Epoch: 7, Start: 0}}}
	ok := func(id vtop.ReplicaID, end vtop.Offset) Answer {
		return Answer{Replica: id, Epoch: 8, End: end, Last: 7}
	}
	no := func(id vtop.ReplicaID, c Code, e vtop.Epoch) Answer {
		return Answer{Replica: id, Epoch: 8, Refusal: &Refusal{Code: c, Asked: 8, Epoch: e}}
	}
	for _, c := range []struct {
		name    string
		answers []Answer
		want    Step
		end     vtop.Offset
	}{
		{"nobody has answered", nil, StepWait, NoOffset},
		{"only itself", []Answer{ok(1, 12)}, StepWait, 12},
		{"a majority without itself", []Answer{ok(2, 12), ok(3, 12)}, StepWait, 12},
		{"a stranger counts for nothing (I10)", []Answer{ok(1, 12), ok(9, 20)}, StepWait, 12},
		{"an answer for another epoch counts for nothing", []Answer{ok(1, 12), {Replica: 2, Epoch: 7, End: 20, Last: 7}}, StepWait, 12},
		{"one replica answers twice", []Answer{ok(1, 12), ok(1, 12)}, StepWait, 12},
		{"the lost do not count (I10)", []Answer{ok(1, 12), no(2, ReplicaLost, 0)}, StepWait, 12},
		{"a majority, own log is the longest", []Answer{ok(1, 12), ok(2, 11)}, StepStart, 12},
		{"a majority, another log is longer", []Answer{ok(1, 12), ok(2, 13)}, StepFetch, 13},
		{"after the fetch the newer answer of its own counts", []Answer{ok(1, 12), ok(2, 13), ok(1, 13)}, StepStart, 13},
		{"below the floor", []Answer{ok(1, 8), ok(2, 9)}, StepBelowFloor, 9},
		{"the third has the rest", []Answer{ok(1, 8), ok(2, 9), ok(3, 10)}, StepFetch, 10},
		{"a later grant", []Answer{ok(1, 12), no(2, Superseded, 9)}, StepGiveUp, 12},
		{"a promise left over from lost metadata", []Answer{ok(1, 12), no(2, Promised, 11)}, StepGiveUp, 12},
		{"not granted: the voter's metadata went back", []Answer{ok(1, 12), no(2, NotGranted, 4)}, StepWait, 12},
	} {
		got := p.Choose(c.answers)
		if got.Step != c.want || got.End != c.end {
			t.Errorf("%s: step %d end %d (%s), want step %d end %d", c.name, got.Step, got.End, got.Why, c.want, c.end)
		}
	}
	if got := p.Choose([]Answer{ok(1, 8), ok(2, 9)}); !slices.Equal(got.Missing, []vtop.ReplicaID{3}) {
		t.Errorf("below the floor: who may have the rest is %v, want replica 3", got.Missing)
	}
	if got := p.Choose([]Answer{no(2, Promised, 11)}); got.Minimum != 11 {
		t.Errorf("minimum for the next grant is %d, want 11", got.Minimum)
	}
}

func TestLead_RefusesToLoseWhatItKnows(t *testing.T) {
	m := Members{Version: 1, Voters: NewSet(1, 2, 3)}
	if _, err := Lead(4, 9, 1, m, 10); !errors.Is(err, vtop.ErrDamaged) {
		t.Errorf("start below the known high watermark: %v (I1)", err)
	}
	if _, err := Lead(4, 9, 8, m, 0); !errors.Is(err, ErrChange) {
		t.Errorf("no voter: %v (I10)", err)
	}
}

// TestLeading_Verdict: success is bound to (epoch, offset), for duplicates too (I1), and no end is shown before the
// epoch's start is committed (I7).
func TestLeading_Verdict(t *testing.T) {
	l, err := Lead(4, 10, 1, Members{Version: 1, Voters: NewSet(1, 2, 3)}, 6)
	if err != nil {
		t.Fatal(err)
	}
	duplicate := Pending{Epoch: 4, End: 9} // of a record of an earlier epoch
	l.Acknowledge(4, 1, 12)
	l.Acknowledge(3, 2, 12) // an old message
	l.Acknowledge(4, 2, 8)
	if _, ok := l.EndOffset(); ok || l.HighWatermark() != 8 || l.Verdict(duplicate) != Wait {
		t.Fatalf("high %d, verdict %d", l.HighWatermark(), l.Verdict(duplicate))
	}
	l.Acknowledge(4, 2, 11)
	end, ok := l.EndOffset()
	if !ok || end != 11 || l.Verdict(duplicate) != Success || l.Verdict(Pending{4, 12}) != Wait || l.Verdict(Pending{3, 5}) != NotLeader {
		t.Fatalf("end %d %t", end, ok)
	}
	if l = nil; l.Verdict(duplicate) != NotLeader {
		t.Fatal("success without a lease")
	}
}

func TestLeading_ChangeInFlight(t *testing.T) {
	m := Members{Version: 3, Voters: NewSet(1, 2, 3), Learners: NewSet(4)}
	l, err := Lead(4, 0, 1, m, 0)
	if err != nil {
		t.Fatal(err)
	}
	settled := Settlement{Mark: 0, Quorum: 0}
	for id := range vtop.ReplicaID(4) {
		l.Acknowledge(4, id+1, 5)
	}
	for _, c := range []struct {
		name   string
		change Change
		set    Settlement
		want   error
	}{
		{"itself", Change{RemoveVoter, 1}, settled, ErrChange},
		{"a stranger", Change{AddVoter, 9}, settled, ErrChange},
		{"not settled", Change{AddVoter, 4}, Settlement{Mark: 5, Quorum: 4}, ErrNotSettled},
		{"never reported", Change{AddVoter, 4}, Settlement{Mark: 0, Quorum: NoOffset}, ErrNotSettled},
	} {
		if _, _, err := l.Begin(c.change, 5, c.set); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	version, mark, err := l.Begin(Change{AddVoter, 4}, 7, settled)
	if err != nil || version != 3 || mark != 7 {
		t.Fatalf("begin: version %d mark %d: %v", version, mark, err)
	}
	if _, ok := l.Position(); ok {
		t.Error("a floor is reported while a change is in flight")
	}
	if _, _, err := l.Begin(Change{RemoveVoter, 2}, 7, settled); !errors.Is(err, ErrChangeInFlight) {
		t.Errorf("second change: %v", err)
	}
	l.Acknowledge(4, 1, 7)
	l.Acknowledge(4, 2, 7)
	if l.HighWatermark() != 5 {
		t.Errorf("two of three and two of four committed %d", l.HighWatermark())
	}
	l.Refused(2) // of an older change
	if !l.Voters().Joint() {
		t.Error("a refusal of another version closed the change")
	}
	m = Members{Version: 4, Voters: NewSet(1, 2, 3, 4)}
	l.Applied(m)
	if l.Voters().Joint() || l.HighWatermark() != 5 {
		t.Errorf("after the change: %+v", l.Voters())
	}
	m.Lost = NewSet(2)
	l.Applied(m)
	l.Acknowledge(4, 2, 9)
	l.Acknowledge(4, 3, 7)
	if l.HighWatermark() != 5 {
		t.Errorf("a lost voter was counted: %d (I10)", l.HighWatermark())
	}
}

func TestPlan_Order(t *testing.T) {
	voters := func(second Condition) []Member { return []Member{{1, Living}, {2, second}, {3, Living}} }
	marks := Marks{{1, 10}, {2, 10}, {3, 10}, {4, 10}}
	learner := []Member{{4, Living}}
	for _, c := range []struct {
		name string
		plan Plan
		want Change
	}{
		{"nothing is wrong", Plan{Voters: voters(Living), Learners: learner, Want: 3}, Change{}},
		{"dead, and nobody to take its place", Plan{Voters: voters(Dead), Want: 3}, Change{}},
		{"dead: removed before its learner is added", Plan{Voters: voters(Dead), Learners: learner, Want: 3}, Change{RemoveVoter, 2}},
		{"lost: removed before its learner is added", Plan{Voters: voters(Lost), Learners: learner, Want: 3}, Change{RemoveVoter, 2}},
		{"leaving: its learner is added first", Plan{Voters: voters(Leaving), Learners: learner, Want: 3}, Change{AddVoter, 4}},
		{"leaving, replaced", Plan{Voters: append(voters(Leaving), Member{4, Living}), Want: 3}, Change{RemoveVoter, 2}},
		{"too few", Plan{Voters: []Member{{1, Living}, {3, Living}}, Learners: learner, Want: 3}, Change{AddVoter, 4}},
		{"the learner is behind", Plan{Voters: []Member{{1, Living}, {3, Living}}, Learners: []Member{{5, Living}}, Want: 3}, Change{}},
		{"the leader itself is leaving", Plan{Voters: []Member{{1, Leaving}, {2, Living}, {3, Living}}, Learners: learner, Want: 3}, Change{}},
		{"those that would stay are behind", Plan{Voters: []Member{{1, Living}, {2, Dead}, {6, Living}}, Learners: learner, Want: 3}, Change{}},
	} {
		c.plan.Self, c.plan.Marks, c.plan.HighWatermark = 1, marks, 10
		if got, ok := c.plan.Next(); got != c.want || ok != (c.want != Change{}) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
