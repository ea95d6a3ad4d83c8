package repair

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
)

// A replica is made on a spare node from nothing, and takes the place of a living one.
func TestRunner_SpareNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 2_500_000)
		w.write(300_000)
		w.start()
		id := w.submit(sealTail, func(q *fsm.RepairRequest) { q.Replace = "c" })
		w.awaitStep(id, fsm.RepairCatchingUp)
		w.write(100_000) // what is written meanwhile comes over the leader's log
		job := w.finish(id)
		w.whole(job)
		if job.RecordsSealed != 2 || job.Segments != 4 || job.BytesDone != job.BytesTotal || job.BytesTotal < 7_800_000 {
			t.Errorf("the job says %+v", job)
		}
		if _, there := w.state().On("c"); there {
			t.Error("the replica that was to be replaced is still there")
		}
		if len(w.source.Pins()) != 0 {
			t.Errorf("pins are left: %+v", w.source.Pins())
		}
		if len(w.peers.fetched) < 2 {
			t.Errorf("fetched from %v only", w.peers.fetched)
		}
	})
}

// At the lowest rate that vtopctl takes, a chunk needs longer than a transfer may bring nothing: it is not given up for that.
func TestRunner_LowRateGetsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(2, 2_500_000)
		w.start()
		id := w.submit(func(q *fsm.RepairRequest) { q.MaxRate = 64 << 10 })
		job := w.finish(id)
		w.whole(job)
	})
}

// A lost replica is rebuilt on its own node, and what its disk still has is not copied.
func TestRunner_LostReplicaKeepsWhatIsGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "c")
		w.segments(4, 1_500_000)
		old := w.copyOf(w.replicaOf("c"))
		bad := old.Segments()[1]
		w.flip(bad.Base)
		ok(t, old.Lose("test"))
		w.lose("c")
		w.start()
		id := w.submit()
		job := w.finish(id)
		w.whole(job)
		if len(w.peers.chunks) != 1 || w.peers.chunks[bad.Base] == 0 {
			t.Errorf("fetched chunks of %v, want those of segment %d alone", w.peers.chunks, bad.Base)
		}
		if job.BytesTotal != bad.Bytes || job.BytesDone != bad.Bytes {
			t.Errorf("the job says %d of %d bytes, segment %d has %d", job.BytesDone, job.BytesTotal, bad.Base, bad.Bytes)
		}
		if job.Replica <= old.ReplicaID() {
			t.Errorf("I10: it came back as replica %d, it was %d", job.Replica, old.ReplicaID())
		}
	})
}

// The metadata calls a replica lost that its own disk knows nothing of, as after a restored copy: it makes room all the same.
func TestRunner_LostInTheMetadataAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "c")
		w.segments(3, 200_000)
		w.copyOf(w.replicaOf("c"))
		w.lose("c")
		w.start()
		w.whole(w.finish(w.submit()))
		if len(w.peers.chunks) != 0 {
			t.Errorf("fetched chunks of %v, all were here", w.peers.chunks)
		}
	})
}

// A damaged sealed segment is replaced by itself: the replica stays.
func TestRunner_Hole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "c")
		w.segments(4, 1_500_000)
		w.write(1000)
		log := w.copyOf(w.replicaOf("c"))
		bad := log.Segments()[2]
		w.flip(bad.Base)
		if err := log.VerifySegment(context.Background(), bad.Base); !errors.Is(err, vtop.ErrDamaged) {
			t.Fatalf("the flipped bit: %v", err)
		}
		w.start()
		id := w.submit(func(q *fsm.RepairRequest) { q.Holes = true })
		if w.runner.Here(w.rng) {
			t.Error("the engine was told to keep away from a replica that stays")
		}
		job := w.finish(id)
		w.whole(job)
		if job.Replica != log.ReplicaID() || w.dest.Get(w.rng) != log {
			t.Errorf("replica %d, it was %d", job.Replica, log.ReplicaID())
		}
		if len(w.peers.chunks) != 1 || w.peers.chunks[bad.Base] == 0 {
			t.Errorf("fetched chunks of %v, want those of segment %d alone", w.peers.chunks, bad.Base)
		}
		ok(t, log.VerifySegment(context.Background(), bad.Base))
		if w.peers.seals != 0 {
			t.Error("a hole needs no seal")
		}
		// Case: nothing is left to do.
		again := w.finish(w.submit(func(q *fsm.RepairRequest) { q.Holes = true }))
		if again.Outcome != fsm.OutcomeWhole || again.BytesTotal != 0 {
			t.Errorf("a second repair: %+v", again)
		}
	})
}

