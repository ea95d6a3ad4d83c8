package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
)

// transferring brings all segments of the plan into the staging.
func (t *task) transferring(ctx context.Context, s scene) turn {
	if s.job.Holes {
		return t.fillHoles(ctx, s)
	}
	if next, ok := t.there(s); ok {
		return next
	}
	if next, ok := t.receive(ctx, s); !ok {
		return t.outOfPatience(next)
	}
	return to(fsm.RepairAdopting)
}

// receive brings what the plan lacks; ok once nothing is lacking.
func (t *task) receive(ctx context.Context, s scene) (next turn, ok bool) {
	if t.plan == nil || t.askAgain || t.plan.newest.Epoch != s.rg.Lease.Epoch || t.pin.stale(time.Now()) {
		if next, ok := t.repin(ctx, s); !ok {
			return next, false
		}
	}
	if len(t.plan.segments) == 0 {
		return turn{}, true
	}
	staging, err := t.r.cfg.Store.Stage(t.rng)
	if errors.Is(err, vtop.ErrNotReady) {
		return turn{}, true // its adoption was committed
	} else if err != nil {
		return t.diskFailed(err), false
	}
	if err := t.takeLocal(ctx, s, staging); err != nil {
		return t.diskFailed(err), false
	}
	h := t.transfer(ctx, s, staging, t.plan.segments, t.plan.newest.Epoch)
	switch h.kind {
	case haltWhole:
		return turn{}, true
	case haltPin:
		t.askAgain, t.pinLost = true, h.why
		return turn{why: h.why, pause: h.pause}, false
	case haltLost:
		t.plan.giveUp(t.isWhole())
		t.p.Segments = int32(len(t.plan.segments))
		t.noteLoss(orElse(t.pinLost, h.why))
		return turn{pause: shortPause}, false
	case haltFailed:
		return fail(fsm.OutcomeFailed, "%s", h.why), false
	}
	return turn{why: h.why}, false
}

// shortPause is before a step goes on by itself.
const shortPause = 50 * time.Millisecond

// diskFailed says what of this node's disk the job waits for.
func (t *task) diskFailed(err error) turn {
	t.p.LastError = clip(err.Error())
	if errors.Is(err, vtop.ErrNoSpace) {
		return wait("the disk of this node is full: %v", err)
	}
	return wait("the disk of this node: %v", err)
}

// takeLocal takes over what of the plan is whole on this disk already: in the directory of the replica that is lost, or in
// one that was set aside. Once in the life of a task.
func (t *task) takeLocal(ctx context.Context, s scene, staging *storage.Staging) error {
	if t.tookLocal {
		return nil
	}
	whole := t.isWhole()
	taken, said := 0, time.Now()
	for i, seg := range t.plan.segments {
		if whole(seg.Base) {
			continue
		}
		if time.Since(said) > reportPause {
			said = time.Now()
			t.p.Waiting = fmt.Sprintf("reads what is good on this node's own disk: %d of %d segments looked at", i, len(t.plan.segments))
			t.r.report.tell(s.job, t.p)
		}
		rate := t.r.own.current()
		if t.limit != nil {
			rate = t.limit.rate
		}
		got, err := staging.TakeLocal(ctx, int64(rate), []storage.Want{{Base: seg.Base, End: seg.End, Bytes: seg.Bytes, Root: seg.Root}})
		if err != nil {
			return err
		}
		if len(got) > 0 {
			taken++
			t.p.BytesTotal = max(t.p.BytesTotal-seg.Bytes, 0) // it is not to be copied
		}
		t.r.own.observe(t.r.cfg.Pressure())
	}
	t.tookLocal, t.p.Waiting = true, ""
	if taken > 0 {
		t.log.Info("segments of this node's disk are good and need no copy", "segments", taken, "of", len(t.plan.segments))
	}
	return nil
}

// staged lists what is in the staging; nothing if it cannot be opened now.
func (t *task) staged() []storage.StagedSegment {
	staging, err := t.r.cfg.Store.Stage(t.rng)
	if err != nil {
		return nil
	}
	return staging.Segments()
}

