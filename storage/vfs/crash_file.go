package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// dataChange is one change of a file's bytes that is not durable yet: a write, or a truncation (bytes nil).
type dataChange struct {
	seq   uint64
	off   int64
	bytes []byte
	// size is the length of the file after the change.
	size int64
}

// write makes a change that is not durable yet and returns by how much the file grew.
func (i *inode) write(p []byte, off int64) (grown int64) {
	before := int64(len(i.data))
	i.data = resize(i.data, max(before, off+int64(len(p))))
	copy(i.data[off:], p)
	i.seq++
	i.changes = append(i.changes, dataChange{i.seq, off, append([]byte{}, p...), int64(len(i.data))})
	i.modTime = time.Now()
	return int64(len(i.data)) - before
}

// truncate makes a change that is not durable yet and returns by how much the file shrank.
func (i *inode) truncate(size int64) (shrunk int64) {
	before := int64(len(i.data))
	if size == before {
		return 0
	}
	i.data = resize(i.data, size)
	i.seq++
	i.changes = append(i.changes, dataChange{i.seq, size, nil, size})
	i.modTime = time.Now()
	return before - size
}

// resize sets a length; what is gained is zero.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	if size <= int64(cap(b)) {
		grown := b[:size]
		clear(grown[len(b):])
		return grown
	}
	grown := make([]byte, size, size+size/4)
	copy(grown, b)
	return grown
}

// settle makes durable the changes up to seq and the length that the file had then.
func (i *inode) settle(seq uint64, size int64) {
	n := 0
	for ; n < len(i.changes) && i.changes[n].seq <= seq; n++ {
		change := i.changes[n]
		i.synced = resize(i.synced, max(change.size, int64(len(i.synced))))
		if change.bytes == nil {
			clear(i.synced[change.size:])
		}
		copy(i.synced[change.off:], change.bytes)
	}
	if n == 0 { // another sync has done as much or more
		return
	}
	i.synced = resize(i.synced, size)
	i.changes = append([]dataChange(nil), i.changes[n:]...)
}

type crashFile struct {
	fs     *CrashFS
	ino    *inode
	name   string
	write  bool
	closed bool // guarded by fs.mu
	// told is the inode's failed as of the last call that told it.
	told int
}

// handle opens an inode, under the lock.
func (c *CrashFS) handle(ino *inode, name string, write bool) *crashFile {
	ino.handles++
	return &crashFile{fs: c, ino: ino, name: name, write: write, told: ino.failed}
}

// do is CrashFS.do for an open file.
func (f *crashFile) do(op Op, fn func() error) error {
	op.Name = f.name
	return f.fs.do(op, func() error {
		switch {
		case f.closed:
			return fs.ErrClosed
		case op.Off < 0:
			return syscall.EINVAL
		case !f.write && (op.Kind == OpWrite || op.Kind == OpTruncate):
			return syscall.EBADF
		}
		return fn()
	})
}

func (f *crashFile) Name() string { return f.name }

func (f *crashFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do(Op{Kind: OpRead, Off: off, Len: len(p)}, func() error {
		if off < int64(len(f.ino.data)) {
			n = copy(p, f.ino.data[off:])
		}
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (f *crashFile) WriteAt(p []byte, off int64) (n int, err error) {
	op := Op{Kind: OpWrite, Off: off, Len: len(p)}
	err = f.do(op, func() (err error) {
		n, err = f.writeLocked(p, off)
		return err
	})
	var short *ShortWrite
	if n == 0 && errors.As(err, &short) {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		if !f.closed && f.write && off >= 0 {
			n, _ = f.writeLocked(p[:min(max(short.N, 0), len(p))], off)
		}
	}
	return n, err
}

// writeLocked writes as much as the capacity allows.
func (f *crashFile) writeLocked(p []byte, off int64) (n int, err error) {
	size := int64(len(f.ino.data))
	if grow := off + int64(len(p)) - size; grow > 0 && f.fs.used+grow > f.fs.capacity {
		end := size + max(f.fs.capacity-f.fs.used, 0)
		p, err = p[:min(max(end-off, 0), int64(len(p)))], syscall.ENOSPC
	}
	if len(p) > 0 {
		f.fs.used += f.ino.write(p, off)
		f.fs.touch(f.ino)
	}
	return len(p), err
}

func (f *crashFile) Truncate(size int64) error {
	return f.do(Op{Kind: OpTruncate, Off: size}, func() error {
		if grow := size - int64(len(f.ino.data)); grow > 0 && f.fs.used+grow > f.fs.capacity {
			return syscall.ENOSPC
		}
		f.fs.used -= f.ino.truncate(size)
		f.fs.touch(f.ino)
		return nil
	})
}

func (f *crashFile) Size() (size int64, err error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, &fs.PathError{Op: "size", Path: f.name, Err: fs.ErrClosed}
	}
	return int64(len(f.ino.data)), nil
}

func (f *crashFile) Sync() error { return f.sync(Op{Kind: OpSync}) }

func (f *crashFile) SyncData() error { return f.sync(Op{Kind: OpSyncData}) }

// sync covers what was written before the hook was asked.
func (f *crashFile) sync(op Op) error {
	f.fs.mu.Lock()
	seq, size := f.ino.seq, int64(len(f.ino.data))
	f.fs.mu.Unlock()
	return f.syncing(op, func() {
		f.ino.settle(seq, size)
		f.fs.touch(f.ino)
	})
}

func (f *crashFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	f.ino.handles--
	f.fs.release(f.ino)
	return nil
}
