package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

// Whatever takes away what a job works for ends the job in the same entry, with a cause; nobody has to notice.
func TestRepairs_EndWithWhatTheyWorkFor(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(w *world, learner vtop.ReplicaID)
		step  RepairStep
		cause string
	}{
		"the topic is deleted":       {func(w *world, _ vtop.ReplicaID) { w.ok(&DeleteTopic{ID: uuid(1)}) }, RepairCancelled, "deleted"},
		"the destination is removed": {func(w *world, _ vtop.ReplicaID) { w.ok(&RemoveNode{Name: "n4"}) }, RepairFailed, "removed from the cluster"},
		"the range is recovered from another": {func(w *world, _ vtop.ReplicaID) {
			w.ok(w.recoverOf("n3", 0, 0))
		}, RepairFailed, "removed from the range"},
		"the runner gives up": {func(w *world, _ vtop.ReplicaID) { w.step(1, RepairFailed, failed) }, RepairFailed, "disk full"},
	} {
		w := newWorld(t)
		w.lead("n1", 0)
		id := w.submit(requestTo("n4"))
		learner := w.adopt(id)
		c.do(w, learner)
		j := w.job(id)
		if j.Step != c.step || !strings.Contains(j.Cause, c.cause) || j.Name != "lines/0" || j.Ended != w.s.Index() {
			t.Errorf("%s: job %+v", name, j)
		}
		if r, ok := w.s.Range(r0); ok {
			if _, there := r.On("n4"); there {
				t.Errorf("%s: the learner is still there", name)
			}
		}
		for range w.s.RepairsTo("n4") {
			t.Errorf("%s: still active", name)
		}
	}
}

// A node is declared gone before its job has a replica, and by the older command, too.
func TestUpdateNode_GoneEndsRepairs(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	id := w.submit(requestTo("n4"))
	w.ok(&UpdateNode{Name: "n4", State: NodeGone})
	if j := w.job(id); j.Step != RepairFailed || j.Outcome != OutcomeFailed || j.Cause == "" {
		t.Errorf("job %+v", j)
	}
}

// A learner that may have forgotten is no beginning: the job begins anew, under a new replica id (I10), and not for ever (I13).
func TestRepairs_BeginAnewWhenTheReplicaIsLost(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	id := w.submit(requestTo("n4"))
	for disk := uint64(1); ; disk++ {
		learner := w.adopt(id)
		before := *w.job(id)
		w.refused(&RegisterNode{Name: "n4", Identity: identityOf("n4", disk, 1)}, CodePending)
		w.ok(&AdmitPending{Name: "n4", Storage: identityOf("n4", disk, 1).Storage, Reason: "node replace"})
		j := w.job(id)
		if before.Attempts == MaxRepairAttempts {
			if j.Step != RepairFailed || !strings.Contains(j.Cause, "may have forgotten") {
				t.Errorf("I13: job %+v", j)
			}
			break
		}
		if j.Step != RepairQueued || j.Replica != 0 || j.StepVersion != before.StepVersion+1 || j.Attempts != before.Attempts+1 || j.LastError == "" {
			t.Fatalf("job %+v", j)
		}
		w.ok(w.changeOf(RemoveLearner, "", learner)) // the leader clears up: it is not the job's any more
		if !w.job(id).Active() {
			t.Fatalf("job %+v", w.job(id))
		}
	}
}

// Holes are filled in a replica that stays.
func TestRepairs_Holes(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(100, 100)
	q := requestTo("n2")
	q.Holes = true
	w.ok(&UpdateNode{Name: "n2", State: NodeDraining}) // even there
	id := w.submit(q)
	if w.job(id).Replica != w.replicaOn("n2") {
		t.Fatalf("job %+v", w.job(id))
	}
	w.step(id, RepairTransferring, func(p *RepairProgress) { p.Replica = 0 })
	if w.job(id).Replica != w.replicaOn("n2") {
		t.Error("I10: the job forgot which replica it fills")
	}
	w.step(id, RepairDone, whole)
	id = w.submit(q)
	w.ok(&CancelRepairs{IDs: []RepairID{id}, Reason: "x"})
	if _, ok := w.rng(r0).VoterOn("n2"); !ok {
		t.Fatal("I1: cancelling took the replica away")
	}
	id = w.submit(q)
	w.ok(w.lostOf("n2", w.replicaOn("n2")))
	if j := w.job(id); j.Step != RepairFailed || !strings.Contains(j.Cause, "repair it whole") {
		t.Errorf("I10: job %+v", j)
	}
}

