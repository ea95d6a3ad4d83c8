package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
)

// Health is what a scrub found out about one segment.
type Health uint8

const (
	// HealthUnknown: something could not be compared (I12).
	HealthUnknown Health = iota
	// HealthOK: the bytes agree with the manifest, and the manifest with the catalogue.
	HealthOK
	// HealthBad: they do not. The segment is a hole.
	HealthBad
)

// String names the verdict as operators see it.
func (h Health) String() string {
	switch h {
	case HealthOK:
		return "ok"
	case HealthBad:
		return "bad"
	}
	return "unknown"
}

// Verdict is what a scrub found out about one segment.
type Verdict struct {
	Segment SegmentInfo
	Health  Health
	// Reason says why a segment is not ok; empty if it is.
	Reason string
	// Root is the manifest's as it was read from disk, Want the catalogue's; zero if there is none.
	Root, Want [32]byte
	// Read is how many bytes of the segment were read.
	Read int64
}

// Scrub reads every sealed segment of a range's replica from disk and compares its bytes with its manifest, and the root of
// that with the catalogue's, which want tells. What is bad becomes a hole, and OnDamage is told. Segments that are closed
// and not sealed here are unknown, and so is what could not be read for reasons that say nothing about the bytes, and what
// want does not know; the tail is left out. It reads at most bytesPerSecond (0: unbounded). When ctx ends, what is left is
// unknown and the cause is returned with the verdicts. The page cache may answer for the disk.
func (s *Store) Scrub(ctx context.Context, r vtop.Range, bytesPerSecond int64, want func(base vtop.Offset) (root [32]byte, known bool)) ([]Verdict, error) {
	var out []Verdict
	err := s.ScrubEach(ctx, r, bytesPerSecond, want, func(v Verdict) { out = append(out, v) })
	return out, err
}

// ScrubEach is Scrub that hands out each verdict when it is there. Errors: vtop.ErrUnknownRange, ErrReplicaLost, the cause
// of ctx.
func (s *Store) ScrubEach(ctx context.Context, r vtop.Range, bytesPerSecond int64, want func(base vtop.Offset) (root [32]byte, known bool), tell func(Verdict)) error {
	l := s.Get(r)
	if l == nil {
		return fmt.Errorf("scrub: %w: no replica of range %s here", vtop.ErrUnknownRange, r)
	}
	if err := errors.Join(l.CheckNames(), l.Err()); err != nil && !errors.Is(err, vtop.ErrStorage) {
		return fmt.Errorf("scrub: %w", err)
	}
	pace := newPacer(bytesPerSecond)
	for _, seg := range l.Segments() {
		if seg.State == SegmentTail {
			continue
		}
		v := Verdict{Segment: seg}
		var known bool
		v.Want, known = want(seg.Base)
		l.scrub(ctx, pace, &v, known)
		tell(v)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// scrub judges one segment.
func (l *Log) scrub(ctx context.Context, pace *pacer, v *Verdict, known bool) {
	switch {
	case v.Segment.Hole != "":
		v.Health, v.Reason = HealthBad, v.Segment.Hole
		return
	case v.Segment.State == SegmentClosed && known:
		v.Reason = "the catalogue has it, and it is not sealed here yet"
		return
	case v.Segment.State == SegmentClosed:
		v.Reason = "it is closed and not sealed yet: there is nothing to compare with"
		return
	case ctx.Err() != nil:
		v.Reason = fmt.Sprintf("not looked at: %v", context.Cause(ctx))
		return
	}
	err := l.compare(ctx, pace, v, known)
	switch {
	case errors.Is(err, vtop.ErrDamaged):
		v.Health, v.Reason = HealthBad, err.Error()
	case err != nil:
		v.Reason = err.Error()
	case !known:
		v.Reason = "its bytes agree with its manifest; the catalogue does not tell its root"
	default:
		v.Health = HealthOK
	}
}

// compare reads a sealed segment. vtop.ErrDamaged if it is not what it should be, and then it is a hole; other errors say
// why it could not be compared.
func (l *Log) compare(ctx context.Context, pace *pacer, v *Verdict, known bool) error {
	r := SealedReader{store: l.store, log: l, at: -1}
	if err := r.openLog(v.Segment.Base, v.Segment.Root); err != nil {
		return err
	}
	defer r.Close()
	if err := r.sameName(); err != nil { // the open file may be read long after its name is gone
		return err
	}
	m, err := r.readChunks() // anew: the one at hand was read long ago, maybe
	if err != nil {
		return err
	}
	r.chunks, v.Root = m, m.Root
	if known && m.Root != v.Want {
		return r.damaged(fmt.Sprintf("its root is %x, the catalogue has %x", m.Root, v.Want))
	}
	if size, err := r.file.Size(); err != nil || size != m.Size {
		return r.damaged(fmt.Sprintf("its file has %d bytes, want %d (%v)", size, m.Size, err))
	}
	buf := l.store.pieces.Get().(*[manifest.ChunkSize]byte)
	defer l.store.pieces.Put(buf)
	for i := range m.Chunks {
		_, length := m.ChunkRange(i)
		if err := pace.take(ctx, length); err != nil {
			return fmt.Errorf("read up to byte %d of %d: %w", v.Read, m.Size, err)
		}
		if err := r.readChunk(i, buf[:length]); err != nil {
			return err
		}
		v.Read += int64(length)
	}
	return nil
}
