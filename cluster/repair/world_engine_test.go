package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
)

// engine is one turn of what the engines of destination and leader do: the learner follows, and then takes the place of
// the one it replaces.
func (w *world) engine() {
	w.t.Helper()
	rg := w.state()
	for _, rep := range rg.Learners() {
		if rep.Node != w.self || w.runner != nil && w.runner.Here(w.rng) {
			continue
		}
		log := w.dest.Get(w.rng)
		if log == nil || log.ReplicaID() != rep.ID {
			if log != nil {
				ok(w.t, w.dest.SetAside(w.rng, "replaced"))
			}
			var err error
			log, err = w.dest.Create(w.rng, rep.ID, 0)
			ok(w.t, err)
		}
		w.follow(log)
		w.promote(rep)
		return
	}
	if log := w.dest.Get(w.rng); log != nil && log.Err() == nil {
		w.follow(log)
	}
	for _, job := range w.jobs() {
		if rep, votes := rg.VoterOn(w.self); votes && job.Replace != "" && job.Replace != w.self {
			if old, there := rg.VoterOn(job.Replace); there && old.ID < rep.ID {
				w.change(fsm.RemoveVoter, old.ID)
			}
		}
	}
}

func (w *world) jobs() (out []*fsm.RepairJob) {
	for job := range w.machine.State().RepairsTo(w.self) {
		out = append(out, job)
	}
	return out
}

// follow brings a log to the leader's end.
func (w *world) follow(log *storage.Log) {
	w.t.Helper()
	if start := w.leader.Start(); log.End() < start {
		base, producers, err := w.leader.ResetPoint()
		ok(w.t, err)
		ok(w.t, log.ResetTo(context.Background(), w.state().Lease.Epoch, base, producers))
	} else if start > log.Start() {
		ok(w.t, log.SetLogStart(start))
	}
	for log.End() < w.leader.End() {
		got, _, base, err := w.leader.ReadPeer(log.End(), 1<<20, w.leader.End(), nil)
		ok(w.t, err)
		_, err = log.AppendFollow(w.state().Lease.Epoch, vtop.FenceFollow, base, got)
		ok(w.t, err)
		ok(w.t, log.Flush(context.Background()))
	}
	ok(w.t, log.Flush(context.Background()))
}

// promote makes a learner a voter, after the lost ones have gone.
func (w *world) promote(rep fsm.Replica) {
	w.t.Helper()
	for _, v := range w.state().Voters() {
		if v.Lost != "" {
			w.change(fsm.RemoveVoter, v.ID)
		}
	}
	w.change(fsm.PromoteLearner, rep.ID)
}

func (w *world) change(kind fsm.ReplicaChange, replica vtop.ReplicaID) {
	w.t.Helper()
	w.floor()
	rg := w.state()
	w.must(&fsm.ChangeReplicas{
		Range: w.rng, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Change: kind, ReplicaID: replica, SettleMark: w.leader.End(),
	})
	w.floor()
}

// lose marks the replica of a node lost.
func (w *world) lose(node vtop.NodeName) {
	w.t.Helper()
	n, _ := w.machine.State().Node(node)
	w.must(&fsm.MarkReplicasLost{
		Node: node, Storage: n.Storage, Incarnation: n.Incarnation, Reason: "its disk was lost",
		Items: []fsm.LostReplica{{Range: w.rng, ReplicaID: w.replicaOf(node)}},
	})
}

// whole fails the test unless the destination's log is the leader's, byte by byte and segment by segment.
func (w *world) whole(job *fsm.RepairJob) {
	w.t.Helper()
	if job.Step != fsm.RepairDone || job.Outcome != fsm.OutcomeWhole || !job.Voter || job.Gap != 0 || job.LogEnd < job.Floor {
		w.t.Fatalf("the repair ended as %+v", job)
	}
	if job.BytesDone > 0 && len(job.ActiveSources) == 0 {
		w.t.Fatalf("I12: %d bytes came, and the ended job names no source: %+v", job.BytesDone, job)
	}
	w.same()
	synctestWait()
	for _, left := range w.dest.Stagings() {
		if left.Range == w.rng {
			w.t.Fatalf("left in the staging: %+v", left)
		}
	}
}

func (w *world) same() {
	w.t.Helper()
	log := w.dest.Get(w.rng)
	if log == nil || log.Err() != nil {
		w.t.Fatalf("log of the destination: %v", log)
	}
	w.follow(log)
	if log.End() != w.leader.End() {
		w.t.Fatalf("the destination ends at %d, the leader at %d", log.End(), w.leader.End())
	}
	sealed := map[vtop.Offset]storage.SegmentInfo{}
	for _, seg := range log.Segments() {
		sealed[seg.Base] = seg
	}
	for _, seg := range w.leader.Segments() {
		if got := sealed[seg.Base]; got.State == storage.SegmentSealed && got != seg {
			w.t.Fatalf("I9: segment %+v here, %+v at the leader", got, seg)
		}
	}
	for from := w.leader.Start(); from < log.End(); {
		want, next, _, err := w.leader.Read(from, 1<<20, w.leader.End(), nil)
		ok(w.t, err)
		got, _, _, err := log.Read(from, 1<<20, log.End(), nil)
		ok(w.t, err)
		if n := min(len(want), len(got)); n == 0 || !bytes.Equal(got[:n], want[:n]) {
			w.t.Fatalf("I2: other bytes at %d", from)
		}
		from = next
	}
}

// synctestWait lets what is under way come to rest, in a bubble or outside.
func synctestWait() { time.Sleep(3 * time.Second) }

// bubble runs a test in its own time.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

func segmentFile(dir string, r vtop.Range, base vtop.Offset) string {
	return filepath.Join(dir, "ranges", fmt.Sprintf("%s-%d", r.Topic, r.Index), fmt.Sprintf("%020d.log", base))
}

// slowly has the job stay in a step until quick is called.
func (w *world) slowly(step fsm.RepairStep) {
	forever := slices.Repeat([]error{vtop.ErrNotReady}, 1000)
	w.peers.with(func() {
		switch step {
		case fsm.RepairSealing:
			w.peers.sealFails = forever
		case fsm.RepairTransferring:
			w.peers.before = func(ctx context.Context, _ vtop.NodeName, seg transport.SegmentRef, chunk int64) error {
				if seg.Base == 0 && chunk < 1 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
		case fsm.RepairAdopting:
			w.peers.learnerFails = forever
		}
	})
}

func (w *world) quick() {
	w.peers.with(func() { w.peers.sealFails, w.peers.learnerFails, w.peers.before = nil, nil, nil })
}

func (w *world) openStoreReserve(reserve uint64) *storage.Store {
	s, err := storage.Open(w.fs, w.dirs[1], storage.Options{Fence: anyFence{}, Reserve: reserve, TickInterval: -1, ZeroStepBytes: -1, Log: testLog()})
	ok(w.t, err)
	return s
}

// failSome has every n-th changing call of the destination's disk fail.
func (w *world) failSome(n uint64) {
	w.fs.SetHook(func(op vfs.Op) error {
		if op.N > 0 && op.N%n == 0 && op.N < 400 {
			return syscall.EIO
		}
		return nil
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
