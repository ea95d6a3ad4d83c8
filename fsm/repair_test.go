package fsm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

func requestTo(node vtop.NodeName) RepairRequest {
	return RepairRequest{Range: r0, Destination: node, Origin: OriginOperator, Reason: "test"}
}

// submit asks for one repair and returns its job's id.
func (w *world) submit(q RepairRequest) RepairID {
	w.t.Helper()
	return w.ok(&SubmitRepairs{Items: []RepairRequest{q}, At: 1}).Items[0].Repair
}

func (w *world) refusesRepair(q RepairRequest, code Code) {
	w.t.Helper()
	w.refused(&SubmitRepairs{Items: []RepairRequest{q}}, code)
}

func (w *world) job(id RepairID) *RepairJob {
	w.t.Helper()
	j, ok := w.s.Repair(id)
	if !ok {
		w.t.Fatalf("no repair %d", id)
	}
	return j
}

// stepOf is an update of a job that takes it to a step, with what else it says of its progress.
func (w *world) stepOf(id RepairID, step RepairStep, say func(*RepairProgress)) *UpdateRepairs {
	w.t.Helper()
	j := w.job(id)
	u := RepairUpdate{ID: id, StepVersion: j.StepVersion, Step: step, Progress: j.RepairProgress}
	if say != nil {
		say(&u.Progress)
	}
	return &UpdateRepairs{Node: j.Destination, Incarnation: w.node(j.Destination).Incarnation, Items: []RepairUpdate{u}, At: 2}
}

func (w *world) step(id RepairID, step RepairStep, say func(*RepairProgress)) {
	w.t.Helper()
	w.ok(w.stepOf(id, step, say))
}

// adopt takes a job to RepairCatchingUp with a learner of its own.
func (w *world) adopt(id RepairID) vtop.ReplicaID {
	w.t.Helper()
	w.step(id, RepairAdopting, nil)
	learner := w.ok(w.changeOf(AddLearner, w.job(id).Destination, 0)).ReplicaID
	w.step(id, RepairCatchingUp, func(p *RepairProgress) { p.Replica = learner })
	return learner
}

func whole(p *RepairProgress) {
	p.Outcome, p.Voter, p.LogEnd, p.Floor, p.Waiting = OutcomeWhole, true, 120, 100, "nothing"
	p.BytesPerSecond, p.ActiveSources = 5, []vtop.NodeName{"n1"}
}

func failed(p *RepairProgress) { p.Outcome, p.Cause = OutcomeFailed, "disk full" }

// One repair from the beginning to the end, as destination and leader take it.
func TestRepair_FromQueuedToDone(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(100, 100)
	lost := w.replicaOn("n2")
	w.ok(w.lostOf("n2", lost))
	id := w.submit(RepairRequest{Range: r0, Destination: "n4", Replace: "n2", SealTail: true, Origin: OriginReplace})
	if j := w.job(id); j.Step != RepairQueued || j.StepVersion != 1 || j.Name != "lines/0" || j.SealedEnd != NoOffset || j.Created == 0 {
		t.Fatalf("job %+v", j)
	}
	w.step(id, RepairSealing, nil)
	w.step(id, RepairTransferring, func(p *RepairProgress) { p.SealedEnd, p.Epoch, p.BytesTotal = 100, 1, 1000 })
	version := w.job(id).StepVersion
	w.step(id, RepairTransferring, func(p *RepairProgress) { p.BytesDone, p.Waiting = 500, "source n3 is full" })
	if j := w.job(id); j.StepVersion != version || j.BytesDone != 500 || j.Waiting == "" || j.UpdatedAt != 2 {
		t.Fatalf("job %+v: progress alone leaves the step version", j)
	}
	learner := w.adopt(id)
	w.report(100, 100)
	w.ok(w.changeOf(RemoveVoter, "", lost))
	w.step(id, RepairPromoting, nil)
	w.refused(w.stepOf(id, RepairDone, whole), CodeNotVoter) // I12: told, but not so
	w.report(100, 100)
	w.ok(w.changeOf(PromoteLearner, "", learner))
	w.step(id, RepairDone, whole)
	j := w.job(id)
	if j.Active() || j.Ended != w.s.Index() || j.Waiting != "" || j.BytesPerSecond != 0 || !slices.Equal(j.ActiveSources, []vtop.NodeName{"n1"}) || j.Replica != learner {
		t.Errorf("job %+v", j)
	}
	w.refused(w.stepOf(id, RepairDone, nil), CodeRepairEnded)
	w.refusesRepair(requestTo("n4"), CodeWhole)
	if next := w.submit(requestTo("n5")); next == id {
		t.Error("an id was used again")
	}
}

