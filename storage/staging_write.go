package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// take finds a segment, or makes room for it in the table, and holds its io for writing: the caller gives it back.
func (g *Staging) take(base vtop.Offset, create bool) (*stagedSegment, error) {
	for {
		g.mu.Lock()
		seg := g.segs[base]
		switch {
		case g.closed:
			g.mu.Unlock()
			return nil, fmt.Errorf("staging of range %s: %w", g.rng, vtop.ErrClosed)
		case seg == nil && !create:
			g.mu.Unlock()
			return nil, fmt.Errorf("staging of range %s: %w: segment %d was not begun", g.rng, vtop.ErrNotReady, base)
		case seg == nil:
			seg = &stagedSegment{info: StagedSegment{Base: base}}
			g.segs[base] = seg
		}
		g.mu.Unlock()
		seg.io.Lock()
		g.mu.Lock()
		same, closed := g.segs[base] == seg, g.closed
		g.mu.Unlock()
		if same && !closed {
			return seg, nil
		}
		seg.io.Unlock() // dropped meanwhile
	}
}

// forget takes a segment out of the table. Its io is held for writing.
func (g *Staging) forget(seg *stagedSegment) {
	if seg.file != nil {
		_ = seg.file.Close() // nobody wants what was written
		seg.file = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.segs[seg.info.Base] == seg {
		delete(g.segs, seg.info.Base)
	}
}

// Begin makes a segment ready to receive: encoded is its manifest, which must have this base and root. What was received
// of it before is hashed anew and kept. It returns the manifest, whose chunks are what to fetch; see Missing. A staged
// segment of the same base with another root is dropped. Beginning a segment that is whole is fine: nothing is missing.
//
// Errors: vtop.ErrDamaged (the manifest is not that of base and root), ErrNoSpace, ErrOverloaded (Options.StageFiles
// segments are half received), ErrStorage, ErrClosed.
func (g *Staging) Begin(base vtop.Offset, root [32]byte, encoded []byte) (*manifest.Manifest, error) {
	m, err := manifest.Decode(encoded)
	if err == nil && (m.Base != base || m.Root != root) {
		err = fmt.Errorf("%w: it is of segment %d with root %x", vtop.ErrDamaged, m.Base, m.Root)
	}
	if err != nil {
		return nil, fmt.Errorf("staging of range %s: manifest of segment %d with root %x: %w", g.rng, base, root, err)
	}
	seg, err := g.take(base, true)
	if err != nil {
		return nil, err
	}
	defer seg.io.Unlock()
	if seg.info.Root == root && (seg.info.Whole || seg.file != nil) {
		return m, nil
	}
	if err := g.admitHalf(m.Size); err != nil {
		if seg.info.Root == ([32]byte{}) {
			g.forget(seg)
		}
		return nil, err
	}
	if err := g.begin(seg, m, encoded); err != nil {
		g.forget(seg)
		return nil, fmt.Errorf("staging of range %s: begin segment %d: %w", g.rng, base, diskError(err))
	}
	return m, nil
}

// diskError tells a full disk from a failing one.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w", vtop.ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", vtop.ErrStorage, err)
}

// admitHalf refuses a segment that the disk has no room for, or one too many (I13).
func (g *Staging) admitHalf(size int64) error {
	g.mu.Lock()
	half := 0
	for _, seg := range g.segs {
		if seg.want != nil {
			half++
		}
	}
	g.mu.Unlock()
	if limit := g.store.opt.StageFiles; half >= limit {
		return fmt.Errorf("staging of range %s: %w: %d segments are half received, at most %d may be", g.rng, vtop.ErrOverloaded, half, limit)
	}
	s := g.store
	if free, reserve := s.free.Load(), s.reserve.Load(); free < reserve+uint64(max(s.buffered.Load(), 0)+size) {
		return fmt.Errorf("staging of range %s: segment of %d bytes: %w", g.rng, size, s.noSpace(free, reserve))
	}
	return nil
}