// Nothing is sealed: all comes over the leader's log.
func TestRunner_NothingSealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.write(100_000)
		w.start()
		job := w.finish(w.submit())
		w.whole(job)
		if job.Segments != 0 || job.BytesTotal != 0 {
			t.Errorf("the job says %+v", job)
		}
	})
}

// Refusals that no repeat helps end the job, and say what to do.
func TestRunner_Refused(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"a range that was never written": {transport.ErrNeverWritten, "produce to the range before repairing from it"},
		"a node that may not transfer":   {transport.ErrNotAllowed, "allowlist"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.peers.sealFails = []error{row.err}
				w.start()
				job := w.finish(w.submit(sealTail))
				if job.Outcome != fsm.OutcomeRefused || !strings.Contains(job.Cause, row.want) {
					t.Errorf("ended as %s: %s", job.Outcome, job.Cause)
				}
			})
		})
	}
}

// Each wait says why, and ends by itself.
func TestRunner_SaysWhyItWaits(t *testing.T) {
	rows := map[string]struct {
		set   func(w *world)
		want  string
		clear func(w *world)
	}{
		"not committed": {
			func(w *world) {
				open := error(&transport.NotCommittedError{ClosedEnd: 70, HighWatermark: 60})
				w.peers.sealFails = slices.Repeat([]error{open}, 8)
			}, "closed at 70, and a majority has 60", func(*world) {},
		},
		"caps of the pins": {
			func(w *world) { w.peers.sealFails = slices.Repeat([]error{vtop.ErrOverloaded}, 8) }, "holds all the segments", func(*world) {},
		},
		"no leader": {
			func(w *world) {
				w.must(&fsm.ReleaseLeases{Items: []fsm.Release{{Range: w.rng, Epoch: w.state().Lease.Epoch}}})
			}, "has no leader", func(w *world) { w.lead("a", w.leader.End()) },
		},
		"sources offline": {
			func(w *world) {
				w.peers.before = func(context.Context, vtop.NodeName, transport.SegmentRef, int64) error {
					return transport.ErrUnreachable
				}
			}, "unreachable", func(w *world) { w.peers.with(func() { w.peers.before = nil }) },
		},
		"sources dead": {
			func(w *world) {
				w.peers.afterSeal = func() {
					w.peers.with(func() { w.peers.dead["a"], w.peers.dead["b"], w.peers.dead["c"] = true, true, true })
				}
			}, "source offline", func(w *world) { w.peers.with(func() { clear(w.peers.dead) }) },
		},
		"a learner that is refused": {
			func(w *world) { w.peers.learnerFails = slices.Repeat([]error{vtop.ErrNotReady}, 8) }, "add learner", func(*world) {},
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(2, 200_000)
				row.set(w)
				w.start()
				id := w.submit(sealTail)
				w.await(id, "waiting: "+row.want, func(j *fsm.RepairJob) bool { return strings.Contains(j.Waiting, row.want) })
				row.clear(w)
				w.whole(w.finish(id))
			})
		})
	}
}

