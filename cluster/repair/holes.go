package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
)

// fillHoles replaces the damaged sealed segments of a replica that stays: each by itself, by its root.
func (t *task) fillHoles(ctx context.Context, s scene) turn {
	log := t.r.cfg.Store.Get(t.rng)
	switch {
	case log == nil || log.ReplicaID() != s.job.Replica:
		return t.outOfPatience(wait("replica %d is not on this node", s.job.Replica))
	case errors.Is(log.Err(), vtop.ErrReplicaLost):
		return fail(fsm.OutcomeFailed, "replica %d on this node is lost, and is rebuilt as a whole: %v", s.job.Replica, log.Err())
	case log.Err() != nil:
		return t.outOfPatience(wait("replica %d on this node: %v", s.job.Replica, log.Err()))
	}
	wanted := catalogued(s.st, t.rng, log.Holes())
	if len(wanted) == 0 {
		return to(fsm.RepairPromoting)
	}
	staging, err := t.r.cfg.Store.Stage(t.rng)
	if err != nil {
		return t.outOfPatience(t.diskFailed(err))
	}
	t.p.Segments, t.p.SealedEnd = int32(len(wanted)), wanted[len(wanted)-1].End
	switch h := t.transfer(ctx, s, staging, wanted, vtop.NoEpoch); h.kind {
	case haltWhole:
		return t.outOfPatience(t.replaceAll(wanted, staging))
	case haltFailed:
		return fail(fsm.OutcomeFailed, "%s", h.why)
	default:
		return t.outOfPatience(turn{why: h.why, pause: h.pause})
	}
}

// replaceAll puts the staged segments in the places of the damaged ones. Whether that was all is looked at again.
func (t *task) replaceAll(wanted []segment, staging *storage.Staging) turn {
	for _, seg := range wanted {
		err := t.r.cfg.Store.ReplaceSegment(t.rng, seg.Base, seg.Root, staging)
		if err != nil && !errors.Is(err, vtop.ErrOffsetOutOfRange) { // below the log start by now: nothing to replace
			return t.diskFailed(fmt.Errorf("replace segment %d: %w", seg.Base, err))
		}
		if err == nil {
			t.log.Info("damaged segment replaced", "base", seg.Base, "end", seg.End)
		}
		if err := staging.Drop(seg.Base); err != nil {
			t.log.Debug("staged segment is left to the sweeper", "base", seg.Base, "error", err)
		}
	}
	return turn{pause: shortPause}
}

// catalogued finds the segments of the catalogue that fill the holes. A hole may stand for several.
func catalogued(st *fsm.State, r vtop.Range, holes []storage.SegmentInfo) []segment {
	var out []segment
	for _, hole := range holes {
		for seg := range st.CatalogueFrom(r, hole.Base) {
			if seg.Base >= hole.End {
				break
			}
			out = append(out, segment{SealedSegment: transport.SealedSegment{
				Base: seg.Base, End: seg.End, Bytes: seg.Bytes, Root: seg.Root, SealEpoch: seg.Epoch,
			}})
		}
	}
	return out
}
