package vfs

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// touch keeps a file that has changes for SyncFS.
func (c *CrashFS) touch(i *inode) {
	if i.num == 0 {
		c.files++
		i.num = c.files
	}
	if len(i.changes) > 0 {
		c.dirty[i] = true
	} else {
		delete(c.dirty, i)
	}
}

// dirtyFiles are the files with changes, always in the same order, so that one seed gives one outcome.
func (c *CrashFS) dirtyFiles() []*inode {
	out := make([]*inode, 0, len(c.dirty))
	for i := range c.dirty {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b *inode) int { return cmp.Compare(a.num, b.num) })
	return out
}

// WriteOut has no effect but that Syncer.Sync covers what was written before.
func (f *crashFile) WriteOut() error {
	f.fs.mu.Lock()
	seq, size := f.ino.seq, int64(len(f.ino.data))
	f.fs.mu.Unlock()
	return f.syncing(Op{Kind: OpWriteOut}, func() {
		if seq >= f.ino.out {
			f.ino.out, f.ino.outSize = seq, size
		}
	})
}

// SyncFS implements FS. It keeps to the letter of the Syncer: names, and bytes without a WriteOut, stay as they are.
// The hook sees each Sync, and not this call.
func (c *CrashFS) SyncFS(name string) (Syncer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.findAlive(name); err != nil {
		return nil, pathError(Op{Kind: OpOpen, Name: name}, err)
	}
	return &crashSyncer{fs: c, name: name}, nil
}

type crashSyncer struct {
	fs     *CrashFS
	name   string
	closed bool // guarded by fs.mu
}

// Sync covers what was written out before the hook was asked. If the hook fails it, what is not synced of any file has
// reached the disk in whole, in part or not at all; the next sync of such a file, by each handle that was open,
// tells it.
func (s *crashSyncer) Sync() error {
	c, op := s.fs, Op{Kind: OpSyncFS, Name: s.name}
	type mark struct {
		ino  *inode
		seq  uint64
		size int64
	}
	c.mu.Lock()
	if s.closed {
		c.mu.Unlock()
		return pathError(op, fs.ErrClosed)
	}
	var marks []mark
	for _, i := range c.dirtyFiles() {
		marks = append(marks, mark{i, i.out, i.outSize})
	}
	c.mu.Unlock()
	err := c.do(op, func() error {
		for _, m := range marks {
			m.ino.settle(m.seq, m.size)
			c.touch(m.ino)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead.Load() {
		for _, i := range c.dirtyFiles() {
			c.lose(i)
			i.failed++
		}
	}
	return err
}

func (s *crashSyncer) Covers(f File) bool {
	file, ok := f.(*crashFile)
	return ok && file.fs == s.fs
}

func (s *crashSyncer) Close() error {
	s.fs.mu.Lock()
	defer s.fs.mu.Unlock()
	if s.closed {
		return &fs.PathError{Op: "close", Path: s.name, Err: fs.ErrClosed}
	}
	s.closed = true
	return nil
}

// syncing makes a call that fails as a sync does: what has not reached the disk by then is lost. It tells, once to each
// handle, that a SyncFS lost bytes of the file.
func (f *crashFile) syncing(op Op, fn func()) error {
	done := false
	err := f.do(op, func() error {
		fn()
		done = true
		if failed := f.ino.failed; failed != f.told {
			f.told = failed
			return syscall.EIO
		}
		return nil
	})
	if err != nil && !done && !errors.Is(err, fs.ErrClosed) {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		if !f.fs.dead.Load() {
			f.fs.lose(f.ino)
		}
	}
	return err
}

// lose is a failed write-back: what has not reached the disk by now is forgotten.
func (c *CrashFS) lose(i *inode) {
	i.synced = i.afterCut(c.rng, Torn())
	i.changes = nil
	if c.syncFailure == DropCache {
		c.used += int64(len(i.synced) - len(i.data))
		i.data = append([]byte(nil), i.synced...)
	}
	c.touch(i)
}