// A source that dies midway, one whose connections break, and one that never answers cost nothing but time.
func TestRunner_SourcesFail(t *testing.T) {
	rows := map[string]func(w *world, requests int, node vtop.NodeName, ctx context.Context) error{
		"one dies": func(w *world, requests int, node vtop.NodeName, _ context.Context) error {
			if requests == 5 {
				w.peers.with(func() { w.peers.dead["b"] = true })
			}
			return nil
		},
		"connections break": func(_ *world, requests int, _ vtop.NodeName, _ context.Context) error {
			if requests%3 == 0 {
				return &cutError{after: 1000}
			}
			return nil
		},
		"one is silent": func(_ *world, _ int, node vtop.NodeName, ctx context.Context) error {
			if node == "b" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		},
		"one has nothing": func(_ *world, _ int, node vtop.NodeName, _ context.Context) error {
			if node == "b" {
				return transport.ErrNoSegment
			}
			return nil
		},
	}
	for name, fault := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(3, 3_500_000)
				var mu sync.Mutex
				requests := 0
				w.peers.before = func(ctx context.Context, node vtop.NodeName, _ transport.SegmentRef, chunk int64) error {
					if chunk < 0 {
						return nil
					}
					mu.Lock()
					requests++
					n := requests
					mu.Unlock()
					return fault(w, n, node, ctx)
				}
				w.start()
				began := time.Now()
				job := w.finish(w.submit())
				if took := time.Since(began); took >= chunkTimeout {
					t.Errorf("it took %s: others did not take over what one source held", took)
				}
				w.whole(job)
				if len(job.DroppedSources) != 0 {
					t.Errorf("dropped for no damage: %+v", job.DroppedSources)
				}
				if name == "connections break" && w.peers.resumed == 0 {
					t.Error("no chunk was gone on with at the byte where the connection broke")
				}
			})
		})
	}
}

// I9: bytes that do not verify never reach the replica; who sent them is named, asked no more, and told.
func TestRunner_CorruptSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 2_500_000)
		w.peers.liars["b"] = true
		told := func() (yes bool) { w.peers.with(func() { yes = len(w.peers.reports) > 0 }); return yes }
		w.peers.before = func(ctx context.Context, node vtop.NodeName, _ transport.SegmentRef, chunk int64) error {
			for node != "b" && chunk >= 0 && !told() && ctx.Err() == nil { // else others may be done before it is asked
				_ = sleep(ctx, time.Millisecond)
			}
			return ctx.Err()
		}
		w.start()
		job := w.finish(w.submit())
		w.whole(job)
		if len(job.DroppedSources) != 1 || job.DroppedSources[0].Node != "b" {
			t.Errorf("dropped %+v", job.DroppedSources)
		}
		if len(w.peers.reports) != 1 || w.peers.reports[0].GetReplicaId() != uint64(w.replicaOf("b")) || w.peers.reports[0].GetChunk() < 0 {
			t.Errorf("told %+v", w.peers.reports)
		}
	})
}

// Where nobody's bytes verify the job ends, and names them all.
func TestRunner_AllSourcesCorrupt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(2, 1_200_000)
		for _, node := range []vtop.NodeName{"a", "b", "c"} {
			w.peers.liars[node] = true
		}
		w.start()
		job := w.finish(w.submit())
		if job.Step != fsm.RepairFailed || len(job.DroppedSources) != 3 || !strings.Contains(job.Cause, "verify") {
			t.Fatalf("ended as %+v", job)
		}
		synctestWait()
		if left := w.dest.Stagings(); len(left) != 0 {
			t.Errorf("left in the staging: %+v", left)
		}
	})
}

// The lease moves in every phase of the work; the job goes on with the new leader.
func TestRunner_LeaderMoves(t *testing.T) {
	for _, at := range []string{"before the seal", "after the seal", "while segments are copied", "before the learner"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(3, 2_200_000)
				var once sync.Once
				move := func() { once.Do(func() { w.lead("b", w.leader.End()) }) }
				w.peers.before = func(_ context.Context, _ vtop.NodeName, seg transport.SegmentRef, chunk int64) error {
					if at == "while segments are copied" && seg.Base > 0 && chunk == 1 {
						move()
					}
					return nil
				}
				switch at {
				case "before the seal":
					w.peers.sealFails = []error{vtop.ErrFenced, vtop.ErrNotLeader, vtop.ErrNotReady}
				case "after the seal":
					w.peers.afterSeal = move
				case "before the learner":
					w.peers.learnerFails = []error{vtop.ErrFenced}
				}
				w.start()
				id := w.submit(sealTail)
				switch at {
				case "before the seal":
					move()
				case "before the learner":
					w.awaitStep(id, fsm.RepairAdopting)
					move()
				}
				job := w.finish(id)
				w.whole(job)
				if job.Attempts != 1 {
					t.Errorf("it began %d times", job.Attempts)
				}
				for base, n := range w.peers.chunks {
					if n > 4 {
						t.Errorf("%d chunks of segment %d were fetched: it has 3", n, base)
					}
				}
			})
		})
	}
}

