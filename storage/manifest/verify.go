package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Names of the files of a segment: 20 digits of the base offset, then one of these.
const (
	LogSuffix      = ".log"
	ManifestSuffix = ".manifest"
)

// Status is the verdict on one segment file.
type Status string

const (
	// StatusWhole: every byte agrees with the manifest, and the manifest with its root.
	StatusWhole Status = "whole"
	// StatusChecked: there is no manifest to compare with. Each batch agrees with its own CRC32C and follows the one
	// before it, and nothing but zeros comes after the last.
	StatusChecked Status = "checked"
	// StatusDamaged: see the problems.
	StatusDamaged Status = "damaged"
)

// Report is what was found out about one segment.
type Report struct {
	// Path of the segment file, which may be the one thing that is missing.
	Path   string
	Status Status
	// Base is told by the name. End is the offset after the last good record, Batches how many batches lead there.
	Base, End vtop.Offset
	Batches   int64
	// Bytes is the size of the file, Slack how many zeros end it: space that a tail has ahead of its records.
	Bytes, Slack int64
	// Runs are the epochs of the good batches.
	Runs []vtop.EpochRun
	// Root is the manifest's, or zero if there is none to read.
	Root Hash
	// Problems says what is damaged and where, one line each.
	Problems []string
}

func (r *Report) problem(format string, args ...any) {
	r.Status = StatusDamaged
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// VerifyPath verifies what is under path and hands fn one Report for each segment: a segment file with the manifest
// beside it, a manifest with its segment, or a directory with all segments below it, in order, where it also finds
// missing segments between two others. It is for a node that does not run: of a running one the last segments
// change under it. It changes nothing.
//
// The error says what could not be looked at at all (a path that is neither, a directory that cannot be read, the
// context's end); damage is in the reports only. fn is called on the caller's goroutine.
func VerifyPath(ctx context.Context, fsys vfs.FS, path string, fn func(Report)) error {
	info, err := fsys.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir {
		return verifyDir(ctx, fsys, path, fn)
	}
	stem, ok := strings.CutSuffix(path, LogSuffix)
	if !ok {
		stem, ok = strings.CutSuffix(path, ManifestSuffix)
	}
	base, named := baseOf(stem)
	if !ok || !named {
		return fmt.Errorf("%s: not a segment: want a directory, or 20 digits and %s or %s", path, LogSuffix, ManifestSuffix)
	}
	report, err := verifySegment(ctx, fsys, stem, base)
	if err == nil {
		fn(report)
	}
	return err
}

// baseOf reads the base offset off the last element of a path.
func baseOf(stem string) (vtop.Offset, bool) {
	name := filepath.Base(stem)
	n, err := strconv.ParseInt(name, 10, 64)
	return vtop.Offset(n), err == nil && n >= 0 && len(name) == 20 && name[0] != '+'
}

// verifyDir verifies the segments of a directory, then its directories.
func verifyDir(ctx context.Context, fsys vfs.FS, dir string, fn func(Report)) error {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	var last *Report
	for _, stem := range segmentStems(names) {
		base, _ := baseOf(stem)
		report, err := verifySegment(ctx, fsys, filepath.Join(dir, stem), base)
		if err != nil {
			return err
		}
		if last != nil && last.Status != StatusDamaged && last.End != base {
			report.problem("the segment before it ends at offset %d: offsets %d to %d are missing or told twice", last.End, last.End, base)
		}
		fn(report)
		last = &report
	}
	for _, name := range names {
		sub := filepath.Join(dir, name)
		info, err := fsys.Stat(sub)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && info.IsDir {
			if err := verifyDir(ctx, fsys, sub, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// segmentStems picks the names of segments and manifests, without what follows the digits, each once. The names are
// sorted, so a stem's files stand together.
func segmentStems(names []string) []string {
	var stems []string
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, LogSuffix)
		if !ok {
			stem, ok = strings.CutSuffix(name, ManifestSuffix)
		}
		if _, named := baseOf(stem); ok && named && (len(stems) == 0 || stems[len(stems)-1] != stem) {
			stems = append(stems, stem)
		}
	}
	return stems
}

// verifySegment gives an error only for the context's end; whatever the files do is in the report.
func verifySegment(ctx context.Context, fsys vfs.FS, stem string, base vtop.Offset) (Report, error) {
	report := Report{Path: stem + LogSuffix, Status: StatusChecked, Base: base, End: base}
	m, err := readManifest(fsys, stem+ManifestSuffix)
	switch {
	case err == nil && m.Base != base:
		report.problem("the manifest is of the segment at %d", m.Base)
		m = nil
	case err == nil:
		report.Root, report.Status = m.Root, StatusWhole
	case !errors.Is(err, fs.ErrNotExist):
		report.problem("%v", err)
	}
	f, err := fsys.Open(report.Path)
	if err != nil {
		report.problem("%v", err)
		return report, ctx.Err()
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		report.problem("%v", err)
		return report, ctx.Err()
	}
	report.Bytes = size
	file := cancelReader{ctx, f}
	if m != nil {
		for _, bad := range m.Verify(file, size) {
			report.problem("%v", bad)
		}
	}
	report.batches(file, size, m)
	return report, ctx.Err()
}

func readManifest(fsys vfs.FS, name string) (*Manifest, error) {
	data, err := vfs.ReadFile(fsys, name, MaxEncodedSize)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// batches walks the file, whether there is a manifest or not: it is what says which offsets are good. A manifest
// allows no slack.
func (r *Report) batches(file io.ReaderAt, size int64, m *Manifest) {
	found, err := Walk(file, size, r.Base, func(int64, batch.Batch) error { return nil })
	r.End, r.Batches, r.Runs = found.End, found.Batches, found.Runs
	if err != nil {
		zeros, zerr := onlyZeros(file, found.Size, size)
		switch {
		case zerr != nil:
			r.problem("%v", zerr)
		case zeros && m == nil:
			r.Slack = size - found.Size
		case m == nil:
			r.problem("%v (%d bytes from there to the end: a write that a power cut tore, if this is the last segment, else damage)",
				err, size-found.Size)
		default:
			r.problem("%v", err)
		}
		return
	}
	if m != nil && found.End != m.End {
		r.problem("batches end at offset %d, manifest tells %d", found.End, m.End)
	}
}

// onlyZeros looks at the bytes [from, size).
func onlyZeros(r io.ReaderAt, from, size int64) (bool, error) {
	buf := make([]byte, min(ChunkSize, size-from))
	for from < size {
		part := buf[:min(int64(len(buf)), size-from)]
		if err := readFull(r, part, from); err != nil {
			return false, fmt.Errorf("read %d bytes at %d: %w", len(part), from, err)
		}
		for _, b := range part {
			if b != 0 {
				return false, nil
			}
		}
		from += int64(len(part))
	}
	return true, nil
}

// cancelReader ends reading with the context.
type cancelReader struct {
	ctx context.Context
	io.ReaderAt
}

func (c cancelReader) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.ReaderAt.ReadAt(p, off)
}
