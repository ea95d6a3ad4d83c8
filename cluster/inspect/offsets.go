package inspect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// ResetOffsets implements adminapi.GroupHandler. It returns once the metadata has the offsets, and changes all of them or none.
func (f *Face) ResetOffsets(ctx context.Context, req adminapi.ResetOffsets, at string) ([]adminapi.OffsetReset, error) {
	p, err := f.look(ctx, req.Topic)
	if err != nil {
		return nil, err
	}
	resets, offsets, err := p.resets(req, func(t *fsm.Topic) map[vtop.Range]int64 { return f.timesOf(ctx, p, t, req) })
	if err != nil || req.DryRun {
		return resets, err
	}
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	here, there, holder, err := f.coordinatorOf(n, req.Group, at)
	switch {
	case err != nil:
		return nil, err
	case there != nil:
		return there.ResetOffsets(ctx, req, holder)
	}
	errs, err := here.Commit(ctx, group.Commit{Group: req.Group, Claim: group.Claim{Generation: -1}, Offsets: offsets})
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, groupRefusal(err)
	}
	return resets, nil
}

// resets works out what a request comes to. times asks the leaders where the ranges stood at its time: they read their disks for it, so
// that they are asked last, once nothing else is in the way.
func (p *picture) resets(req adminapi.ResetOffsets, times func(*fsm.Topic) map[vtop.Range]int64) ([]adminapi.OffsetReset, []group.CommitOffset, error) {
	g, t, err := p.resettable(req)
	if err != nil {
		return nil, nil, err
	}
	var ranges []*fsm.Range
	for r := range p.state.RangesOfTopic(t.ID) {
		if req.Range != adminapi.AllRanges && r.ID.Index != req.Range {
			continue
		}
		if l := p.lease(t, r); l.HighWatermark == adminapi.Unknown {
			return nil, nil, adminapi.Errorf(adminapi.CodeUnavailable, "the end of %s/%d is not known: it is %s: %s", t.Name, r.ID.Index, l.State, l.Reason).
				WithHint("vtopctl lease show %s/%d tells more; nothing was changed", t.Name, r.ID.Index)
		}
		ranges = append(ranges, r)
	}
	var at map[vtop.Range]int64
	if req.To == adminapi.ToTime {
		at = times(t)
	}
	var resets []adminapi.OffsetReset
	var offsets []group.CommitOffset
	for _, r := range ranges {
		to, err := p.resetTo(t, r, req, at)
		if err != nil {
			return nil, nil, err
		}
		reset := adminapi.OffsetReset{Topic: t.Name, Range: r.ID.Index, Before: adminapi.Unknown, After: to}
		if o, ok := p.state.Offset(g.ID, r.ID); ok {
			reset.Before = int64(o.Offset)
		}
		resets = append(resets, reset)
		offsets = append(offsets, group.CommitOffset{Range: r.ID, Offset: vtop.Offset(to), LeaderEpoch: vtop.NoEpoch})
	}
	return resets, offsets, nil
}

// resettable refuses what the metadata alone shows to be refused.
func (p *picture) resettable(req adminapi.ResetOffsets) (*fsm.Group, *fsm.Topic, error) {
	g, err := groupNamed(p.state, req.Group)
	if err != nil {
		return nil, nil, err
	}
	t, err := topicNamed(p.state, req.Topic)
	if err != nil {
		return nil, nil, err
	}
	if g.Members > 0 {
		return nil, nil, adminapi.Errorf(adminapi.CodeConflict, "group %q has %d members, which would go on from where they are", g.ID, g.Members).
			WithHint("stop its members first; vtopctl group describe shows them")
	}
	switch req.To {
	case adminapi.ToEarliest, adminapi.ToLatest, adminapi.ToOffset:
	case adminapi.ToTime:
		if req.Time.UnixMilli() < 0 {
			return nil, nil, adminapi.Errorf(adminapi.CodeInvalid, "time %s: want one from 1970 on", req.Time.Format(time.RFC3339Nano))
		}
	default:
		return nil, nil, adminapi.Errorf(adminapi.CodeInvalid, "offsets to %q: want %s, %s, %s or %s", req.To, adminapi.ToEarliest, adminapi.ToLatest, adminapi.ToOffset, adminapi.ToTime)
	}
	if req.Range != adminapi.AllRanges {
		if _, _, err := rangeNamed(p.state, req.Topic, req.Range); err != nil {
			return nil, nil, err
		}
	}
	return g, t, nil
}

