package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// osSyncer is syncfs(2) on one descriptor, which is kept: the kernel tells a failed write-back once to each descriptor that
// was open when it happened, and a later one may never hear of it.
type osSyncer struct {
	dir *os.File
	dev uint64
}

// SyncFS is for ext4 under Linux 6.13 and later.
//
//   - syncfs tells failed write-backs since 5.8, and errors of the journal and of the device's flush since 5.17. Since 6.13
//     ext4 answers an error once it was shut down or made read-only by one; before, it answered success and synced
//     nothing.
//   - ext4 ends a syncfs with a flush of the device's cache. Others may not (ext2 has the same magic number, so the name
//     of the type decides).
//   - ext4 finds places for bytes late, and where syncfs finds none it drops them and answers success. File.WriteOut, which
//     the Syncer asks for, finds the places first.
func (osFS) SyncFS(name string) (_ Syncer, err error) {
	dir, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Close())
		}
	}()
	var st unix.Stat_t
	if err := control(dir, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: name, Err: err}
	}
	s := &osSyncer{dir: dir, dev: uint64(st.Dev)}
	if err := s.supported(); err != nil {
		return nil, fmt.Errorf("sync the file system of %s: %w", name, err)
	}
	if s.Sync() == nil { // may tell what failed before anybody asked, which is none of ours
		return s, nil
	}
	if err := s.Sync(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *osSyncer) supported() error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	release := unix.ByteSliceToString(uts.Release[:])
	if !syncfsTellsErrors(release) {
		return fmt.Errorf("%w under Linux %s, want 6.13 or later", errors.ErrUnsupported, release)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("%w: the type of the file system is not known: %w", errors.ErrUnsupported, err)
	}
	defer mounts.Close()
	kind, err := mountType(mounts, unix.Major(s.dev), unix.Minor(s.dev))
	if err == nil && kind != "ext4" {
		err = fmt.Errorf("%w on %q, want ext4", errors.ErrUnsupported, kind)
	}
	return err
}

// syncfsTellsErrors judges a kernel by its release, such as "6.13.0-amd64".
func syncfsTellsErrors(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 6 || major == 6 && minor >= 13
}

// mountType finds the type of the file system of a device in a mountinfo of /proc; "" if it is not there. A line is
// "id parent major:minor root point options tags… - type source options".
func mountType(mountinfo io.Reader, major, minor uint32) (string, error) {
	dev := fmt.Sprintf("%d:%d", major, minor)
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if ok && len(left) > 2 && len(right) > 0 && left[2] == dev {
			return right[0], nil
		}
	}
	return "", lines.Err()
}

func (s *osSyncer) Sync() error {
	if err := control(s.dir, unix.Syncfs); err != nil {
		return &os.PathError{Op: "syncfs", Path: s.dir.Name(), Err: err}
	}
	return nil
}

// Covers compares devices: another file system may be mounted, or linked to, below the directory.
func (s *osSyncer) Covers(f File) bool {
	file, ok := f.(osFile)
	var st unix.Stat_t
	return ok && control(file.File, func(fd int) error { return unix.Fstat(fd, &st) }) == nil && uint64(st.Dev) == s.dev
}

func (s *osSyncer) Close() error { return s.dir.Close() }
