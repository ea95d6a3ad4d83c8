package inspect

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport/adminapi"
)

func TestSafeToStop_FromTheState(t *testing.T) {
	for _, row := range []struct {
		name    string
		set     func(*world)
		node    string
		safe    bool
		subject string
	}{
		{"all well", func(*world) {}, "n2", true, ""},
		{"the leader itself", func(*world) {}, "n1", true, ""},
		{"a node without replicas and vote", func(*world) {}, "n4", true, ""},
		{"another follower is down", func(w *world) { w.down["n3"] = true }, "n2", false, "lines/0"},
		{"the one that is down itself", func(w *world) { w.down["n3"] = true }, "n3", true, ""},
		{"another follower is behind the floor", func(w *world) { w.ends["n3"] = 99 }, "n2", false, "lines/0"},
		{"another follower does not follow", func(w *world) { w.flows["n3"] = "connecting" }, "n2", false, "lines/0"},
		{"another replica is lost", func(w *world) { w.lose("n3") }, "n2", false, "lines/0"},
		{"another replica is damaged", problem("n3", kindDamaged), "n2", false, "lines/0"},
		{"the leader is damaged", problem("n1", kindDamaged), "n2", false, "lines/0"},
		{"another replica has failed", problem("n3", kindFailed), "n2", false, "lines/0"},
		{"the damaged one itself", problem("n3", kindDamaged), "n3", true, ""},
		{"no Raft leader is known", func(w *world) { w.noRaft = true }, "n2", false, "metadata"},
		{"the leader does not answer", func(w *world) { w.down["n1"], w.noRaft = true, true }, "n2", false, "lines/0"},
	} {
		w := newWorld(t)
		row.set(w)
		got, err := w.look().safeToStop(row.node)
		must(t, err)
		subjects := ""
		for _, r := range append(got.Reasons, got.Unknown...) {
			subjects += r.Subject + " "
		}
		if got.Safe != row.safe || row.safe != (subjects == "") || !strings.Contains(subjects, row.subject) {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	_, err := newWorld(t).look().safeToStop("n9")
	wantRefusal(t, err, adminapi.CodeNotFound)
}

func TestDrain(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	got, err := w.look().drain(ctx, "n1", adminapi.DrainRequest{DryRun: true})
	must(t, err)
	if got.State != "active" || got.LeasesLeft != 1 || got.ReplicasLeft != 1 || len(got.Stuck) != 0 || got.Done {
		t.Fatalf("dry run: %+v", got)
	}
	got, err = w.look().drain(ctx, "n1", adminapi.DrainRequest{})
	must(t, err)
	if got.State != "draining" || got.Done {
		t.Fatalf("got %+v", got)
	}
	// Case: the job that moves its replica is named, and its end is when nothing is left.
	w.apply(&fsm.SubmitRepairs{Items: []fsm.RepairRequest{{Range: lines, Destination: "n4", Replace: "n1", Origin: fsm.OriginDrain, Reason: "drain"}}})
	got, err = w.look().drainStatus("n1")
	must(t, err)
	if len(got.Repairs) != 1 {
		t.Fatalf("got %+v", got)
	}
	got, err = w.look().drain(ctx, "n1", adminapi.DrainRequest{Cancel: true})
	must(t, err)
	if got.State != "active" || w.state.ActiveRepairCount() != 0 {
		t.Fatalf("cancelled: %+v, %d repairs", got, w.state.ActiveRepairCount())
	}
	// Case: three nodes and three replicas: where to is said at once (L1 of the faults).
	w.down["n4"] = true
	got, err = w.look().drain(ctx, "n2", adminapi.DrainRequest{})
	must(t, err)
	if len(got.Stuck) != 1 || got.Stuck[0].Subject != "lines/0" || !strings.Contains(got.Stuck[0].Message, "(n1, n3)") || got.Stuck[0].Hint == "" {
		t.Fatalf("got %+v", got.Stuck)
	}
	got, err = w.look().drain(ctx, "n4", adminapi.DrainRequest{})
	must(t, err)
	if !got.Done {
		t.Fatalf("an empty node: %+v", got)
	}
}

// TestRemove_NeverTakesACopy (L4 of the faults).
func TestRemove_NeverTakesACopy(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	w.apply(&fsm.CreateTopic{ID: uuid(2), Name: "single", Ranges: [][]vtop.NodeName{{"n3"}}})
	got, err := w.look().remove(ctx, "n3")
	must(t, err)
	if got.Removed || len(got.Left) != 2 {
		t.Fatalf("got %+v", got)
	}
	for _, l := range got.Left {
		if l.Subject == "single/0" && !strings.Contains(l.Message, "only voter") || l.Hint == "" {
			t.Errorf("left %+v", l)
		}
	}
	_, err = w.look().remove(ctx, "n4")
	wantRefusal(t, err, adminapi.CodeConflict) // alive and active
	w.apply(&fsm.UpdateNode{Name: "n4", State: fsm.NodeDraining})
	got, err = w.look().remove(ctx, "n4")
	must(t, err)
	if n, _ := w.state.Node("n4"); !got.Removed || n.State != fsm.NodeGone {
		t.Fatalf("got %+v, node is %s", got, n.State)
	}
	_, err = w.look().remove(ctx, "n9")
	wantRefusal(t, err, adminapi.CodeNotFound)
}

func TestReplace_ByAnotherNode(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	got, err := w.look().replace(ctx, "n2", "n4", true)
	must(t, err)
	if len(got.Repairs) != 1 || got.Repairs[0].Outcome != adminapi.OutcomePlanned || w.state.ActiveRepairCount() != 0 {
		t.Fatalf("dry run: %+v", got)
	}
	got, err = w.look().replace(ctx, "n2", "n4", false)
	must(t, err)
	j, ok := w.state.ActiveRepair(lines, "n4")
	if n, _ := w.state.Node("n2"); !ok || j.Replace != "n2" || j.Origin != fsm.OriginReplace || uint64(j.ID) != got.Repairs[0].ID || n.State != fsm.NodeDraining {
		t.Fatalf("got %+v, job %+v, node %s", got, j, n.State)
	}
	// Case: what the new node has already can't move there.
	got, err = newWorld(t).look().replace(ctx, "n2", "n3", true)
	must(t, err)
	if len(got.Repairs) != 1 || got.Repairs[0].Outcome != adminapi.OutcomeRefused || !strings.Contains(got.Repairs[0].Cause, "has a voter of it already") {
		t.Fatalf("got %+v", got)
	}
	_, err = w.look().replace(ctx, "n2", "n9", false)
	wantRefusal(t, err, adminapi.CodeNotFound)
}

func TestReplace_ByAPendingClaim(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	_, err := w.look().replace(ctx, "n2", "n2", false)
	wantRefusal(t, err, adminapi.CodeConflict) // nobody claims it
	old, _ := w.state.Node("n2")
	id := old.Identity
	id.Storage, id.RaftID, id.BootNonce = uuid(900), "raft-other", uuid(901)
	_, _ = w.propose(&fsm.RegisterNode{Name: "n2", Identity: id}) // refused, and noted
	_, err = w.look().replace(ctx, "n2", "n2", false)
	wantRefusal(t, err, adminapi.CodeConflict) // its owner is alive
	w.down["n2"] = true
	p := w.look()
	p.locals["n2"] = &adminapi.Local{Node: "n2"} // the claimant answers at the old address
	plan, err := p.replace(ctx, "n2", "n2", true)
	must(t, err)
	if len(plan.Repairs) != 1 || plan.Repairs[0].Outcome != adminapi.OutcomePlanned || w.state.ActiveRepairCount() != 0 {
		t.Fatalf("dry run: %+v", plan)
	}
	// What it has lost is rebuilt at once, by the operator's word, though healing is paused: the command ends when it is whole.
	w.apply(&fsm.SetHeal{Paused: true, Why: "test"})
	got, err := p.replace(ctx, "n2", "n2", false)
	must(t, err)
	if n, _ := w.state.Node("n2"); !got.Admitted || n.Storage != uuid(900) {
		t.Fatalf("got %+v, storage %s", got, n.Storage)
	}
	if j, ok := w.state.ActiveRepair(lines, "n2"); !ok || len(got.Repairs) != 1 || uint64(j.ID) != got.Repairs[0].ID {
		t.Fatalf("I12: admitted, and nothing is rebuilt: %+v", got)
	}
}

func TestHeal(t *testing.T) {
	w := newWorld(t)
	w.down["n3"], w.silent = true, 2*time.Minute
	h := w.look().heal()
	if len(h.Gone) != 1 || h.Gone[0].Node != "n3" || h.Gone[0].LeftMS != (8*time.Minute).Milliseconds() || h.Gone[0].Replicas != 1 || len(h.Stuck) != 0 {
		t.Fatalf("got %+v", h)
	}
	w.down["n4"], w.silent = true, time.Hour
	if h = w.look().heal(); len(h.Stuck) != 1 || h.Stuck[0].Subject != "lines/0" {
		t.Fatalf("got %+v", h)
	}
	if h.Limit != adminapi.Unknown {
		t.Fatalf("I12: nobody told the limit, it is shown as %d", h.Limit)
	}
	// Case: the Raft leader tells. Where it speaks of a range, its word counts, and what to do is kept.
	p := w.look()
	p.judge.Healing = localHealing(controller.Healing{Limit: 8, Stuck: map[vtop.Range]string{lines: "n3 was removed; no node can take it"}})
	if h = p.heal(); h.Limit != 8 || len(h.Stuck) != 1 || h.Stuck[0].Message != "n3 was removed; no node can take it" || h.Stuck[0].Hint == "" {
		t.Fatalf("got %+v", h)
	}
	must(t, w.SetHeal(context.Background(), true, "moving racks"))
	p = w.look()
	s := &adminapi.Status{}
	p.judgeRepairs(s)
	if h = p.heal(); !h.Paused || h.Why != "moving racks" || len(s.Problems) != 1 || s.Problems[0].Kind != "heal_paused" {
		t.Fatalf("got %+v, %+v", h, s.Problems)
	}
}

func TestLocalPins_TellWhenTheyEnd(t *testing.T) {
	w := newWorld(t)
	got := localPins("n1", w.state, []storage.PinInfo{{ID: 3, Range: lines, Job: 5, Files: 2, Bytes: 100, Idle: time.Second, Limit: 2 * time.Minute}})
	if len(got) != 1 || got[0] != (adminapi.Pin{Node: "n1", Range: "lines/0", ID: 3, Job: 5, Files: 2, Bytes: 100, IdleMS: 1000, LimitMS: 120_000}) {
		t.Fatalf("got %+v", got)
	}
}

func TestRecover(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	_, err := w.look().recoverRange(ctx, "lines", 0, adminapi.RecoverRequest{From: "n3", DryRun: true})
	wantRefusal(t, err, adminapi.CodeConflict) // it has its majority
	w.down["n1"], w.down["n2"] = true, true
	w.noRaft = false
	w.ends["n3"] = 90
	_, err = w.look().recoverRange(ctx, "lines", 0, adminapi.RecoverRequest{From: "n4", DryRun: true})
	wantRefusal(t, err, adminapi.CodeNotFound)
	plan, err := w.look().recoverRange(ctx, "lines", 0, adminapi.RecoverRequest{From: "n3", DryRun: true})
	must(t, err)
	if plan.Applied || plan.KeepEnd != 90 || len(plan.Lost) != 1 || plan.Lost[0] != (adminapi.LostOffsets{From: 90, To: 100, Promised: true}) || len(plan.Warnings) != 2 {
		t.Fatalf("plan %+v", plan)
	}
	if w.rng().Floor != 100 {
		t.Fatal("a dry run changed the range")
	}
	do := adminapi.RecoverRequest{From: "n3", AcceptDataLoss: true, ConfigVersion: plan.ConfigVersion + 1}
	_, err = w.look().recoverRange(ctx, "lines", 0, do)
	wantRefusal(t, err, adminapi.CodeConflict) // another plan was agreed to
	do.ConfigVersion = plan.ConfigVersion
	_, err = w.look().recoverRange(ctx, "lines", 0, do)
	wantRefusal(t, err, adminapi.CodeConflict) // nobody knows when the holder was last heard
	p := w.look()
	p.judge = &adminapi.Local{Verdicts: []adminapi.LocalVerdict{{Node: "n1", SilentMS: 60_000}, {Node: "n3", Alive: true}}}
	plan, err = p.recoverRange(ctx, "lines", 0, do)
	must(t, err)
	r := w.rng()
	if !plan.Applied || plan.Epoch != 2 || r.Floor != 90 || len(r.Replicas) != 1 || r.Replicas[0].Node != "n3" || len(r.LostOffsets) != 1 {
		t.Fatalf("plan %+v, range %+v", plan, r)
	}
	// Case: lost offsets are told with the range from now on.
	if l := r.LostOffsets[0]; l.From != 90 || l.To != 100 || l.Floor != 100 {
		t.Fatalf("noted %+v", l)
	}
}

// E3: what a voter cannot read in the midst of its log is told before anybody chooses what to keep.
func TestRecover_DamagedSegmentsAreTold(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	w.down["n1"] = true
	w.noRaft = false
	w.ends["n2"], w.ends["n3"] = 90, 100
	w.lose("n1")
	w.lose("n2")
	w.problems["n3"] = []adminapi.Problem{{Kind: kindDamaged, Subject: "lines/0", Message: "segment 0: chunk 0"}}
	plan, err := w.look().recoverRange(ctx, "lines", 0, adminapi.RecoverRequest{From: "n3", DryRun: true})
	must(t, err)
	told := slices.ContainsFunc(plan.Warnings, func(r adminapi.Reason) bool {
		return r.Subject == "n3" && strings.Contains(r.Message, "chunk 0") && r.Hint != ""
	})
	kept := slices.IndexFunc(plan.Voters, func(v adminapi.RecoverVoter) bool { return v.Node == "n3" })
	if !told || kept < 0 || plan.Voters[kept].State != "damaged" || plan.Voters[kept].LogEnd != 100 {
		t.Fatalf("the plan keeps a replica with a damaged segment and says %+v", plan)
	}
}

// TestProvenEnd (I8): what stands where a later epoch began was never committed, and is not what is kept.
func TestProvenEnd(t *testing.T) {
	table := vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 50}, {Epoch: 5, Start: 80}}
	for _, row := range []struct {
		end  vtop.Offset
		last vtop.Epoch
		want vtop.Offset
	}{{70, 1, 50}, {40, 1, 40}, {90, 3, 80}, {90, 5, 90}, {90, 4, 80}, {90, 6, 90}} {
		if got := provenEnd(table, row.end, row.last); got != row.want {
			t.Errorf("end %d of epoch %d: %d, want %d", row.end, row.last, got, row.want)
		}
	}
}
