package storage

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// filesPerSegment are what a pin holds open of a segment: its bytes and its manifest.
const filesPerSegment = 2

// keptEndings is how many pins are remembered after their end, so that a transfer is told the cause.
const keptEndings = 256

// pinTable holds the pins of a store. All of it is under mu, which is never held across I/O.
type pinTable struct {
	mu    sync.Mutex
	opt   *Options
	count uint32
	byID  map[PinID]*pin
	// files and bytes are what all pins hold or are about to.
	files, bytes int64
	// endings of the last pins, and their order.
	endings map[PinID]string
	order   []PinID
}

// pin is one pin. Its log, id and job are set once.
type pin struct {
	id  PinID
	log *Log
	job uint64

	// The rest is under pinTable.mu.

	began, used time.Duration
	ended       bool
	growing     bool
	// until is the end beyond which it does not grow; 0 while none is known.
	until vtop.Offset
	// refused says why a segment could not be taken that the pin grew by; from is its base.
	refused error
	from    vtop.Offset
	// snapshot is what the pin was made for; its segments grow.
	snapshot Pinned
	segs     map[vtop.Offset]*pinnedSegment
}

// pinnedSegment is a segment held open. It is closed when the pin has ended and nobody reads it.
type pinnedSegment struct {
	info           SegmentInfo
	file, manifest vfs.File
	// The rest is under pinTable.mu.
	readers int
	dropped bool
	// bad is true once a read found it damaged.
	bad bool
}

func newPinTable(opt *Options) *pinTable {
	return &pinTable{opt: opt, byID: map[PinID]*pin{}, endings: map[PinID]string{}}
}

// begin makes a pin that holds nothing yet.
func (t *pinTable) begin(s *Store, l *Log, spec PinSpec, snapshot Pinned) (*pin, error) {
	incarnation := s.Identity().Incarnation
	t.mu.Lock()
	defer t.mu.Unlock()
	if limit := t.opt.MaxPins; len(t.byID) >= limit {
		return nil, &PinLimitError{"pins", int64(len(t.byID)), 1, int64(limit)}
	}
	t.count++
	now := t.opt.Clock()
	p := &pin{
		id: PinID(uint64(incarnation)<<32 | uint64(t.count)), log: l, job: spec.Job, began: now, used: now,
		growing: spec.Growing, snapshot: snapshot, segs: map[vtop.Offset]*pinnedSegment{},
	}
	p.snapshot.ID, p.snapshot.Segments = p.id, slices.Clone(snapshot.Segments)
	t.byID[p.id] = p
	return p, nil
}

// hold opens a segment for a pin, unless that was bounded below it meanwhile. Under the log's opMu, so that its files are there.
func (t *pinTable) hold(l *Log, p *pin, info SegmentInfo) error {
	if err := t.reserve(info.Bytes); err != nil {
		return fmt.Errorf("range %s segment %d: %w", l.rng, info.Base, err)
	}
	seg := &pinnedSegment{info: info}
	var err error
	if seg.file, err = l.store.fs.Open(l.path(info.Base, logSuffix)); err == nil {
		seg.manifest, err = l.store.fs.Open(l.path(info.Base, manifestSuffix))
	}
	t.mu.Lock()
	beyond := p.until > 0 && info.End > p.until
	if err == nil && !p.ended && !beyond {
		p.segs[info.Base] = seg
		t.mu.Unlock()
		return nil
	}
	t.giveBackLocked(info.Bytes)
	var gone error
	if p.ended {
		gone = t.goneLocked(p.id)
	}
	t.mu.Unlock()
	seg.close()
	if err != nil {
		return fmt.Errorf("range %s: %w: pin segment %d: %w", l.rng, vtop.ErrStorage, info.Base, err)
	}
	return gone
}

// reserve takes a segment of the caps.
func (t *pinTable) reserve(bytes int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if limit := int64(t.opt.PinFiles); t.files+filesPerSegment > limit {
		return &PinLimitError{"files", t.files, filesPerSegment, limit}
	}
	if t.bytes+bytes > t.opt.PinBytes {
		return &PinLimitError{"bytes", t.bytes, bytes, t.opt.PinBytes}
	}
	t.files += filesPerSegment
	t.bytes += bytes
	return nil
}

func (t *pinTable) giveBackLocked(bytes int64) {
	t.files -= filesPerSegment
	t.bytes -= bytes
}

// grow gives a segment that was just sealed to the pins of its log that grow. Under the log's opMu, before retention sees
// the segment.
func (t *pinTable) grow(l *Log, info SegmentInfo) {
	for _, p := range t.all() {
		if p.log != l || !t.list(p, info) {
			continue
		}
		if err := t.hold(l, p, info); err != nil {
			t.mu.Lock()
			if p.refused == nil {
				p.refused, p.from = err, info.Base
			}
			t.mu.Unlock()
		}
	}
}

// list adds a segment to the snapshot of a pin that grows.
func (t *pinTable) list(p *pin, info SegmentInfo) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !p.growing || p.ended || p.until > 0 && info.End > p.until {
		return false
	}
	p.snapshot.Segments = append(p.snapshot.Segments, info)
	return true
}

