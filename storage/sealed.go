package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

var (
	// ErrNoSegment says that there is no sealed segment at a base here: it was never sealed here, or retention took it.
	ErrNoSegment = errors.New("no such sealed segment")
	// ErrWrongRoot says that the sealed segment at a base has another root than was asked for.
	ErrWrongRoot = errors.New("segment has another root")
)

// SealedReader reads one sealed segment. The file stays readable until Close whatever retention unlinks.
type SealedReader struct {
	store *Store
	log   *Log
	info  SegmentInfo
	file  vfs.File
	// chunks is the manifest without the producer state.
	chunks *manifest.Manifest
	// pin is touched by every read; nil if none was named.
	pin *pin
	// The segment comes from the log: plan and handle; or from the pin: held.
	plan   readPlan
	handle *handle
	held   *pinnedSegment
	// piece is a buffer for chunks that are read in part, and at the one that is in it; -1 for none.
	piece  *[manifest.ChunkSize]byte
	at     int
	closed bool
}

// OpenSealed opens the sealed segment of a range whose base and root are given, for a peer: from the log if it has it, else
// from the pin (0: none). Each use starts the pin's idle time anew. The caller closes it.
//
// Errors: ErrNoSegment, ErrWrongRoot, ErrPinGone (the log no longer has the segment, nor has the pin), vtop.ErrDamaged for
// a hole, ErrUnknownRange, ErrReplicaLost, ErrStorage.
func (s *Store) OpenSealed(r vtop.Range, base vtop.Offset, root [32]byte, pin PinID) (*SealedReader, error) {
	out := &SealedReader{store: s, log: s.Get(r), at: -1}
	var gone error
	if pin != 0 {
		out.pin, gone = s.pins.touch(pin)
	}
	if out.pin != nil && out.pin.log.rng != r {
		return nil, &PinGoneError{pin, "it is of range " + out.pin.log.rng.String()}
	}
	err := fmt.Errorf("%w: no replica of range %s here", vtop.ErrUnknownRange, r)
	if out.log != nil {
		err = out.openLog(base, root)
	}
	switch missing := errors.Is(err, ErrNoSegment) || errors.Is(err, vtop.ErrUnknownRange); {
	case missing && out.pin != nil:
		err = out.openPin(base, root)
	case missing && gone != nil:
		err = errors.Join(gone, err)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// openLog opens the segment of the log.
func (r *SealedReader) openLog(base vtop.Offset, root [32]byte) error {
	l := r.log
	l.mu.Lock()
	plan, err := l.planSealedLocked(base)
	if err == nil {
		r.info = plan.seg.info()
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if r.info.Root != root {
		return fmt.Errorf("range %s segment %d: %w: it is %x, %x is asked", l.rng, base, ErrWrongRoot, r.info.Root, root)
	}
	r.plan = plan
	h, err := l.store.files.acquire(plan.seg, false, true)
	if err != nil {
		return r.missing("its file", err)
	}
	if r.chunks = l.store.files.manifestOf(h); r.chunks == nil {
		if r.chunks, err = r.readChunks(); err != nil {
			l.store.files.release(h)
			return err
		}
		l.store.files.setManifest(h, r.chunks)
	}
	r.handle, r.file = h, h.file
	return nil
}

// planSealedLocked finds a sealed segment that may be served to a peer.
func (l *Log) planSealedLocked(base vtop.Offset) (readPlan, error) {
	if err := l.usableLocked(); err != nil && l.state != StateFailed {
		if l.shut && l.state != StateLost && l.state != StateQuarantined { // deleted or replaced: a pin may have it
			return readPlan{}, fmt.Errorf("%w: %w", ErrNoSegment, err)
		}
		return readPlan{}, err
	}
	if base < l.segs[0].base {
		return readPlan{}, fmt.Errorf("range %s segment %d: %w: retention took it, the first is %d", l.rng, base, ErrNoSegment, l.segs[0].base)
	}
	s := l.segs[l.segmentAtLocked(base)]
	if s.hole != "" {
		return readPlan{}, fmt.Errorf("range %s segment %d: %w: %s", l.rng, base, vtop.ErrDamaged, s.hole)
	}
	if s.base != base || s.state != SegmentSealed {
		return readPlan{}, fmt.Errorf("range %s segment %d: %w: it is not sealed here", l.rng, base, ErrNoSegment)
	}
	return readPlan{readSpec: readSpec{from: base, limit: s.end}, seg: s, sealed: true, fileEnd: s.size, generation: l.generation}, nil
}

// missing answers for a file that does not open: reclaimed meanwhile, or damage, or trouble of the disk.
func (r *SealedReader) missing(what string, err error) error {
	base := r.plan.seg.base
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("range %s: %w: open %s of segment %d: %w", r.log.rng, vtop.ErrStorage, what, base, err)
	}
	return r.damaged(what + " is missing")
}

// damaged marks the segment of the log a hole, unless it is not of the log any more.
func (r *SealedReader) damaged(reason string) error {
	l := r.log
	l.mu.Lock()
	gone := r.plan.seg.gone
	r.plan.generation = l.generation // a cut above does not concern what is sealed
	l.mu.Unlock()
	err := l.foundDamage(&r.plan, r.plan.seg.base, reason)
	if gone {
		return fmt.Errorf("range %s segment %d: %w: retention took it", l.rng, r.plan.seg.base, ErrNoSegment)
	}
	return err
}

// readChunks reads the manifest of the log's segment, all but the producer state.
func (r *SealedReader) readChunks() (*manifest.Manifest, error) {
	m, err := readManifest(r.store.fs, r.log.path(r.info.Base, manifestSuffix), r.info.Base)
	switch {
	case errors.Is(err, vtop.ErrDamaged):
		return nil, r.damaged(fmt.Sprintf("its manifest cannot be read: %v", err))
	case err != nil:
		return nil, r.missing("the manifest", err)
	case m.Root != r.info.Root:
		return nil, r.damaged(fmt.Sprintf("its manifest has the root %x, it was sealed with %x", m.Root, r.info.Root))
	}
	m.Producers = nil
	return m, nil
}

// openPin opens the segment that a pin holds.
func (r *SealedReader) openPin(base vtop.Offset, root [32]byte) error {
	l := r.pin.log
	l.mu.Lock()
	state, reason := l.state, l.reason
	l.mu.Unlock()
	if state == StateLost || state == StateQuarantined {
		return fmt.Errorf("range %s replica %d: %w: %s", l.rng, l.replicaID, vtop.ErrReplicaLost, reason)
	}
	held, err := r.store.pins.open(r.pin, base, root)
	if err != nil {
		return err
	}
	m, err := decodeManifestFile(held.manifest, held.info)
	if err != nil {
		r.store.pins.markBad(held)
		r.store.pins.release(held)
		return fmt.Errorf("range %s segment %d: its manifest: %w", l.rng, base, err)
	}
	m.Producers = nil
	r.log, r.held, r.info, r.file, r.chunks = l, held, held.info, held.file, m
	return nil
}

// decodeManifestFile reads the manifest of a segment from an open file. Errors are vtop.ErrDamaged or ErrStorage.
func decodeManifestFile(f vfs.File, want SegmentInfo) (*manifest.Manifest, error) {
	size, err := f.Size()
	if err != nil || size > manifest.MaxEncodedSize {
		return nil, fmt.Errorf("%w: %d bytes: %w", vtop.ErrStorage, size, err)
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, fmt.Errorf("%w: %w", vtop.ErrStorage, err)
	}
	m, err := manifest.Decode(data)
	if err == nil && (m.Base != want.Base || m.Root != want.Root) {
		err = fmt.Errorf("%w: it is of segment %d with root %x", vtop.ErrDamaged, m.Base, m.Root)
	}
	return m, err
}

// ReadManifest returns the encoded manifest of the segment that OpenSealed would open, verified. Errors as there.
func (s *Store) ReadManifest(r vtop.Range, base vtop.Offset, root [32]byte, pin PinID) ([]byte, error) {
	reader, err := s.OpenSealed(r, base, root, pin)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var m *manifest.Manifest
	if reader.held != nil {
		m, err = decodeManifestFile(reader.held.manifest, reader.info)
	} else {
		m, err = readManifest(s.fs, reader.log.path(base, manifestSuffix), base)
		if errors.Is(err, vtop.ErrDamaged) || err == nil && m.Root != root {
			return nil, reader.damaged(fmt.Sprintf("its manifest is not what it was: %v", err))
		} else if err != nil {
			return nil, reader.missing("the manifest", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return m.Encode(), nil
}

// Size is the size of the segment in bytes.
func (r *SealedReader) Size() int64 { return r.info.Bytes }

// Info describes the segment.
func (r *SealedReader) Info() SegmentInfo { return r.info }

// ReplicaID is the replica that the bytes are of.
func (r *SealedReader) ReplicaID() vtop.ReplicaID { return r.log.replicaID }

// ReadAt reads as io.ReaderAt tells. What it returns was verified against the manifest (I9): reads of whole chunks
// (manifest.ChunkSize, at multiples of it) cost one pass over the bytes; for others the chunks around are read too. A
// chunk that does not verify, or that the disk does not give, is vtop.ErrDamaged: the segment is a hole from then on and
// OnDamage was told. ErrPinGone if the pin it reads through has ended. One goroutine at a time.
func (r *SealedReader) ReadAt(p []byte, off int64) (n int, err error) {
	switch {
	case r.closed:
		return 0, vtop.ErrClosed
	case off < 0:
		return 0, fmt.Errorf("read at %d: %w", off, fs.ErrInvalid)
	}
	if r.pin != nil {
		if _, err := r.store.pins.touch(r.pin.id); err != nil && r.held != nil {
			return 0, err
		}
	}
	for n < len(p) && off < r.info.Bytes {
		i := int(off / manifest.ChunkSize)
		pos, length := r.chunks.ChunkRange(i)
		if off == pos && len(p)-n >= length && i != r.at {
			err = r.readChunk(i, p[n:n+length])
			n, off = n+length, off+int64(length)
		} else {
			var chunk []byte
			if chunk, err = r.partly(i); err == nil {
				done := copy(p[n:], chunk[off-pos:])
				n, off = n+done, off+int64(done)
			}
		}
		if err != nil {
			return 0, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// partly returns a chunk of which only a part is wanted; the last one is kept.
func (r *SealedReader) partly(i int) ([]byte, error) {
	if r.piece == nil {
		r.piece = r.store.pieces.Get().(*[manifest.ChunkSize]byte)
	}
	_, length := r.chunks.ChunkRange(i)
	chunk := r.piece[:length]
	if r.at == i {
		return chunk, nil
	}
	r.at = -1
	if err := r.readChunk(i, chunk); err != nil {
		return nil, err
	}
	r.at = i
	return chunk, nil
}

// readChunk reads a whole chunk and verifies it.
func (r *SealedReader) readChunk(i int, into []byte) error {
	pos, _ := r.chunks.ChunkRange(i)
	n, err := r.file.ReadAt(into, pos)
	if n == len(into) {
		err = r.chunks.VerifyChunk(i, into)
	}
	if err == nil {
		return nil
	}
	clear(into) // nobody gets to see them
	reason := fmt.Sprintf("chunk %d: %v", i, err)
	if r.held == nil {
		return r.damaged(reason)
	}
	r.store.pins.markBad(r.held)
	return fmt.Errorf("range %s segment %d: %w: %s", r.log.rng, r.info.Base, vtop.ErrDamaged, reason)
}

// Close ends the reading. It may be called more than once.
func (r *SealedReader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if r.piece != nil {
		r.store.pieces.Put(r.piece)
		r.piece = nil
	}
	if r.held != nil {
		r.store.pins.release(r.held)
	} else {
		r.store.files.release(r.handle)
	}
	return nil
}

// sealedPrefix returns the sealed segments at the beginning of the log.
func (l *Log) sealedPrefix() []SegmentInfo {
	segs := l.Segments()
	n := slices.IndexFunc(segs, func(s SegmentInfo) bool { return s.State != SegmentSealed })
	return segs[:max(n, 0)] // there is always a tail
}
