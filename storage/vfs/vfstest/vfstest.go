// Package vfstest implements the contract suite of vfs.FS: what must hold for the real disk and for everything
// that stands in for it.
package vfstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
)

// Run holds an FS to the contract. Each case gets an FS and an empty directory on it from open.
func Run(t *testing.T, open func(t *testing.T) (fsys vfs.FS, dir string)) {
	cases := []struct {
		name string
		run  func(s suite, t *testing.T)
	}{
		{"FileBytes", suite.fileBytes},
		{"FileModes", suite.fileModes},
		{"FileCloseTwice", suite.closeTwice},
		{"TruncateGrowsWithZeros", suite.truncate},
		{"NamesMissingAndTaken", suite.names},
		{"RenameReplaces", suite.rename},
		{"LinkIsOneFile", suite.link},
		{"RemovedFileStaysReadable", suite.removed},
		{"NameOfAnOpenFile", suite.sameFile},
		{"Directories", suite.directories},
		{"SyncEverything", suite.syncs},
		{"SyncManyFiles", suite.syncFS},
		{"LockIsExclusive", suite.lock},
		{"FreeSpace", suite.free},
		{"WriteFileAtomic", suite.writeFileAtomic},
		{"ReadFileIsBounded", suite.readFile},
		{"ConcurrentWriters", suite.concurrent},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fsys, dir := open(t)
			c.run(suite{fsys, dir}, t)
		})
	}
}

type suite struct {
	fs  vfs.FS
	dir string
}

func (s suite) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

// put makes a file with content.
func (s suite) put(t *testing.T, name, content string) {
	t.Helper()
	f, err := s.fs.Create(s.path(name))
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	must(t, f.Close())
}

// holds checks the content of a file.
func (s suite) holds(t *testing.T, name, content string) {
	t.Helper()
	got, err := vfs.ReadFile(s.fs, s.path(name), 1<<20)
	must(t, err)
	if string(got) != content {
		t.Fatalf("%s holds %q, want %q", name, got, content)
	}
}

func (s suite) fileBytes(t *testing.T) {
	f, err := s.fs.Create(s.path("a"))
	must(t, err)
	defer f.Close()
	if f.Name() != s.path("a") {
		t.Errorf("name %q", f.Name())
	}
	n, err := f.WriteAt([]byte("world"), 6)
	if n != 5 || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	_, err = f.WriteAt([]byte("hello"), 0)
	must(t, err)
	size, err := f.Size()
	if size != 11 || err != nil {
		t.Fatalf("size %d, %v", size, err)
	}
	got := make([]byte, 20)
	n, err = f.ReadAt(got, 0)
	if err != io.EOF || string(got[:n]) != "hello\x00world" {
		t.Fatalf("read %q, %v", got[:n], err)
	}
	n, err = f.ReadAt(got[:5], 6)
	if n != 5 || (err != nil && err != io.EOF) {
		t.Fatalf("read %d, %v", n, err)
	}
	if n, err = f.ReadAt(got, 100); n != 0 || err != io.EOF {
		t.Fatalf("read %d, %v beyond the end", n, err)
	}
	if _, err = f.ReadAt(got, -1); err == nil {
		t.Error("read at -1")
	}
	if _, err = f.WriteAt(got, -1); err == nil {
		t.Error("wrote at -1")
	}
}

func (s suite) fileModes(t *testing.T) {
	s.put(t, "a", "one")
	// Case: a file open for reading takes no writes.
	f, err := s.fs.Open(s.path("a"))
	must(t, err)
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("wrote through a handle for reading")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("truncated through a handle for reading")
	}
	must(t, f.Close())
	// Case: OpenRW keeps what is there.
	f, err = s.fs.OpenRW(s.path("a"))
	must(t, err)
	_, err = f.WriteAt([]byte("O"), 0)
	must(t, err)
	must(t, f.Close())
	s.holds(t, "a", "One")
	// Case: Create empties it.
	f, err = s.fs.Create(s.path("a"))
	must(t, err)
	must(t, f.Close())
	s.holds(t, "a", "")
}

func (s suite) closeTwice(t *testing.T) {
	f, err := s.fs.Create(s.path("a"))
	must(t, err)
	must(t, f.Close())
	wantErr(t, f.Close(), fs.ErrClosed)
	_, err = f.WriteAt([]byte("x"), 0)
	wantErr(t, err, fs.ErrClosed)
	_, err = f.ReadAt(make([]byte, 1), 0)
	wantErr(t, err, fs.ErrClosed)
	wantErr(t, f.Sync(), fs.ErrClosed)
	if err := f.SyncData(); err == nil {
		t.Error("synced a closed file")
	}
}

