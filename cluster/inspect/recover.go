package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

var _ adminapi.RecoverHandler = (*Face)(nil)

// RecoverRange implements adminapi.RecoverHandler.
func (f *Face) RecoverRange(ctx context.Context, topic string, index int32, req adminapi.RecoverRequest) (*adminapi.RecoverPlan, error) {
	p, err := f.look(ctx, topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return p.recoverRange(ctx, topic, index, req)
}

func (p *picture) recoverRange(ctx context.Context, topic string, index int32, req adminapi.RecoverRequest) (*adminapi.RecoverPlan, error) {
	_, r, err := rangeNamed(p.state, topic, index)
	if err != nil {
		return nil, err
	}
	rep, err := p.kept(r, vtop.NodeName(req.From))
	if err != nil {
		return nil, err
	}
	if req.ConfigVersion != 0 && req.ConfigVersion != r.ConfigVersion {
		return nil, adminapi.Errorf(adminapi.CodeConflict, "the plan was made under configuration version %d of %s/%d, and it is at %d", req.ConfigVersion, topic, index, r.ConfigVersion).
			WithHint("its replicas have changed: look again with --dry-run")
	}
	plan, to, err := p.recoverPlan(ctx, r, rep)
	if err != nil || req.DryRun {
		return plan, err
	}
	if err := p.mayRecover(r, rep); err != nil {
		return nil, err
	}
	err = p.node.RecoverRange(ctx, fsm.RecoverRange{
		Range: r.ID, Keep: rep.ID, Config: r.ConfigVersion, Epoch: r.LastEpoch, From: vtop.Offset(plan.KeepEnd), To: to,
		Reason: fmt.Sprintf("an operator at %s accepted the loss", p.node.Self()),
	})
	if err != nil {
		return nil, refusal(err)
	}
	plan.Applied, plan.Epoch = true, int32(r.LastEpoch)+1 // the next grant's
	return plan, nil
}

// kept is the replica that is to stay; it refuses one that cannot, and a range that has its majority.
func (p *picture) kept(r *fsm.Range, from vtop.NodeName) (fsm.Replica, error) {
	name := p.state.RangeName(r.ID)
	rep, ok := r.On(from)
	if !ok {
		lost, known := replicaOn(r, from)
		if known {
			return rep, adminapi.Errorf(adminapi.CodeConflict, "replica %d of %s on %s may have forgotten what it held: %s", lost.ID, name, from, lost.Lost).
				WithHint("name the node of another replica; vtopctl lease show %s lists them", name)
		}
		return rep, adminapi.Errorf(adminapi.CodeNotFound, "node %s has no replica of %s", from, name).WithHint("vtopctl lease show %s lists them", name)
	}
	if rep.Role != fsm.Voter {
		return rep, adminapi.Errorf(adminapi.CodeConflict, "replica %d of %s on %s is a learner: whether it is whole is not known", rep.ID, name, from).
			WithHint("name the node of a voter")
	}
	voters, fit := r.Voters(), 0
	for _, v := range voters {
		if v.CanVote() && p.answers(r, v) != nil {
			fit++
		}
	}
	if fit >= len(voters)/2+1 {
		return rep, adminapi.Errorf(adminapi.CodeConflict, "%d of the %d voters of %s are alive and whole: it has its majority", fit, len(voters), name).
			WithHint("there is nothing to recover; vtopctl lease show %s tells why it does not serve, vtopctl repair brings replicas back", name)
	}
	return rep, nil
}

// mayRecover wants the last holder to have stopped serving: one that is cut off does so at the end of its lease time.
func (p *picture) mayRecover(r *fsm.Range, rep fsm.Replica) error {
	holder := r.Lease.Holder
	if holder == "" || holder == rep.Node {
		return nil
	}
	v, judged := p.verdicts()[holder]
	if limit := p.node.LeaseTime(); !judged || time.Duration(v.SilentMS)*time.Millisecond < limit {
		return adminapi.Errorf(adminapi.CodeConflict, "%s holds the lease of %s and was heard less than the lease time (%s) ago, or nobody knows when", holder, p.state.RangeName(r.ID), limit).
			WithHint("wait for %s, then try again: until then it may answer readers", limit)
	}
	return nil
}

// recoverPlan measures what is kept and what is lost. to is above everything that anybody is known to have had.
func (p *picture) recoverPlan(ctx context.Context, r *fsm.Range, rep fsm.Replica) (plan *adminapi.RecoverPlan, to vtop.Offset, err error) {
	name := p.state.RangeName(r.ID)
	plan = &adminapi.RecoverPlan{
		Range: name, From: string(rep.Node), ReplicaID: uint64(rep.ID), ConfigVersion: r.ConfigVersion, Floor: int64(r.Floor), LogStart: int64(r.LogStart),
		Lost: []adminapi.LostOffsets{}, Voters: []adminapi.RecoverVoter{}, Warnings: []adminapi.Reason{},
	}
	end, last, err := p.node.LogEnd(ctx, rep.Node, r.ID, rep.ID)
	if err != nil {
		return nil, 0, adminapi.Errorf(adminapi.CodeUnavailable, "replica %d of %s on %s does not tell how far it goes: %v", rep.ID, name, rep.Node, err).
			WithHint("start vtopd on %s: what is lost has to be measured", rep.Node)
	}
	end = provenEnd(r.Epochs, end, last)
	plan.KeepEnd = int64(end)
	to = max(end, r.Floor, r.LogEnd)
	for _, v := range r.Voters() {
		to = max(to, p.recoverVoter(ctx, r, v, plan, end))
	}
	if end < r.Floor {
		plan.Lost = append(plan.Lost, adminapi.LostOffsets{From: int64(end), To: int64(r.Floor), Promised: true})
	}
	if from := max(end, r.Floor); from < to {
		plan.Lost = append(plan.Lost, adminapi.LostOffsets{From: int64(from), To: int64(to)})
	}
	return plan, to, nil
}

// provenEnd is the end of a log after reconciliation: records of its last epoch that stand where a later one began were
// never committed, and would be cut before the replica leads (I8).
func provenEnd(table vtop.EpochTable, end vtop.Offset, last vtop.Epoch) vtop.Offset {
	for _, e := range table {
		if e.Epoch > last {
			end = min(end, e.Start)
		}
	}
	return end
}

// recoverVoter adds what one voter says of itself, and returns its end; what it does not say is a warning.
func (p *picture) recoverVoter(ctx context.Context, r *fsm.Range, v fsm.Replica, plan *adminapi.RecoverPlan, kept vtop.Offset) vtop.Offset {
	out := adminapi.RecoverVoter{Node: string(v.Node), ReplicaID: uint64(v.ID), Alive: p.answers(r, v) != nil, State: "unknown", LogEnd: adminapi.Unknown, Reason: v.Lost}
	warn := func(message, hint string) {
		plan.Warnings = append(plan.Warnings, adminapi.Reason{Subject: string(v.Node), Message: message, Hint: hint})
	}
	end, last, err := vtop.Offset(0), vtop.Epoch(0), error(nil)
	switch {
	case v.Lost != "":
		out.State = "lost"
	case !out.Alive:
		out.Reason = "it does not answer"
		warn("it does not answer, and may have records that nobody else has", "if there is any hope for its disk, bring it back instead")
	default:
		out.State = p.answers(r, v).Role
		if end, last, err = p.node.LogEnd(ctx, v.Node, r.ID, v.ID); err != nil {
			out.Reason = err.Error()
			warn("it does not tell how far it goes: "+err.Error(), "ask again")
			break
		}
		end = provenEnd(r.Epochs, end, last)
		out.LogEnd = int64(end)
		if hole := p.damage(v.Node, r); hole != "" { // below its end, so that no count of offsets shows it
			out.State, out.Reason = "damaged", hole
			warn("a sealed segment is damaged and cannot be read: "+hole, "only a voter that is whole gives those records back, and after the recovery it is none")
		}
		if end > kept {
			warn(fmt.Sprintf("it has %d more offsets than %s", end-kept, plan.From), fmt.Sprintf("--from %s loses less", v.Node))
		}
	}
	plan.Voters = append(plan.Voters, out)
	return end
}
