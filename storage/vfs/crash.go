package vfs

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// CrashFS is a file system in memory that knows what is durable. For each file it keeps the bytes as of the last
// sync and the ordered changes since; for each directory the names as of the last SyncDir and the ordered changes
// since. CrashClone makes of these a file system as it may be found after a power cut.
//
// What a sync covers is what was written before it was called, not what came while it ran. When a Hook fails a
// sync, each unsynced write of the file has reached the disk in whole, in part or not at all, and what has not is
// lost: later syncs answer success and do not bring it back, though reads may still show it (see SetSyncFailure).
//
// When a Hook answers ErrPowerCut, its call joins the unsynced changes (a sync syncs nothing), and that call and
// all later ones fail with ErrPowerCut.
//
// Paths are cleaned; relative ones count from the root, which is always there. Safe for many goroutines.
type CrashFS struct {
	hooks
	mu          sync.Mutex
	rng         *rand.Rand
	root        *inode
	journal     []nameChange
	capacity    int64
	used        int64
	syncFailure SyncFailure
	locked      map[*inode]bool
	// dirty are the files with unsynced changes; files counts those that ever had any.
	dirty map[*inode]bool
	files uint64
}

// SyncFailure says what reads show after a failed sync.
type SyncFailure uint8

const (
	// KeepCache: reads go on showing the bytes that were lost, as ext4 does until the page leaves the cache.
	KeepCache SyncFailure = iota
	// DropCache: reads show what is on the disk, as when the page left the cache at once.
	DropCache
)

// defaultCapacity is what a CrashFS can hold, in bytes, until SetCapacity.
const defaultCapacity = 1 << 40

// NewCrashFS returns an empty file system. The seed decides what a failed sync loses.
func NewCrashFS(seed uint64) *CrashFS {
	return &CrashFS{
		rng:      rand.New(rand.NewPCG(seed, 0)),
		root:     newDir(),
		capacity: defaultCapacity,
		locked:   map[*inode]bool{},
		dirty:    map[*inode]bool{},
	}
}

// SetSyncFailure chooses what reads show after a failed sync.
func (c *CrashFS) SetSyncFailure(mode SyncFailure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.syncFailure = mode
}

// SetCapacity limits the sum of the lengths of all files, in bytes; what exceeds it gets ENOSPC after a short
// write. A removed file counts until its last handle is closed.
func (c *CrashFS) SetCapacity(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity = bytes
}