// begin opens the file of a segment, hashes what is in it, and puts the manifest beside it.
func (g *Staging) begin(seg *stagedSegment, m *manifest.Manifest, encoded []byte) error {
	if seg.info.Root != m.Root {
		if err := g.empty(seg); err != nil {
			return err
		}
	}
	name := g.path(m.Base, partSuffix)
	f, err := g.store.fs.OpenRW(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = g.store.fs.CreateNew(name)
	}
	if err != nil {
		return err
	}
	have, bytes, err := haveChunks(f, m)
	if err == nil && seg.info.Root != m.Root {
		err = vfs.WriteFileAtomic(g.store.fs, g.path(m.Base, wantSuffix), encoded)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	seg.file, seg.want, seg.have = f, m, have
	seg.info = StagedSegment{Base: m.Base, End: m.End, Bytes: m.Size, Root: m.Root, Have: bytes}
	return nil
}

// empty removes what is staged of a segment. Its io is held for writing.
func (g *Staging) empty(seg *stagedSegment) error {
	if seg.file != nil {
		_ = seg.file.Close() // nobody wants what was written
	}
	g.mu.Lock()
	seg.file, seg.want, seg.have = nil, nil, nil
	seg.info = StagedSegment{Base: seg.info.Base}
	g.mu.Unlock()
	return g.removeStaged(seg.info.Base)
}

// haveChunks hashes what is in a half received file.
func haveChunks(f vfs.File, m *manifest.Manifest) (have []bool, bytes int64, err error) {
	have = make([]bool, len(m.Chunks))
	size, err := f.Size()
	if err != nil {
		return nil, 0, err
	}
	if size > m.Size {
		if err := f.Truncate(m.Size); err != nil {
			return nil, 0, err
		}
	}
	buf := make([]byte, min(size, manifest.ChunkSize))
	for i := range m.Chunks {
		pos, length := m.ChunkRange(i)
		if pos+int64(length) > size {
			break
		}
		if n, err := f.ReadAt(buf[:length], pos); n < length {
			return nil, 0, err
		}
		if m.VerifyChunk(i, buf[:length]) == nil {
			have[i] = true
			bytes += int64(length)
		}
	}
	return have, bytes, nil
}

// Missing returns the chunks that a begun segment lacks, in order; none if it is whole.
func (g *Staging) Missing(base vtop.Offset) ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seg := g.segs[base]
	switch {
	case g.closed:
		return nil, fmt.Errorf("staging of range %s: %w", g.rng, vtop.ErrClosed)
	case seg != nil && seg.info.Whole:
		return nil, nil
	case seg == nil || seg.want == nil:
		return nil, fmt.Errorf("staging of range %s: %w: segment %d was not begun", g.rng, vtop.ErrNotReady, base)
	}
	var out []int
	for i, have := range seg.have {
		if !have {
			out = append(out, i)
		}
	}
	return out, nil
}

