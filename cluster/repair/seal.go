package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// queued decides which way the job goes.
func (t *task) queued(_ context.Context, s scene) turn {
	if next, ok := t.there(s); ok {
		return next
	}
	if s.job.Holes {
		return to(fsm.RepairTransferring)
	}
	return to(fsm.RepairSealing)
}

// there finds a replica on this node that needs no segments: one that became whole meanwhile, and a learner that follows
// already. Both only wait to be voters, and are read back as any other.
func (t *task) there(s scene) (turn, bool) {
	if s.job.Holes {
		return turn{}, false
	}
	rep, ok := s.rg.On(t.r.cfg.Self)
	if !ok {
		return turn{}, false
	}
	log := t.r.cfg.Store.Get(t.rng)
	switch open := log != nil && log.ReplicaID() == rep.ID; {
	case rep.CanVote():
		t.p.Replica = rep.ID
		return to(fsm.RepairPromoting), true
	case open && log.Err() == nil:
		t.p.Replica = rep.ID
		return to(fsm.RepairCatchingUp), true
	case open:
		return t.outOfPatience(wait("replica %d on this node is not whole, which the metadata is about to learn: %v", rep.ID, log.Err())), true
	}
	return turn{}, false
}

// sealing asks the leader for the list of sealed segments, pinned; after it has closed its tail, if the job wants that.
func (t *task) sealing(ctx context.Context, s scene) turn {
	if next, ok := t.there(s); ok {
		return next
	}
	leader, why := t.leader(s)
	if leader == "" {
		return t.outOfPatience(turn{why: why})
	}
	snap, sealed, err := t.askSnapshot(ctx, s, leader, s.job.SealTail)
	if err != nil {
		return t.outOfPatience(t.notSealed(leader, err))
	}
	if why, err := t.install(ctx, leader, snap); err != nil {
		return t.outOfPatience(t.failed("seal", leader, err))
	} else if why != "" {
		return t.outOfPatience(turn{why: why})
	}
	t.p.RecordsSealed = max(t.p.RecordsSealed, sealed) // an answer that was lost has said it all
	t.p.SealedEnd = snap.SealedEnd
	t.p.BytesTotal = t.lacking()
	return to(fsm.RepairTransferring)
}

// lacking counts the bytes of the plan that are not here whole.
func (t *task) lacking() (bytes int64) {
	whole := t.isWhole()
	for _, seg := range t.plan.segments {
		if !whole(seg.Base) {
			bytes += seg.Bytes
		}
	}
	return bytes
}

// askSnapshot asks the leader for a snapshot under the epoch of its lease.
func (t *task) askSnapshot(ctx context.Context, s scene, leader vtop.NodeName, seal bool) (snap *transport.Snapshot, sealed int64, err error) {
	var m *peerpb.Snapshot
	epoch, have := int32(s.rg.Lease.Epoch), t.haveWhole()
	var held uint64
	if t.pin.node == leader {
		held = t.pin.id
	}
	if seal {
		ctx, cancel := context.WithTimeout(ctx, sealTimeout)
		defer cancel()
		resp, err := t.r.cfg.Peers.SealTail(ctx, leader, &peerpb.SealTailRequest{
			Range: rangeTo(t.rng), Epoch: epoch, Job: uint64(t.id), Have: have, Pin: held,
		})
		if err != nil {
			return nil, 0, err
		}
		m, sealed = resp.GetSnapshot(), resp.GetRecordsSealed()
	} else {
		ctx, cancel := context.WithTimeout(ctx, pinTimeout)
		defer cancel()
		resp, err := t.r.cfg.Peers.PinSegments(ctx, leader, &peerpb.PinSegmentsRequest{
			Range: rangeTo(t.rng), Epoch: epoch, Job: uint64(t.id), Have: have, Pin: held,
		})
		if err != nil {
			return nil, 0, err
		}
		m = resp.GetSnapshot()
	}
	snap, err = transport.SnapshotFrom(m)
	if err == nil && snap.Epoch != s.rg.Lease.Epoch {
		err = fmt.Errorf("%w: asked under epoch %d, answered under epoch %d", transport.ErrInvalid, s.rg.Lease.Epoch, snap.Epoch)
	}
	return snap, sealed, err
}

// notSealed says why there is no snapshot yet.
func (t *task) notSealed(leader vtop.NodeName, err error) turn {
	var open *transport.NotCommittedError
	switch {
	case errors.As(err, &open):
		t.p.LastError = clip(err.Error())
		return wait("the tail is closed at %d, and a majority has %d: not committed yet", open.ClosedEnd, open.HighWatermark)
	case errors.Is(err, vtop.ErrOverloaded):
		t.p.LastError = clip(err.Error())
		return wait("node %q holds all the segments for transfers that it may: %v", leader, err)
	}
	return t.failed("seal", leader, err)
}

