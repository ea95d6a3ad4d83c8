package repair

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
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

// A learner that comes nearer, however slowly, brings something: patience is for those that don't.
func TestRunner_PatienceIsNotForTheSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.tune = func(c *Config) { c.Patience = time.Minute }
		w.segments(1, 200_000)
		for range 20 {
			w.write(1000)
		}
		w.start()
		id := w.submit()
		w.awaitStep(id, fsm.RepairCatchingUp)
		synctestWait()
		log := w.dest.Get(w.rng)
		for log.End() < w.leader.End() {
			records, _, base, err := w.leader.ReadPeer(log.End(), 1, w.leader.End(), nil) // one batch
			ok(t, err)
			_, err = log.AppendFollow(w.state().Lease.Epoch, vtop.FenceFollow, base, records)
			ok(t, err)
			ok(t, log.Flush(context.Background()))
			time.Sleep(40 * time.Second)
			if job := w.job(id); !job.Active() {
				t.Fatalf("ended at %d of %d: %s", log.End(), w.leader.End(), job.Cause)
			}
		}
		w.whole(w.finish(id))
	})
}

// A replica that turns out to be lost is not waited for: it has no holes any more that could be filled.
func TestRunner_HoleOfALostReplica(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "c")
		w.segments(2, 200_000)
		w.write(1000)
		log := w.copyOf(w.replicaOf("c"))
		tail := log.Segments()[len(log.Segments())-1].Base
		w.flip(0)
		if err := log.VerifySegment(context.Background(), 0); !errors.Is(err, vtop.ErrDamaged) {
			t.Fatalf("the flipped bit: %v", err)
		}
		ok(t, os.Remove(segmentFile(w.dirs[1], w.rng, tail)))
		if err := log.CheckNames(); !errors.Is(err, vtop.ErrReplicaLost) {
			t.Fatalf("the removed tail of %s: %v", filepath.Join(w.dirs[1], "ranges"), err)
		}
		w.start()
		began := time.Now()
		job := w.await(w.submit(func(q *fsm.RepairRequest) { q.Holes = true }), "ended", func(j *fsm.RepairJob) bool { return !j.Active() })
		if job.Outcome != fsm.OutcomeFailed || !strings.Contains(job.Cause, "rebuilt as a whole") {
			t.Errorf("%s: %s, after %s", job.Outcome, job.Cause, time.Since(began))
		}
	})
}

// The destination may lead by the time when its job waits for the replaced voter to go: the job says what it waits for, and not for itself.
func TestRunner_WaitsForNobodyWhereItLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(1, 200_000)
		w.start()
		id := w.submit(func(q *fsm.RepairRequest) { q.Replace = "c" })
		w.awaitStep(id, fsm.RepairCatchingUp)
		w.follow(w.dest.Get(w.rng))
		w.change(fsm.PromoteLearner, w.job(id).Replica)
		w.lead("d", w.leader.End())
		w.floor()
		job := w.await(id, "waiting for the replaced voter", func(j *fsm.RepairJob) bool {
			return j.Step == fsm.RepairPromoting && j.Waiting != ""
		})
		if !strings.Contains(job.Waiting, "has not left the voters yet") {
			t.Errorf("it says %q", job.Waiting)
		}
		w.whole(w.finish(id))
	})
}