// Jobs that ended are kept up to a limit, those that ended last; active ones are refused beyond theirs (I13).
func TestRepairs_AreBounded(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	keeps := w.submit(requestTo("n5")) // older than all, and ends last
	for range MaxEndedRepairs + 3 {
		id := w.s.lastRepair + 1
		s, outs := w.s.Apply(w.s.Index()+1, &SubmitRepairs{Items: []RepairRequest{requestTo("n4")}}, &CancelRepairs{IDs: []RepairID{id}, Reason: "x"})
		if outs[1].Items[0].Refusal != nil {
			t.Fatal(outs)
		}
		w.s = s
	}
	w.ok(&CancelRepairs{IDs: []RepairID{keeps}, Reason: "x"})
	if n := w.s.repairs.Len(); n != MaxEndedRepairs {
		t.Errorf("%d jobs are kept", n)
	}
	if _, ok := w.s.Repair(keeps); !ok {
		t.Error("the job that ended last was forgotten")
	}
	if _, ok := w.s.Repair(keeps + 1); ok {
		t.Error("the job that ended first is still there")
	}

	places := make([][]vtop.NodeName, MaxRangesPerTopic)
	for i := range places {
		places[i] = []vtop.NodeName{"n1"}
	}
	w.ok(&CreateTopic{ID: uuid(2), Name: "many", Ranges: places})
	cmd := &SubmitRepairs{Items: []RepairRequest{requestTo("n4")}}
	for i := range int32(MaxActiveRepairs) {
		cmd.Items = append(cmd.Items, RepairRequest{Range: rangeID(2, i), Destination: "n4", Origin: OriginOperator})
	}
	out := w.do(cmd)
	if last := out.Items[MaxActiveRepairs]; last.Refusal == nil || last.Refusal.Code != CodeLimit || out.Items[MaxActiveRepairs-1].Refusal != nil {
		t.Errorf("the last item: %+v", last)
	}
	if again := w.do(cmd); again.Items[5].Repair != out.Items[5].Repair || !again.Items[5].Existing {
		t.Errorf("again: %+v", again.Items[5])
	}
	w.ok(&DeleteTopic{ID: uuid(2)})
	if w.s.ActiveRepairCount() != 1 || w.s.repairs.Len() != 1+MaxEndedRepairs {
		t.Errorf("%d active of %d", w.s.ActiveRepairCount(), w.s.repairs.Len())
	}
}

func TestRemoveNode(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	out := w.refused(&RemoveNode{Name: "n1"}, CodeInUse)
	if m := out.Refusal.Message; !strings.Contains(m, "holds 1 leases (lines/0)") || !strings.Contains(m, "2 voters (lines/0, lines/1)") {
		t.Errorf("message %q", m)
	}
	w.ok(w.lostOf("n2", w.replicaOn("n2")))
	w.refused(&RemoveNode{Name: "n2"}, CodeInUse) // a lost voter counts in the quorum's size: its leader removes it
	w.refused(&RemoveNode{Name: "n9"}, CodeUnknownNode)
	w.refused(&RemoveNode{Name: "n4", Incarnation: 2}, CodeStaleIncarnation)

	learner := w.ok(w.changeOf(AddLearner, "n4", 0)).ReplicaID
	w.refused(&RegisterNode{Name: "n4", Identity: identityOf("n4", 1, 1)}, CodePending)
	config := w.rng(r0).ConfigVersion
	w.ok(&RemoveNode{Name: "n4", Incarnation: 1})
	if _, ok := w.rng(r0).Replica(learner); ok || w.rng(r0).ConfigVersion != config+1 {
		t.Errorf("range %+v", w.rng(r0))
	}
	if n := w.node("n4"); n.State != NodeGone || n.Broker != 4 || len(n.Pending) != 0 {
		t.Errorf("node %+v", n)
	}
	w.ok(&RemoveNode{Name: "n4"}) // a repeat
	places := make([][]vtop.NodeName, 13)
	for i := range places {
		places[i] = []vtop.NodeName{"n5"}
	}
	w.ok(&CreateTopic{ID: uuid(2), Name: "many", Ranges: places})
	if m := w.refused(&RemoveNode{Name: "n5"}, CodeInUse).Refusal.Message; !strings.Contains(m, "many/9 and 3 more") || len(m) > MaxText {
		t.Errorf("message %q", m)
	}
}

