package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// Read returns whole batches from the one that holds offset from, all of one segment, that end at or below limit
// and the log end: as many as fit into maxBytes, but at least one. The bytes are in buf if its capacity is large
// enough, else in a new buffer; next is the offset to read from next, and segBase the base of their segment. No
// bytes and no error means that nothing is below limit yet. from below the log start or above the log end is
// vtop.ErrOffsetOutOfRange; a batch that is not what was written is vtop.ErrDamaged and never returned (I9);
// vtop.ErrNotReady asks for another try, since the log was cut meanwhile.
func (l *Log) Read(from vtop.Offset, maxBytes int, limit vtop.Offset, buf []byte) (batches []byte, next, segBase vtop.Offset, err error) {
	return l.read(readSpec{from: from, maxBytes: maxBytes, limit: limit}, buf)
}

// ReadPeer is Read for a peer: it also serves what is below the log start as long as the segment is there, since
// a transfer begins at a batch and a segment, not at the log start (F4).
func (l *Log) ReadPeer(from vtop.Offset, maxBytes int, limit vtop.Offset, buf []byte) (batches []byte, next, segBase vtop.Offset, err error) {
	return l.read(readSpec{from: from, maxBytes: maxBytes, limit: limit, peer: true}, buf)
}

type readSpec struct {
	from, limit vtop.Offset
	maxBytes    int
	peer        bool
}

// readPlan is what a read needs of the log, taken at one moment.
type readPlan struct {
	readSpec
	seg    *segment
	sealed bool
	// chunk is set if the bytes are in memory; the reader is one of its users. data is what it held.
	chunk *chunk
	data  []byte
	// pos is where in the file to begin, at the offset of the batch there; exact if that is the batch wanted;
	// pos is -1 if the index has to be asked first. fileEnd is where the durable bytes of the file end.
	pos, fileEnd int64
	at           vtop.Offset
	exact        bool
	runs         []vtop.EpochRun
	generation   uint64
}

func (l *Log) read(spec readSpec, buf []byte) (batches []byte, next, segBase vtop.Offset, err error) {
	plan, err := l.planRead(spec)
	if err != nil || plan.seg == nil {
		return nil, spec.from, plan.base(), err
	}
	if plan.chunk != nil {
		batches, next = plan.readChunk(buf)
		l.store.chunks.release(plan.chunk)
		return batches, next, plan.seg.base, nil
	}
	batches, next, pos, err := l.readFile(&plan, buf)
	if err != nil {
		return nil, spec.from, plan.seg.base, err
	}
	if len(batches) > 0 {
		l.mu.Lock()
		l.hints.put(readHint{plan.seg, next, pos})
		l.mu.Unlock()
	}
	return batches, next, plan.seg.base, nil
}

func (p *readPlan) base() vtop.Offset {
	if p.seg == nil {
		return 0
	}
	return p.seg.base
}

// planRead decides under mu where the bytes are. A plan without a segment means that there is nothing to read yet.
func (l *Log) planRead(spec readSpec) (plan readPlan, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil && l.state != StateFailed {
		return plan, err
	}
	if spec.limit = min(spec.limit, l.end); l.state == StateFailed {
		spec.limit = min(spec.limit, l.durable)
	}
	lowest := l.start
	if spec.peer {
		lowest = l.segs[0].base
	}
	if spec.from < lowest || spec.from > l.end {
		return plan, fmt.Errorf("range %s: %w: %d asked, the log is %d to %d", l.rng, vtop.ErrOffsetOutOfRange, spec.from, lowest, l.end)
	}
	if spec.from >= spec.limit {
		return plan, nil
	}
	plan = readPlan{readSpec: spec, pos: -1, runs: l.runs, generation: l.generation}
	plan.seg = l.segs[l.segmentAtLocked(spec.from)]
	if plan.seg.hole != "" {
		return plan, fmt.Errorf("range %s segment %d: %w: %s", l.rng, plan.seg.base, vtop.ErrDamaged, plan.seg.hole)
	}
	if spec.from >= l.durable {
		return plan, plan.takeChunkLocked(l)
	}
	plan.sealed = plan.seg.state == SegmentSealed
	plan.fileEnd = plan.seg.durable
	if pos, ok := l.hints.find(plan.seg, spec.from); ok {
		plan.pos, plan.at, plan.exact = pos, spec.from, true
	} else if !plan.sealed {
		if plan.pos, plan.at, ok = plan.seg.index.find(spec.from); !ok {
			plan.pos, plan.at = 0, plan.seg.base
		}
	}
	return plan, nil
}

func (p *readPlan) takeChunkLocked(l *Log) error {
	for _, c := range l.chunks {
		if c.base <= p.from && p.from < c.end {
			c.users.Add(1)
			p.chunk, p.data = c, c.data
			return nil
		}
	}
	return fmt.Errorf("range %s: %w: offset %d is neither written nor buffered", l.rng, vtop.ErrNotReady, p.from)
}

// readChunk copies batches out of the write buffer. They were checked when they came.
func (p *readPlan) readChunk(buf []byte) (batches []byte, next vtop.Offset) {
	begin, end := -1, 0
	next = p.from
	for pos := 0; pos < len(p.data); {
		b := batch.Batch(p.data[pos:])
		size, last := b.Size(), b.LastOffset()
		if last >= p.limit || begin >= 0 && pos+size-begin > p.maxBytes {
			break
		}
		if begin < 0 && last >= p.from {
			begin = pos
		}
		if pos += size; begin >= 0 {
			end, next = pos, last+1
		}
	}
	if begin < 0 {
		return nil, p.from
	}
	return append(buf[:0], p.data[begin:end]...), next
}

