package storage

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// resetPlan is a reset that has taken effect in memory and is not yet known to be on disk.
type resetPlan struct {
	base      vtop.Offset
	producers []byte
}

// ResetTo empties the log and begins it anew at base, the base of a segment of the leader, with the producer state
// there (see ResetPoint); under the lease of epoch e (FenceCut). Refused unless the log end is below base: that is
// the proof that the log is too old (B8). One crash-safe step: before it is the old log, after it the new one.
// Replica id and promise stay. If the disk fails on the way the log is failed, and Reopen finishes the reset.
func (l *Log) ResetTo(ctx context.Context, e vtop.Epoch, base vtop.Offset, producers []byte) error {
	if _, err := decodeProducers(&l.store.opt, producers); err != nil {
		return fmt.Errorf("range %s: reset to %d: %w", l.rng, base, err)
	}
	l.opMu.Lock()
	defer l.opMu.Unlock()
	if err := l.takeAlone(ctx); err != nil {
		return err
	}
	defer l.leaveAlone()
	var from, to vtop.Offset
	var old []*segment
	err := l.store.opt.Fence.Hold(l.rng, e, vtop.FenceCut, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.usableLocked(); err != nil {
			return err
		}
		if e < l.promised {
			return &PromiseError{Range: l.rng, Asked: e, Promised: l.promised}
		}
		if l.end >= base {
			return fmt.Errorf("range %s: reset to %d refused: the log reaches to %d", l.rng, base, l.end)
		}
		from, to, old = l.segs[0].base, l.end, l.segs
		l.generation++
		for _, s := range l.segs {
			s.gone = true
		}
		l.segs, l.runs, l.hints = []*segment{l.newSegment(base)}, nil, readHints{}
		l.start, l.end, l.durable, l.bytes = base, base, base, 0
		l.pendingReset = &resetPlan{base, producers}
		return nil
	})
	if err != nil {
		return err
	}
	l.store.files.retire(old...)
	l.log.Warn("reset: the leader no longer has what follows the log end", "epoch", e, "dropped_from", from, "dropped_to", to, "begins_at", base)
	if err := l.finishReset(); err != nil {
		return l.failOp(fmt.Errorf("reset to %d: %w", base, err))
	}
	return nil
}

// finishReset puts a reset on disk. The file `replica` commits it: segments below its base count for nothing, and
// are removed by recovery. It may be called again after an error.
func (l *Log) finishReset() error {
	l.mu.Lock()
	plan := *l.pendingReset
	l.mu.Unlock()
	snapshot := encodeSnapshot(l.rng, plan.base, plan.producers)
	if err := vfs.WriteFileAtomic(l.store.fs, l.path(plan.base, producerSuffix), snapshot); err != nil {
		return err
	}
	if err := l.writeBase(plan.base); err != nil {
		return err
	}
	if err := l.reload(plan.base); err != nil {
		return err
	}
	l.mu.Lock()
	l.pendingReset = nil
	l.mu.Unlock()
	return nil
}

// ResetPoint returns where a follower that is too old begins: the base of the first segment, and the encoded
// producer state there.
func (l *Log) ResetPoint() (base vtop.Offset, producers []byte, err error) {
	l.opMu.Lock() // against retention
	defer l.opMu.Unlock()
	return l.resetPoint()
}

// resetPoint is ResetPoint, under opMu.
func (l *Log) resetPoint() (base vtop.Offset, producers []byte, err error) {
	l.mu.Lock()
	err = l.usableLocked()
	if err == nil {
		base = l.segs[0].base
	}
	l.mu.Unlock()
	if err != nil || base == 0 {
		return 0, nil, err
	}
	producers, err = l.readSnapshot(base)
	if err != nil {
		return 0, nil, fmt.Errorf("range %s: producer state at %d: %w", l.rng, base, err)
	}
	return base, producers, nil
}

// readMeta reads the file `replica`.
func (l *Log) readMeta() (replicaMeta, error) {
	data, err := vfs.ReadFile(l.store.fs, filepath.Join(l.dir, metaName), maxSmallFile)
	if err != nil {
		return replicaMeta{}, err
	}
	return decodeReplicaMeta(data)
}

// writeBase commits that nothing below base belongs to the log any more.
func (l *Log) writeBase(base vtop.Offset) error {
	meta, err := l.readMeta()
	if err != nil {
		return err
	}
	meta.base = base
	return vfs.WriteFileAtomic(l.store.fs, filepath.Join(l.dir, metaName), meta.encode())
}
