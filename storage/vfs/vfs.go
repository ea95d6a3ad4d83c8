package vfs

import (
	"errors"
	"io"
	"time"
)

// FS is a file system. All methods may be called by many goroutines at once. Names are paths as the operating
// system takes them. Errors wrap io/fs.ErrNotExist, io/fs.ErrExist or a syscall.Errno (ENOSPC, EIO, …) and name
// the path; callers use errors.Is.
//
// Nothing is durable because a call returned: the bytes of a file are durable after File.Sync or File.SyncData,
// and its *name* only after SyncDir of the directory that holds it, as is each directory's own name.
type FS interface {
	// Create opens name for reading and writing, and makes it empty if it exists.
	Create(name string) (File, error)
	// CreateNew is Create, but refuses with ErrExist if the name is taken.
	CreateNew(name string) (File, error)
	// Open opens an existing file for reading only.
	Open(name string) (File, error)
	// OpenRW opens an existing file for reading and writing, and keeps what is in it.
	OpenRW(name string) (File, error)
	// Rename gives a file or directory another name and replaces a file of that name, atomically even over a
	// power cut: after it there is the old or the new state. Which one is settled by SyncDir of the directory
	// that holds newname.
	Rename(oldname, newname string) error
	// Link gives a file one more name, which must not be taken (ErrExist). There is one file then: its bytes go when the
	// last name and the last handle have. The new name is durable after SyncDir of the directory that holds it.
	Link(oldname, newname string) error
	// Remove takes away a file or an empty directory. Open handles go on reading the bytes.
	Remove(name string) error
	// RemoveAll takes away name and all below it; a missing name is no error. It is not atomic.
	RemoveAll(name string) error
	// MkdirAll makes a directory and its missing parents. See MkdirAllSync for one that survives a power cut.
	MkdirAll(name string) error
	// ReadDir returns the sorted names in a directory.
	ReadDir(name string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SameFile reports whether name is a name of the open file f, which this file system has opened. ErrNotExist if nothing
	// has that name any more.
	SameFile(name string, f File) (bool, error)
	// SyncDir makes the names in a directory durable: what was created, renamed into it and removed before.
	SyncDir(name string) error
	// SyncFS returns what syncs many files of the file system of name at once. It wraps errors.ErrUnsupported, with the
	// reason, where one call for all is not known to keep what File.Sync keeps; each file is synced for itself then. It
	// may take as long as a sync. See Syncer.
	SyncFS(name string) (Syncer, error)
	// Free returns the bytes that this process may still write on the file system of name, and its size.
	Free(name string) (freeBytes, totalBytes uint64, err error)
	// Lock takes an exclusive lock on the file name, making it if it is missing, and refuses with ErrLocked if
	// another holder has it. The lock ends with Close or with the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Reads and writes at different places may run at once; there is no file position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the length in bytes now, whether durable or not.
	Size() (int64, error)
	// Truncate sets the length in bytes; what is gained reads as zeros. Durable after Sync.
	Truncate(size int64) error
	// Sync returns when all bytes written before the call are durable, and so is the length.
	//
	// After an error it is not known which of them are, and another Sync proves nothing: the kernel reports a
	// failed write-back once and may then hold the lost pages as clean, so a second call answers success for
	// bytes that never reached the disk, and reading them back may show them until the cache is dropped. So an
	// error here is final for this file's unsynced bytes: no acknowledgement, no retry; what is needed of them
	// must be written anew, into another file.
	Sync() error
	// SyncData is Sync without the times of the file. The length is included, since bytes beyond it are no bytes.
	SyncData() error
	// WriteOut finds a place on the disk for all bytes written before the call, and begins to write them. They are durable
	// only after a sync: File.Sync, File.SyncData or Syncer.Sync. An error is as final as one of Sync.
	WriteOut() error
	// Name is the name by which the file was opened.
	Name() string
}

// Syncer syncs many files of one file system with one call. Its methods may be called by many goroutines at once, but
// for Close.
type Syncer interface {
	// Sync returns when, of every file that Covers, all bytes are durable for which File.WriteOut had returned before the
	// call, and so is the length. Names are not: see FS.SyncDir.
	//
	// An error concerns all of them, exactly as one of File.Sync does: it is not known which bytes are durable, and
	// another Sync proves nothing. It is told once; a file that was not waiting for this Sync may still be synced
	// for itself, and then tells its own error.
	//
	// Bytes without a WriteOut are what this must be kept away from. Sync writes them too, but where it finds no place
	// for them they are lost, and neither this Sync nor a later File.Sync tells it.
	Sync() error
	// Covers reports whether Sync is for this open file. The answer stays the same.
	Covers(f File) bool
	io.Closer
}

// Info describes a file or directory.
type Info struct {
	// Size in bytes; 0 for a directory.
	Size int64
	// ModTime is the time of the last write by the local clock. For people; nothing may depend on it.
	ModTime time.Time
	// IsDir is true for a directory.
	IsDir bool
}

// ErrLocked says that another process, or another holder in this one, has the lock.
var ErrLocked = errors.New("locked by another holder")
