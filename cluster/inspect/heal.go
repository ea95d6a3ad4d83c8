package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
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

// localHealing is what the Raft leader found in its last look.
func localHealing(h controller.Healing) *adminapi.LocalHealing {
	out := &adminapi.LocalHealing{Limit: h.Limit, Stuck: []adminapi.LocalStuck{}}
	for r, why := range h.Stuck {
		out.Stuck = append(out.Stuck, adminapi.LocalStuck{TopicID: r.Topic.String(), Range: r.Index, Reason: why})
	}
	return out
}

// healingOf adds what the Raft leader alone knows; where it speaks of a range its word replaces what was found without it.
func (p *picture) healingOf(out *adminapi.HealStatus) {
	if p.judge == nil || p.judge.Healing == nil {
		return
	}
	out.Limit = p.judge.Healing.Limit
	for _, s := range p.judge.Healing.Stuck {
		id, err := vtop.ParseUUID(s.TopicID)
		if err != nil {
			continue
		}
		reason := adminapi.Reason{Subject: p.state.RangeName(vtop.Range{Topic: id, Index: s.Range}), Message: s.Reason}
		out.Stuck = slices.DeleteFunc(out.Stuck, func(r adminapi.Reason) bool {
			if r.Subject == reason.Subject {
				reason.Hint = r.Hint
			}
			return r.Subject == reason.Subject
		})
		out.Stuck = append(out.Stuck, reason)
	}
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
	p.healingOf(out)
	slices.SortFunc(out.Stuck, func(a, b adminapi.Reason) int { return cmp.Compare(a.Subject, b.Subject) })
	return out
}
