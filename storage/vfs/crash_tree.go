package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// inode is a file or directory, guarded by CrashFS.mu.
type inode struct {
	// live and disk are the names of a directory: as calls see them, and as of the last SyncDir. nil for a file.
	live, disk map[string]*inode

	// data is a file as calls see it; synced is what is certainly on the disk; changes lead from synced to data,
	// but for what failed syncs have lost.
	data, synced []byte
	changes      []dataChange
	// seq numbers the changes, so that a sync knows which came before it.
	seq uint64
	// out and outSize are seq and length as of the last WriteOut.
	out     uint64
	outSize int64
	// failed counts the failed SyncFS that concerned the file; num orders the files that were changed.
	failed int
	num    uint64

	// links counts the names beyond the first; unlinked is true once none is left.
	links    int
	unlinked bool
	handles  int
	modTime  time.Time
}

func newDir() *inode {
	return &inode{live: map[string]*inode{}, disk: map[string]*inode{}, modTime: time.Now()}
}

func (i *inode) isDir() bool { return i != nil && i.live != nil }

// holds reports whether dir is i or below it.
func (i *inode) holds(dir *inode) bool {
	if i == dir {
		return true
	}
	for _, child := range i.live {
		if child.isDir() && child.holds(dir) {
			return true
		}
	}
	return false
}

// nameChange is one change of names: a creation or a link (ino), a removal (gone), or a rename (both places, and gone if it
// replaced something).
type nameChange struct {
	dir      *inode
	name     string
	ino      *inode
	gone     *inode
	fromDir  *inode
	fromName string
}

// apply makes the change in the names that side picks: the live or the durable ones.
func (n nameChange) apply(side func(*inode) map[string]*inode) {
	if n.fromDir != nil && side(n.fromDir)[n.fromName] == n.ino {
		delete(side(n.fromDir), n.fromName)
	}
	if n.ino != nil {
		side(n.dir)[n.name] = n.ino
		return
	}
	if side(n.dir)[n.name] == n.gone {
		delete(side(n.dir), n.name)
	}
}

// needs reports whether n cannot be on a disk that has not seen earlier: they speak of one inode or of one name.
func (n nameChange) needs(earlier nameChange) bool {
	for _, a := range [...]*inode{n.ino, n.gone} {
		if a != nil && (a == earlier.ino || a == earlier.gone) {
			return true
		}
	}
	return earlier.touches(n.dir, n.name) || n.fromDir != nil && earlier.touches(n.fromDir, n.fromName)
}

func (n nameChange) touches(dir *inode, name string) bool {
	return n.dir == dir && n.name == name || n.fromDir == dir && n.fromName == name
}

// closeOver adds to the kept changes all that they need.
func closeOver(journal []nameChange, kept []bool) {
	for i := len(journal) - 1; i >= 0; i-- {
		if !kept[i] {
			continue
		}
		for j := range i {
			kept[j] = kept[j] || journal[i].needs(journal[j])
		}
	}
}

func liveNames(i *inode) map[string]*inode { return i.live }
func diskNames(i *inode) map[string]*inode { return i.disk }

// change makes a change of names that is not durable yet.
func (c *CrashFS) change(n nameChange) {
	n.apply(liveNames)
	c.journal = append(c.journal, n)
	if n.gone != nil && n.gone.links > 0 {
		n.gone.links--
	} else if n.gone != nil {
		n.gone.unlinked = true
		c.release(n.gone)
	}
}

// release gives back the room of a file that has neither name nor handle.
func (c *CrashFS) release(i *inode) {
	if !i.isDir() && i.unlinked && i.handles == 0 {
		c.used -= int64(len(i.data))
		i.data = nil
		delete(c.dirty, i)
	}
}

// settleNames makes durable the changes of dir, and those elsewhere that they need.
func (c *CrashFS) settleNames(dir *inode) {
	kept := make([]bool, len(c.journal))
	for i, n := range c.journal {
		kept[i] = n.dir == dir
	}
	closeOver(c.journal, kept)
	var rest []nameChange
	for i, n := range c.journal {
		if kept[i] {
			n.apply(diskNames)
		} else {
			rest = append(rest, n)
		}
	}
	c.journal = rest
}

// split gives the elements of a path below the root.
func split(name string) []string {
	name = strings.Trim(filepath.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// find walks the live names.
func (c *CrashFS) find(name string) (*inode, error) {
	at := c.root
	for _, element := range split(name) {
		if !at.isDir() {
			return nil, syscall.ENOTDIR
		}
		if at = at.live[element]; at == nil {
			return nil, syscall.ENOENT
		}
	}
	return at, nil
}

// parent finds the directory that holds name, or would.
func (c *CrashFS) parent(name string) (dir *inode, base string, err error) {
	elements := split(name)
	if len(elements) == 0 {
		return nil, "", syscall.EINVAL
	}
	last := len(elements) - 1
	dir, err = c.find(strings.Join(elements[:last], "/"))
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	return dir, elements[last], err
}

// MkdirAll implements FS, one OpMkdir for each directory that is missing.
func (c *CrashFS) MkdirAll(name string) error {
	elements := split(name)
	for i := range elements {
		path := "/" + strings.Join(elements[:i+1], "/")
		info, err := c.Stat(path)
		if err == nil && info.IsDir {
			continue
		}
		if err == nil {
			return pathError(Op{Kind: OpMkdir, Name: path}, syscall.ENOTDIR)
		}
		if err := c.mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (c *CrashFS) mkdir(path string) error {
	return c.do(Op{Kind: OpMkdir, Name: path}, func() error {
		dir, base, err := c.parent(path)
		if err != nil {
			return err
		}
		if dir.live[base] != nil {
			return syscall.EEXIST
		}
		c.change(nameChange{dir: dir, name: base, ino: newDir()})
		return nil
	})
}

// ReadDir implements FS. The hook does not see it.
func (c *CrashFS) ReadDir(name string) (names []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, err := c.findAlive(name)
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError(Op{Kind: OpOpen, Name: name}, err)
	}
	return sortedNames(dir.live), nil
}

func sortedNames(entries map[string]*inode) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Stat implements FS. The hook does not see it.
func (c *CrashFS) Stat(name string) (Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ino, err := c.findAlive(name)
	if err != nil {
		return Info{}, pathError(Op{Kind: OpOpen, Name: name}, err)
	}
	return Info{Size: int64(len(ino.data)), ModTime: ino.modTime, IsDir: ino.isDir()}, nil
}

// SameFile implements FS. The hook does not see it.
func (c *CrashFS) SameFile(name string, f File) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ino, err := c.findAlive(name)
	if err != nil {
		return false, pathError(Op{Kind: OpOpen, Name: name}, err)
	}
	open, ok := f.(*crashFile)
	return ok && open.ino == ino, nil
}

func (c *CrashFS) findAlive(name string) (*inode, error) {
	if c.dead.Load() {
		return nil, ErrPowerCut
	}
	return c.find(name)
}

// removeTree removes name and all below it through the verbs of an FS, so that each removal is a call of its own.
func removeTree(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir {
		names, err := fsys.ReadDir(name)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := removeTree(fsys, filepath.Join(name, n)); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