// WriteChunk verifies chunk i of a begun segment against its manifest and writes it. Not durable before Finish. A chunk
// that is there is not written again. Errors: vtop.ErrDamaged (the bytes are not those of the chunk: nothing was written,
// blame the source), ErrNoSpace, ErrStorage, ErrNotReady (not begun), ErrClosed.
func (g *Staging) WriteChunk(base vtop.Offset, i int, data []byte) error {
	g.mu.Lock()
	seg, closed := g.segs[base], g.closed
	g.mu.Unlock()
	if closed {
		return fmt.Errorf("staging of range %s: %w", g.rng, vtop.ErrClosed)
	}
	if seg == nil {
		return fmt.Errorf("staging of range %s: %w: segment %d was not begun", g.rng, vtop.ErrNotReady, base)
	}
	seg.io.RLock()
	defer seg.io.RUnlock()
	g.mu.Lock()
	m, f := seg.want, seg.file
	done := seg.info.Whole || m != nil && i >= 0 && i < len(seg.have) && seg.have[i]
	g.mu.Unlock()
	if done {
		return nil
	}
	if f == nil { // finished, dropped or closed meanwhile, or of an earlier life
		return fmt.Errorf("staging of range %s: %w: segment %d is not begun", g.rng, vtop.ErrNotReady, base)
	}
	if err := m.VerifyChunk(i, data); err != nil {
		return fmt.Errorf("staging of range %s segment %d: %w", g.rng, base, err)
	}
	if err := g.store.Admits(); err != nil {
		return fmt.Errorf("staging of range %s: %w", g.rng, err)
	}
	pos, _ := m.ChunkRange(i)
	if err := writeEvenly(f, data, pos); err != nil {
		return fmt.Errorf("staging of range %s: write chunk %d of segment %d: %w", g.rng, i, base, diskError(err))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !seg.have[i] {
		seg.have[i] = true
		seg.info.Have += int64(len(data))
	}
	return nil
}

// evenPiece is how much of a chunk is handed to the disk at a time.
const evenPiece = 256 << 10

// writeEvenly writes in pieces that the disk begins to take at once. What clients sync meanwhile waits for a piece at most, and
// not, at Finish, for a whole segment.
func writeEvenly(f vfs.File, data []byte, pos int64) error {
	for len(data) > 0 {
		n := min(len(data), evenPiece)
		if _, err := f.WriteAt(data[:n], pos); err != nil {
			return err
		}
		vfs.StartWriteBack(f, pos, int64(n))
		data, pos = data[n:], pos+int64(n)
	}
	return nil
}

// Finish makes a segment that lacks nothing durable. vtop.ErrNotReady if chunks are missing; after vtop.ErrStorage the
// segment was dropped and has to be received anew, since a failed sync is never repeated. Finishing again is fine.
func (g *Staging) Finish(base vtop.Offset) error {
	seg, err := g.take(base, false)
	if err != nil {
		return err
	}
	defer seg.io.Unlock()
	if seg.info.Whole {
		return nil
	}
	if seg.file == nil || seg.info.Have < seg.info.Bytes {
		return fmt.Errorf("staging of range %s: %w: segment %d has %d of %d bytes", g.rng, vtop.ErrNotReady, base, seg.info.Have, seg.info.Bytes)
	}
	if err := g.finish(seg); err != nil {
		g.forget(seg)
		err = errors.Join(err, g.removeStaged(base))
		return fmt.Errorf("staging of range %s: finish segment %d: %w", g.rng, base, diskError(err))
	}
	return nil
}

// finish syncs a segment's bytes, which are all there, and gives both its files the names of a whole one. Its io is held
// for writing.
func (g *Staging) finish(seg *stagedSegment) error {
	base, fsys := seg.info.Base, g.store.fs
	err := seg.file.Sync()
	err = errors.Join(err, seg.file.Close())
	seg.file = nil
	if err != nil {
		return err
	}
	if err := fsys.Rename(g.path(base, partSuffix), g.path(base, logSuffix)); err != nil {
		return err
	}
	if err := fsys.Rename(g.path(base, wantSuffix), g.path(base, manifestSuffix)); err != nil {
		return err
	}
	if err := fsys.SyncDir(g.dir); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	seg.info.Whole, seg.info.Have = true, seg.info.Bytes
	seg.want, seg.have = nil, nil
	return nil
}

// Drop removes one segment from the staging, whole or not.
func (g *Staging) Drop(base vtop.Offset) error {
	seg, err := g.take(base, true)
	if err != nil {
		return err
	}
	defer seg.io.Unlock()
	g.forget(seg)
	if err := g.removeStaged(base); err != nil {
		return fmt.Errorf("staging of range %s: drop segment %d: %w: %w", g.rng, base, vtop.ErrStorage, err)
	}
	return nil
}

// wholeManifest returns the manifest of a segment that is whole.
func (g *Staging) wholeManifest(base vtop.Offset) (*manifest.Manifest, error) {
	return readManifest(g.store.fs, g.path(base, manifestSuffix), base)
}
