package vfs

import (
	"errors"
	"io"
	"sync/atomic"
)

// FaultFS wraps another FS and asks a Hook before each call. It is for tests on real disks. After ErrPowerCut every
// call fails, but what the wrapped FS has stays: unlike CrashFS it loses nothing. A sync that the hook fails is not
// made, so a later sync does reach the disk: CrashFS has the worse case.
type FaultFS struct {
	hooks
	base FS
	free atomic.Pointer[[2]uint64]
}

// NewFaultFS returns an FS that passes all calls to base until SetHook.
func NewFaultFS(base FS) *FaultFS { return &FaultFS{base: base} }

// SetFree makes Free answer these numbers of bytes instead of asking.
func (f *FaultFS) SetFree(free, total uint64) { f.free.Store(&[2]uint64{free, total}) }

// pass makes the call unless the hook objects.
func (f *FaultFS) pass(op Op, call func() error) error {
	err := f.ask(op)
	if errors.Is(err, ErrPowerCut) {
		f.PowerCut()
	}
	if err != nil {
		return pathError(op, err)
	}
	return call()
}

func (f *FaultFS) open(op Op, call func(string) (File, error)) (file File, err error) {
	err = f.pass(op, func() (err error) {
		file, err = call(op.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f}, nil
}

// Create implements FS.
func (f *FaultFS) Create(name string) (File, error) {
	return f.open(Op{Kind: OpCreate, Name: name}, f.base.Create)
}

// CreateNew implements FS.
func (f *FaultFS) CreateNew(name string) (File, error) {
	return f.open(Op{Kind: OpCreate, Name: name}, f.base.CreateNew)
}

// Open implements FS.
func (f *FaultFS) Open(name string) (File, error) {
	return f.open(Op{Kind: OpOpen, Name: name}, f.base.Open)
}

// OpenRW implements FS.
func (f *FaultFS) OpenRW(name string) (File, error) {
	return f.open(Op{Kind: OpOpen, Name: name}, f.base.OpenRW)
}

// Rename implements FS.
func (f *FaultFS) Rename(oldname, newname string) error {
	return f.pass(Op{Kind: OpRename, Name: oldname, To: newname}, func() error {
		return f.base.Rename(oldname, newname)
	})
}

// Link implements FS.
func (f *FaultFS) Link(oldname, newname string) error {
	return f.pass(Op{Kind: OpLink, Name: oldname, To: newname}, func() error {
		return f.base.Link(oldname, newname)
	})
}

// Remove implements FS.
func (f *FaultFS) Remove(name string) error {
	return f.pass(Op{Kind: OpRemove, Name: name}, func() error { return f.base.Remove(name) })
}

// RemoveAll implements FS, one OpRemove for each name below.
func (f *FaultFS) RemoveAll(name string) error { return removeTree(f, name) }

// MkdirAll implements FS.
func (f *FaultFS) MkdirAll(name string) error {
	return f.pass(Op{Kind: OpMkdir, Name: name}, func() error { return f.base.MkdirAll(name) })
}

// ReadDir implements FS.
func (f *FaultFS) ReadDir(name string) ([]string, error) {
	if f.dead.Load() {
		return nil, pathError(Op{Kind: OpOpen, Name: name}, ErrPowerCut)
	}
	return f.base.ReadDir(name)
}

// Stat implements FS.
func (f *FaultFS) Stat(name string) (Info, error) {
	if f.dead.Load() {
		return Info{}, pathError(Op{Kind: OpOpen, Name: name}, ErrPowerCut)
	}
	return f.base.Stat(name)
}

// SameFile implements FS. The hook does not see it.
func (f *FaultFS) SameFile(name string, file File) (bool, error) {
	if f.dead.Load() {
		return false, pathError(Op{Kind: OpOpen, Name: name}, ErrPowerCut)
	}
	if ours, ok := file.(*faultFile); ok {
		file = ours.File
	}
	return f.base.SameFile(name, file)
}

// SyncDir implements FS.
func (f *FaultFS) SyncDir(name string) error {
	return f.pass(Op{Kind: OpSyncDir, Name: name}, func() error { return f.base.SyncDir(name) })
}

// SyncFS implements FS. The hook sees each Sync, and not this call.
func (f *FaultFS) SyncFS(name string) (Syncer, error) {
	if f.dead.Load() {
		return nil, pathError(Op{Kind: OpOpen, Name: name}, ErrPowerCut)
	}
	s, err := f.base.SyncFS(name)
	if err != nil {
		return nil, err
	}
	return &faultSyncer{Syncer: s, fs: f, name: name}, nil
}

type faultSyncer struct {
	Syncer
	fs   *FaultFS
	name string
}

func (s *faultSyncer) Sync() error { return s.fs.pass(Op{Kind: OpSyncFS, Name: s.name}, s.Syncer.Sync) }

func (s *faultSyncer) Covers(f File) bool {
	file, ok := f.(*faultFile)
	return ok && s.Syncer.Covers(file.File)
}

// Free implements FS.
func (f *FaultFS) Free(name string) (free, total uint64, err error) {
	if f.dead.Load() {
		return 0, 0, pathError(Op{Kind: OpOpen, Name: name}, ErrPowerCut)
	}
	if set := f.free.Load(); set != nil {
		return set[0], set[1], nil
	}
	return f.base.Free(name)
}

// Lock implements FS. The hook does not see it.
func (f *FaultFS) Lock(name string) (io.Closer, error) {
	if f.dead.Load() {
		return nil, pathError(Op{Kind: OpOpen, Name: name}, ErrPowerCut)
	}
	return f.base.Lock(name)
}

type faultFile struct {
	File
	fs *FaultFS
}

func (f *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fs.pass(Op{Kind: OpRead, Name: f.Name(), Off: off, Len: len(p)}, func() (err error) {
		n, err = f.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fs.pass(Op{Kind: OpWrite, Name: f.Name(), Off: off, Len: len(p)}, func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	var short *ShortWrite
	if n == 0 && errors.As(err, &short) {
		n, _ = f.File.WriteAt(p[:min(max(short.N, 0), len(p))], off)
	}
	return n, err
}

func (f *faultFile) Truncate(size int64) error {
	return f.fs.pass(Op{Kind: OpTruncate, Name: f.Name(), Off: size}, func() error { return f.File.Truncate(size) })
}

func (f *faultFile) Sync() error {
	return f.fs.pass(Op{Kind: OpSync, Name: f.Name()}, f.File.Sync)
}

func (f *faultFile) SyncData() error {
	return f.fs.pass(Op{Kind: OpSyncData, Name: f.Name()}, f.File.SyncData)
}

func (f *faultFile) WriteOut() error {
	return f.fs.pass(Op{Kind: OpWriteOut, Name: f.Name()}, f.File.WriteOut)
}