// settle bounds a pin, and lists what it has if that is all.
func (t *pinTable) settle(p *pin, end vtop.Offset) (Pinned, error) {
	t.mu.Lock()
	beyond := t.boundLocked(p, end)
	reached := p.snapshot.Base
	if n := len(p.snapshot.Segments); n > 0 {
		reached = p.snapshot.Segments[n-1].End
	}
	var err error
	switch {
	case p.ended:
		err = t.goneLocked(p.id)
	case p.refused != nil && p.from < end:
		err = p.refused
	case reached < end:
		err = fmt.Errorf("pin %d of range %s: %w: sealed up to %d, want %d", p.id, p.log.rng, vtop.ErrNotReady, reached, end)
	default:
		p.growing = false
	}
	out := p.snapshot
	out.Segments = slices.Clone(out.Segments)
	t.mu.Unlock()
	closePinned(beyond)
	if err != nil {
		if !errors.Is(err, vtop.ErrNotReady) {
			t.end(p, err.Error())
		}
		return Pinned{ID: p.id}, err
	}
	return out, nil
}

// boundLocked lets go of what a pin holds beyond an end, and lets it not grow beyond.
func (t *pinTable) boundLocked(p *pin, end vtop.Offset) (free []*pinnedSegment) {
	p.until = end
	p.snapshot.Segments = slices.DeleteFunc(p.snapshot.Segments, func(seg SegmentInfo) bool { return seg.End > end })
	for base, seg := range p.segs {
		if base >= end {
			delete(p.segs, base)
			free = append(free, t.dropLocked(seg)...)
		}
	}
	return free
}

// touch finds a pin and counts a use of it.
func (t *pinTable) touch(id PinID) (*pin, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byID[id]
	if p == nil {
		return nil, t.goneLocked(id)
	}
	p.used = t.opt.Clock()
	return p, nil
}

func (t *pinTable) goneLocked(id PinID) error {
	cause, known := t.endings[id]
	if !known {
		cause = "it is not known here: it ended long ago, or with its process"
	}
	return &PinGoneError{id, cause}
}

// end ends a pin; false if it had ended before.
func (t *pinTable) end(p *pin, cause string) bool {
	t.mu.Lock()
	if p.ended {
		t.mu.Unlock()
		return false
	}
	p.ended = true
	delete(t.byID, p.id)
	t.endings[p.id] = cause
	if t.order = append(t.order, p.id); len(t.order) > keptEndings {
		delete(t.endings, t.order[0])
		t.order = slices.Delete(t.order, 0, 1)
	}
	var free []*pinnedSegment
	for _, seg := range p.segs {
		free = append(free, t.dropLocked(seg)...)
	}
	t.mu.Unlock()
	closePinned(free)
	return true
}

// dropLocked takes a segment from its pin. It returns it if it can be closed now.
func (t *pinTable) dropLocked(seg *pinnedSegment) []*pinnedSegment {
	if seg.dropped = true; seg.readers > 0 {
		return nil
	}
	t.giveBackLocked(seg.info.Bytes)
	return []*pinnedSegment{seg}
}

// open begins a reading through a pin; release ends it.
func (t *pinTable) open(p *pin, base vtop.Offset, root [32]byte) (*pinnedSegment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seg := p.segs[base]
	switch {
	case p.ended:
		return nil, t.goneLocked(p.id)
	case seg == nil:
		return nil, fmt.Errorf("segment %d: %w: pin %d does not hold it", base, ErrNoSegment, p.id)
	case seg.info.Root != root:
		return nil, fmt.Errorf("segment %d: %w: it is %x, %x is asked", base, ErrWrongRoot, seg.info.Root, root)
	case seg.bad:
		return nil, fmt.Errorf("segment %d: %w: found bad through pin %d", base, vtop.ErrDamaged, p.id)
	}
	seg.readers++
	return seg, nil
}

func (t *pinTable) release(seg *pinnedSegment) {
	t.mu.Lock()
	var free []*pinnedSegment
	if seg.readers--; seg.readers == 0 && seg.dropped {
		free = t.dropLocked(seg)
	}
	t.mu.Unlock()
	closePinned(free)
}

func (t *pinTable) markBad(seg *pinnedSegment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seg.bad = true
}

func (t *pinTable) all() []*pin {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*pin, 0, len(t.byID))
	for _, p := range t.byID {
		out = append(out, p)
	}
	return out
}

// info describes a pin; present are the bases that its log still has.
func (t *pinTable) info(p *pin, present map[vtop.Offset]bool) PinInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.opt.Clock()
	out := PinInfo{
		ID: p.id, Range: p.log.rng, ReplicaID: p.log.replicaID, Job: p.job, Segments: len(p.segs), Files: filesPerSegment * len(p.segs),
		Age: now - p.began, Idle: now - p.used, Limit: t.opt.PinIdle, Growing: p.growing,
	}
	for base, seg := range p.segs {
		if out.Bytes += seg.info.Bytes; !present[base] {
			out.Unlinked += seg.info.Bytes
		}
	}
	return out
}

// close lets go of the files; they were open for reading only.
func (seg *pinnedSegment) close() {
	for _, f := range []vfs.File{seg.file, seg.manifest} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func closePinned(segs []*pinnedSegment) {
	for _, seg := range segs {
		seg.close()
	}
}

// growing reports whether a pin of the log still takes segments as they are sealed.
func (t *pinTable) growing(l *Log) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.byID {
		if p.log == l && p.growing && !p.ended {
			return true
		}
	}
	return false
}
