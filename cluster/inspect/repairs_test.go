package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/adminapi"
)

func repairOf(dest string) adminapi.RepairRequest {
	return adminapi.RepairRequest{Topic: "lines", Destination: dest}
}

func TestSubmitRepairs_NewReplica(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	req := repairOf("n4")
	req.Replaces, req.SealTail, req.MaxRate, req.Sources = "n3", true, 5000, []string{"n2"}
	// Case: a dry run says what would be copied, and starts nothing.
	req.DryRun = true
	plan, err := w.look().submitRepairs(ctx, req)
	must(t, err)
	if p := plan[0]; p.Outcome != adminapi.OutcomePlanned || p.ID != 0 || p.Segments != 1 || p.BytesTotal != 8000 || p.SealedEnd != 80 || fmt.Sprint(p.Sources) != "[n2]" {
		t.Fatalf("plan %+v", p)
	}
	if w.state.ActiveRepairCount() != 0 {
		t.Fatal("a dry run started a repair")
	}
	req.DryRun = false
	first, err := w.look().submitRepairs(ctx, req)
	must(t, err)
	j, ok := w.state.Repair(fsm.RepairID(first[0].ID))
	if !ok || j.Destination != "n4" || j.Replace != "n3" || !j.SealTail || j.MaxRate != 5000 || j.Sources[0] != "n2" || j.Origin != fsm.OriginOperator {
		t.Fatalf("job %+v", j)
	}
	if r := first[0]; r.Range != "lines/0" || r.Step != adminapi.StepQueued || r.Outcome != "" || r.SealedEnd != -1 || r.Gap != -1 || r.ETAMS != -1 {
		t.Fatalf("repair %+v", r)
	}
	// Case: the same again is the same job.
	again, err := w.look().submitRepairs(ctx, repairOf("n4"))
	must(t, err)
	if again[0].ID != first[0].ID || w.state.ActiveRepairCount() != 1 {
		t.Fatalf("submitted twice: %d and %d", first[0].ID, again[0].ID)
	}
	// Case: nobody works on it while its destination is down, so that is why it does not move.
	w.down["n4"] = true
	r := describeRepair(j, w.look().alive)
	if !strings.Contains(r.Waiting, "n4 is not alive") {
		t.Fatalf("waiting %q", r.Waiting)
	}
}

func TestSubmitRepairs_NothingToRepair(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	got, err := w.look().submitRepairs(ctx, repairOf("n2"))
	must(t, err)
	if r := got[0]; r.Outcome != adminapi.OutcomeNothingToRepair || r.ID != 0 || !r.Voter || r.LogEnd != 100 || r.Floor != 100 || r.Gap != 0 {
		t.Fatalf("got %+v", r)
	}
	// Case: it votes, and is behind: that is said, not "whole".
	w.ends["n2"] = 40
	got, err = w.look().submitRepairs(ctx, repairOf("n2"))
	must(t, err)
	if r := got[0]; r.Gap != 60 || !strings.Contains(r.Cause, "60 behind the floor") {
		t.Fatalf("got %+v", r)
	}
	// Case: a vote that is to go stays: that is no "nothing to repair".
	req := repairOf("n2")
	req.Replaces = "n3"
	_, err = w.look().submitRepairs(ctx, req)
	wantRefusal(t, err, adminapi.CodeConflict)
	// Case: whether it is whole can't be known (I12).
	w.down["n2"] = true
	_, err = w.look().submitRepairs(ctx, repairOf("n2"))
	wantRefusal(t, err, adminapi.CodeUnavailable)
	if w.state.ActiveRepairCount() != 0 {
		t.Fatal("something was started")
	}
}

