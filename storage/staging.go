package storage

import (
	"context"
	"errors"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
)

// Staging is what a node has received of a replica, or of single segments, that is not one yet. It has a directory of
// its own, survives a restart, is never opened as a replica, never served and never listed as one (I11). Every byte in it
// was verified against a manifest whose root the caller gave. All methods may be called by many goroutines at once.
type Staging struct{}

// StagedSegment describes one segment of a staging.
type StagedSegment struct {
	Base, End vtop.Offset
	Bytes     int64
	Root      [32]byte
	// Whole is true once all of it is durable. Have counts the bytes that are verified, durable or not.
	Whole bool
	Have  int64
}

// StagingInfo describes a staging as operators see it: a replica that is being received.
type StagingInfo struct {
	Range vtop.Range
	// Segments and Bytes are what is on disk, whole or not.
	Segments int
	Bytes    int64
	// Open is true while somebody works on it.
	Open bool
}

// Want names a segment of the catalogue.
type Want struct {
	Base  vtop.Offset
	Bytes int64
	Root  [32]byte
}

// Stage opens the staging of a range, or makes it. Opening one that is open returns the same. What an earlier life has
// left is read: a finished segment is believed as a sealed one is, a half one is hashed anew chunk by chunk when Begin
// names it. Errors: vtop.ErrStorage, ErrNotReady (its adoption was committed: call Adopt again), ErrClosed.
func (s *Store) Stage(r vtop.Range) (*Staging, error) { return nil, errors.ErrUnsupported }

// Stagings describes all stagings on disk, ordered by range.
func (s *Store) Stagings() []StagingInfo { return nil }

// SweepStaging removes the stagings for which keep is false, because no job wants them any more; one that is open is
// closed first. Those whose adoption was committed stay. It returns what it removed.
func (s *Store) SweepStaging(keep func(vtop.Range) bool) (removed []vtop.Range, err error) {
	return nil, errors.ErrUnsupported
}

// Range returns the range.
func (g *Staging) Range() vtop.Range { return vtop.Range{} }

// Begin makes a segment ready to receive: encoded is its manifest, which must have this base and root. What was received
// of it before is hashed anew and kept. It returns the manifest, whose chunks are what to fetch; see Missing. A staged
// segment of the same base with another root is dropped. Beginning a segment that is whole is fine: nothing is missing.
//
// Errors: vtop.ErrDamaged (the manifest is not that of base and root), ErrNoSpace, ErrOverloaded (Options.StageFiles
// segments are half received), ErrStorage, ErrClosed.
func (g *Staging) Begin(base vtop.Offset, root [32]byte, encoded []byte) (*manifest.Manifest, error) {
	return nil, errors.ErrUnsupported
}

// Missing returns the chunks that a begun segment lacks, in order; none if it is whole.
func (g *Staging) Missing(base vtop.Offset) ([]int, error) { return nil, errors.ErrUnsupported }

// WriteChunk verifies chunk i of a begun segment against its manifest and writes it. Not durable before Finish. A chunk
// that is there is not written again. Errors: vtop.ErrDamaged (the bytes are not those of the chunk: nothing was written,
// blame the source), ErrNoSpace, ErrStorage, ErrNotReady (not begun), ErrClosed.
func (g *Staging) WriteChunk(base vtop.Offset, i int, data []byte) error { return errors.ErrUnsupported }

// Finish makes a segment that lacks nothing durable. vtop.ErrNotReady if chunks are missing; after vtop.ErrStorage the
// segment was dropped and has to be received anew, since a failed sync is never repeated. Finishing again is fine.
func (g *Staging) Finish(base vtop.Offset) error { return errors.ErrUnsupported }

// Drop removes one segment from the staging, whole or not.
func (g *Staging) Drop(base vtop.Offset) error { return errors.ErrUnsupported }

// Segments lists what is staged, in order: also half segments of an earlier life that Begin has not named yet, of which
// Have is 0 then.
func (g *Staging) Segments() []StagedSegment { return nil }

// TakeLocal looks for the wanted segments in directories of the same range on this disk: the replica's that is lost,
// and those set aside. What verifies, byte by byte, against the wanted root becomes part of the staging and need not be
// fetched. It reads at most bytesPerSecond (0: unbounded). It returns the bases that it took; those that were staged
// whole before are among them. Files that cannot be read or do not verify are passed over. Errors: the cause of ctx,
// vtop.ErrStorage, ErrClosed.
func (g *Staging) TakeLocal(ctx context.Context, bytesPerSecond int64, wants []Want) (taken []vtop.Offset, err error) {
	return nil, errors.ErrUnsupported
}

// Close lets go of the files; what is staged stays. It may be called more than once.
func (g *Staging) Close() error { return nil }

// Discard closes the staging and removes all of it.
func (g *Staging) Discard() error { return errors.ErrUnsupported }
