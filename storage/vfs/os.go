package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Modes of what vtopd creates: its own user reads and writes, its group reads.
const (
	fileMode = 0o640
	dirMode  = 0o750
)

// OS returns the file system of the machine.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) CreateNew(name string) (File, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return osOpen(name, os.O_RDONLY) }

func (osFS) OpenRW(name string) (File, error) { return osOpen(name, os.O_RDWR) }

func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

func (osFS) Link(oldname, newname string) error { return os.Link(oldname, newname) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) RemoveAll(name string) error { return os.RemoveAll(name) }

func (osFS) MkdirAll(name string) error { return os.MkdirAll(name, dirMode) }

func (osFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	info := Info{ModTime: st.ModTime(), IsDir: st.IsDir()}
	if !info.IsDir {
		info.Size = st.Size()
	}
	return info, nil
}

func (osFS) SameFile(name string, f File) (bool, error) {
	named, err := os.Stat(name)
	if err != nil {
		return false, err
	}
	open, ok := f.(osFile)
	if !ok {
		return false, nil
	}
	st, err := open.Stat()
	return err == nil && os.SameFile(named, st), err
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Free counts the blocks open to an unprivileged process, not those that the file system keeps for root.
func (osFS) Free(name string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	block := uint64(st.Bsize)
	return uint64(st.Bavail) * block, uint64(st.Blocks) * block, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	return nil, &os.PathError{Op: "flock", Path: name, Err: err}
}

func osOpen(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// osFile adds to os.File the calls that it has not.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f osFile) WriteOut() error {
	if err := writeOut(f.File); err != nil {
		return &os.PathError{Op: "sync_file_range", Path: f.Name(), Err: err}
	}
	return nil
}

func (f osFile) SyncData() error {
	if err := fdatasync(f.File); err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}