// readFile reads and verifies batches of a segment's file. pos is the position behind them.
func (l *Log) readFile(plan *readPlan, buf []byte) (batches []byte, next vtop.Offset, pos int64, err error) {
	h, err := l.store.files.acquire(plan.seg, false, plan.sealed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, l.foundDamage(plan, plan.from, "its file is missing")
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("range %s: %w: open %s: %w", l.rng, vtop.ErrStorage, plan.seg.path, err)
	}
	defer l.store.files.release(h)
	if plan.pos < 0 {
		x, err := l.sealedIndex(plan, h)
		if err != nil {
			return nil, 0, 0, err
		}
		plan.pos, plan.at, _ = x.find(plan.from)
	}
	want := int64(max(plan.maxBytes, batch.HeaderSize))
	if !plan.exact {
		want += l.store.opt.IndexBytes
	}
	for {
		want = min(want, plan.fileEnd-plan.pos)
		buf = slices.Grow(buf[:0], int(want))[:want]
		if _, err := h.file.ReadAt(buf, plan.pos); err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, 0, l.foundDamage(plan, plan.from, "its file is shorter than its records")
		} else if err != nil {
			return nil, 0, 0, fmt.Errorf("range %s: %w: read %s: %w", l.rng, vtop.ErrStorage, plan.seg.path, err)
		}
		w := batchWalk{plan: plan, data: buf, at: plan.at, maxBatch: l.store.opt.MaxBatchBytes}
		if err := w.run(); err != nil {
			return nil, 0, 0, l.foundDamage(plan, w.at, err.Error())
		}
		if w.need == 0 {
			return buf[w.begin:w.end], w.next, plan.pos + int64(w.end), nil
		}
		// The batch is longer than what was read: read again, from it on.
		plan.pos, plan.at, plan.exact, want = plan.pos+int64(w.end), w.at, true, int64(w.need)
		if plan.pos+want > plan.fileEnd {
			return nil, 0, 0, l.foundDamage(plan, w.at, fmt.Sprintf("a batch of %d bytes goes beyond its end", w.need))
		}
	}
}

// batchWalk goes over the bytes of a file from a batch on, verifies them, and finds those to return.
type batchWalk struct {
	plan     *readPlan
	data     []byte
	maxBatch int
	// at is the offset expected next.
	at vtop.Offset
	// begin and end bound what is returned; next is the offset after it. need, if not 0, is the size of a batch at
	// end that must be read whole.
	begin, end, need int
	next             vtop.Offset
}

func (w *batchWalk) run() error {
	p := w.plan
	found := false
	w.next = p.from
	for pos := 0; pos < len(w.data); {
		b, _, err := batch.Parse(w.data[pos:], w.maxBatch)
		if errors.Is(err, batch.ErrTruncated) {
			if !found {
				w.end, w.need = pos, neededSize(w.data[pos:])
			}
			return nil
		}
		if err != nil {
			return err
		}
		if b.BaseOffset() != w.at || b.LastOffset() < w.at {
			return fmt.Errorf("offset %d is followed by a batch of %d to %d", w.at-1, b.BaseOffset(), b.LastOffset())
		}
		if b.LastOffset() >= p.limit || found && pos+len(b)-w.begin > p.maxBytes {
			return nil
		}
		if b.LastOffset() >= p.from {
			if err := verifyStored(b, p.runs); err != nil {
				return err
			}
			if !found {
				found, w.begin = true, pos
			}
		}
		pos += len(b)
		w.at = b.LastOffset() + 1
		if found {
			w.end, w.next = pos, w.at
		}
	}
	if !found { // nothing but batches to skip: read on behind them
		w.end, w.need = len(w.data), batch.HeaderSize
	}
	return nil
}

// neededSize is how many bytes of a batch that was cut short have to be read.
func neededSize(b []byte) int {
	if size, err := batch.PeekSize(b); err == nil {
		return size
	}
	return batch.HeaderSize
}

// verifyStored checks a batch from disk: its bytes, and the two fields that its CRC does not cover.
func verifyStored(b batch.Batch, runs []vtop.EpochRun) error {
	if err := b.Check(); err != nil {
		return err
	}
	if want := epochAt(runs, b.BaseOffset()); b.Epoch() != want {
		return fmt.Errorf("%w: batch %d has epoch %d, want %d", vtop.ErrCorruptBatch, b.BaseOffset(), b.Epoch(), want)
	}
	return nil
}

// readHints remember where recent reads ended, so that the next one of the same reader begins there and not at an
// index entry. Guarded by the log's mu.
type readHints struct {
	ring [8]readHint
	turn int
}

type readHint struct {
	seg  *segment
	next vtop.Offset
	pos  int64
}

func (h *readHints) put(hint readHint) {
	h.ring[h.turn] = hint
	h.turn = (h.turn + 1) % len(h.ring)
}

func (h *readHints) find(seg *segment, from vtop.Offset) (pos int64, ok bool) {
	for _, hint := range h.ring {
		if hint.seg == seg && hint.next == from {
			return hint.pos, true
		}
	}
	return 0, false
}