// Submitting again, in the same command or later, leads to the same job, whatever else it asks for.
func TestSubmitRepairs_IsIdempotent(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	other := requestTo("n4")
	other.SealTail, other.MaxRate = true, 5
	out := w.ok(&SubmitRepairs{Items: []RepairRequest{requestTo("n4"), requestTo("n5"), other, {Range: rangeID(1, 1), Destination: "n4", Origin: OriginHeal}}})
	got := []RepairID{out.Items[0].Repair, out.Items[1].Repair, out.Items[2].Repair, out.Items[3].Repair}
	if !slices.Equal(got, []RepairID{1, 2, 1, 3}) || out.Items[0].Existing || !out.Items[2].Existing {
		t.Fatalf("items %+v", out.Items)
	}
	again := w.ok(&SubmitRepairs{Items: []RepairRequest{other}})
	if again.Items[0].Repair != 1 || !again.Items[0].Existing || w.job(1).MaxRate != 0 {
		t.Errorf("items %+v, job %+v", again.Items, w.job(1))
	}
	// Case: the learner is a voter by now, and the job has not ended.
	learner := w.adopt(1)
	w.report(0, 0)
	w.ok(w.changeOf(PromoteLearner, "", learner))
	if again := w.ok(&SubmitRepairs{Items: []RepairRequest{other}}); again.Items[0].Repair != 1 {
		t.Errorf("items %+v", again.Items)
	}
	ids := func(jobs func(func(*RepairJob) bool)) (out []RepairID) {
		for j := range jobs {
			out = append(out, j.ID)
		}
		return out
	}
	if got := ids(w.s.RepairsTo("n4")); !slices.Equal(got, []RepairID{1, 3}) {
		t.Errorf("repairs to n4: %v", got)
	}
	if got := ids(w.s.ActiveRepairs(r0)); !slices.Equal(got, []RepairID{1, 2}) {
		t.Errorf("repairs of r0: %v", got)
	}
	if got := ids(w.s.Repairs()); !slices.Equal(got, []RepairID{1, 2, 3}) {
		t.Errorf("repairs: %v", got)
	}
	if _, ok := w.s.ActiveRepair(r0, "n1"); ok || w.s.ActiveRepairCount() != 3 {
		t.Errorf("%d active", w.s.ActiveRepairCount())
	}
}