// F1: retention takes segments while they are pinned: all that was promised arrives.
func TestRunner_RetentionUnderAPin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 1_200_000)
		w.write(1000)
		w.peers.afterSeal = func() { w.reclaim(3) }
		w.start()
		job := w.finish(w.submit(sealTail))
		w.whole(job)
		if len(w.peers.chunks) != 5 {
			t.Errorf("fetched segments %v, want all five that were promised", w.peers.chunks)
		}
	})
}

// F1: a pin that expires before retention takes the segments is a measured gap with its cause, never a silent success.
func TestRunner_PinExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 1_200_000)
		gone := w.leader.Segments()[2].Base
		w.peers.afterSeal = func() {
			w.source.Unpin(w.peers.pin)
			w.reclaim(2)
		}
		w.start()
		job := w.finish(w.submit(sealTail))
		if job.Step != fsm.RepairDone || job.Outcome != fsm.OutcomeGap || job.Gap != int64(gone) || !job.Voter {
			t.Fatalf("ended as %+v", job)
		}
		for _, want := range []string{fmt.Sprintf("[0, %d)", gone), "retention reclaimed", "pin"} {
			if !strings.Contains(job.Cause, want) {
				t.Errorf("cause %q does not say %q", job.Cause, want)
			}
		}
		w.same()
	})
}

// A segment that the leader lists and, being damaged there, does not hold: when retention takes it nobody has it, and the job
// neither waits for ever nor hides it.
func TestRunner_PinWithoutBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 1_200_000)
		gone := w.leader.Segments()[1].Base
		w.peers.before = func(_ context.Context, _ vtop.NodeName, seg transport.SegmentRef, _ int64) error {
			if seg.Base == 0 {
				return transport.ErrNoSegment
			}
			return nil
		}
		w.start()
		id := w.submit()
		w.await(id, "waiting for the segment", func(j *fsm.RepairJob) bool { return strings.Contains(j.Waiting, "no source has segment 0") })
		w.reclaim(1)
		job := w.finish(id)
		if job.Outcome != fsm.OutcomeGap || job.Gap != int64(gone) || !strings.Contains(job.Cause, fmt.Sprintf("[0, %d)", gone)) {
			t.Fatalf("ended as %+v", job)
		}
		w.same()
	})
}

// The gap that an earlier life has noted outlives a crash, and one that it could not note is found.
func TestRunner_PinExpiresAcrossACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(5, 1_200_000)
		hold := make(chan struct{})
		w.peers.before = func(ctx context.Context, _ vtop.NodeName, seg transport.SegmentRef, _ int64) error {
			if seg.Base == w.leader.Segments()[0].Base || ctx.Err() != nil {
				return nil
			}
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		first := w.leader.Segments()[1]
		gone := w.leader.Segments()[3].Base
		w.start()
		id := w.submit()
		w.await(id, "one segment here", func(*fsm.RepairJob) bool {
			for _, s := range w.dest.Stagings() {
				if s.Bytes >= 1_200_000 {
					return true
				}
			}
			return false
		})
		time.Sleep(time.Second)
		w.stop()
		w.source.Unpin(w.peers.pin)
		w.reclaim(3)
		w.peers.with(func() { w.peers.before = nil })
		w.crash()
		job := w.finish(id)
		if job.Outcome != fsm.OutcomeGap || job.Gap != int64(gone-first.Base) || !strings.Contains(job.Cause, fmt.Sprintf("[%d, %d)", first.Base, gone)) {
			t.Fatalf("ended as %+v", job)
		}
		w.same()
	})
}

