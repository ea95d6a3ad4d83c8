package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Want names a segment of the catalogue.
type Want struct {
	Base, End vtop.Offset
	Bytes     int64
	Root      [32]byte
}

// TakeLocal looks for the wanted segments in directories of the same range on this disk: the replica's that is lost,
// and those set aside. What verifies, byte by byte, against the wanted root becomes part of the staging and need not be
// fetched. It reads at most bytesPerSecond (0: unbounded). It returns the bases that it took; those that were staged
// whole before are among them. Files that cannot be read or do not verify are passed over. Errors: the cause of ctx,
// vtop.ErrNoSpace, ErrStorage, ErrClosed.
func (g *Staging) TakeLocal(ctx context.Context, bytesPerSecond int64, wants []Want) (taken []vtop.Offset, err error) {
	dirs, err := g.oldDirs()
	if err != nil {
		return nil, fmt.Errorf("staging of range %s: %w: %w", g.rng, vtop.ErrStorage, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(g.stopped, func() { cancel(fmt.Errorf("staging of range %s: %w", g.rng, vtop.ErrClosed)) })
	defer stop()
	pace := newPacer(bytesPerSecond)
	for _, want := range wants {
		done, err := g.takeLocal(ctx, pace, dirs, want)
		if err != nil {
			return taken, err
		}
		if done {
			taken = append(taken, want.Base)
		}
	}
	return taken, nil
}

// oldDirs are the directories where segments of the range may be.
func (g *Staging) oldDirs() ([]string, error) {
	s := g.store
	aside := filepath.Join(s.dir, asideDir)
	names, err := s.fs.ReadDir(aside)
	if err != nil {
		return nil, err
	}
	dirs := []string{filepath.Join(s.dir, rangesDir, dirName(g.rng))}
	for _, name := range names {
		if strings.HasPrefix(name, dirName(g.rng)+".") && !strings.HasSuffix(name, ".why") {
			dirs = append(dirs, filepath.Join(aside, name))
		}
	}
	return dirs, nil
}

func (g *Staging) takeLocal(ctx context.Context, pace *pacer, dirs []string, want Want) (bool, error) {
	seg, err := g.take(want.Base, true)
	if err != nil {
		return false, err
	}
	defer seg.io.Unlock()
	if seg.info.Whole && seg.info.Root == want.Root {
		return true, nil
	}
	if seg.info.Root == want.Root && seg.info.Have > 0 {
		return false, nil // half received from others: that goes on
	}
	for _, dir := range dirs {
		err := g.takeFrom(ctx, pace, seg, dir, want)
		switch {
		case err == nil:
			g.log.Info("a segment that is whole on this disk is taken", "segment", want.Base, "from", dir)
			return true, nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, vtop.ErrDamaged):
			continue
		default:
			err = fmt.Errorf("staging of range %s: take segment %d from %s: %w", g.rng, want.Base, dir, diskError(err))
		}
		g.forget(seg)
		return false, errors.Join(err, g.removeStaged(want.Base))
	}
	g.forget(seg)
	return false, nil
}

// takeFrom takes a segment from one directory. A sealed file never changes, so it gets a second name; another one is
// copied. vtop.ErrDamaged if it is not what is wanted.
func (g *Staging) takeFrom(ctx context.Context, pace *pacer, seg *stagedSegment, dir string, want Want) error {
	fsys := g.store.fs
	old := filepath.Join(dir, fileName(want.Base, logSuffix))
	if info, err := fsys.Stat(old); err != nil {
		return err
	} else if info.Size != want.Bytes {
		return fmt.Errorf("%w: %s has %d bytes, want %d", vtop.ErrDamaged, old, info.Size, want.Bytes)
	}
	if err := g.empty(seg); err != nil {
		return err
	}
	m, err := readManifest(fsys, filepath.Join(dir, fileName(want.Base, manifestSuffix)), want.Base)
	part := g.path(want.Base, partSuffix)
	if sealed := err == nil && m.Root == want.Root; sealed {
		if err = fsys.Link(old, part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = g.copyIn(old, part, want.Bytes)
		}
	} else if m, err = g.computeOld(ctx, pace, dir, want); err == nil {
		err = g.copyIn(old, part, want.Bytes)
	}
	if err == nil {
		err = g.takePart(ctx, pace, seg, m)
	}
	if err != nil {
		return errors.Join(err, g.empty(seg))
	}
	return nil
}

// copyIn copies the bytes of a file that may not be linked.
func (g *Staging) copyIn(old, part string, size int64) error {
	if err := g.store.Admits(); err != nil {
		return err
	}
	from, err := g.store.fs.Open(old)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := g.store.fs.CreateNew(part)
	if err != nil {
		return err
	}
	return errors.Join(copyBytes(to, from, size), to.Close())
}

// computeOld makes the manifest of a segment that was closed and not sealed, or lost its manifest, from its bytes and
// the producer state that was kept at its end.
func (g *Staging) computeOld(ctx context.Context, pace *pacer, dir string, want Want) (*manifest.Manifest, error) {
	fsys := g.store.fs
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, fileName(want.End, producerSuffix)), maxSmallFile)
	if err != nil {
		return nil, err
	}
	producers, err := decodeSnapshot(data, g.rng, want.End)
	if err != nil {
		return nil, err
	}
	f, err := fsys.Open(filepath.Join(dir, fileName(want.Base, logSuffix)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := manifest.Compute(pacedReader{ctx, pace, f}, want.Bytes, want.Base, producers)
	if errors.Is(err, io.ErrUnexpectedEOF) || err == nil && m.Root != want.Root {
		err = fmt.Errorf("%w: segment %d in %s has another root", vtop.ErrDamaged, want.Base, dir)
	}
	return m, err
}

// takePart verifies a whole file that was put in the place of a half received one, and finishes it.
func (g *Staging) takePart(ctx context.Context, pace *pacer, seg *stagedSegment, m *manifest.Manifest) error {
	f, err := g.store.fs.OpenRW(g.path(m.Base, partSuffix)) // to sync it
	if err != nil {
		return err
	}
	g.mu.Lock()
	seg.file, seg.want = f, m
	seg.info = StagedSegment{Base: m.Base, End: m.End, Bytes: m.Size, Root: m.Root}
	g.mu.Unlock()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if bad := m.Verify(pacedReader{ctx, pace, f}, size); len(bad) > 0 {
		return bad[0]
	}
	if err := vfs.WriteFileAtomic(g.store.fs, g.path(m.Base, wantSuffix), m.Encode()); err != nil {
		return err
	}
	return g.finish(seg)
}
