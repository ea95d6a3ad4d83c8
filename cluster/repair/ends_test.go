package repair

import (
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// Every wait has an end: a learner that nobody makes a voter, for whatever reason, ends its job when its patience has.
func TestRunner_PatienceAfterTheAdoption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.tune = func(c *Config) { c.Patience = time.Minute }
		w.segments(1, 200_000)
		w.start()
		id, began := w.submit(), time.Now()
		w.awaitStep(id, fsm.RepairCatchingUp)
		var job *fsm.RepairJob
		for job = w.job(id); job.Active(); job = w.job(id) { // the leader feeds it, and does no more
			if log := w.dest.Get(w.rng); log != nil && log.ReplicaID() == job.Replica {
				w.follow(log)
			}
			time.Sleep(time.Second)
			if time.Since(began) > time.Hour {
				t.Fatalf("the job is %s: %s", job.Step, job.Waiting)
			}
		}
		if job.Outcome != fsm.OutcomeFailed || !strings.Contains(job.Cause, "has not made replica") {
			t.Fatalf("ended as %s: %s", job.Outcome, job.Cause)
		}
		if n := len(w.state().Learners()); n != 0 {
			t.Errorf("%d learners are left", n)
		}
	})
}

// A majority that is lost is the operator's to end: what was received may be all that is left, and the job keeps it.
func TestRunner_NoPatienceEndsWhileTheMajorityIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.tune = func(c *Config) { c.Patience = time.Minute }
		w.segments(1, 200_000)
		w.slowly(fsm.RepairPromoting)
		w.start()
		id := w.submit()
		w.awaitStep(id, fsm.RepairCatchingUp)
		w.lose("b")
		w.lose("c")
		for range 600 {
			if log := w.dest.Get(w.rng); log != nil {
				w.follow(log)
			}
			time.Sleep(time.Second)
		}
		if job := w.job(id); !job.Active() {
			t.Fatalf("ended as %s: %s", job.Outcome, job.Cause)
		}
	})
}

// A voter that came to the replaced node after the job's replica is not meant: the job does not wait for it to go.
func TestRunner_ReplacedNodeHasANewVoter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(1, 200_000)
		w.start()
		id := w.submit(func(q *fsm.RepairRequest) { q.Replace = "c" })
		w.awaitStep(id, fsm.RepairCatchingUp)
		w.stop()
		learner := w.job(id).Replica
		old := w.replicaOf("c")
		w.follow(w.dest.Get(w.rng))
		w.change(fsm.PromoteLearner, learner)
		w.change(fsm.RemoveVoter, old)
		rg := w.state()
		later := w.must(&fsm.ChangeReplicas{Range: w.rng, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Change: fsm.AddLearner, Node: "c", SettleMark: w.leader.End()}).ReplicaID
		w.change(fsm.PromoteLearner, later)
		w.start()
		job := w.finish(id)
		w.whole(job)
		if _, stays := w.state().Replica(later); !stays {
			t.Error("the later voter went")
		}
	})
}
