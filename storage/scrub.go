package storage

import (
	"context"
	"errors"

	"github.com/vtop-log/vtop"
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

// ScrubEach is Scrub that hands out each verdict when it is there.
func (s *Store) ScrubEach(ctx context.Context, r vtop.Range, bytesPerSecond int64, want func(base vtop.Offset) (root [32]byte, known bool), tell func(Verdict)) error {
	return errors.ErrUnsupported
}
