package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ext4Shutdown is EXT4_IOC_SHUTDOWN; with the flag noLogFlush the journal isn't flushed either: what was not synced
// is gone, as after a power cut.
const (
	ext4Shutdown = 0x8004587d
	noLogFlush   = 2
)

// Disk is a file system of its own: an ext4 image on a loop device, or a tmpfs. It is unmounted when the test ends,
// after the processes of every cluster that was made later.
type Disk struct {
	// Dir is where it is mounted.
	Dir   string
	t     testing.TB
	base  string
	image string // empty for a tmpfs
}

// NeedRoot skips the test where the process isn't root.
func NeedRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("did not run: %s needs root", what)
	}
}

// NewDisk makes and mounts an ext4 of the given size; the image is sparse. It skips the test, with the reason, where
// the machine can't.
func NewDisk(t testing.TB, bytes int64) *Disk {
	t.Helper()
	d, err := TryDisk(t, bytes)
	if err != nil {
		t.Skipf("did not run: %v", err)
	}
	return d
}

// TryDisk is NewDisk for a test that goes on without: the error says why the machine can't.
func TryDisk(t testing.TB, bytes int64) (*Disk, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, errors.New("mounting a disk needs root")
	}
	d := newDisk(t)
	d.image = filepath.Join(d.base, "image")
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := d.mount(); err != nil {
		return nil, fmt.Errorf("no loop device on this machine: %w", err)
	}
	return d, nil
}

// NewMemoryDisk mounts a tmpfs of the given size. It has no power cut, and serves where a disk must be small.
func NewMemoryDisk(t testing.TB, bytes int64) *Disk {
	t.Helper()
	d := newDisk(t)
	if err := unix.Mount("tmpfs", d.Dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("did not run: tmpfs: %v", err)
	}
	return d
}

func newDisk(t testing.TB) *Disk {
	t.Helper()
	NeedRoot(t, "mounting a disk")
	sweepMounts()
	base, err := os.MkdirTemp("", fmt.Sprintf("vtop-disk-%d-", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	d := &Disk{Dir: filepath.Join(base, "mnt"), t: t, base: base}
	if err := os.Mkdir(d.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.cleanup)
	return d
}

// sweepMounts unmounts what test processes left that were killed before they could clean up.
func sweepMounts() {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return
	}
	prefix := filepath.Join(os.TempDir(), "vtop-disk-")
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[1], prefix) {
			continue
		}
		pid, _, _ := strings.Cut(strings.TrimPrefix(fields[1], prefix), "-")
		if _, err := os.Stat("/proc/" + pid); err == nil {
			continue
		}
		if unix.Unmount(fields[1], unix.MNT_DETACH) == nil {
			_ = os.RemoveAll(filepath.Dir(fields[1]))
		}
	}
}

func (d *Disk) mount() error {
	out, err := exec.Command("mount", "-o", "loop,noatime", d.image, d.Dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// PowerCut takes the power away: what was not synced is lost, and every later write fails. The processes on it still
// run; kill them, then Remount.
func (d *Disk) PowerCut() {
	d.t.Helper()
	if err := d.TryPowerCut(); err != nil {
		d.t.Fatal(err)
	}
}

// TryPowerCut is PowerCut for a test that goes on without: the error says why the machine can't.
func (d *Disk) TryPowerCut() error {
	f, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, noLogFlush); err != nil {
		return fmt.Errorf("shutdown of the file system on %s: %w", d.Dir, err)
	}
	return nil
}

// Remount unmounts the disk and mounts it again, which replays its journal.
func (d *Disk) Remount() {
	d.t.Helper()
	Eventually(d.t, 60*time.Second, "umount "+d.Dir, func() error { return unix.Unmount(d.Dir, 0) })
	if err := d.mount(); err != nil {
		d.t.Fatal(err)
	}
}

// Fill takes all but leave bytes of the disk with a file, and returns what gives them back.
func (d *Disk) Fill(leave int64) (free func()) {
	d.t.Helper()
	name := filepath.Join(d.Dir, "ballast")
	var st unix.Statfs_t
	if err := unix.Statfs(d.Dir, &st); err != nil {
		d.t.Fatal(err)
	}
	want := int64(st.Bavail)*st.Bsize - leave
	f, err := os.Create(name)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if want > 0 {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, want); err != nil && !errors.Is(err, unix.ENOSPC) {
			d.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			d.t.Error(err)
		}
	}
}

// FillUp takes all of the disk, what is kept for root too, and returns what gives it back. What was allotted to files before stays theirs.
func (d *Disk) FillUp() (free func()) {
	d.t.Helper()
	name := filepath.Join(d.Dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	end := int64(0)
	for size := int64(64 << 20); size >= 1024; {
		switch err := unix.Fallocate(int(f.Fd()), 0, end, size); {
		case err == nil:
			end += size
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		default:
			d.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			d.t.Error(err)
		}
	}
}

func (d *Disk) cleanup() {
	for range 100 {
		err := unix.Unmount(d.Dir, 0)
		if err == nil || errors.Is(err, unix.EINVAL) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = unix.Unmount(d.Dir, unix.MNT_DETACH)
	if d.t.Failed() && d.image != "" {
		d.t.Logf("the disk of the failed test is kept: mount -o loop %s DIR", d.image)
		return
	}
	if err := os.RemoveAll(d.base); err != nil {
		d.t.Logf("remove %s: %v", d.base, err)
	}
}
