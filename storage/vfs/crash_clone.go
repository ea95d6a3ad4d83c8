package vfs

import "math/rand/v2"

// Policy says how much of what was not synced a power cut leaves.
type Policy struct {
	// Writes is the chance, from 0 to 1, of each piece of each unsynced write. Between 0 and 1 the length of the
	// file is also any of those that it had since the last sync, whatever became of the bytes.
	Writes float64
	// Names is the chance, from 0 to 1, of each unsynced change of names. What a surviving change needs survives
	// with it: the earlier changes of the same file and of the same name.
	Names float64
	// NamesInOrder keeps the changes of names up to some moment and none after, as a journal does.
	NamesInOrder bool
	// Granule is the unit in bytes in which writes are torn: 4096 for pages, 512 for sectors. 0 stands for 1.
	Granule int
}

// KeepNone leaves what was synced and nothing else.
func KeepNone() Policy { return Policy{} }

// KeepAll leaves everything, as the end of a process does.
func KeepAll() Policy { return Policy{Writes: 1, Names: 1} }

// Torn leaves any subset, torn at any byte.
func Torn() Policy { return Policy{Writes: 0.5, Names: 0.5} }

// AnyPolicy picks one of those that differ in kind, or something between.
func AnyPolicy(rng *rand.Rand) Policy {
	switch rng.IntN(8) {
	case 0:
		return KeepNone()
	case 1:
		return KeepAll()
	}
	return Policy{
		Writes:       rng.Float64(),
		Names:        rng.Float64(),
		NamesInOrder: rng.IntN(2) == 0,
		Granule:      [...]int{1, 512, 4096}[rng.IntN(3)],
	}
}

// CrashClone returns a new file system as c may be found after a power cut at this moment. All that is in it is
// durable; it has no hook, no locks and the capacity of c, which stays as it is. The same state, generator and
// policy give the same clone.
func (c *CrashFS) CrashClone(rng *rand.Rand, policy Policy) *CrashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	clone := NewCrashFS(rng.Uint64())
	clone.capacity, clone.syncFailure = c.capacity, c.syncFailure
	names := c.namesAfterCut(rng, policy)
	clone.root = clone.copyTree(c.root, names, rng, policy)
	return clone
}

// namesAfterCut gives the names in each directory that has unsynced changes.
func (c *CrashFS) namesAfterCut(rng *rand.Rand, policy Policy) map[*inode]map[string]*inode {
	kept := make([]bool, len(c.journal))
	for i := range kept {
		kept[i] = rng.Float64() < policy.Names
		if policy.NamesInOrder && i > 0 {
			kept[i] = kept[i] && kept[i-1]
		}
	}
	closeOver(c.journal, kept)
	after := map[*inode]map[string]*inode{}
	side := func(dir *inode) map[string]*inode {
		names := after[dir]
		if names == nil {
			names = make(map[string]*inode, len(dir.disk))
			for name, ino := range dir.disk {
				names[name] = ino
			}
			after[dir] = names
		}
		return names
	}
	for i, n := range c.journal {
		if kept[i] {
			n.apply(side)
		}
	}
	return after
}

// copyTree copies what can be reached. Names are taken in order, so that one seed gives one outcome.
func (c *CrashFS) copyTree(from *inode, names map[*inode]map[string]*inode, rng *rand.Rand, policy Policy) *inode {
	if !from.isDir() {
		data := from.afterCut(rng, policy)
		c.used += int64(len(data))
		return &inode{data: data, synced: append([]byte(nil), data...), modTime: from.modTime}
	}
	entries, changed := names[from]
	if !changed {
		entries = from.disk
	}
	dir := newDir()
	for _, name := range sortedNames(entries) {
		child := c.copyTree(entries[name], names, rng, policy)
		dir.live[name], dir.disk[name] = child, child
	}
	return dir
}

// afterCut gives the bytes of a file after a power cut: the synced ones, overwritten by whatever pieces of the
// changes since have reached the disk.
func (i *inode) afterCut(rng *rand.Rand, policy Policy) []byte {
	size := int64(len(i.synced))
	largest := size
	for _, change := range i.changes {
		largest = max(largest, change.size)
	}
	image := append(make([]byte, 0, largest), i.synced...)
	image = image[:largest]
	for _, change := range i.changes {
		if change.bytes == nil {
			if change.size < largest && rng.Float64() < policy.Writes {
				clear(image[change.size:])
			}
			continue
		}
		survive(image, change, rng, policy)
	}
	if n := len(i.changes); n > 0 {
		switch {
		case policy.Writes >= 1:
			size = i.changes[n-1].size
		case policy.Writes > 0:
			if k := rng.IntN(n + 1); k > 0 {
				size = i.changes[k-1].size
			}
		}
	}
	return image[:size:size]
}

// survive writes the pieces of a change that reach the disk: up to eight of them, cut at whole granules.
func survive(image []byte, change dataChange, rng *rand.Rand, policy Policy) {
	granule := int64(max(policy.Granule, 1))
	end := change.off + int64(len(change.bytes))
	for at := change.off; at < end; {
		next := end
		if rng.IntN(8) > 0 {
			next = at + 1 + rng.Int64N(end-at)
			next = min((next+granule-1)/granule*granule, end)
		}
		if rng.Float64() < policy.Writes {
			copy(image[at:next], change.bytes[at-change.off:next-change.off])
		}
		at = next
	}
}
