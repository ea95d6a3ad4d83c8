package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// fdatasync goes through the raw connection, which keeps the descriptor alive for the call. EINTR says that
// the call did not run to its end, not that it failed, and is the one answer on which it is made again.
func fdatasync(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); serr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return serr
}

// startWriteBack is sync_file_range(2) with SYNC_FILE_RANGE_WRITE. Its errors are those of the sync to come.
func (f osFile) startWriteBack(off, n int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.SyncFileRange(int(fd), off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}
