package meta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// proposeTimeout bounds a proposal whose context has no deadline.
	proposeTimeout = 30 * time.Second
	// enqueueTimeout bounds the wait for a place in Raft's queue.
	enqueueTimeout  = 2 * time.Second
	proposePauseMin = 5 * time.Millisecond
	proposePauseMax = 250 * time.Millisecond
)

// errNotProposed wraps errors after which the command was surely never proposed.
var errNotProposed = errors.New("not proposed")

// Propose has the command committed and applied, by this node if it leads and else by the Raft leader, and returns
// what applying it said once it is applied here too. A refusal is in the outcome, not in the error.
//
// Errors: a *fsm.Refusal for a command that must not be proposed (its shape, or the cluster's feature level);
// vtop.ErrTimeout if it is not known whether it was proposed: look at the state, then decide;
// vtop.ErrNotReady if it surely was not, because no leader was found in time; vtop.ErrOverloaded; vtop.ErrClosed.
// While ctx lives it tries again what was surely not proposed, and what a repeat does not change. Without a
// deadline in ctx it gives up after 30 s.
func (m *Meta) Propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	raw, err := fsm.Encode(cmd)
	if err != nil {
		return fsm.Outcome{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, proposeTimeout)
		defer cancel()
	}
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	default:
		return fsm.Outcome{}, fmt.Errorf("%w: %d proposals in flight from node %q", vtop.ErrOverloaded, maxProposals, m.name())
	}
	return m.proposeUntil(ctx, cmd, raw)
}

func (m *Meta) proposeUntil(ctx context.Context, cmd fsm.Command, raw []byte) (fsm.Outcome, error) {
	pause := newBackoff(proposePauseMin, proposePauseMax)
	unknown := false
	for {
		out, err := m.proposeOnce(ctx, cmd, raw)
		if err == nil {
			return out, nil
		}
		var refusal *fsm.Refusal
		if errors.As(err, &refusal) {
			return out, err
		}
		if m.ctx.Err() != nil && !unknown && errors.Is(err, errNotProposed) {
			return out, fmt.Errorf("%s: %w", cmd.Op(), vtop.ErrClosed)
		}
		unknown = unknown || !errors.Is(err, errNotProposed)
		if unknown && !repeatable(cmd) || !sleepBoth(ctx, m.ctx, pause.pause()) {
			if unknown {
				return out, fmt.Errorf("%s: %w: %w", cmd.Op(), vtop.ErrTimeout, err)
			}
			return out, fmt.Errorf("%s: %w: %w", cmd.Op(), vtop.ErrNotReady, err)
		}
	}
}

func sleepBoth(ctx, owner context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-owner.Done():
	}
	return false
}

// repeatable says whether a second entry of the same command changes nothing and is answered as the first; the
// contract of each command says so.
func repeatable(cmd fsm.Command) bool {
	switch c := cmd.(type) {
	case *fsm.GrantLeases, *fsm.ChangeReplicas, *fsm.CreateRanges, *fsm.GrantCoordinators, *fsm.UpdateGroups:
		return false
	case *fsm.AlterTopicConfig:
		return c.Expected == 0
	}
	return true
}

func (m *Meta) proposeOnce(ctx context.Context, cmd fsm.Command, raw []byte) (fsm.Outcome, error) {
	s := m.server.Load()
	if s == nil {
		return fsm.Outcome{}, fmt.Errorf("%w: raft does not run: %s", errNotProposed, m.Status())
	}
	if s.raft.State() == raft.Leader {
		if err := m.machine.State().CheckProposal(cmd); err != nil {
			if m.IsLeader() {
				return fsm.Outcome{}, err
			}
			// What is applied here may be old; the barrier of the new leader is under way.
			return fsm.Outcome{}, fmt.Errorf("%w: %w", errNotProposed, transport.ErrNotRaftLeader)
		}
		return m.apply(ctx, s, raw)
	}
	hint := m.whoLeads(ctx)
	if hint == nil {
		return fsm.Outcome{}, fmt.Errorf("%w: node %q knows of no raft leader", errNotProposed, m.name())
	}
	to := transport.Target{Name: vtop.NodeName(hint.GetName()), Addr: hint.GetPeerAddr()}
	resp, err := m.cfg.Peers.Propose(ctx, to, &peerpb.ProposeRequest{Command: raw})
	if err != nil {
		return fsm.Outcome{}, classify(err)
	}
	out, err := fsm.DecodeResult(resp.GetOutcome())
	if err != nil {
		return fsm.Outcome{}, fmt.Errorf("outcome from node %q: %w", to.Name, err)
	}
	if out.Refusal != nil && out.Index == 0 {
		return fsm.Outcome{}, out.Refusal
	}
	return out, m.machine.WaitApplied(ctx, out.Index)
}