// repairState holds jobs of several kinds, with every field set somewhere, and a range that was recovered.
func repairState(t *testing.T) *State {
	t.Helper()
	w := newWorld(t)
	w.lead("n1", 0)
	w.report(9, 9)
	w.submit(RepairRequest{
		Range: r0, Destination: "n4", Replace: "n3", SealTail: true, Sources: []vtop.NodeName{"n1"}, MaxRate: 9, Origin: OriginDrain, Reason: "why",
	})
	w.adopt(1)
	w.step(1, RepairCatchingUp, func(p *RepairProgress) {
		replica := p.Replica
		*p = everyProgress()
		p.Replica, p.Outcome, p.Voter = replica, OutcomeNone, false
	})
	w.ok(&SubmitRepairs{Items: []RepairRequest{{Range: rangeID(1, 1), Destination: "n5", Origin: OriginHeal}}, At: 3})
	w.step(2, RepairFailed, failed)
	holes := requestTo("n3")
	holes.Holes, holes.Config = true, w.rng(r0).ConfigVersion
	w.submit(holes)
	w.step(3, RepairDone, whole)
	w.submit(RepairRequest{Range: rangeID(1, 1), Destination: "n4", Origin: OriginOperator})
	w.ok(&SetHeal{Paused: true, Why: "why", At: 8})
	w.ok(w.recoverOf("n2", 5, 12))
	return w.s
}

func TestRepairs_SaveAndLoadEveryField(t *testing.T) {
	s := repairState(t)
	saved := save(t, s)
	back, err := Load(bytes.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	a, b := contents(s), contents(back)
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Errorf("saved  %+v\nloaded %+v", a[i], b[i])
		}
	}
	if len(a) != len(b) || s.Hash() != back.Hash() {
		t.Errorf("%d objects saved, %d loaded", len(a), len(b))
	}
	compareGolden(t, "testdata/snapshot_repair.golden", []byte(hex.EncodeToString(saved)+"\n"))
	first, _ := s.Repair(1)
	job := putRepair(first)
	twice := rewrite(func(w *recordWriter) { w.record(recordCluster, s.putCluster()) },
		func(w *recordWriter) { w.record(recordRepair, job) }, func(w *recordWriter) { w.record(recordRepair, job) })
	if _, err := Load(bytes.NewReader(twice)); err == nil || !strings.Contains(err.Error(), "repair job 1 twice") {
		t.Errorf("one job twice: %v", err)
	}
}

// What a machine's observers are told of jobs.
func TestMachine_TellsOfRepairs(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	m := New(Options{})
	m.Replace(w.s)
	var seen []string
	m.Observe(func(c Change) { seen = append(seen, fmt.Sprintf("%t %t %d", c.Repairs, c.Nodes, len(c.Ranges))) })
	next := w.s.Index() + 1
	m.ApplyCommands(next, &SubmitRepairs{Items: []RepairRequest{requestTo("n4")}})
	m.ApplyCommands(next+1, &SetHeal{Paused: true})
	m.ApplyCommands(next+2, &AllocateProducerIDs{Node: "n1", Incarnation: 1, Count: 1})
	m.ApplyCommands(next+3, &DeleteTopic{ID: uuid(1)})
	if want := []string{"true false 0", "false true 0", "false false 0", "true false 2"}; !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}
