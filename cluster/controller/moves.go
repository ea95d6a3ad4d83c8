package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
)

// balance brings a few leases home, to nodes that have been fit for a while.
func (c *Controller) balance(ctx context.Context, state *fsm.State, nodes []placement.Node) {
	now := c.now()
	for i := range nodes {
		if since, ok := c.fitSince[nodes[i].Name]; !ok || now-since < c.cfg.HomeAfter {
			nodes[i].HasRoom = false // may keep what it has; nothing returns to it yet
		}
	}
	home := map[vtop.NodeName]bool{}
	for _, n := range nodes {
		home[n.Name] = n.HasRoom
	}
	limit := max(1, state.RangeCount()/20)
	var away []needy
	for r := range state.Ranges() {
		if r.GrantReason == transferReason {
			continue // somebody wanted it there
		}
		if r.Started && len(r.Preferred) > 0 && r.Preferred[0] != r.Lease.Holder && home[r.Preferred[0]] {
			away = append(away, needy{r: r, reason: "returns to its preferred node"})
		}
		if len(away) == 4*limit {
			break
		}
	}
	if len(away) == 0 {
		return
	}
	ends := c.positions(ctx, nodes, away)
	var ranges []placement.Range
	reasons := map[vtop.Range]string{}
	for _, n := range away {
		ranges = append(ranges, describe(n.r, ends, ""))
		reasons[n.r.ID] = n.reason
	}
	if moves := placement.Balance(nodes, ranges, limit); len(moves) > 0 {
		c.propose(ctx, moves, reasons, ends)
	}
}

// transferReason marks a lease that an operator moved. It stays there until its holder fails.
const transferReason = "transfer asked for"

// TransferError says why a lease can't move to a node.
type TransferError struct {
	Range  string
	To     vtop.NodeName
	Reason string
}

// Error implements error.
func (e *TransferError) Error() string {
	return fmt.Sprintf("lease of %s can't move to %s: %s", e.Range, e.To, e.Reason)
}

// votersOf names the nodes whose replicas may vote.
func votersOf(r *fsm.Range) string {
	var names []string
	for _, rep := range r.Voters() {
		if rep.CanVote() {
			names = append(names, string(rep.Node))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Transfer moves a lease to a voter, on the Raft leader. expected 0 takes the present epoch. It returns once the grant
// is applied here; the new holder starts on its own.
func (c *Controller) Transfer(ctx context.Context, id vtop.Range, to vtop.NodeName, expected vtop.Epoch) (vtop.Epoch, error) {
	state := c.cfg.Machine.State()
	r, ok := state.Range(id)
	if !ok {
		return 0, fmt.Errorf("range %s: %w", id, vtop.ErrUnknownRange)
	}
	refuse := func(format string, args ...any) (vtop.Epoch, error) {
		return 0, &TransferError{Range: state.RangeName(id), To: to, Reason: fmt.Sprintf(format, args...)}
	}
	n, ok := state.Node(to)
	if !ok {
		return refuse("there is no node of that name")
	}
	if _, ok := r.VoterOn(to); !ok {
		return refuse("it has no replica of that range that votes; the voters are on %s", votersOf(r))
	}
	if v := c.cfg.Tracker.Verdict(to); !v.Alive || v.Incarnation != n.Incarnation {
		return refuse("it is not alive: %s", v.Reason)
	}
	if expected != 0 && expected != r.LastEpoch {
		return refuse("the lease has epoch %d, expected is %d", r.LastEpoch, expected)
	}
	if r.Lease.HeldBy(n.Name, n.Incarnation) {
		return r.Lease.Epoch, nil
	}
	cmd := &fsm.GrantLeases{At: time.Now().UnixMilli(), Items: []fsm.Grant{{
		Range: id, Holder: to, Incarnation: n.Incarnation, Expected: r.LastEpoch, Reason: transferReason,
	}}}
	out, err := c.cfg.Quorum.Propose(ctx, cmd)
	if err != nil {
		return 0, err
	}
	if err := out.Err(); err != nil {
		return 0, err
	}
	if err := out.Items[0].Err(); err != nil {
		return 0, err
	}
	return out.Items[0].Epoch, nil
}
