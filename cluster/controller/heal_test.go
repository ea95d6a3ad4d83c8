package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

const healAfter = time.Minute

// jobs lists the active jobs, the oldest first.
func (w *world) jobs() (out []*fsm.RepairJob) {
	for j := range w.machine.State().Repairs() {
		if j.Active() {
			out = append(out, j)
		}
	}
	return out
}

func (w *world) oneJob() *fsm.RepairJob {
	w.t.Helper()
	jobs := w.jobs()
	if len(jobs) != 1 {
		w.t.Fatalf("%d jobs: %+v; healing %+v", len(jobs), jobs, w.control.Healing())
	}
	return jobs[0]
}

func (w *world) noJob(when string) {
	w.t.Helper()
	if jobs := w.jobs(); len(jobs) != 0 {
		w.t.Fatalf("%s: %+v", when, jobs[0])
	}
}

// seal has the holder register a segment.
func (w *world) seal(end vtop.Offset) {
	w.t.Helper()
	r := w.rangeOf()
	w.must(&fsm.RegisterSegment{Range: r.ID, Epoch: r.Lease.Epoch, Config: r.ConfigVersion, Base: r.CatalogueEnd, End: end, Bytes: 1, Root: [32]byte{1}, SealedAt: 1})
}

// report settles what the holder changed last.
func (w *world) report(at vtop.Offset) {
	w.t.Helper()
	r := w.rangeOf()
	w.must(floors(r, r.ConfigVersion, at))
}

func floors(r *fsm.Range, config uint64, at vtop.Offset) *fsm.ReportFloors {
	return &fsm.ReportFloors{Items: []fsm.FloorReport{{Range: r.ID, Epoch: r.Lease.Epoch, Config: config, Floor: at, QuorumPosition: at, LogEnd: at}}}
}

// change has the holder change the replicas and settle that at once: the controller may move the lease as soon as it sees the change.
func (w *world) change(kind fsm.ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) vtop.ReplicaID {
	w.t.Helper()
	r := w.rangeOf()
	out := w.must(
		&fsm.ChangeReplicas{Range: r.ID, Epoch: r.Lease.Epoch, Config: r.ConfigVersion, Change: kind, Node: node, ReplicaID: id, SettleMark: max(r.Floor, 10)},
		floors(r, r.ConfigVersion+1, 10))
	return out.ReplicaID
}

// step has the destination tell of a job.
func (w *world) step(j *fsm.RepairJob, step fsm.RepairStep, replica vtop.ReplicaID) {
	w.t.Helper()
	now, _ := w.machine.State().Repair(j.ID)
	p := now.RepairProgress
	p.Replica = replica
	if step == fsm.RepairDone {
		p.Outcome, p.Voter, p.LogEnd, p.Floor = fsm.OutcomeWhole, true, 10, 10
	}
	w.must(&fsm.UpdateRepairs{Node: j.Destination, Incarnation: w.lives[j.Destination], At: 1, Items: []fsm.RepairUpdate{{ID: j.ID, StepVersion: now.StepVersion, Step: step, Progress: p}}})
}

func (w *world) spare(names ...vtop.NodeName) {
	for _, n := range names {
		w.set(func() { w.silent[n] = false })
		w.register(n, 1)
	}
}

func (w *world) hush(names ...vtop.NodeName) {
	for _, n := range names {
		w.set(func() { w.silent[n] = true })
	}
}

func TestHeal_SilentNodeIsReplacedInAnotherRackByTheEmptiest(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.racks["n4"], w.racks["n5"], w.racks["n6"] = "east", "west", "west"
		w.spare("n4", "n5", "n6")
		w.must(&fsm.UpdateNode{Name: "n1", Rack: new("east")})
		w.must(&fsm.UpdateNode{Name: "n2", Rack: new("north")})
		w.must(&fsm.CreateTopic{ID: vtop.UUID{8}, Name: "other", Ranges: [][]vtop.NodeName{{"n5"}}, At: 1})
		w.pass(time.Second)
		w.startAll()
		w.hush("n3")
		w.pass(healAfter - 2*time.Second)
		w.noJob("before its time")
		w.pass(5 * time.Second)
		j := w.oneJob()
		if j.Destination != "n6" || j.Replace != "n3" || j.Origin != fsm.OriginHeal || j.SealTail || !strings.Contains(j.Reason, "n3 has been silent") {
			t.Fatalf("job %+v", j.RepairRequest)
		}
		w.pass(time.Minute)
		if w.oneJob().ID != j.ID {
			t.Fatal("a second job for the same replica")
		}
	})
}

// startAll starts the epochs of all ranges that were granted.
func (w *world) startAll() {
	w.t.Helper()
	for r := range w.machine.State().Ranges() {
		if r.Lease.Holder != "" && !r.Started {
			w.must(&fsm.StartEpochs{At: 1, Items: []fsm.EpochStart{{Range: r.ID, Epoch: r.Lease.Epoch, Start: 0}}})
		}
	}
}

