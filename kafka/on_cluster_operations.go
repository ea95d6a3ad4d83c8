package kafka

import (
	"context"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// TransferLease implements Operations.
func (o onCluster) TransferLease(ctx context.Context, r vtop.Range, to vtop.NodeName) (vtop.Epoch, error) {
	return o.n.TransferLease(ctx, r, to)
}

// SubmitRepairs implements Operations.
func (o onCluster) SubmitRepairs(ctx context.Context, requests []fsm.RepairRequest) ([]fsm.Item, error) {
	return o.n.SubmitRepairs(ctx, requests)
}

// CancelRepairs implements Operations.
func (o onCluster) CancelRepairs(ctx context.Context, ids []fsm.RepairID, reason string) ([]fsm.Item, error) {
	return o.n.CancelRepairs(ctx, ids, reason)
}

// Quorum implements Operations.
func (o onCluster) Quorum() Quorum {
	leader, _ := o.n.RaftLeader()
	out := Quorum{Leader: leader, Term: o.n.RaftTerm(), Commit: o.n.AppliedIndex()}
	for _, m := range o.n.MetadataMembers() {
		out.Members = append(out.Members, QuorumMember{Name: m.Name, Voter: m.Voter, Applied: m.Applied, Known: m.Known, Silent: m.Silent})
	}
	return out
}

// LogDir implements Operations.
func (o onCluster) LogDir() LogDir {
	var out LogDir
	out.Path, out.Total, out.Free, out.Err = o.n.DataDir()
	state, self := o.n.State(), o.n.Self()
	for _, info := range o.n.Replicas() {
		rg, ok := state.Range(info.Range)
		if !ok {
			continue
		}
		rep, ok := rg.On(self)
		if !ok || rep.ID != info.ReplicaID {
			continue // its successor counts, or nothing does
		}
		out.Replicas = append(out.Replicas, LogDirReplica{
			Range: info.Range, Bytes: info.Bytes, Lag: int64(max(rg.Floor-info.End, 0)), Learner: rep.Role == fsm.Learner,
		})
	}
	return out
}

// Producers implements Operations.
func (o onCluster) Producers(r vtop.Range, limit int) ([]Producer, error) {
	if _, err := o.EndOffset(r, -1); err != nil {
		return nil, err // for the leader checks
	}
	infos, err := o.n.Producers(r, limit)
	if err != nil {
		return nil, err
	}
	out := make([]Producer, 0, len(infos))
	for _, p := range infos {
		out = append(out, Producer{ID: p.ID, Epoch: p.Epoch, LastSequence: p.LastSequence, Timestamp: p.Clock})
	}
	return out, nil
}

// SetPreferred implements Operations.
func (o onCluster) SetPreferred(ctx context.Context, wishes []fsm.Preference) ([]fsm.Item, error) {
	return o.n.SetPreferred(ctx, wishes)
}

// ClientQuota implements Operations.
func (o onCluster) ClientQuota(client string) (produce, fetch int64) {
	return quotaIn(o.n.State(), client)
}

// AlterClientQuotas implements Operations.
func (o onCluster) AlterClientQuotas(ctx context.Context, changes []fsm.QuotaChange) ([]fsm.Item, error) {
	return o.n.AlterClientQuotas(ctx, changes)
}

// quotaIn is what the metadata says of a client id: its own rates, and where it has none those of the default.
func quotaIn(state *fsm.State, client string) (produce, fetch int64) {
	if q, ok := state.ClientQuota(client); ok {
		produce, fetch = q.Produce, q.Fetch
	}
	if q, ok := state.DefaultClientQuota(); ok {
		if produce == 0 {
			produce = q.Produce
		}
		if fetch == 0 {
			fetch = q.Fetch
		}
	}
	return produce, fetch
}
