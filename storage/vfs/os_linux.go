package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

func fdatasync(f *os.File) error { return control(f, unix.Fdatasync) }

// writeOut waits for the write-back that runs and begins another for what is dirty. Only the file system's search for
// places is waited for, not the disk.
func writeOut(f *os.File) error {
	return control(f, func(fd int) error {
		return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE)
	})
}

// control goes through the raw connection, which keeps the descriptor alive for the call. EINTR says that the call did
// not run to its end, not that it failed, and is the one answer on which it is made again.
func control(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		for {
			if serr = call(int(fd)); serr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return serr
}
