package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func (n *fakeNode) TransferLease(_ context.Context, r vtop.Range, to vtop.NodeName) (vtop.Epoch, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	fr, ok := n.c.state.Range(r)
	if !ok {
		return 0, fmt.Errorf("%w: %s", vtop.ErrUnknownRange, r)
	}
	if _, votes := fr.VoterOn(to); !votes || n.c.down[to] {
		return 0, fmt.Errorf("lease of %s can't move to %s: it is not alive", r, to)
	}
	n.c.grantLocked(r, to, true)
	fr, _ = n.c.state.Range(r)
	return fr.Lease.Epoch, nil
}

// outcomes applies a command and returns what became of its items.
func (n *fakeNode) outcomes(cmd fsm.Command) ([]fsm.Item, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	out := n.c.outcomeLocked(cmd)
	return out.Items, out.Err()
}

func (n *fakeNode) SubmitRepairs(_ context.Context, requests []fsm.RepairRequest) ([]fsm.Item, error) {
	return n.outcomes(&fsm.SubmitRepairs{Items: requests})
}

func (n *fakeNode) CancelRepairs(_ context.Context, ids []fsm.RepairID, reason string) ([]fsm.Item, error) {
	return n.outcomes(&fsm.CancelRepairs{IDs: ids, Reason: reason})
}

func (n *fakeNode) SetPreferred(_ context.Context, wishes []fsm.Preference) ([]fsm.Item, error) {
	return n.outcomes(&fsm.SetPreferred{Items: wishes})
}

func (n *fakeNode) Quorum() Quorum {
	leader, _ := n.Controller()
	q := Quorum{Leader: leader, Term: 7, Commit: n.State().Index()}
	for node := range n.State().Nodes() {
		q.Members = append(q.Members, QuorumMember{Name: node.Name, Voter: node.Broker <= 3, Applied: q.Commit, Known: node.Name != "n2"})
	}
	return q
}

func (n *fakeNode) LogDir() LogDir {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	out := LogDir{Path: "/data/" + string(n.name), Total: 1 << 40, Free: 1 << 39}
	for rg := range n.c.state.RangesOf(n.name) {
		l, bytes := n.c.log(rg.ID), 0
		for _, b := range l.batches {
			bytes += len(b)
		}
		rep, _ := rg.On(n.name)
		out.Replicas = append(out.Replicas, LogDirReplica{Range: rg.ID, Bytes: int64(bytes), Lag: int64(l.end - l.high), Learner: rep.Role == fsm.Learner})
	}
	return out
}

func (n *fakeNode) Producers(r vtop.Range, limit int) ([]Producer, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if _, err := n.leadLocked(r, -1); err != nil {
		return nil, err
	}
	var out []Producer
	for id, seen := range n.c.log(r).producers {
		last := seen[len(seen)-1]
		out = append(out, Producer{ID: id, Epoch: last.epoch, LastSequence: last.last, Timestamp: 1})
	}
	slices.SortFunc(out, func(a, b Producer) int { return int(a.ID - b.ID) })
	return out[:min(limit, len(out))], nil
}

func (n *fakeNode) ClientQuota(client string) (produce, fetch int64) {
	return quotaIn(n.State(), client)
}

func (n *fakeNode) AlterClientQuotas(_ context.Context, changes []fsm.QuotaChange) ([]fsm.Item, error) {
	return n.outcomes(&fsm.AlterClientQuotas{Items: changes})
}
