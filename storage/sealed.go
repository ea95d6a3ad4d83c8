package storage

import (
	"errors"

	"github.com/vtop-log/vtop"
)

var (
	// ErrNoSegment says that there is no sealed segment at a base here: it was never sealed here, or retention took it.
	ErrNoSegment = errors.New("no such sealed segment")
	// ErrWrongRoot says that the sealed segment at a base has another root than was asked for.
	ErrWrongRoot = errors.New("segment has another root")
)

// SealedReader reads one sealed segment. The file stays readable until Close whatever retention unlinks.
type SealedReader struct {
	info SegmentInfo
}

// OpenSealed opens the sealed segment of a range whose base and root are given, for a peer: from the log if it has it, else
// from the pin (0: none). Each use starts the pin's idle time anew. The caller closes it.
//
// Errors: ErrNoSegment, ErrWrongRoot, ErrPinGone (the log no longer has the segment, nor has the pin), vtop.ErrDamaged for
// a hole, ErrUnknownRange, ErrReplicaLost, ErrStorage.
func (s *Store) OpenSealed(r vtop.Range, base vtop.Offset, root [32]byte, pin PinID) (*SealedReader, error) {
	return nil, errors.ErrUnsupported
}

// ReadManifest returns the encoded manifest of the segment that OpenSealed would open, verified. Errors as there.
func (s *Store) ReadManifest(r vtop.Range, base vtop.Offset, root [32]byte, pin PinID) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// Size is the size of the segment in bytes.
func (r *SealedReader) Size() int64 { return r.info.Bytes }

// Info describes the segment.
func (r *SealedReader) Info() SegmentInfo { return r.info }

// ReplicaID is the replica that the bytes are of.
func (r *SealedReader) ReplicaID() vtop.ReplicaID { return 0 }

// ReadAt reads as io.ReaderAt tells. What it returns was verified against the manifest (I9): reads of whole chunks
// (manifest.ChunkSize, at multiples of it) cost one pass over the bytes; for others the chunks around are read too. A
// chunk that does not verify, or that the disk does not give, is vtop.ErrDamaged: the segment is a hole from then on and
// OnDamage was told. ErrPinGone if the pin it reads through has ended. One goroutine at a time.
func (r *SealedReader) ReadAt(p []byte, off int64) (int, error) { return 0, errors.ErrUnsupported }

// Close ends the reading. It may be called more than once.
func (r *SealedReader) Close() error { return nil }
