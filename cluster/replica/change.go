package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
)

// voterChange is a change of the replicas that was proposed and whose fate is not known yet.
type voterChange struct {
	cmd  *fsm.ChangeReplicas
	done chan struct{} // closed when out and err are set
	out  fsm.Outcome
	err  error
}

// ChangeReplicas changes one replica of a range that this node leads: node for fsm.AddLearner, id for the others. From the
// proposal until the applied state shows it taken or refused, only what majorities of both sets have acknowledged is
// committed and no floor is reported, however long that takes; ctx bounds the caller's wait alone. It returns the id of a
// learner that was added. Errors: vtop.ErrNotLeader, protocol's ErrChangeInFlight, ErrNotSettled and ErrChange, an
// *fsm.Refusal, or vtop.ErrTimeout if the outcome is not known yet.
func (e *Engine) ChangeReplicas(ctx context.Context, r vtop.Range, change fsm.ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) (vtop.ReplicaID, error) {
	ld, err := e.serving(r, vtop.AnyEpoch)
	if err != nil {
		return 0, err
	}
	c, err := ld.beginChange(change, node, id)
	if err != nil {
		return 0, err
	}
	if !e.goroutine(func() { e.driveChange(ld, c) }) {
		return 0, fmt.Errorf("%w: node %q is stopping", vtop.ErrClosed, e.self)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %s of range %s: %w", vtop.ErrTimeout, change, r, context.Cause(ctx))
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.out.ReplicaID, c.out.Err()
}

// beginChange opens the book's joint phase where voters change. The settle mark is the log end: nothing above it can have
// been committed by the present set alone, since from now on, and under this same lock, both sets are asked.
func (l *leadership) beginChange(change fsm.ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) (*voterChange, error) {
	rg, ok := l.slot.engine.machine.State().Range(l.r)
	if !ok {
		return nil, fmt.Errorf("%w: %s", vtop.ErrUnknownRange, l.r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return nil, l.ended
	}
	if l.change != nil {
		return nil, fmt.Errorf("range %s: %w", l.r, protocol.ErrChangeInFlight)
	}
	mark := l.log.End()
	kind := map[fsm.ReplicaChange]protocol.ChangeKind{fsm.PromoteLearner: protocol.AddVoter, fsm.RemoveVoter: protocol.RemoveVoter}[change]
	if kind != 0 {
		applied := protocol.Settlement{Mark: rg.SettleMark, Quorum: rg.QuorumPosition}
		if rg.ConfigVersion != l.book.Version() || rg.Lease.Epoch != l.epoch {
			return nil, fmt.Errorf("range %s: configuration version %d applied, %d in the book: %w", l.r, rg.ConfigVersion, l.book.Version(), protocol.ErrChangeInFlight)
		}
		if _, _, err := l.book.Begin(protocol.Change{Kind: kind, Replica: id}, mark, applied); err != nil {
			return nil, err
		}
	}
	l.change = &voterChange{done: make(chan struct{}), cmd: &fsm.ChangeReplicas{
		Range: l.r, Epoch: l.epoch, Config: l.book.Version(), Change: change, Node: node, ReplicaID: id, SettleMark: mark,
	}}
	return l.change, nil
}

// driveChange proposes until the fate is known or the leadership has ended. A repeat is harmless: the version that it names
// lets one copy through at most, and one refused copy proves that no other can be taken later.
func (e *Engine) driveChange(ld *leadership, c *voterChange) {
	defer close(c.done)
	var pause backoff
	for {
		ctx, cancel := context.WithTimeout(ld.ctx, 5*time.Second)
		out, err := e.cfg.Propose(ctx, c.cmd)
		cancel()
		rg, ok := e.machine.State().Range(ld.r)
		if ok {
			ld.applied(rg)
		}
		moved := ok && rg.ConfigVersion > c.cmd.Config
		if err != nil && moved {
			err, out.Refusal = nil, &fsm.Refusal{Code: fsm.CodeStaleConfig, Message: "the configuration moved before the outcome was known"}
		}
		if err == nil {
			if c.out = out; moved && out.Refusal != nil {
				c.out.Refusal = changeRefusal(rg, c.cmd, out.Refusal)
			}
			break
		}
		if ld.ctx.Err() != nil || !pause.wait(ld.ctx) {
			c.err = context.Cause(ld.ctx)
			break
		}
	}
	ld.endChange(c)
}

// endChange takes the change out of the book, and answers what only the refused set held back.
func (l *leadership) endChange(c *voterChange) {
	var ready []waiter
	l.mu.Lock()
	l.change = nil
	moved := c.err == nil && l.book.Refused(c.cmd.Config) && l.ended == nil // does nothing if it was taken: then the version is higher
	if moved {
		ready = l.raiseLocked(nil)
	}
	l.mu.Unlock()
	l.answer(ready, moved)
}

// changeRefusal looks whether an earlier copy of a refused command was taken.
func changeRefusal(rg *fsm.Range, cmd *fsm.ChangeReplicas, refused *fsm.Refusal) *fsm.Refusal {
	rep, there := rg.Replica(cmd.ReplicaID)
	switch cmd.Change {
	case fsm.PromoteLearner:
		if there && rep.Role == fsm.Voter {
			return nil
		}
	case fsm.RemoveVoter, fsm.RemoveLearner:
		if !there {
			return nil
		}
	}
	return refused
}

// DeleteRecords moves the log start to before (the high watermark if -1), and returns it once it is applied and readers here
// see it. The metadata refuses to give up what is not promised yet, so the floor is reported first.
func (e *Engine) DeleteRecords(ctx context.Context, r vtop.Range, before vtop.Offset) (vtop.Offset, error) {
	ld, err := e.serving(r, vtop.AnyEpoch)
	if err != nil {
		return -1, err
	}
	hw := ld.highWatermark()
	if before == -1 {
		before = hw
	}
	if before < 0 || before > hw {
		return -1, fmt.Errorf("%w: %d is above the high watermark %d of range %s", vtop.ErrOffsetOutOfRange, before, hw, r)
	}
	if start := ld.log.Start(); before <= start {
		return start, nil
	}
	if rg, ok := e.machine.State().Range(r); !ok || rg.Floor < before {
		if item, ok := ld.floorReport(); ok {
			if err := e.reportFloors(ctx, []fsm.FloorReport{item}, []*leadership{ld}); err != nil {
				return -1, fmt.Errorf("report the floor: %w", err)
			}
		}
	}
	out, err := e.cfg.Propose(ctx, &fsm.MoveLogStart{Range: r, Epoch: ld.epoch, Start: before})
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		return -1, fmt.Errorf("move the log start of range %s to %d: %w", r, before, err)
	}
	ld.slot.slow.Lock()
	defer ld.slot.slow.Unlock()
	if rg, ok := e.machine.State().Range(r); ok {
		e.followLogStart(ld.slot, rg, ld.log)
	}
	return ld.log.Start(), nil
}