func TestHeal_NodeThatComesBackKeepsItsPlace(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4")
		w.pass(time.Second)
		w.startAll()
		w.hush("n3")
		w.pass(healAfter + 5*time.Second)
		j := w.oneJob()
		w.step(j, fsm.RepairAdopting, 0)
		w.step(j, fsm.RepairCatchingUp, w.change(fsm.AddLearner, "n4", 0))
		w.set(func() { w.silent["n3"] = false })
		w.pass(3 * time.Second)
		w.noJob("the node is back")
		ended, _ := w.machine.State().Repair(j.ID)
		if ended.Step != fsm.RepairCancelled || ended.Cause != "n3 is back" || len(w.rangeOf().Replicas) != 3 {
			t.Fatalf("job %s %q, replicas %+v", ended.Step, ended.Cause, w.rangeOf().Replicas)
		}
		// Case: it goes again, and the next job comes after a pause.
		w.hush("n3")
		w.pass(healAfter + 5*time.Second)
		w.oneJob()
	})
}

func TestHeal_PauseIsRespected(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4")
		w.pass(time.Second)
		w.startAll()
		w.must(&fsm.SetHeal{Paused: true, Why: "moving house", At: 1})
		w.hush("n3")
		w.pass(2 * healAfter)
		w.noJob("paused")
		// Case: a drain is not healing.
		w.must(&fsm.UpdateNode{Name: "n3", State: fsm.NodeDraining})
		w.pass(3 * time.Second)
		if len(w.jobs()) != 0 {
			t.Fatal("n3 is missed, and healing is paused") // what is dead is healed, not drained
		}
		w.set(func() { w.silent["n3"] = false })
		w.pass(3 * time.Second)
		if j := w.oneJob(); j.Origin != fsm.OriginDrain {
			t.Fatalf("job %+v", j.RepairRequest)
		}
	})
}

func TestHeal_NoSpareIsSaidAtOnce(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.pass(time.Second)
		w.startAll()
		w.must(&fsm.UpdateNode{Name: "n3", State: fsm.NodeDraining})
		w.pass(2 * time.Second)
		w.noJob("nowhere to go")
		if why := w.control.Healing().Stuck[w.rangeOf().ID]; !strings.Contains(why, "n3 is draining") || !strings.Contains(why, "n1, n2") {
			t.Fatalf("stuck: %q", why)
		}
		w.spare("n4")
		w.pass(3 * time.Second)
		if j := w.oneJob(); j.Destination != "n4" || j.Replace != "n3" {
			t.Fatalf("job %+v", j.RepairRequest)
		}
		if why := w.control.Healing().Stuck[w.rangeOf().ID]; why != "" {
			t.Fatalf("still stuck: %s", why)
		}
		// Case: the drain is cancelled.
		w.must(&fsm.UpdateNode{Name: "n3", State: fsm.NodeActive})
		w.pass(2 * time.Second)
		w.noJob("not draining any more")
	})
}

// Two of three voters are dead: a change could leave fewer than a majority alive, so none begins.
func TestHeal_NothingIsReplacedWithoutALivingMajority(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4")
		w.pass(time.Second)
		w.must(&fsm.GrantLeases{At: 1, Items: []fsm.Grant{{Range: w.rangeOf().ID, Holder: "n1", Incarnation: 1, Expected: w.rangeOf().LastEpoch, Reason: "test"}}})
		w.startAll()
		w.hush("n2", "n3")
		w.pass(healAfter + 5*time.Second)
		w.noJob("no majority")
		if why := w.control.Healing().Stuck[w.rangeOf().ID]; !strings.Contains(why, "only 1 of 3 voters are alive") {
			t.Fatalf("stuck: %q", why)
		}
	})
}

// A lost replica is rebuilt where it was while its node lives: by a job where segments are sealed, else by the leader alone.
func TestHeal_LostReplicaIsRebuiltWhereItWas(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4")
		w.pass(time.Second)
		w.startAll()
		r := w.rangeOf()
		w.must(&fsm.MarkReplicasLost{Node: "n3", Storage: vtop.UUID{1, '3'}, Incarnation: 1, Reason: "test", Items: []fsm.LostReplica{{Range: r.ID, ReplicaID: w.voter("n3")}}})
		w.pass(5 * time.Second)
		w.noJob("nothing is sealed")
		w.seal(10)
		w.pass(3 * time.Second)
		if j := w.oneJob(); j.Destination != "n3" || j.Replace != "n3" || j.Origin != fsm.OriginHeal {
			t.Fatalf("job %+v", j.RepairRequest)
		}
		// Case: its node goes, too: the job ends, and another one goes elsewhere.
		w.hush("n3")
		w.pass(healAfter + 10*time.Second)
		if j := w.oneJob(); j.Destination != "n4" || j.Replace != "n3" {
			t.Fatalf("job %+v", j.RepairRequest)
		}
	})
}