// The process of the destination ends at each step; the next one goes on, and fetches nothing twice that was whole.
func TestRunner_CrashAtEveryStep(t *testing.T) {
	for step := fsm.RepairQueued; step <= fsm.RepairPromoting; step++ {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(3, 2_200_000)
				w.start()
				if step == fsm.RepairQueued {
					w.stop()
					id := w.submit(sealTail)
					w.crash()
					w.whole(w.finish(id))
					return
				}
				w.slowly(step)
				id := w.submit(sealTail)
				w.awaitStep(id, step)
				w.quick()
				w.crash()
				w.whole(w.finish(id))
			})
		})
	}
}

// The process ends again and again while segments are copied.
func TestRunner_CrashesWhileCopying(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(4, 3_200_000)
		var mu sync.Mutex
		requests, limit := 0, 0
		w.peers.before = func(ctx context.Context, _ vtop.NodeName, _ transport.SegmentRef, _ int64) error {
			mu.Lock()
			requests++
			stop := requests > limit
			mu.Unlock()
			if stop {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		w.start()
		id := w.submit()
		for range 5 {
			mu.Lock()
			limit = requests + 5
			mu.Unlock()
			w.await(id, "at its next limit", func(j *fsm.RepairJob) bool {
				mu.Lock()
				defer mu.Unlock()
				return requests > limit || j.Step >= fsm.RepairAdopting
			})
			w.crash()
		}
		w.peers.with(func() { w.peers.before = nil })
		w.whole(w.finish(id))
		total := 0
		for _, n := range w.peers.chunks {
			total += n
		}
		if job := w.job(id); total != 16 || job.BytesTotal < 12_800_000 {
			t.Errorf("%d chunks were fetched of 16, and the job says %d bytes", total, job.BytesTotal)
		}
	})
}

// A job that is cancelled at any step leaves nothing: no staging, no pin, no learner.
func TestRunner_CancelAtEveryStep(t *testing.T) {
	for step := fsm.RepairQueued; step <= fsm.RepairPromoting; step++ {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, "d")
				w.segments(3, 2_200_000)
				w.slowly(step)
				w.start()
				id := w.submit(sealTail)
				w.awaitStep(id, step)
				w.must(&fsm.CancelRepairs{IDs: []fsm.RepairID{id}, Reason: "not wanted"})
				w.quick()
				synctestWait()
				synctestWait()
				if left := w.dest.Stagings(); len(left) != 0 {
					t.Errorf("left in the staging: %+v", left)
				}
				if pins := w.source.Pins(); len(pins) != 0 {
					t.Errorf("pins are left: %+v", pins)
				}
				if n := len(w.state().Learners()); n != 0 {
					t.Errorf("%d learners are left", n)
				}
				if log := w.dest.Get(w.rng); log != nil { // the engine's to take away
					ok(t, w.dest.SetAside(w.rng, "no replica of it here"))
				}
				w.whole(w.finish(w.submit(sealTail)))
			})
		})
	}
}

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

// copyOf makes the destination's replica a copy of the leader's, sealed segments included.
func (w *world) copyOf(replica vtop.ReplicaID) *storage.Log {
	w.t.Helper()
	log, err := w.dest.Create(w.rng, replica, 0)
	ok(w.t, err)
	w.follow(log)
	for _, seg := range w.leader.Segments() {
		if seg.State != storage.SegmentSealed {
			continue
		}
		ok(w.t, log.CloseAt(seg.End))
		ok(w.t, log.Flush(context.Background()))
		for errors.Is(log.Seal(seg.Base, seg.Root), vtop.ErrNotReady) {
			time.Sleep(time.Millisecond)
		}
	}
	return log
}

// flip flips a bit of the destination's segment.
func (w *world) flip(base vtop.Offset) {
	w.t.Helper()
	name := segmentFile(w.dirs[1], w.rng, base)
	data, err := os.ReadFile(name)
	ok(w.t, err)
	data[len(data)/2] ^= 1
	ok(w.t, os.WriteFile(name, data, 0o644))
}
