package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Roll closes the tail under the lease of epoch e (FenceLead) if it has records and is older than maxAge by the
// leader's clock now (0: whatever its age). The age counts from the first Roll that saw the records. Memory only:
// Closed has the segment once the flusher has finished its file.
func (l *Log) Roll(e vtop.Epoch, now time.Time, maxAge time.Duration) (rolled bool, err error) {
	err = l.store.opt.Fence.Hold(l.rng, e, vtop.FenceLead, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.writableLocked(e); err != nil {
			return err
		}
		if l.tailLocked().size == 0 {
			l.tailSince = time.Time{}
			return nil
		}
		if l.tailSince.IsZero() {
			l.tailSince = now
		}
		if maxAge == 0 || now.Sub(l.tailSince) >= maxAge {
			l.rollLocked()
			l.wakeFlusherLocked()
			rolled = true
		}
		return nil
	})
	return rolled, err
}

// CloseAt closes the tail at end if that is the log end: the catalogue has a segment that ends there, so that no
// lease is asked. It does nothing if a segment already begins at end. If the log has not reached end it is
// vtop.ErrNotReady; if end is inside a segment, a *BoundaryError.
func (l *Log) CloseAt(end vtop.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if l.gate != nil {
		return l.gate
	}
	tail := l.tailLocked()
	switch {
	case end <= l.segs[0].base:
		return nil
	case end > l.end:
		return fmt.Errorf("range %s: %w: close at %d, the log ends at %d", l.rng, vtop.ErrNotReady, end, l.end)
	case l.segs[l.segmentAtLocked(end)].base == end:
		return nil
	case end == l.end:
		l.rollLocked()
		l.wakeFlusherLocked()
		return nil
	}
	return &BoundaryError{Range: l.rng, Tail: tail.base, End: l.end, Named: end}
}

// Closed lists the segments that are closed, wholly durable and not sealed, in order.
func (l *Log) Closed() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []SegmentInfo
	for _, s := range l.segs {
		if s.state == SegmentClosed && s.finished {
			out = append(out, s.info())
		}
	}
	return out
}

// Root reads a closed segment and returns the root and size that its manifest will have. Slow; takes no lock
// while it reads. vtop.ErrNotReady if the segment is not closed and durable yet, or was cut meanwhile.
func (l *Log) Root(base vtop.Offset) (root [32]byte, bytes int64, err error) {
	m, err := l.compute(base)
	if err != nil {
		return root, 0, err
	}
	return m.Root, m.Size, nil
}

