package repair

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
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