func (s suite) truncate(t *testing.T) {
	s.put(t, "a", "abcdef")
	f, err := s.fs.OpenRW(s.path("a"))
	must(t, err)
	must(t, f.Truncate(3))
	must(t, f.Truncate(6))
	must(t, f.Close())
	s.holds(t, "a", "abc\x00\x00\x00")
}

func (s suite) names(t *testing.T) {
	missing := s.path("missing")
	_, err := s.fs.Open(missing)
	wantErr(t, err, fs.ErrNotExist)
	_, err = s.fs.OpenRW(missing)
	wantErr(t, err, fs.ErrNotExist)
	_, err = s.fs.Stat(missing)
	wantErr(t, err, fs.ErrNotExist)
	_, err = s.fs.ReadDir(missing)
	wantErr(t, err, fs.ErrNotExist)
	_, err = s.fs.Create(s.path("missing", "a"))
	wantErr(t, err, fs.ErrNotExist)
	wantErr(t, s.fs.Remove(missing), fs.ErrNotExist)
	wantErr(t, s.fs.Rename(missing, s.path("b")), fs.ErrNotExist)
	wantErr(t, s.fs.SyncDir(missing), fs.ErrNotExist)
	must(t, s.fs.RemoveAll(missing))

	f, err := s.fs.CreateNew(s.path("a"))
	must(t, err)
	must(t, f.Close())
	_, err = s.fs.CreateNew(s.path("a"))
	wantErr(t, err, fs.ErrExist)
	_, err = s.fs.Create(s.path("a", "b"))
	if err == nil {
		t.Error("created a file below a file")
	}
	if err := s.fs.MkdirAll(s.path("a", "b")); err == nil {
		t.Error("made a directory below a file")
	}
}

func (s suite) rename(t *testing.T) {
	s.put(t, "a", "new")
	s.put(t, "b", "old")
	must(t, s.fs.Rename(s.path("a"), s.path("b")))
	s.holds(t, "b", "new")
	_, err := s.fs.Stat(s.path("a"))
	wantErr(t, err, fs.ErrNotExist)
	must(t, s.fs.Rename(s.path("b"), s.path("b")))
	s.holds(t, "b", "new")

	// Case: directories move with what they hold, and are not replaced.
	must(t, s.fs.MkdirAll(s.path("d", "e")))
	must(t, s.fs.MkdirAll(s.path("x")))
	must(t, s.fs.Rename(s.path("b"), s.path("d", "e", "f")))
	must(t, s.fs.Rename(s.path("d", "e"), s.path("x", "e")))
	s.holds(t, "x/e/f", "new")
	wantErr(t, s.fs.Rename(s.path("x"), s.path("d")), fs.ErrExist)
	if err := s.fs.Rename(s.path("x"), s.path("x", "e", "x")); err == nil {
		t.Error("moved a directory into itself")
	}
	if err := s.fs.Rename(s.path("d"), s.path("x", "e", "f")); err == nil {
		t.Error("replaced a file by a directory")
	}
}

func (s suite) link(t *testing.T) {
	s.put(t, "a", "bytes")
	must(t, s.fs.Link(s.path("a"), s.path("b")))
	s.holds(t, "b", "bytes")
	wantErr(t, s.fs.Link(s.path("a"), s.path("b")), fs.ErrExist)
	wantErr(t, s.fs.Link(s.path("none"), s.path("c")), fs.ErrNotExist)
	must(t, s.fs.MkdirAll(s.path("dir")))
	if err := s.fs.Link(s.path("dir"), s.path("c")); err == nil {
		t.Fatal("a directory was linked")
	}
	must(t, s.fs.Remove(s.path("a")))
	s.holds(t, "b", "bytes")
	_, err := s.fs.Stat(s.path("a"))
	wantErr(t, err, fs.ErrNotExist)
	s.put(t, "new", "other")
	must(t, s.fs.Link(s.path("b"), s.path("c")))
	must(t, s.fs.Rename(s.path("new"), s.path("b")))
	s.holds(t, "b", "other")
	s.holds(t, "c", "bytes")
	must(t, s.fs.Remove(s.path("c")))
	_, err = s.fs.Stat(s.path("c"))
	wantErr(t, err, fs.ErrNotExist)
}

func (s suite) removed(t *testing.T) {
	s.put(t, "a", "still here")
	s.put(t, "b", "replacement")
	f, err := s.fs.OpenRW(s.path("a"))
	must(t, err)
	must(t, s.fs.Rename(s.path("b"), s.path("a")))
	must(t, s.fs.Remove(s.path("a")))
	_, err = f.WriteAt([]byte("STILL"), 0)
	must(t, err)
	must(t, f.Sync())
	got := make([]byte, 10)
	if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF || string(got) != "STILL here" {
		t.Fatalf("read %q, %v of a removed file", got, err)
	}
	must(t, f.Close())
	_, err = s.fs.Stat(s.path("a"))
	wantErr(t, err, fs.ErrNotExist)
}

