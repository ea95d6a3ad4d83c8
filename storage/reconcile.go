package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// errBusy is the gate while an operation has the log for itself.
var errBusy = fmt.Errorf("%w: the log is being cut or reset", vtop.ErrNotReady)

// Reconcile cuts the log where the epoch table proves divergence (I8), under the lease of epoch e (FenceCut). It
// waits for the flusher to drain first (I4); the file is truncated, durably, and all derived state rebuilt when it
// returns. A cut below floor or inside a sealed segment, and a record of an epoch above e, is a *QuarantineError
// and changes nothing on disk. Without divergence it returns at once and nothing waits.
func (l *Log) Reconcile(ctx context.Context, e vtop.Epoch, table vtop.EpochTable, floor vtop.Offset) (Cut, error) {
	cut, err := l.reconcile(ctx, e, table, floor)
	var quarantine *QuarantineError
	if errors.As(err, &quarantine) { // told here, outside all locks
		l.log.Error("the replica is quarantined; nothing was changed on disk", "reason", quarantine.Reason)
	}
	return cut, err
}

func (l *Log) reconcile(ctx context.Context, e vtop.Epoch, table vtop.EpochTable, floor vtop.Offset) (Cut, error) {
	l.opMu.Lock()
	defer l.opMu.Unlock()
	plan := cutPlan{log: l, epoch: e, table: table, floor: floor}
	if err := plan.look(); err != nil || !plan.needed {
		return Cut{}, err
	}
	if err := l.takeAlone(ctx); err != nil {
		return Cut{}, err
	}
	defer l.leaveAlone()
	if err := plan.look(); err != nil || !plan.needed {
		return Cut{}, err
	}
	if err := plan.place(); err != nil {
		return Cut{}, err
	}
	if err := plan.take(); err != nil {
		return Cut{}, err
	}
	l.log.Warn("cut a divergent suffix, as the epoch table proves", "epoch", e, "from", plan.at, "to", plan.end,
		"bytes", plan.bytes, "runs", plan.runs, "table", table, "floor", floor)
	if err := l.cutTo(plan.at, false); err != nil {
		return Cut{}, l.failOp(fmt.Errorf("cut at %d: %w", plan.at, err))
	}
	return Cut{Done: true, From: plan.at, To: plan.end, Bytes: plan.bytes}, nil
}

// takeAlone closes the gate for appends and waits until the flusher has ended.
func (l *Log) takeAlone(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = errBusy
	for l.flusherOn {
		if err := l.waitLocked(ctx); err != nil {
			l.gate = nil
			return err
		}
	}
	return nil
}

// leaveAlone opens the gate again.
func (l *Log) leaveAlone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = nil
	l.broadcastLocked()
}

// failOp fails the log after an operation that was cut short on disk; Reopen finishes it. It returns the error as
// callers see it.
func (l *Log) failOp(err error) error {
	l.mu.Lock()
	l.failLocked(err)
	l.syncFailed = true
	durable := l.durable
	err = l.usableLocked()
	l.mu.Unlock()
	l.logFailure(durable, err)
	return err
}

// cutPlan decides on a cut. look and take run under the lease cell; place reads the file between them, while the
// log stands still.
type cutPlan struct {
	log   *Log
	epoch vtop.Epoch
	table vtop.EpochTable
	floor vtop.Offset

	needed  bool
	at, end vtop.Offset
	seg     *segment
	bytes   int64
	runs    []vtop.EpochRun
}

// look asks the table. Under the lease: the table that the caller has is that of epoch e.
func (p *cutPlan) look() error {
	l := p.log
	return l.store.opt.Fence.Hold(l.rng, p.epoch, vtop.FenceCut, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		return p.decideLocked()
	})
}

func (p *cutPlan) decideLocked() error {
	l := p.log
	if err := l.usableLocked(); err != nil {
		return err
	}
	if p.epoch < l.promised {
		return &PromiseError{Range: l.rng, Asked: p.epoch, Promised: l.promised}
	}
	if last := l.lastEpochLocked(); last > p.epoch {
		return l.quarantineLocked(fmt.Sprintf("the log has records of epoch %d, the applied lease is of epoch %d: the metadata went back", last, p.epoch))
	}
	p.at, p.needed = p.table.Cut(l.runs, l.end)
	if !p.needed {
		return nil
	}
	p.end, p.runs = l.end, slices.Clone(l.runs)
	p.seg = l.segs[l.segmentAtLocked(p.at)]
	switch {
	case p.at < p.floor:
		return l.quarantineLocked(fmt.Sprintf("the epoch table wants a cut at %d, below the committed floor %d", p.at, p.floor))
	case p.at < l.segs[0].base:
		return l.quarantineLocked(fmt.Sprintf("the epoch table wants a cut at %d, below the first segment %d", p.at, l.segs[0].base))
	case p.seg.state == SegmentSealed:
		return l.quarantineLocked(fmt.Sprintf("the epoch table wants a cut at %d, inside the sealed segment %d to %d", p.at, p.seg.base, p.seg.end-1))
	}
	return nil
}

func (l *Log) quarantineLocked(reason string) error {
	l.state, l.reason = StateQuarantined, reason
	l.broadcastLocked()
	return &QuarantineError{Range: l.rng, Reason: reason}
}

// place makes sure that the cut falls between two batches, and measures it. The log is alone.
func (p *cutPlan) place() error {
	l := p.log
	pos, err := l.positionOf(p.seg, p.at)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, errInsideBatch) {
		return l.quarantineLocked(fmt.Sprintf("the epoch table wants a cut at %d, inside a batch", p.at))
	}
	if err != nil {
		return err
	}
	p.bytes = p.seg.size - pos
	for _, s := range l.segs[l.segmentAtLocked(p.at)+1:] {
		p.bytes += s.size
	}
	return nil
}

// take is where the cut happens (I3): under the lease, in memory. What is on disk follows; until it has, the gate
// is closed, and a crash leaves a log that the next reconciliation cuts again.
func (p *cutPlan) take() error {
	l := p.log
	at := p.at
	return l.store.opt.Fence.Hold(l.rng, p.epoch, vtop.FenceCut, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := p.decideLocked(); err != nil {
			return err
		}
		if !p.needed || p.at != at {
			return fmt.Errorf("range %s: %w: the cut moved from %d to %d", l.rng, vtop.ErrNotReady, at, p.at)
		}
		l.generation++
		l.end, l.durable = at, min(l.durable, at)
		l.marked = min(l.marked, at)
		for len(l.runs) > 0 && l.runs[len(l.runs)-1].Start >= at {
			l.runs = l.runs[:len(l.runs)-1]
		}
		return nil
	})
}

// Verify holds the log against the committed floor, once the metadata has caught up and before the replica
// answers its first fence. The durable mark has already decided at open; the floor decides where there was no mark:
// bytes that were no records, at an offset below the floor, are then damage and not a torn end, and the replica is
// lost (I10). A log that ends cleanly below the floor is merely behind.
func (l *Log) Verify(floor vtop.Offset) error {
	l.mu.Lock()
	if err := l.usableLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	at := l.suspect
	damaged := l.unmarked && at >= 0 && at < floor
	l.suspect = -1
	l.mu.Unlock()
	if !damaged {
		return nil
	}
	reason := fmt.Sprintf("at open the log ended at %d in bytes that are no records, below the committed floor %d, and no durable mark says that they never were synced", at, floor)
	return errors.Join(fmt.Errorf("range %s: %w: %s", l.rng, vtop.ErrReplicaLost, reason), l.Lose(reason))
}