// compute returns the manifest of a closed segment: the one computed last, if it is that, or a new one.
func (l *Log) compute(base vtop.Offset) (*manifest.Manifest, error) {
	l.mu.Lock()
	plan, err := l.planSegmentLocked(base)
	computed := l.computed
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if computed != nil && computed.Base == base && computed.Size == plan.fileEnd {
		return computed, nil
	}
	if plan.sealed {
		return readManifest(l.store.fs, l.path(base, manifestSuffix), base)
	}
	state, err := l.readSnapshot(plan.limit)
	if err != nil {
		return nil, fmt.Errorf("range %s: producer state at %d: %w", l.rng, plan.limit, err)
	}
	h, err := l.store.files.acquire(plan.seg, false, false)
	if err != nil {
		return nil, fmt.Errorf("range %s: %w: open %s: %w", l.rng, vtop.ErrStorage, plan.seg.path, err)
	}
	defer l.store.files.release(h)
	m, err := manifest.Compute(h.file, plan.fileEnd, base, state)
	if errors.Is(err, vtop.ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, l.foundDamage(&plan, base, err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("range %s: %w: %w", l.rng, vtop.ErrStorage, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if plan.generation != l.generation {
		return nil, fmt.Errorf("range %s: %w: the log was cut meanwhile", l.rng, vtop.ErrNotReady)
	}
	l.computed = m
	return m, nil
}

// planSegmentLocked finds a segment that is closed on disk. limit is its end.
func (l *Log) planSegmentLocked(base vtop.Offset) (readPlan, error) {
	if err := l.usableLocked(); err != nil && l.state != StateFailed {
		return readPlan{}, err
	}
	if base < l.segs[0].base {
		return readPlan{}, fmt.Errorf("range %s: %w: segment %d was reclaimed, the first is %d", l.rng, vtop.ErrOffsetOutOfRange, base, l.segs[0].base)
	}
	s := l.segs[l.segmentAtLocked(base)]
	if s.base != base || s.state == SegmentTail || !s.finished {
		return readPlan{}, fmt.Errorf("range %s: %w: segment %d is not closed here", l.rng, vtop.ErrNotReady, base)
	}
	if s.hole != "" {
		return readPlan{}, fmt.Errorf("range %s segment %d: %w: %s", l.rng, base, vtop.ErrDamaged, s.hole)
	}
	return readPlan{readSpec: readSpec{from: base, limit: s.end}, seg: s, sealed: s.state == SegmentSealed, fileEnd: s.size, generation: l.generation}, nil
}

// Seal publishes the manifest of a closed segment that the catalogue has with root want. Another root is damage
// (I9): vtop.ErrDamaged, and the segment becomes a hole. Sealing again is fine. vtop.ErrNotReady if the segment is
// not closed and durable yet.
func (l *Log) Seal(base vtop.Offset, want [32]byte) error {
	l.opMu.Lock()
	defer l.opMu.Unlock()
	m, err := l.compute(base)
	if err != nil {
		return err
	}
	l.mu.Lock()
	plan, err := l.planSegmentLocked(base)
	if err == nil {
		plan.seg.sealing = true
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		l.mu.Lock()
		plan.seg.sealing = false
		l.mu.Unlock()
	}()
	if m.Root != want {
		l.mu.Lock()
		plan.seg.state = SegmentSealed // in the catalogue, if not here: it is never cut
		l.mu.Unlock()
		return l.foundDamage(&plan, base, fmt.Sprintf("its root is %x, the catalogue has %x", m.Root, want))
	}
	if plan.sealed {
		return nil
	}
	if err := vfs.WriteFileAtomic(l.store.fs, l.path(base, manifestSuffix), m.Encode()); err != nil {
		return fmt.Errorf("range %s: %w: seal %d: %w", l.rng, vtop.ErrStorage, base, err)
	}
	l.mu.Lock()
	plan.seg.state, plan.seg.root, l.computed = SegmentSealed, m.Root, nil
	plan.seg.index = nil // from now on it lives with the open file
	info := plan.seg.info()
	l.mu.Unlock()
	l.store.pins.grow(l, info) // before retention can see it
	return l.reclaim()
}

// Manifest returns the manifest of a sealed segment, from disk.
func (l *Log) Manifest(base vtop.Offset) (*manifest.Manifest, error) {
	l.mu.Lock()
	plan, err := l.planSegmentLocked(base)
	l.mu.Unlock()
	if err == nil && !plan.sealed {
		err = fmt.Errorf("range %s: %w: segment %d is not sealed", l.rng, vtop.ErrNotReady, base)
	}
	if err != nil {
		return nil, err
	}
	return readManifest(l.store.fs, l.path(base, manifestSuffix), base)
}

// VerifySegment reads a sealed segment whole and checks it against its manifest; damage makes it a hole and is
// vtop.ErrDamaged.
func (l *Log) VerifySegment(ctx context.Context, base vtop.Offset) error {
	m, err := l.Manifest(base)
	if err != nil {
		return err
	}
	l.mu.Lock()
	plan, err := l.planSegmentLocked(base)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	h, err := l.store.files.acquire(plan.seg, false, true)
	if err != nil {
		return fmt.Errorf("range %s: %w: open %s: %w", l.rng, vtop.ErrStorage, plan.seg.path, err)
	}
	defer l.store.files.release(h)
	buf := make([]byte, manifest.ChunkSize)
	for i := range m.Chunks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pos, n := m.ChunkRange(i)
		if _, err := h.file.ReadAt(buf[:n], pos); err != nil {
			return l.foundDamage(&plan, base, fmt.Sprintf("read of chunk %d: %v", i, err))
		}
		if err := m.VerifyChunk(i, buf[:n]); err != nil {
			return l.foundDamage(&plan, base, err.Error())
		}
	}
	return nil
}
