package inspect

import (
	"context"
	"errors"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// ResetOffsets implements adminapi.GroupHandler. It returns once the metadata has the offsets, and changes all of them or none.
func (f *Face) ResetOffsets(ctx context.Context, req adminapi.ResetOffsets, at string) ([]adminapi.OffsetReset, error) {
	p, err := f.look(ctx, req.Topic)
	if err != nil {
		return nil, err
	}
	resets, offsets, err := p.resets(req)
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

// resets works out what a request comes to.
func (p *picture) resets(req adminapi.ResetOffsets) ([]adminapi.OffsetReset, []group.CommitOffset, error) {
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
	if req.Range != adminapi.AllRanges {
		if _, _, err := rangeNamed(p.state, req.Topic, req.Range); err != nil {
			return nil, nil, err
		}
	}
	var resets []adminapi.OffsetReset
	var offsets []group.CommitOffset
	for r := range p.state.RangesOfTopic(t.ID) {
		if req.Range != adminapi.AllRanges && r.ID.Index != req.Range {
			continue
		}
		to, err := p.resetTo(t, r, req)
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

// resetTo is the offset of one range: within the log, as its leader knows it.
func (p *picture) resetTo(t *fsm.Topic, r *fsm.Range, req adminapi.ResetOffsets) (int64, error) {
	l := p.lease(t, r)
	if l.HighWatermark == adminapi.Unknown {
		return 0, adminapi.Errorf(adminapi.CodeUnavailable, "the end of %s/%d is not known: it is %s: %s", t.Name, r.ID.Index, l.State, l.Reason).
			WithHint("vtopctl lease show %s/%d tells more; nothing was changed", t.Name, r.ID.Index)
	}
	switch req.To {
	case adminapi.ToEarliest:
		return l.LogStart, nil
	case adminapi.ToLatest:
		return l.HighWatermark, nil
	case adminapi.ToOffset:
		return min(max(req.Offset, l.LogStart), l.HighWatermark), nil
	}
	return 0, adminapi.Errorf(adminapi.CodeInvalid, "offsets to %q: want %s, %s or %s", req.To, adminapi.ToEarliest, adminapi.ToLatest, adminapi.ToOffset)
}