// install takes a snapshot over, once it agrees with the catalogue as applied here. The text says what it waits for.
func (t *task) install(ctx context.Context, leader vtop.NodeName, snap *transport.Snapshot) (why string, err error) {
	t.pin = pin{node: leader, id: snap.Pin, idle: snap.PinIdle, touched: time.Now()} // also when it is not used: it is released
	behind, err := t.agrees(snap)
	if err != nil {
		return "", err
	}
	if behind { // the leader was ahead of this node: a moment
		ctx, cancel := context.WithTimeout(ctx, catalogueTimeout)
		defer cancel()
		for ; behind && err == nil; behind, err = t.agrees(snap) {
			if t.r.cfg.Machine.WaitApplied(ctx, t.r.cfg.Machine.Applied()+1) != nil {
				return "this node has not applied all that the leader has catalogued", nil
			}
		}
		if err != nil {
			return "", err
		}
	}
	fresh := t.plan == nil
	if fresh {
		t.plan, t.gapBefore = &plan{}, t.p.Gap
	}
	t.plan.take(snap, t.isWhole())
	if fresh {
		t.unfinished()
	}
	t.askAgain = false
	t.p.Epoch = snap.Epoch
	t.p.Segments = int32(len(t.plan.segments))
	if t.p.SealedEnd == fsm.NoOffset {
		t.p.SealedEnd = snap.SealedEnd
	}
	t.noteLoss(t.pinLost)
	return "", nil
}

// catalogueTimeout bounds the wait for this node to apply what the leader has.
const catalogueTimeout = 5 * time.Second

func (t *task) agrees(snap *transport.Snapshot) (behind bool, err error) {
	st := t.r.cfg.Machine.State()
	rg, ok := st.Range(t.rng)
	if !ok {
		return false, fmt.Errorf("%w: range %s", vtop.ErrUnknownRange, t.rng)
	}
	return snapshotAgrees(snap, rg.LogStart, func(base vtop.Offset) (vtop.Offset, [32]byte, bool) {
		seg, ok := st.Segment(t.rng, base)
		if !ok {
			return 0, [32]byte{}, false
		}
		return seg.End, seg.Root, true
	})
}

// unfinished makes up for what an earlier life of the task knew: what it had begun to receive was promised.
func (t *task) unfinished() {
	if t.p.Gap > 0 || t.p.SealedEnd == fsm.NoOffset {
		return // noted by then, or this is the first snapshot
	}
	first, lowest := t.plan.base(), t.plan.base()
	staged := t.staged()
	for _, seg := range staged {
		lowest = min(lowest, seg.Base)
	}
	t.plan.promised = span{lowest, max(t.p.SealedEnd, lowest)}
	at := lowest
	for _, seg := range staged {
		if seg.Base >= first || !seg.Whole {
			continue
		}
		t.plan.lose(span{at, seg.Base})
		at = seg.End
	}
	t.plan.lose(span{at, first})
}

// noteLoss puts into the job what was promised and will not be delivered.
func (t *task) noteLoss(why string) {
	if t.plan == nil {
		return
	}
	offsets, names := t.plan.gap()
	if t.gapBefore+offsets <= t.p.Gap {
		return
	}
	if why == "" {
		why = "the pin that held them is gone"
	}
	t.p.Gap = t.gapBefore + offsets
	t.p.Cause = clip(fmt.Sprintf("retention reclaimed %s before it was copied: %s", names, why))
	t.log.Warn("promised segments were reclaimed before they were copied", "offsets", names, "why", why)
}

// repin asks the leader of now to hold what is still wanted.
func (t *task) repin(ctx context.Context, s scene) (turn, bool) {
	leader, why := t.leader(s)
	if leader == "" {
		return turn{why: why}, false
	}
	if old := t.pin; old.id != 0 && (t.askAgain || old.node != leader) {
		// It is not what it was said to be, or nobody's any more: let go, so that the answer is a new one.
		t.pin = pin{}
		t.r.goroutine(func() { t.r.releasePin(t.rng, old) })
	}
	snap, _, err := t.askSnapshot(ctx, s, leader, false)
	if err != nil {
		return t.notSealed(leader, err), false
	}
	if why, err := t.install(ctx, leader, snap); err != nil {
		return t.failed("pin", leader, err), false
	} else if why != "" {
		return turn{why: why}, false
	}
	return turn{}, true
}
