package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/transport"
)

// item is one piece of work: the manifest of a segment (chunk -1), or a chunk of it.
type item struct {
	in    *incoming
	m     *manifest.Manifest
	chunk int
}

// work is one worker of a source: it asks the budget first, and takes the next item only when it may fetch it, so that a
// source that is held back holds nothing that others could bring.
func (x *transfer) work(ctx context.Context, src *source) {
	for x.ready(ctx, src) {
		if x.take(ctx, src) != nil {
			return
		}
		it, ok := x.next(src)
		used := 0
		if ok {
			used = x.do(ctx, src, it)
		}
		x.giveBack(src, chunkSize-used)
	}
}

// ready waits until there is something for the source to do, and its pause is over; false once ctx has ended.
func (x *transfer) ready(ctx context.Context, src *source) bool {
	for {
		x.mu.Lock()
		_, ok := x.findLocked(src)
		pause := time.Until(src.until)
		changed := x.changed
		x.mu.Unlock()
		if ok && pause <= 0 {
			return ctx.Err() == nil
		}
		if pause <= 0 {
			pause = stealAfter // a chunk that another one holds may be worth stealing by then
		}
		timer := time.NewTimer(pause)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// take takes the bytes of a chunk from the budgets: the job's own, or that of this node and that of the source.
func (x *transfer) take(ctx context.Context, src *source) error {
	if x.t.limit != nil {
		return x.t.limit.take(ctx, chunkSize)
	}
	if err := src.budget.take(ctx, chunkSize); err != nil {
		return err
	}
	if err := x.r.own.take(ctx, chunkSize); err != nil {
		src.budget.giveBack(chunkSize)
		return err
	}
	return nil
}

func (x *transfer) giveBack(src *source, n int) {
	if x.t.limit != nil {
		x.t.limit.giveBack(n)
		return
	}
	src.budget.giveBack(n)
	x.r.own.giveBack(n)
}

// next takes the next item for a source.
func (x *transfer) next(src *source) (item, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	it, ok := x.findLocked(src)
	if !ok {
		return it, false
	}
	x.busy++
	if it.chunk < 0 {
		it.in.state = isOpening
		return it, true
	}
	f := it.in.flying[it.chunk]
	if f == nil {
		it.in.missing = slices.DeleteFunc(it.in.missing, func(i int) bool { return i == it.chunk })
		f = &flight{}
		it.in.flying[it.chunk] = f
	}
	f.since, f.by = time.Now(), append(f.by, src.node)
	return it, true
}

// findLocked finds the next item for a source: a chunk of a segment that is open, in order; else the manifest of the next
// segment, if not too many are open; else a chunk that another source has for too long.
func (x *transfer) findLocked(src *source) (item, bool) {
	if x.halted != nil || x.sources[src.node] != src {
		return item{}, false
	}
	open := 0
	for _, in := range x.wanted {
		switch in.state {
		case isOpen:
			open++
			if len(in.missing) > 0 && in.refused[src.node] == "" {
				return item{in, in.m, in.missing[0]}, true
			}
		case isOpening, isFinishing:
			open++
		}
	}
	if open < x.r.cfg.OpenSegments {
		for _, in := range x.wanted {
			if in.state == isPending && in.refused[src.node] == "" {
				return item{in, nil, -1}, true
			}
		}
	}
	for _, in := range x.wanted {
		if in.refused[src.node] != "" {
			continue
		}
		for i, f := range in.flying {
			if len(f.by) == 1 && f.by[0] != src.node && time.Since(f.since) > stealAfter {
				return item{in, in.m, i}, true
			}
		}
	}
	return item{}, false
}

// do fetches one item and returns how many bytes of the budget it used.
func (x *transfer) do(ctx context.Context, src *source, it item) (used int) {
	var err error
	if it.chunk < 0 {
		used, err = x.open(ctx, src, it.in)
	} else {
		used, err = x.fetch(ctx, src, it)
	}
	if err != nil {
		x.failed(ctx, src, it.in, it.chunk, err)
	}
	x.mu.Lock()
	if err == nil {
		src.failures, src.until = 0, time.Time{}
	}
	x.putLocked(src, it)
	finish := it.in.state == isOpen && it.in.left == 0
	if finish {
		it.in.state = isFinishing
	}
	x.mu.Unlock()
	if finish {
		x.finish(it.in)
	}
	x.mu.Lock()
	x.busy--
	x.broadcastLocked()
	x.mu.Unlock()
	return used
}

// putLocked puts an item back that was not brought.
func (x *transfer) putLocked(src *source, it item) {
	if it.chunk < 0 {
		if it.in.state == isOpening {
			it.in.state = isPending
		}
		return
	}
	f := it.in.flying[it.chunk]
	if f == nil {
		return // written, by this source or another one
	}
	f.by = slices.DeleteFunc(f.by, func(n vtop.NodeName) bool { return n == src.node })
	if len(f.by) == 0 {
		delete(it.in.flying, it.chunk)
		it.in.missing = append([]int{it.chunk}, it.in.missing...)
	}
}

// ref names a segment for a source.
func (x *transfer) ref(src *source, seg segment) transport.SegmentRef {
	ref := transport.SegmentRef{
		Range: x.t.rng, Base: seg.Base, Root: seg.Root, Size: seg.Bytes, Replica: src.replica, Epoch: x.epoch,
	}
	if seg.pinned && src.node == x.t.pin.node {
		ref.Pin = x.t.pin.id
	}
	return ref
}

// manifestLimit is the largest manifest in bytes that a segment can have.
func manifestLimit(seg segment) int {
	chunks := (seg.Bytes + chunkSize - 1) / chunkSize
	runs := min(seg.Bytes/minBatch, int64(seg.End-seg.Base))
	return int(min(manifestFrame+32*chunks+12*runs+manifest.MaxProducersSize, manifest.MaxEncodedSize))
}

const (
	minBatch      = 61
	manifestFrame = 128
)

// open fetches the manifest of a segment and begins it. Begin compares its root with the catalogue's.
func (x *transfer) open(ctx context.Context, src *source, in *incoming) (used int, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	encoded, err := x.r.cfg.Peers.FetchManifest(ctx, src.node, x.ref(src, in.segment), manifestLimit(in.segment))
	if err != nil {
		return 0, err
	}
	used = min(len(encoded), chunkSize)
	m, err := x.staging.Begin(in.Base, in.Root, encoded)
	if errors.Is(err, vtop.ErrDamaged) || err == nil && (m.End != in.End || m.Size != in.Bytes) {
		x.drop(src, in.segment, -1, err)
		return used, nil
	}
	var missing []int
	if err == nil {
		missing, err = x.staging.Missing(in.Base)
	}
	if err != nil {
		x.disk(err)
		return used, nil
	}
	bytes := int64(0)
	for _, i := range missing {
		_, n := m.ChunkRange(i)
		bytes += int64(n)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	in.m, in.missing, in.left, in.state = m, missing, len(missing), isOpen
	x.left -= in.Bytes - bytes
	x.done += in.Bytes - bytes
	x.moved = time.Now()
	return used, nil
}

// fetch brings one chunk: it is written only if it verifies.
func (x *transfer) fetch(ctx context.Context, src *source, it item) (used int, err error) {
	in, chunk := it.in, it.chunk
	buf, err := x.r.buffers.get(ctx)
	if err != nil {
		return 0, err
	}
	defer x.r.buffers.put(buf)
	pos, n := it.m.ChunkRange(chunk)
	if err := x.read(ctx, src, in, pos, buf[:n]); err != nil {
		return n, err
	}
	err = x.staging.WriteChunk(in.Base, chunk, buf[:n])
	if errors.Is(err, vtop.ErrDamaged) {
		x.drop(src, in.segment, chunk, err)
		return n, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case in.flying[chunk] == nil:
		return n, nil // another source was faster, and the segment may be finished
	case err != nil:
		x.haltLocked(halt{kind: haltWait, why: x.t.diskFailed(err).why})
		return n, nil
	}
	x.r.count(func(c *Counts) { c.Chunks++; c.Bytes += int64(n) })
	delete(in.flying, chunk)
	in.left--
	x.left -= int64(n)
	x.done += int64(n)
	src.fresh += int64(n)
	x.t.used[src.node] = true
	x.moved = time.Now()
	return n, nil
}

// read fills buf from a source. Where a connection breaks after some bytes, the same source is asked for the rest: bytes of
// two sources are never mixed in a chunk, so that it is known whom to blame.
func (x *transfer) read(ctx context.Context, src *source, in *incoming, pos int64, buf []byte) error {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	for got := 0; ; {
		out, err := x.r.cfg.Peers.FetchRange(ctx, src.node, x.ref(src, in.segment), pos+int64(got), buf[got:])
		if err == nil && out.Bytes != len(buf)-got {
			err = fmt.Errorf("%w: %d bytes, want %d", transport.ErrInvalid, out.Bytes, len(buf)-got)
		}
		if err == nil {
			src.budget.observe(out.Pressure)
			return nil
		}
		if !errors.Is(err, transport.ErrCut) || out.Bytes <= 0 || ctx.Err() != nil {
			return err
		}
		got += out.Bytes
	}
}

// finish makes a segment durable that has all its chunks.
func (x *transfer) finish(in *incoming) {
	err := x.staging.Finish(in.Base)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		in.state, in.m = isWhole, nil
		x.moved = time.Now()
		return
	}
	// A sync that failed is never repeated: what was received of the segment was dropped.
	in.state, in.m = isPending, nil
	x.left += in.Bytes
	x.done = max(x.done-in.Bytes, 0)
	x.haltLocked(halt{kind: haltWait, why: x.t.diskFailed(err).why})
}

// disk ends the transfer for the trouble of this node's disk.
func (x *transfer) disk(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.haltLocked(halt{kind: haltWait, why: x.t.diskFailed(err).why})
}
