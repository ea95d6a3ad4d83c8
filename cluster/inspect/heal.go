package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

var _ adminapi.HealHandler = (*Face)(nil)

// HealStatus implements adminapi.HealHandler.
func (f *Face) HealStatus(ctx context.Context) (*adminapi.HealStatus, error) {
	p, err := f.look(ctx, noTopic)
	if err != nil {
		return nil, err
	}
	return p.heal(), nil
}

// PauseHeal implements adminapi.HealHandler.
func (f *Face) PauseHeal(ctx context.Context, why string) (*adminapi.HealStatus, error) {
	return f.setHeal(ctx, true, why)
}

// ResumeHeal implements adminapi.HealHandler.
func (f *Face) ResumeHeal(ctx context.Context) (*adminapi.HealStatus, error) {
	return f.setHeal(ctx, false, "")
}

func (f *Face) setHeal(ctx context.Context, paused bool, why string) (*adminapi.HealStatus, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	change, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := n.SetHeal(change, paused, why); err != nil {
		return nil, refusal(err)
	}
	return f.HealStatus(ctx)
}

func (p *picture) heal() *adminapi.HealStatus {
	h := p.state.Heal()
	after := p.node.HealAfter()
	out := &adminapi.HealStatus{
		Paused: h.Paused, AfterMS: after.Milliseconds(), Limit: adminapi.Unknown, Gone: []adminapi.GoneNode{}, Stuck: []adminapi.Reason{}, Repairs: []adminapi.Repair{},
	}
	if h.Paused {
		out.Why, out.Since = h.Why, time.UnixMilli(h.At).UTC()
	}
	for j := range p.state.Repairs() {
		if j.Active() && j.Origin == fsm.OriginHeal {
			out.Running++
			out.Repairs = append(out.Repairs, describeRepair(j, p.alive))
		}
	}
	for n := range p.state.Nodes() {
		if n.State == fsm.NodeGone || p.alive(n.Name) {
			continue
		}
		gone := adminapi.GoneNode{Node: string(n.Name), GoneMS: adminapi.Unknown, LeftMS: after.Milliseconds()}
		if v, ok := p.verdicts()[n.Name]; ok {
			gone.GoneMS, gone.LeftMS = v.SilentMS, max(0, after.Milliseconds()-v.SilentMS)
		}
		for range p.state.RangesOf(n.Name) {
			gone.Replicas++
		}
		out.Gone = append(out.Gone, gone)
		if gone.LeftMS == 0 {
			out.Stuck = append(out.Stuck, p.homeless(n.Name)...)
		}
	}
	slices.SortFunc(out.Stuck, func(a, b adminapi.Reason) int { return cmp.Compare(a.Subject, b.Subject) })
	return out
}