// classify marks errors of a forwarded proposal that prove that nothing was proposed. All others leave it open.
func classify(err error) error {
	for _, sure := range []error{
		transport.ErrUnreachable, transport.ErrNotRaftLeader, transport.ErrWrongNode, transport.ErrWrongCluster,
		transport.ErrWrongGeneration, transport.ErrUnimplemented, transport.ErrNotAllowed, vtop.ErrNotReady, vtop.ErrOverloaded,
	} {
		if errors.Is(err, sure) {
			return fmt.Errorf("%w: %w", errNotProposed, err)
		}
	}
	return err
}

// apply proposes through this node's own Raft and waits until the command is applied here.
func (m *Meta) apply(ctx context.Context, s *server, raw []byte) (fsm.Outcome, error) {
	var future raft.ApplyFuture
	err := wait(ctx, func() error {
		f := s.raft.Apply(raw, enqueueTimeout)
		err := f.Error()
		future = f
		return err
	})
	m.noteTransfer(err)
	switch {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fsm.Outcome{}, fmt.Errorf("%w: %w", errNotProposed, err)
	default:
		return fsm.Outcome{}, fmt.Errorf("propose: %w", err)
	}
	out, ok := future.Response().(fsm.Outcome)
	if !ok {
		return fsm.Outcome{}, fmt.Errorf("state machine answered %T", future.Response())
	}
	return out, m.machine.WaitApplied(ctx, out.Index)
}

// transferLimit is how long a hand-over may make Raft refuse proposals. Raft clears that state only when the message
// to the target has returned, and there are ways in which it never does; nothing but a new start helps then.
const transferLimit = 20 * time.Second

// noteTransfer gives the node up if Raft stays in a hand-over.
func (m *Meta) noteTransfer(err error) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		m.transferring.Store(0)
		return
	}
	now := time.Now().UnixNano()
	if !m.transferring.CompareAndSwap(0, now) && now-m.transferring.Load() > int64(transferLimit) {
		m.fail(fmt.Errorf("raft has been handing over leadership for more than %s and takes no proposal: start this node again", transferLimit))
	}
}

// ReadIndex returns an index of the state machine that covers everything that was committed when it was called:
// a node that has applied it has seen all that. It asks the Raft leader, which answers after a barrier in its
// own term.
func (m *Meta) ReadIndex(ctx context.Context) (uint64, error) {
	if m.IsLeader() {
		return m.leaderReadIndex(ctx)
	}
	hint := m.whoLeads(ctx)
	if hint == nil {
		return 0, fmt.Errorf("%w: node %q knows of no raft leader", vtop.ErrNotReady, m.name())
	}
	resp, err := m.cfg.Peers.ReadIndex(ctx, transport.Target{Name: vtop.NodeName(hint.GetName()), Addr: hint.GetPeerAddr()}, &peerpb.ReadIndexRequest{})
	if err != nil {
		return 0, err
	}
	return resp.GetIndex(), nil
}

func (m *Meta) leaderReadIndex(ctx context.Context) (uint64, error) {
	term, ok := m.LeadingTerm()
	if !ok {
		return 0, m.notLeader()
	}
	if err := m.barrier(ctx); err != nil {
		return 0, fmt.Errorf("%w: read index: %w", vtop.ErrNotReady, err)
	}
	if now, ok := m.LeadingTerm(); !ok || now != term {
		return 0, m.notLeader()
	}
	return m.machine.Applied(), nil
}