func TestSubmitRepairs_Refused(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	with := func(change func(q *RepairRequest)) RepairRequest {
		q := requestTo("n4")
		change(&q)
		return q
	}
	w.refusesRepair(requestTo("n2"), CodeWhole)
	w.refusesRepair(with(func(q *RepairRequest) { q.Range = rangeID(9, 0) }), CodeUnknownRange)
	w.refusesRepair(with(func(q *RepairRequest) { q.Config = 7 }), CodeStaleConfig)
	w.refusesRepair(requestTo("n9"), CodeUnknownNode)
	w.refusesRepair(with(func(q *RepairRequest) { q.Sources = []vtop.NodeName{"n9"} }), CodeUnknownNode)
	w.refusesRepair(with(func(q *RepairRequest) { q.Replace = "n5" }), CodeUnknownReplica)
	w.refusesRepair(with(func(q *RepairRequest) { q.Holes = true }), CodeUnknownReplica)
	w.ok(&UpdateNode{Name: "n4", State: NodeDraining})
	w.refusesRepair(requestTo("n4"), CodeConflict)
	w.ok(&RemoveNode{Name: "n4"})
	w.refusesRepair(requestTo("n4"), CodeNodeGone)
	w.ok(&UpdateNode{Name: "n4", State: NodeActive})

	w.submit(with(func(q *RepairRequest) { q.Replace, q.Config = "n2", w.rng(r0).ConfigVersion }))
	w.refusesRepair(with(func(q *RepairRequest) { q.Destination, q.Replace = "n5", "n2" }), CodeConflict)

	w.ok(&SetHeal{Paused: true, Why: "disks are moved", At: 5})
	w.refusesRepair(with(func(q *RepairRequest) { q.Destination, q.Origin = "n5", OriginHeal }), CodeConflict)
	w.submit(requestTo("n5")) // an operator's is taken
	if h := w.s.Heal(); !h.Paused || h.Why != "disks are moved" || h.Index == 0 || h.At != 5 {
		t.Errorf("heal %+v", h)
	}
	w.ok(&SetHeal{})
	if w.s.Heal().Paused {
		t.Error("healing is still paused")
	}
	w.ok(&CancelRepairs{IDs: []RepairID{1, 2}, Reason: "test"})
	w.ok(w.lostOf("n2", w.replicaOn("n2")))
	w.ok(w.lostOf("n3", w.replicaOn("n3")))
	w.refusesRepair(requestTo("n1"), CodeNoSource) // none is left but the destination's own
	w.submit(requestTo("n2"))
	w.ok(w.lostOf("n1", w.replicaOn("n1")))
	w.refusesRepair(requestTo("n4"), CodeNoSource)
}

// Only the process that is registered now moves a job, on the step that it saw, and forward.
func TestUpdateRepairs_CompareAndSet(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	id := w.submit(requestTo("n4"))
	late := w.stepOf(id, RepairTransferring, nil)
	w.step(id, RepairSealing, nil)
	w.refused(late, CodeStaleStep)
	w.refused(w.stepOf(id, RepairQueued, func(p *RepairProgress) { p.LastError = "why" }), CodeConflict)
	w.step(id, RepairTransferring, nil)
	stranger := w.stepOf(id, RepairTransferring, nil)
	stranger.Node = "n5"
	w.refused(stranger, CodeConflict)
	earlier := w.stepOf(id, RepairAdopting, nil)
	w.ok(&RegisterNode{Name: "n4", Identity: identityOf("n4", 0, 2)})
	w.refused(earlier, CodeStaleIncarnation)
	unknown := w.stepOf(id, RepairTransferring, nil)
	unknown.Items[0].ID = 99
	w.refused(unknown, CodeUnknownRepair)

	// Back to sealing is the one way back: it says why, and is counted.
	w.refused(w.stepOf(id, RepairSealing, nil), CodeConflict)
	version := w.job(id).StepVersion
	w.step(id, RepairSealing, func(p *RepairProgress) { p.LastError = "the pin expired" })
	if j := w.job(id); j.Attempts != 2 || j.StepVersion != version+1 {
		t.Fatalf("job %+v", j)
	}
	for w.job(id).Attempts < MaxRepairAttempts {
		w.step(id, RepairTransferring, nil)
		w.step(id, RepairSealing, func(p *RepairProgress) { p.LastError = "the pin expired" })
	}
	w.step(id, RepairTransferring, nil)
	w.refused(w.stepOf(id, RepairSealing, func(p *RepairProgress) { p.LastError = "again" }), CodeLimit) // I13
	w.step(id, RepairFailed, failed)
	w.refused(w.stepOf(id, RepairTransferring, func(p *RepairProgress) { *p = NewRepairProgress() }), CodeRepairEnded)
}

