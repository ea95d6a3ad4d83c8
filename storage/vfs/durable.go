package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// TempSuffix ends the names that WriteFileAtomic writes to before it renames. What bears it after a crash is
// nothing that anyone relied on and may be removed.
const TempSuffix = ".tmp"

// WriteFileAtomic replaces the file name by data: after a power cut at any point, name holds what it held
// before or data, whole. When it returns nil, it is data, durably. After an error it is either, and durably so
// only if a later call succeeds. Callers must not write the same name at once.
//
// Each step has its reason. The bytes are synced before the rename, or the new name could outlive a crash and
// its bytes not. The directory is synced after it, or the old name could come back after the caller has acted
// on the new one. A sync that fails ends the attempt: see File.Sync on why asking again proves nothing. Another
// attempt writes all bytes anew into a new file.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + TempSuffix
	if err := writeSynced(fsys, tmp, data); err != nil {
		// Nothing refers to it; if it cannot be removed either, the next attempt truncates it.
		_ = fsys.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(tmp, name); err != nil {
		_ = fsys.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("write %s: sync its directory: %w", name, err)
	}
	return nil
}

// writeSynced writes to a new inode. An old file of the name, left by a failed attempt, is removed and not
// truncated: its pages may be of those that a failed sync left clean.
func writeSynced(fsys FS, name string, data []byte) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.CreateNew(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// MkdirAllSync makes a directory and its missing parents, each of them durable: the parent of every directory
// that was missing is synced. It also syncs the parent of name when name was there, since an earlier attempt may
// have ended between the two steps.
func MkdirAllSync(fsys FS, name string) error {
	name = filepath.Clean(name)
	parent := filepath.Dir(name)
	if parent == name {
		return nil
	}
	if _, err := fsys.Stat(parent); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := MkdirAllSync(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(name); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}

// ReadFile returns the whole content of a file. It refuses one longer than limit bytes before it allocates.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("read %s: %d bytes, want at most %d", name, size, limit)
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(data)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