// resetTo is the offset of one range: within the log, as its leader knows it; at is what the leaders said of the request's time.
func (p *picture) resetTo(t *fsm.Topic, r *fsm.Range, req adminapi.ResetOffsets, at map[vtop.Range]int64) (int64, error) {
	l := p.lease(t, r)
	switch req.To {
	case adminapi.ToEarliest:
		return l.LogStart, nil
	case adminapi.ToLatest:
		return l.HighWatermark, nil
	case adminapi.ToOffset:
		return min(max(req.Offset, l.LogStart), l.HighWatermark), nil
	}
	to, ok := at[r.ID]
	if !ok {
		return 0, adminapi.Errorf(adminapi.CodeUnavailable, "where %s/%d stood at %s is not known: its leader did not answer", t.Name, r.ID.Index, req.Time.Format(time.RFC3339Nano)).
			WithHint("try again; vtopctl lease show %s/%d tells of the leader; nothing was changed", t.Name, r.ID.Index)
	}
	return to, nil
}

// timesOf asks the leaders of the ranges in question for the offsets at the time of a request. A range whose leader does not
// answer for it has no entry.
func (f *Face) timesOf(ctx context.Context, p *picture, t *fsm.Topic, req adminapi.ResetOffsets) map[vtop.Range]int64 {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	holders := map[vtop.NodeName]bool{}
	for r := range p.state.RangesOfTopic(t.ID) {
		if req.Range == adminapi.AllRanges || r.ID.Index == req.Range {
			holders[r.Lease.Holder] = true
		}
	}
	out := map[vtop.Range]int64{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name := range holders {
		wg.Go(func() {
			found, err := f.askOffsets(ctx, name, t.ID.String(), req.Time.UnixMilli())
			if err != nil {
				f.log.Debug("leader did not answer", "node", name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, o := range found {
				out[vtop.Range{Topic: t.ID, Index: o.Range}] = o.Offset
			}
		})
	}
	wg.Wait()
	return out
}

func (f *Face) askOffsets(ctx context.Context, name vtop.NodeName, topicID string, at int64) ([]adminapi.LocalOffset, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	if name == n.Self() {
		return f.LocalOffsets(ctx, topicID, at)
	}
	node, ok := n.State().Node(name)
	if !ok || node.Addresses.Admin == "" {
		return nil, errors.New("no admin address is known")
	}
	return f.clientOf(node.Addresses.Admin).LocalOffsets(ctx, topicID, at)
}

// LocalOffsets implements adminapi.GroupHandler.
func (f *Face) LocalOffsets(ctx context.Context, topicID string, at int64) ([]adminapi.LocalOffset, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	id, err := vtop.ParseUUID(topicID)
	if err != nil {
		return nil, adminapi.Errorf(adminapi.CodeInvalid, "topic id %q: %v", topicID, err)
	}
	engine, err := n.Engine()
	if err != nil {
		return nil, refusal(err)
	}
	out := []adminapi.LocalOffset{}
	for r := range n.State().RangesOfTopic(id) {
		if r.Lease.Holder != n.Self() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o, err := offsetAt(engine, r.ID, at); err == nil {
			out = append(out, adminapi.LocalOffset{Range: r.ID.Index, Offset: int64(o)})
		} else {
			f.log.Debug("no offset for a time", "range", r.ID, "error", err)
		}
	}
	return out, nil
}

// offsetAt is the first record at or after a time, or the end. The end is taken first: what is written between the two looks may
// be newer than the time, and must not be passed over.
func offsetAt(engine *replica.Engine, r vtop.Range, at int64) (vtop.Offset, error) {
	end, err := engine.EndOffset(r, vtop.AnyEpoch)
	if err != nil {
		return 0, err
	}
	found, ok, err := engine.OffsetForTime(r, vtop.AnyEpoch, at)
	if err != nil || !ok {
		return end.Offset, err
	}
	return found.Offset, nil
}