// A job works for no replica of another node, nor for one that may have forgotten (I10).
func TestUpdateRepairs_ReplicaFits(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	id := w.submit(requestTo("n4"))
	say := func(replica vtop.ReplicaID) *UpdateRepairs {
		return w.stepOf(id, RepairCatchingUp, func(p *RepairProgress) { p.Replica = replica })
	}
	w.refused(say(w.replicaOn("n1")), CodeUnknownReplica)
	w.refused(say(999), CodeUnknownReplica)
	learner := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	late := say(learner)
	w.ok(w.lostOf("n4", learner))
	w.refused(late, CodeReplicaLost)
}

func TestUpdateRepairs_Shape(t *testing.T) {
	for name, c := range map[string]struct {
		step RepairStep
		say  func(*RepairProgress)
	}{
		"done without an outcome":        {RepairDone, nil},
		"whole and not done":             {RepairPromoting, whole},
		"whole without a vote":           {RepairDone, func(p *RepairProgress) { whole(p); p.Voter = false }},
		"whole below the floor":          {RepairDone, func(p *RepairProgress) { whole(p); p.LogEnd = 99 }},
		"whole with a gap":               {RepairDone, func(p *RepairProgress) { whole(p); p.Gap = 1 }},
		"whole, of no replica":           {RepairDone, func(p *RepairProgress) { whole(p); p.Replica = 0 }},
		"a gap of nothing":               {RepairDone, func(p *RepairProgress) { p.Outcome, p.Cause = OutcomeGap, "why" }},
		"a gap without a cause":          {RepairDone, func(p *RepairProgress) { p.Outcome, p.Gap = OutcomeGap, 4 }},
		"failed without a cause":         {RepairFailed, func(p *RepairProgress) { p.Outcome = OutcomeRefused }},
		"failed and goes on":             {RepairTransferring, failed},
		"cancelled by its runner":        {RepairCancelled, func(p *RepairProgress) { p.Outcome = OutcomeCancelled }},
		"catching up without a replica":  {RepairCatchingUp, func(p *RepairProgress) { p.Replica = 0 }},
		"an outcome that nobody knows":   {RepairDone, func(p *RepairProgress) { p.Outcome = 77 }},
		"a negative count":               {RepairTransferring, func(p *RepairProgress) { p.BytesDone = -1 }},
		"an offset below none":           {RepairTransferring, func(p *RepairProgress) { p.SealedEnd = -2 }},
		"no step":                        {0, nil},
		"too many sources":               {RepairTransferring, func(p *RepairProgress) { p.ActiveSources = make([]vtop.NodeName, MaxRepairSources+1) }},
		"a text without end":             {RepairTransferring, func(p *RepairProgress) { p.Waiting = strings.Repeat("x", MaxText+1) }},
		"a dropped source without name":  {RepairTransferring, func(p *RepairProgress) { p.DroppedSources = []DroppedSource{{Reason: "x"}} }},
		"a dropped source without limit": {RepairTransferring, func(p *RepairProgress) { p.DroppedSources = make([]DroppedSource, MaxRepairSources+1) }},
	} {
		p := NewRepairProgress()
		p.Replica = 3
		if c.say != nil {
			c.say(&p)
		}
		cmd := &UpdateRepairs{Node: "n1", Incarnation: 1, Items: []RepairUpdate{{ID: 1, StepVersion: 1, Step: c.step, Progress: p}}}
		if _, err := Encode(cmd); !errors.Is(err, &Refusal{Code: CodeInvalid}) && !errors.Is(err, &Refusal{Code: CodeLimit}) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for name, q := range map[string]RepairRequest{
		"no origin":            {Range: r0, Destination: "n1"},
		"no destination":       {Range: r0, Origin: OriginHeal},
		"destination a source": {Range: r0, Destination: "n1", Origin: OriginHeal, Sources: []vtop.NodeName{"n1"}},
		"a source twice":       {Range: r0, Destination: "n1", Origin: OriginHeal, Sources: []vtop.NodeName{"n2", "n2"}},
		"a negative rate":      {Range: r0, Destination: "n1", Origin: OriginHeal, MaxRate: -1},
	} {
		if _, err := Encode(&SubmitRepairs{Items: []RepairRequest{q}}); !errors.Is(err, &Refusal{Code: CodeInvalid}) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Cancelling works at every step, and leaves no learner behind; what is a voter by then stays one.
func TestCancelRepairs_FromEveryStep(t *testing.T) {
	for step := RepairQueued; step <= RepairPromoting; step++ {
		w := newWorld(t)
		w.lead("n1", 0)
		id := w.submit(requestTo("n4"))
		switch {
		case step >= RepairCatchingUp:
			w.adopt(id)
			w.step(id, step, nil)
		case step > RepairQueued:
			w.step(id, step, nil)
		}
		config, late := w.rng(r0).ConfigVersion, w.stepOf(id, step, nil)
		cancel := &CancelRepairs{IDs: []RepairID{id}, Reason: "not needed", At: 9}
		w.ok(cancel)
		j := w.job(id)
		if j.Step != RepairCancelled || j.Outcome != OutcomeCancelled || j.Cause != "not needed" || j.UpdatedAt != 9 {
			t.Errorf("%s: job %+v", step, j)
		}
		_, there := w.rng(r0).On("n4")
		if there || (w.rng(r0).ConfigVersion > config) != (step >= RepairCatchingUp) {
			t.Errorf("%s: learner there %t, configuration %d→%d", step, there, config, w.rng(r0).ConfigVersion)
		}
		w.ok(cancel) // a repeat
		w.refused(late, CodeRepairEnded)
		if again := w.submit(requestTo("n4")); again == id {
			t.Errorf("%s: the cancelled job came back", step)
		}
	}
	w := newWorld(t)
	w.lead("n1", 0)
	id := w.submit(requestTo("n4"))
	learner := w.adopt(id)
	w.report(0, 0)
	w.ok(w.changeOf(PromoteLearner, "", learner))
	w.ok(&CancelRepairs{IDs: []RepairID{id}, Reason: "late"})
	if _, ok := w.rng(r0).VoterOn("n4"); !ok {
		t.Error("I1: cancelling took a voter away")
	}
	w.refused(&CancelRepairs{IDs: []RepairID{99}, Reason: "x"}, CodeUnknownRepair)
	id = w.submit(requestTo("n5"))
	w.step(id, RepairFailed, failed)
	w.refused(&CancelRepairs{IDs: []RepairID{id}, Reason: "x"}, CodeRepairEnded)
}

// A voter that takes a living one's place takes its preferred place, too: the preferred nodes are as many as the voters wished for,
// before the other has gone and after.
func TestRepair_ReplacingALivingVoterKeepsTheNumberWished(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(100, 100)
	q := requestTo("n4")
	q.Replace = "n2"
	learner := w.adopt(w.submit(q))
	w.report(100, 100)
	w.ok(w.changeOf(PromoteLearner, "", learner))
	if r := w.rng(r0); len(r.Voters()) != 4 || !slices.Equal(r.Preferred, []vtop.NodeName{"n1", "n4", "n3"}) {
		t.Fatalf("promoted: %d voters, preferred %v", len(r.Voters()), r.Preferred)
	}
	w.report(100, 100)
	w.ok(w.changeOf(RemoveVoter, "", w.replicaOn("n2")))
	if r := w.rng(r0); len(r.Voters()) != 3 || !slices.Equal(r.Preferred, []vtop.NodeName{"n1", "n4", "n3"}) {
		t.Fatalf("replaced: %d voters, preferred %v", len(r.Voters()), r.Preferred)
	}
}
