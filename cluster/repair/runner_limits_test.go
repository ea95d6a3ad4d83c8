package repair

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

// A deleted topic ends its job.
func TestRunner_TopicDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 2_200_000)
		w.slowly(fsm.RepairTransferring)
		w.start()
		id := w.submit()
		w.awaitStep(id, fsm.RepairTransferring)
		w.must(&fsm.DeleteTopic{ID: w.topic})
		w.quick()
		job := w.await(id, "ended", func(j *fsm.RepairJob) bool { return !j.Active() })
		synctestWait()
		if left := w.dest.Stagings(); job.Step != fsm.RepairCancelled || len(left) != 0 {
			t.Errorf("%s, left in the staging: %+v", job.Step, left)
		}
	})
}

// A full disk stops the job where it is, says so, and lets it go on when there is room.
func TestRunner_DiskFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 2_200_000)
		w.fs.SetFree(10, 1<<30)
		ok(t, w.dest.Close())
		w.dest = w.openStoreReserve(1 << 20)
		w.start()
		id := w.submit()
		w.await(id, "waiting for room", func(j *fsm.RepairJob) bool { return strings.Contains(j.Waiting, "full") })
		w.fs.SetFree(1<<30, 1<<30)
		ok(t, w.dest.Tick())
		w.whole(w.finish(id))
	})
}

// The disk fails some calls; the job goes on.
func TestRunner_DiskFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 1_200_000)
		w.start()
		w.failSome(9)
		id := w.submit()
		job := w.finish(id)
		w.fs.SetHook(nil)
		w.whole(job)
	})
}

// I12: the destination became whole by itself: there is nothing to repair, and the position is read back.
func TestRunner_WholeMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(2, 200_000)
		id := w.submit()
		rg := w.state()
		out := w.must(&fsm.ChangeReplicas{Range: w.rng, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Change: fsm.AddLearner, Node: "d", SettleMark: w.leader.End()})
		w.copyOf(out.ReplicaID)
		w.change(fsm.PromoteLearner, out.ReplicaID)
		w.start()
		job := w.finish(id)
		if job.Outcome != fsm.OutcomeWhole || job.Replica != out.ReplicaID || len(w.peers.chunks) != 0 {
			t.Errorf("ended as %+v, fetched %v", job, w.peers.chunks)
		}
	})
}

// At most two jobs receive at a time, the oldest first; those that wait say so.
func TestRunner_TwoAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.must(&fsm.CreateTopic{ID: id(10), Name: "more", Ranges: [][]vtop.NodeName{{"a", "b", "c"}, {"a", "b", "c"}}})
		w.segments(2, 200_000)
		w.slowly(fsm.RepairTransferring)
		w.start()
		first := w.submit()
		w.awaitStep(first, fsm.RepairTransferring)
		for i := range int32(2) {
			rng := vtop.Range{Topic: id(10), Index: i}
			out := w.must(&fsm.GrantLeases{Items: []fsm.Grant{{Range: rng, Holder: "a", Incarnation: 1, Expected: 0, Reason: "test"}}})
			w.must(&fsm.StartEpochs{Items: []fsm.EpochStart{{Range: rng, Epoch: out.Items[0].Epoch}}})
		}
		second := w.submit(func(q *fsm.RepairRequest) { q.Range = vtop.Range{Topic: id(10)} })
		w.awaitStep(second, fsm.RepairSealing)
		third := w.submit(func(q *fsm.RepairRequest) { q.Range = vtop.Range{Topic: id(10), Index: 1} })
		job := w.await(third, "waiting for its turn", func(j *fsm.RepairJob) bool { return strings.Contains(j.Waiting, "turn") })
		if job.Step != fsm.RepairQueued {
			t.Errorf("the third one is %s", job.Step)
		}
		status := w.runner.Status()
		if !slices.Equal(status.Running, []fsm.RepairID{first, second}) || !slices.Equal(status.Waiting, []fsm.RepairID{third}) {
			t.Errorf("status %+v", status)
		}
		w.quick()
		w.whole(w.finish(first))
		w.awaitStep(third, fsm.RepairSealing)
	})
}

// L3: a job's own rate holds; the metadata hears of it once a second.
func TestRunner_MaxRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 5_000_000)
		w.start()
		began := time.Now()
		before := w.updates
		id := w.submit(func(q *fsm.RepairRequest) { q.MaxRate = 2_000_000 })
		w.await(id, "with a rate", func(j *fsm.RepairJob) bool { return j.BytesPerSecond > 1_500_000 && j.BytesPerSecond < 2_500_000 })
		w.awaitStep(id, fsm.RepairAdopting)
		if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("20 MB at 2 MB/s took %s of the bubble's time", took)
		}
		w.whole(w.finish(id))
		if n := w.updates - before; n > 20+6 {
			t.Errorf("%d reports in 10 seconds", n)
		}
	})
}

// I13: whatever the number of segments and sources, the chunks in memory are bounded.
func TestRunner_MemoryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.tune = func(c *Config) { c.Chunks, c.PerSource = 3, 5 }
		w.segments(6, 4_100_000)
		w.peers.before = func(ctx context.Context, _ vtop.NodeName, _ transport.SegmentRef, chunk int64) error {
			if chunk < 0 {
				return nil
			}
			return sleep(ctx, 10*time.Millisecond) // so that all that may be under way is
		}
		w.start()
		w.whole(w.finish(w.submit()))
		if w.peers.mostUsed != 3 || len(w.peers.buffers) != 3 {
			t.Errorf("%d buffers at once, %d in all, want 3", w.peers.mostUsed, len(w.peers.buffers))
		}
	})
}

// The answer to a report is lost: what was taken is seen, and nothing is done twice.
func TestRunner_LostReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(2, 200_000)
		w.start()
		id := w.submit(sealTail)
		job := w.await(id, "ended", func(j *fsm.RepairJob) bool {
			w.mu.Lock()
			w.lostReply = true
			w.mu.Unlock()
			if j.Step >= fsm.RepairCatchingUp {
				w.mu.Lock()
				w.lostReply = false
				w.mu.Unlock()
				w.engine()
			}
			return !j.Active()
		})
		w.whole(job)
		if job.Attempts != 1 {
			t.Errorf("it began %d times", job.Attempts)
		}
	})
}

// The replica is found lost while it catches up: the job begins anew, under a new replica id.
func TestRunner_LostAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 200_000)
		w.start()
		id := w.submit()
		w.awaitStep(id, fsm.RepairCatchingUp)
		log := w.dest.Get(w.rng)
		ok(t, log.Lose("test"))
		w.lose("d")
		lost := log.ReplicaID()
		w.await(id, "begun anew", func(j *fsm.RepairJob) bool { return j.Attempts == 2 && j.Replica != lost && j.Replica != 0 })
		for _, rep := range w.state().Learners() {
			if rep.Lost != "" {
				w.change(fsm.RemoveLearner, rep.ID)
			}
		}
		w.whole(w.finish(id))
	})
}

// G5: a job that brings nothing for long ends, and says what it waited for.
func TestRunner_Patience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.tune = func(c *Config) { c.Patience = time.Minute }
		w.segments(1, 200_000)
		w.peers.before = func(context.Context, vtop.NodeName, transport.SegmentRef, int64) error {
			return transport.ErrUnreachable
		}
		w.start()
		job := w.finish(w.submit())
		if job.Outcome != fsm.OutcomeFailed || !strings.Contains(job.Cause, "unreachable") {
			t.Errorf("ended as %+v", job)
		}
	})
}
