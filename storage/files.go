package storage

import (
	"container/list"
	"sync"

	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// handle is an open segment file, shared by its flusher and readers. It is closed when nobody uses it and it was
// dropped, or when too many are idle.
type handle struct {
	file vfs.File
	// index and manifest (but for the producer state) of a sealed segment; set by the first who needs them, under
	// fileCache.mu.
	index    *index
	manifest *manifest.Manifest
	users    int
	// covered says whether a vfs.Syncer is for the file. Of the flusher alone.
	covered coverage
	// dropped is true once the segment has no longer this handle.
	dropped bool
	owner   *segment
	idle    *list.Element
}

// coverage is what is known of vfs.Syncer.Covers.
type coverage uint8

const (
	notAsked coverage = iota
	notCovered
	isCovered
)

// fileCache bounds the open segment files of a store. Files in use are never closed, so the bound is soft: it holds
// for idle ones.
type fileCache struct {
	fs    vfs.FS
	limit int

	// mu is never held across I/O.
	mu   sync.Mutex
	open int
	// idle holds handles without users, the longest idle in front.
	idle list.List
}

// acquire returns the open file of a segment, for reading and, unless it is sealed, for writing. create is for the
// flusher: the file is new, and one of that name is an error. Each acquire needs one release.
func (c *fileCache) acquire(s *segment, create, readOnly bool) (*handle, error) {
	c.mu.Lock()
	if h := s.handle; h != nil {
		c.useLocked(h)
		c.mu.Unlock()
		return h, nil
	}
	c.mu.Unlock()
	var file vfs.File
	var err error
	switch {
	case create:
		file, err = c.fs.CreateNew(s.path)
	case readOnly:
		file, err = c.fs.Open(s.path)
	default:
		file, err = c.fs.OpenRW(s.path)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if h := s.handle; h != nil { // another opened it meanwhile
		c.useLocked(h)
		c.mu.Unlock()
		_ = file.Close()
		return h, nil
	}
	h := &handle{file: file, owner: s, users: 1, dropped: s.retired}
	if s.retired {
		c.mu.Unlock()
		return h, nil
	}
	s.handle = h
	c.open++
	victims := c.victimsLocked()
	c.mu.Unlock()
	closeAll(victims)
	return h, nil
}

func (c *fileCache) useLocked(h *handle) {
	h.users++
	if h.idle != nil {
		c.idle.Remove(h.idle)
		h.idle = nil
	}
}

// release ends one use.
func (c *fileCache) release(h *handle) {
	c.mu.Lock()
	var victims []vfs.File
	if h.users--; h.users == 0 {
		if h.dropped {
			victims = append(victims, h.file)
		} else {
			h.idle = c.idle.PushBack(h)
			victims = c.victimsLocked()
		}
	}
	c.mu.Unlock()
	closeAll(victims)
}

// drop takes the handle from a segment: its file was replaced, removed or must not be used any more. Readers that
// have it finish.
func (c *fileCache) drop(s *segment) {
	c.mu.Lock()
	var victims []vfs.File
	if h := s.handle; h != nil {
		if c.detachLocked(h); h.users == 0 {
			victims = append(victims, h.file)
		}
	}
	c.mu.Unlock()
	closeAll(victims)
}

// retire drops the handles of segments that left the log. A reader that still has the segment may open it once more: then
// the file is closed when that reader is done, and kept for nobody.
func (c *fileCache) retire(segs ...*segment) {
	c.mu.Lock()
	for _, s := range segs {
		s.retired = true
	}
	c.mu.Unlock()
	for _, s := range segs {
		c.drop(s)
	}
}

func (c *fileCache) detachLocked(h *handle) {
	h.owner.handle = nil
	h.dropped = true
	c.open--
	if h.idle != nil {
		c.idle.Remove(h.idle)
		h.idle = nil
	}
}

// victimsLocked picks idle handles to close while too many are open.
func (c *fileCache) victimsLocked() (files []vfs.File) {
	for c.open > c.limit && c.idle.Len() > 0 {
		h := c.idle.Front().Value.(*handle)
		c.detachLocked(h)
		files = append(files, h.file)
	}
	return files
}

// indexOf returns the index that a handle carries, nil if none was loaded.
func (c *fileCache) indexOf(h *handle) *index {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.index
}

// setIndex gives a handle its index.
func (c *fileCache) setIndex(h *handle, x *index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.index = x
}

// manifestOf and setManifest do the same for the manifest.
func (c *fileCache) manifestOf(h *handle) *manifest.Manifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.manifest
}

func (c *fileCache) setManifest(h *handle, m *manifest.Manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.manifest = m
}

// closeAll closes files whose content is synced or of no more use; there is nobody to tell of an error.
func closeAll(files []vfs.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