// do asks the hook and runs fn under the lock.
func (c *CrashFS) do(op Op, fn func() error) error {
	err := c.ask(op)
	cut := errors.Is(err, ErrPowerCut)
	if err != nil && !cut {
		return pathError(op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return pathError(op, ErrPowerCut)
	}
	if !cut {
		return pathError(op, fn())
	}
	if !op.Kind.IsSync() {
		_ = fn()
	}
	c.PowerCut()
	return pathError(op, ErrPowerCut)
}

// Create implements FS.
func (c *CrashFS) Create(name string) (File, error) { return c.create(name, false) }

// CreateNew implements FS.
func (c *CrashFS) CreateNew(name string) (File, error) { return c.create(name, true) }

func (c *CrashFS) create(name string, exclusive bool) (file File, err error) {
	err = c.do(Op{Kind: OpCreate, Name: name}, func() error {
		dir, base, err := c.parent(name)
		if err != nil {
			return err
		}
		ino := dir.live[base]
		switch {
		case ino == nil:
			ino = &inode{modTime: time.Now()}
			c.change(nameChange{dir: dir, name: base, ino: ino})
		case exclusive:
			return syscall.EEXIST
		case ino.isDir():
			return syscall.EISDIR
		default:
			c.used -= ino.truncate(0)
			c.touch(ino)
		}
		file = c.handle(ino, name, true)
		return nil
	})
	return file, err
}

// Open implements FS.
func (c *CrashFS) Open(name string) (File, error) { return c.open(name, false) }

// OpenRW implements FS.
func (c *CrashFS) OpenRW(name string) (File, error) { return c.open(name, true) }

func (c *CrashFS) open(name string, write bool) (file File, err error) {
	err = c.do(Op{Kind: OpOpen, Name: name}, func() error {
		ino, err := c.find(name)
		if err != nil {
			return err
		}
		if ino.isDir() {
			return syscall.EISDIR
		}
		file = c.handle(ino, name, write)
		return nil
	})
	return file, err
}

// Rename implements FS.
func (c *CrashFS) Rename(oldname, newname string) error {
	return c.do(Op{Kind: OpRename, Name: oldname, To: newname}, func() error {
		from, oldBase, err := c.parent(oldname)
		if err != nil {
			return err
		}
		to, newBase, err := c.parent(newname)
		if err != nil {
			return err
		}
		ino, target := from.live[oldBase], to.live[newBase]
		switch {
		case ino == nil:
			return syscall.ENOENT
		case ino == target:
			return nil
		case target.isDir():
			return syscall.EEXIST
		case ino.isDir() && target != nil:
			return syscall.ENOTDIR
		case ino.isDir() && ino.holds(to):
			return syscall.EINVAL
		}
		c.change(nameChange{dir: to, name: newBase, ino: ino, gone: target, fromDir: from, fromName: oldBase})
		return nil
	})
}

// Link implements FS. A CrashClone has a file of its own for each name: that one of them was written and the other
// followed cannot be seen in it.
func (c *CrashFS) Link(oldname, newname string) error {
	return c.do(Op{Kind: OpLink, Name: oldname, To: newname}, func() error {
		ino, err := c.find(oldname)
		if err != nil {
			return err
		}
		dir, base, err := c.parent(newname)
		if err != nil {
			return err
		}
		switch {
		case ino.isDir():
			return syscall.EPERM
		case dir.live[base] != nil:
			return syscall.EEXIST
		}
		ino.links++
		c.change(nameChange{dir: dir, name: base, ino: ino})
		return nil
	})
}

// Remove implements FS.
func (c *CrashFS) Remove(name string) error {
	return c.do(Op{Kind: OpRemove, Name: name}, func() error {
		dir, base, err := c.parent(name)
		if err != nil {
			return err
		}
		ino := dir.live[base]
		switch {
		case ino == nil:
			return syscall.ENOENT
		case ino.isDir() && len(ino.live) > 0:
			return syscall.ENOTEMPTY
		}
		c.change(nameChange{dir: dir, name: base, gone: ino})
		return nil
	})
}

// RemoveAll implements FS, one OpRemove for each name below.
func (c *CrashFS) RemoveAll(name string) error { return removeTree(c, name) }

// SyncDir implements FS.
func (c *CrashFS) SyncDir(name string) error {
	return c.do(Op{Kind: OpSyncDir, Name: name}, func() error {
		dir, err := c.find(name)
		if err != nil {
			return err
		}
		if !dir.isDir() {
			return syscall.ENOTDIR
		}
		c.settleNames(dir)
		return nil
	})
}

// Free implements FS.
func (c *CrashFS) Free(name string) (free, total uint64, err error) {
	if _, err := c.Stat(name); err != nil {
		return 0, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(max(c.capacity-c.used, 0)), uint64(c.capacity), nil
}

// Lock implements FS. A power cut ends all locks.
func (c *CrashFS) Lock(name string) (io.Closer, error) {
	f, err := c.OpenRW(name)
	if errors.Is(err, syscall.ENOENT) {
		f, err = c.Create(name)
	}
	if err != nil {
		return nil, err
	}
	file := f.(*crashFile)
	c.mu.Lock()
	taken := c.locked[file.ino]
	c.locked[file.ino] = true
	c.mu.Unlock()
	if taken {
		f.Close()
		return nil, pathError(Op{Kind: OpOpen, Name: name}, ErrLocked)
	}
	return &crashLock{file}, nil
}

type crashLock struct{ *crashFile }

// Close gives the lock back.
func (l *crashLock) Close() error {
	l.fs.mu.Lock()
	delete(l.fs.locked, l.ino)
	l.fs.mu.Unlock()
	return l.crashFile.Close()
}