func (s suite) directories(t *testing.T) {
	must(t, vfs.MkdirAllSync(s.fs, s.path("p", "q", "r")))
	must(t, vfs.MkdirAllSync(s.fs, s.path("p", "q", "r")))
	s.put(t, "p/q/2", "22")
	s.put(t, "p/q/10", "")
	s.put(t, "p/q/1", "")
	names, err := s.fs.ReadDir(s.path("p", "q"))
	if want := []string{"1", "10", "2", "r"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("names %v, %v, want %v", names, err, want)
	}
	info, err := s.fs.Stat(s.path("p", "q", "2"))
	if err != nil || info.IsDir || info.Size != 2 || info.ModTime.IsZero() {
		t.Errorf("file: %+v, %v", info, err)
	}
	info, err = s.fs.Stat(s.path("p", "q"))
	if err != nil || !info.IsDir || info.Size != 0 {
		t.Errorf("directory: %+v, %v", info, err)
	}
	wantErr(t, s.fs.Remove(s.path("p", "q")), fs.ErrExist) // ENOTEMPTY
	if _, err := s.fs.Create(s.path("p", "q")); err == nil {
		t.Error("opened a directory for writing")
	}
	must(t, s.fs.RemoveAll(s.path("p")))
	_, err = s.fs.Stat(s.path("p"))
	wantErr(t, err, fs.ErrNotExist)
}

func (s suite) syncs(t *testing.T) {
	f, err := s.fs.Create(s.path("a"))
	must(t, err)
	_, err = f.WriteAt([]byte("abc"), 0)
	must(t, err)
	must(t, f.SyncData())
	must(t, f.Sync())
	must(t, f.Close())
	must(t, s.fs.SyncDir(s.dir))
}

func (s suite) lock(t *testing.T) {
	l, err := s.fs.Lock(s.path("lock"))
	must(t, err)
	_, err = s.fs.Lock(s.path("lock"))
	wantErr(t, err, vfs.ErrLocked)
	must(t, l.Close())
	l, err = s.fs.Lock(s.path("lock"))
	must(t, err)
	must(t, l.Close())
}

func (s suite) free(t *testing.T) {
	free, total, err := s.fs.Free(s.dir)
	if err != nil || free == 0 || free > total {
		t.Errorf("free %d of %d, %v", free, total, err)
	}
	if _, _, err := s.fs.Free(s.path("missing")); err == nil {
		t.Error("free space of what is not there")
	}
}

func (s suite) writeFileAtomic(t *testing.T) {
	name := s.path("a")
	must(t, vfs.WriteFileAtomic(s.fs, name, []byte("one")))
	s.put(t, "a"+vfs.TempSuffix, "what a crash left, and longer")
	must(t, vfs.WriteFileAtomic(s.fs, name, []byte("two")))
	s.holds(t, "a", "two")
	names, err := s.fs.ReadDir(s.dir)
	if err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("left %v, %v", names, err)
	}
	wantErr(t, vfs.WriteFileAtomic(s.fs, s.path("no", "a"), nil), fs.ErrNotExist)
}

func (s suite) readFile(t *testing.T) {
	s.put(t, "a", "12345")
	if _, err := vfs.ReadFile(s.fs, s.path("a"), 4); err == nil {
		t.Error("read 5 bytes with a limit of 4")
	}
	s.holds(t, "a", "12345")
	_, err := vfs.ReadFile(s.fs, s.path("b"), 4)
	wantErr(t, err, fs.ErrNotExist)
}

// concurrent: writers of different places of one file, with syncs, reads and changes of names beside them.
func (s suite) concurrent(t *testing.T) {
	f, err := s.fs.Create(s.path("a"))
	must(t, err)
	defer f.Close()
	const writers, rounds, block = 4, 20, 64
	errs := make(chan error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			buf := bytes.Repeat([]byte{byte('a' + w)}, block)
			for r := range rounds {
				_, werr := f.WriteAt(buf, int64((r*writers+w)*block))
				own := s.path(fmt.Sprintf("own-%d", w))
				if err := errors.Join(werr, f.SyncData(), vfs.WriteFileAtomic(s.fs, own, buf)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	must(t, <-errs)
	got, err := vfs.ReadFile(s.fs, s.path("a"), 1<<20)
	must(t, err)
	for i, b := range got {
		if want := byte('a' + i/block%writers); b != want {
			t.Fatalf("byte %d is %q, want %q", i, b, want)
		}
	}
	if len(got) != writers*rounds*block {
		t.Fatalf("%d bytes", len(got))
	}
}
