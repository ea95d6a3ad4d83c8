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