// A job that is under way is joined by the same wish, and by no other.
func TestSubmitRepairs_JoinsOnlyWhatIsMeant(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	req := repairOf("n4")
	req.Replaces, req.MaxRate = "n2", 1<<20
	first, err := w.look().submitRepairs(ctx, req)
	must(t, err)
	for _, same := range []adminapi.RepairRequest{req, repairOf("n4")} {
		got, err := w.look().submitRepairs(ctx, same)
		must(t, err)
		if got[0].ID != first[0].ID {
			t.Fatalf("%+v is repair %d, the first was %d", same, got[0].ID, first[0].ID)
		}
		same.DryRun = true
		got, err = w.look().submitRepairs(ctx, same)
		must(t, err)
		if got[0].Outcome != adminapi.OutcomePlanned || !strings.Contains(got[0].Reason, "under way") {
			t.Fatalf("dry run: %+v", got[0])
		}
	}
	for what, change := range map[string]func(*adminapi.RepairRequest){
		"another voter": func(q *adminapi.RepairRequest) { q.Replaces = "n3" },
		"a rate":        func(q *adminapi.RepairRequest) { q.MaxRate = 2 << 20 },
		"a seal":        func(q *adminapi.RepairRequest) { q.SealTail = true },
		"a source":      func(q *adminapi.RepairRequest) { q.Sources = []string{"n3"} },
	} {
		other := req
		change(&other)
		_, err := w.look().submitRepairs(ctx, other)
		if wantRefusal(t, err, adminapi.CodeConflict); !strings.Contains(err.Error(), "repair 1 ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if w.state.ActiveRepairCount() != 1 {
		t.Fatal("something else was started")
	}
}

func TestSubmitRepairs_Refusals(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	ask := func(req adminapi.RepairRequest) error {
		t.Helper()
		_, err := w.look().submitRepairs(ctx, req)
		dry := req
		dry.DryRun = true
		_, dryErr := w.look().submitRepairs(ctx, dry)
		if codeOf(err) != codeOf(dryErr) {
			t.Errorf("the dry run says %v, the repair %v", dryErr, err)
		}
		return err
	}
	wantRefusal(t, ask(repairOf("n9")), adminapi.CodeNotFound)
	wantRefusal(t, ask(adminapi.RepairRequest{Topic: "none", Destination: "n4"}), adminapi.CodeNotFound)
	req := repairOf("n4")
	req.Replaces = "n9"
	wantRefusal(t, ask(req), adminapi.CodeConflict) // n9 has no voter
	req = repairOf("n4")
	req.Sources = []string{"n4"} // a node, and no voter
	wantRefusal(t, ask(req), adminapi.CodeConflict)
	w.apply(&fsm.CreateTopic{ID: uuid(2), Name: "fresh", Ranges: [][]vtop.NodeName{{"n1", "n2", "n3"}}})
	wantRefusal(t, ask(adminapi.RepairRequest{Topic: "fresh", Destination: "n4"}), adminapi.CodeNeverWritten)
	w.apply(&fsm.UpdateNode{Name: "n4", State: fsm.NodeDraining})
	wantRefusal(t, ask(repairOf("n4")), adminapi.CodeConflict)
	w.apply(&fsm.UpdateNode{Name: "n4", State: fsm.NodeActive})
	w.lose("n3")
	req = repairOf("n3")
	req.Replaces = "n2" // n3's own has to be replaced first
	if err := ask(req); codeOf(err) != adminapi.CodeConflict || !strings.Contains(err.Error(), "has lost its own voter") {
		t.Fatalf("refused with %v", err)
	}
	for _, n := range []vtop.NodeName{"n1", "n2"} {
		w.lose(n)
	}
	wantRefusal(t, ask(repairOf("n4")), adminapi.CodeNoSource)
	if w.state.ActiveRepairCount() != 0 {
		t.Fatal("a refused repair was started")
	}
}

func TestSubmitRepairs_LostDamagedAndAll(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	all := adminapi.RepairRequest{Destination: "n3", All: true}
	got, err := w.look().submitRepairs(ctx, all)
	if err != nil || len(got) != 0 {
		t.Fatalf("all of a whole node: %+v, %v", got, err)
	}
	// Case: one damaged segment is replaced by itself.
	w.problems["n3"] = []adminapi.Problem{{Kind: kindDamaged, Subject: "lines/0", Message: "segment 0: chunk 0"}}
	got, err = w.look().submitRepairs(ctx, all)
	must(t, err)
	if len(got) != 1 || !got[0].InPlace || !strings.Contains(got[0].Reason, "chunk 0") {
		t.Fatalf("got %+v", got)
	}
	_, err = w.CancelRepairs(ctx, []fsm.RepairID{fsm.RepairID(got[0].ID)}, "test")
	must(t, err)
	// Case: a lost replica is rebuilt whole.
	w.problems["n3"] = nil
	w.lose("n3")
	got, err = w.look().submitRepairs(ctx, all)
	must(t, err)
	if len(got) != 1 || got[0].InPlace || got[0].ID == 0 {
		t.Fatalf("got %+v", got)
	}
	w.down["n3"] = true
	_, err = w.look().submitRepairs(ctx, all)
	wantRefusal(t, err, adminapi.CodeUnavailable)
}

func TestDescribeRepair_EndsWithWhatWasReadBack(t *testing.T) {
	j := &fsm.RepairJob{ID: 4, Name: "lines/0", Step: fsm.RepairTransferring, Attempts: 2, RepairProgress: fsm.NewRepairProgress()}
	j.BytesTotal, j.BytesDone, j.BytesPerSecond, j.ActiveSources = 3000, 1000, 500, []vtop.NodeName{"n1"}
	up := func(vtop.NodeName) bool { return true }
	if r := describeRepair(j, up); r.ETAMS != 4000 || r.Bytes != 3000 || r.Attempts != 1 || r.LogEnd != -1 || r.Floor != -1 || r.Gap != -1 {
		t.Errorf("under way: %+v", r)
	}
	// What failed and was got over is not told beside what is so now.
	j.LastError, j.Waiting = "chunk 3 of segment 0", "pausing"
	if r := describeRepair(j, up); r.LastError == "" {
		t.Errorf("while it waits: %+v", r)
	}
	j.Waiting = ""
	if r := describeRepair(j, up); r.LastError != "" {
		t.Errorf("while it goes on: %+v", r)
	}
	j.Step, j.Outcome, j.Gap, j.LogEnd, j.Floor, j.Cause = fsm.RepairDone, fsm.OutcomeGap, 7, 93, 100, "retention"
	if r := describeRepair(j, up); r.Gap != 7 || r.Outcome != adminapi.OutcomeGap || r.Bytes != 1000 || !r.Ended() || r.ETAMS != -1 {
		t.Errorf("ended: %+v", r)
	}
	// The words of the state machine are those of the admin port.
	for _, o := range []struct {
		is   fsm.RepairOutcome
		want string
	}{
		{fsm.OutcomeWhole, adminapi.OutcomeWhole}, {fsm.OutcomeGap, adminapi.OutcomeGap}, {fsm.OutcomeFailed, adminapi.OutcomeFailed},
		{fsm.OutcomeRefused, adminapi.OutcomeRefused}, {fsm.OutcomeCancelled, adminapi.OutcomeCancelled}, {fsm.OutcomeNone, ""},
	} {
		if o.is.String() != o.want {
			t.Errorf("outcome %q, want %q", o.is, o.want)
		}
	}
	words := []string{
		adminapi.StepQueued, adminapi.StepSealing, adminapi.StepTransferring, adminapi.StepAdopting, adminapi.StepCatchingUp, adminapi.StepPromoting,
		adminapi.StepDone, adminapi.StepFailed, adminapi.StepCancelled,
	}
	for i, word := range words {
		if got := (fsm.RepairQueued + fsm.RepairStep(i)).String(); got != word {
			t.Errorf("step %d is %q, want %q", i, got, word)
		}
	}
}

func TestSeal(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	got, err := seal(ctx, w, "lines", 0, adminapi.SealRequest{})
	must(t, err)
	if *got != (adminapi.SealResult{Range: "lines/0", Leader: "n1", Epoch: 1, SealedEnd: 100, RecordsSealed: 20, Segments: 2}) {
		t.Fatalf("got %+v", got)
	}
	for _, row := range []struct {
		err  error
		code adminapi.Code
	}{
		{&transport.NotCommittedError{ClosedEnd: 100, HighWatermark: 90}, adminapi.CodeNotCommitted},
		{&vtop.FencedError{Reason: "lease moved"}, adminapi.CodeFenced},
		{transport.ErrNeverWritten, adminapi.CodeNeverWritten},
		{transport.ErrNotAllowed, adminapi.CodeNotAllowed},
		{transport.ErrUnimplemented, adminapi.CodeUnavailable},
		{vtop.ErrNotLeader, adminapi.CodeUnavailable},
	} {
		w.sealErr = fmt.Errorf("at n1: %w", row.err)
		_, err := seal(ctx, w, "lines", 0, adminapi.SealRequest{})
		wantRefusal(t, err, row.code)
	}
	w.apply(&fsm.CreateTopic{ID: uuid(2), Name: "fresh", Ranges: [][]vtop.NodeName{{"n1", "n2", "n3"}}})
	_, err = seal(ctx, w, "fresh", 0, adminapi.SealRequest{})
	wantRefusal(t, err, adminapi.CodeNeverWritten)
}

func TestReplicas_ShowWhatARepairDoes(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	_, err := w.look().submitRepairs(ctx, repairOf("n4"))
	must(t, err)
	w.problems["n2"] = []adminapi.Problem{{Kind: kindDamaged, Subject: "lines/0", Message: "segment 0"}}
	w.lose("n3")
	states := map[string]string{}
	p := w.look()
	for _, r := range p.lease(must2(w.state.TopicByName("lines")), w.rng()).Replicas {
		states[r.Node] = r.Role + " " + r.State
	}
	if want := "map[n1:voter leading n2:voter damaged n3:voter lost n4:learner receiving]"; fmt.Sprint(states) != want {
		t.Errorf("got %v, want %s", states, want)
	}
}

func must2[T any](v T, ok bool) T {
	if !ok {
		panic("not there")
	}
	return v
}

func TestScrubNode_WhatWasNotReadIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.apply(&fsm.RegisterSegment{Range: lines, Epoch: 1, Config: 1, Base: 80, End: 100, Bytes: 900, Root: [32]byte{2}, SealedAt: 1})
	node := must2(w.state.Node("n2"))
	ok := adminapi.ScrubVerdict{Range: "lines/0", Base: 0, End: 80, Verdict: adminapi.ScrubOK}
	for _, row := range []struct {
		name string
		give []adminapi.ScrubVerdict
		err  error
		want string
	}{
		{"it answers for all", []adminapi.ScrubVerdict{ok, {Range: "lines/0", Base: 80, End: 100, Verdict: adminapi.ScrubBad}}, nil, "0 ok, 80 bad"},
		{"it leaves one out", []adminapi.ScrubVerdict{ok}, nil, "0 ok, 80 unknown"},
		{"it breaks off", []adminapi.ScrubVerdict{ok}, errors.New("cut"), "0 ok, 80 unknown"},
		{"it does not answer", nil, errors.New("refused"), "0 unknown, 80 unknown"},
	} {
		var got []string
		err := scrubNode(context.Background(), w.state, node, []*fsm.Range{w.rng()},
			func(_ context.Context, found func(adminapi.ScrubVerdict) error) error {
				for _, v := range row.give {
					must(t, found(v))
				}
				return row.err
			},
			func(v adminapi.ScrubVerdict) error {
				if v.Node != "n2" || v.Verdict == adminapi.ScrubUnknown && v.Reason == "" {
					t.Errorf("%s: %+v", row.name, v)
				}
				got = append(got, fmt.Sprintf("%d %s", v.Base, v.Verdict))
				return nil
			})
		if text := strings.Join(got, ", "); err != nil || text != row.want {
			t.Errorf("%s: %s, %v; want %s", row.name, text, err, row.want)
		}
	}
}
