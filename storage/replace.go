package storage

import (
	"errors"

	"github.com/vtop-log/vtop"
)

// ReplaceSegment puts a staged, finished segment in the place of one that is damaged or missing: a hole of the range's
// replica. root is the catalogue's. The staged bytes are verified once more, and the file takes the place of the bad one
// atomically: a crash leaves the hole or the whole segment. When no hole is left the replica is StateHealthy. The log goes
// on meanwhile. Where the segment is sealed here with that root and no hole, nothing is done.
//
// Errors: vtop.ErrUnknownRange, ErrReplicaLost, ErrOffsetOutOfRange (retention took the segment: nothing is to be replaced),
// ErrNotReady (not staged whole, or not sealed here), ErrDamaged (the staged bytes are not those of root), a *BoundaryError
// (the hole does not hold the segment), ErrStorage.
func (s *Store) ReplaceSegment(r vtop.Range, base vtop.Offset, root [32]byte, from *Staging) error {
	return errors.ErrUnsupported
}

// Holes lists the segments that are not served, in order. A hole of which no file is left may stand for several segments
// of the catalogue.
func (l *Log) Holes() []SegmentInfo {
	var out []SegmentInfo
	for _, s := range l.Segments() {
		if s.Hole != "" {
			out = append(out, s)
		}
	}
	return out
}