// Few at a time, and the next ones as those end.
func TestHeal_AFewAtATime(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4", "n5")
		id := vtop.UUID{8}
		cmd := &fsm.CreateTopic{ID: id, Name: "wide", At: 1}
		for range 10 {
			cmd.Ranges = append(cmd.Ranges, []vtop.NodeName{"n1", "n2", "n3"})
		}
		w.must(cmd)
		w.pass(time.Second)
		w.startAll()
		w.hush("n3")
		w.pass(healAfter + 5*time.Second)
		jobs := w.jobs()
		if len(jobs) != 2 || jobs[0].Destination == jobs[1].Destination {
			t.Fatalf("%d jobs: want 2 to two nodes", len(jobs))
		}
		if h := w.control.Healing(); h.Running != 2 || h.Limit != 2 {
			t.Fatalf("healing %+v", h)
		}
		w.must(&fsm.CancelRepairs{IDs: []fsm.RepairID{jobs[0].ID}, Reason: "test", At: 1})
		w.pass(3 * time.Second)
		next := w.jobs()
		if len(next) != 2 || slices.ContainsFunc(next, func(j *fsm.RepairJob) bool { return j.Range == jobs[0].Range }) {
			t.Fatalf("after one was cancelled: another range first, %+v", next)
		}
		w.pass(time.Minute)
		if len(w.jobs()) != 2 {
			t.Fatal("more than two")
		}
	})
}

// A holder that is replaced never removes itself: its successor votes, then gets the lease, be the job done by then or not.
func TestHeal_HolderThatIsReplacedHandsOver(t *testing.T) {
	for name, done := range map[string]bool{"promoting": false, "done": true} {
		t.Run(name, func(t *testing.T) {
			runHealing(t, healAfter, func(w *world) {
				w.spare("n4")
				w.pass(time.Second)
				w.started(10)
				w.report(10)
				w.must(&fsm.SubmitRepairs{At: 1, Items: []fsm.RepairRequest{{Range: w.rangeOf().ID, Destination: "n4", Replace: "n2", Origin: fsm.OriginReplace, Reason: "test"}}})
				j := w.oneJob()
				w.pass(3 * time.Second)
				w.wantHolder("n2", 1)
				w.step(j, fsm.RepairAdopting, 0)
				learner := w.change(fsm.AddLearner, "n4", 0)
				w.step(j, fsm.RepairCatchingUp, learner)
				w.step(j, fsm.RepairPromoting, learner)
				w.pass(3 * time.Second)
				w.wantHolder("n2", 1)
				w.change(fsm.PromoteLearner, "", learner)
				if done {
					w.step(j, fsm.RepairDone, learner)
				}
				w.pass(3 * time.Second)
				r := w.rangeOf()
				if r.Lease.Holder == "n2" || r.Lease.Epoch != 2 {
					t.Fatalf("lease %+v", r.Lease)
				}
				w.started(10)
				w.pass(time.Minute)
				if now := w.rangeOf().Lease; now.Holder == "n2" {
					t.Fatalf("the lease went back to the node that is replaced: %+v", now)
				}
			})
		})
	}
}

// A range that lost a voter on the way of a repair that ended gets another one.
func TestHeal_TooFewVoters(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.spare("n4")
		w.pass(time.Second)
		w.started(10)
		w.report(10)
		w.change(fsm.RemoveVoter, "", w.voter("n3"))
		w.pass(3 * time.Second)
		if j := w.oneJob(); j.Replace != "" || j.Destination != "n3" && j.Destination != "n4" || !strings.Contains(j.Reason, "2 voters of 3") {
			t.Fatalf("job %+v", j.RepairRequest)
		}
	})
}

func TestController_WholeVoterLeadsRatherThanDamaged(t *testing.T) {
	run(t, func(w *world) {
		w.pass(time.Second)
		r := w.started(0)
		w.set(func() { w.ends["n1"] = []LogEnd{{Range: r.ID, End: 12, LastEpoch: 1, Damaged: true}} })
		w.set(func() { w.ends["n3"] = []LogEnd{{Range: r.ID, End: 10, LastEpoch: 1}} })
		w.hush("n2")
		w.pass(4 * time.Second)
		w.wantHolder("n3", 2)
	})
}

// A holder that a reassignment took off hands over once all nodes that are wanted vote and live, and not before.
func TestHeal_HolderThatIsNotWantedHandsOver(t *testing.T) {
	runHealing(t, healAfter, func(w *world) {
		w.pass(time.Second)
		w.started(10)
		w.report(10)
		if _, err := w.control.Transfer(t.Context(), w.rangeOf().ID, "n1", 0); err != nil { // it stays where it was asked for
			t.Fatal(err)
		}
		w.started(10)
		w.report(10)
		w.hush("n3")
		w.pass(10 * time.Second)
		w.must(&fsm.SetPreferred{Items: []fsm.Preference{{Range: w.rangeOf().ID, Nodes: []vtop.NodeName{"n2", "n3"}}}})
		w.pass(5 * time.Second)
		w.wantHolder("n1", 2)
		w.set(func() { w.silent["n3"] = false })
		w.pass(5 * time.Second)
		r := w.rangeOf()
		if r.Lease.Holder != "n2" && r.Lease.Holder != "n3" || r.Lease.Epoch != 3 || !strings.Contains(r.GrantReason, "n1 is not among the nodes") {
			t.Fatalf("lease %+v, %s", r.Lease, r.GrantReason)
		}
		w.started(10)
		w.pass(time.Minute)
		w.noJob("fewer replicas are wanted")
	})
}