// isWhole answers for the staging as it is now.
func (t *task) isWhole() func(base vtop.Offset) bool {
	whole := map[vtop.Offset]bool{}
	for _, seg := range t.staged() {
		whole[seg.Base] = seg.Whole
	}
	return func(base vtop.Offset) bool { return whole[base] }
}

// haveWhole lists the bases that need not be pinned.
func (t *task) haveWhole() []int64 {
	var out []int64
	for _, seg := range t.staged() {
		if seg.Whole {
			out = append(out, int64(seg.Base))
		}
	}
	return out
}

// adopting makes what was received the log of a new replica, in one step (I11).
func (t *task) adopting(ctx context.Context, s scene) turn {
	if next, ok := t.there(s); ok {
		t.r.cfg.Wake(t.rng)
		return next
	}
	// Where nothing is left of the task's first life, leader and sources are asked again: nothing that is staged is
	// fetched twice.
	if next, ok := t.receive(ctx, s); !ok {
		return t.outOfPatience(next)
	}
	rep, ok := s.rg.On(t.r.cfg.Self)
	if !ok {
		return t.outOfPatience(t.askLearner(ctx, s))
	}
	t.p.Replica = rep.ID
	if len(t.plan.segments) == 0 {
		// Nothing is sealed: the engine makes an empty directory, and all comes from the leader's log.
		return to(fsm.RepairCatchingUp)
	}
	if _, err := t.r.cfg.Store.Adopt(t.rng, rep.ID, t.adoption(s)); err != nil {
		if errors.Is(err, vtop.ErrDamaged) || errors.Is(err, vtop.ErrNotReady) {
			t.askAgain = true // the leader's word of what comes before does not fit
		}
		return t.outOfPatience(t.diskFailed(fmt.Errorf("adoption: %w", err)))
	}
	t.log.Info("adopted", "replica", rep.ID, "from", t.plan.segments[0].Base, "end", t.plan.end(), "segments", len(t.plan.segments))
	t.r.cfg.Wake(t.rng)
	return to(fsm.RepairCatchingUp)
}

func (t *task) adoption(s scene) storage.Adoption {
	a := storage.Adoption{
		Base: t.plan.segments[0].Base, Producers: t.plan.producers,
		LogStart: min(max(s.rg.LogStart, t.plan.segments[0].Base), t.plan.end()),
	}
	for _, seg := range t.plan.segments {
		a.Segments = append(a.Segments, storage.AdoptSegment{Base: seg.Base, End: seg.End, Bytes: seg.Bytes, Root: seg.Root})
	}
	if old := t.r.cfg.Store.Get(t.rng); old != nil {
		// The metadata has no replica on this node but the new one, or calls the others lost.
		a.Replaces = old.ReplicaID()
	}
	return a
}

// askLearner has the leader add a learner here. It is there when this node has applied it.
func (t *task) askLearner(ctx context.Context, s scene) turn {
	leader, why := t.leader(s)
	if leader == "" {
		return turn{why: why}
	}
	ctx, cancel := context.WithTimeout(ctx, learnerTimeout)
	defer cancel()
	resp, err := t.r.cfg.Peers.AddLearner(ctx, leader, learnerRequest(t.rng, s.rg.Lease.Epoch, t.r.cfg.Self, t.id))
	if err != nil {
		return t.failed("add learner", leader, err)
	}
	if err := t.r.cfg.Machine.WaitApplied(ctx, resp.GetIndex()); err != nil {
		return wait("this node has not applied yet that it has replica %d", resp.GetReplicaId())
	}
	st := t.r.cfg.Machine.State()
	if rg, ok := st.Range(t.rng); ok {
		if _, ok := rg.On(t.r.cfg.Self); ok {
			return turn{pause: time.Millisecond}
		}
	}
	return wait("replica %d, which the leader added, is not on this node any more", resp.GetReplicaId())
}
