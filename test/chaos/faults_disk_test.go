//go:build cluster

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

func diskFaults() []fault {
	return []fault{
		{name: "power-one", needs: needDisks, run: powerOne},
		{name: "power-all", needs: needDisks, alone: true, run: powerAll},
		{name: "disk-full", needs: needDisks, run: diskFull},
		{name: "disk-full-all", needs: needDisks, alone: true, run: diskFullAll},
		{name: "fsync-error", needs: needStrace, run: fsyncError},
		{name: "fsync-hang", needs: needStrace, run: fsyncHang},
		{name: "fsync-slow", needs: needStrace, run: fsyncSlow},
		{name: "flip-sealed", destroys: true, run: damaging("a bit of a sealed segment flipped", flipSealed)},
		{name: "flip-tail", destroys: true, run: damaging("a bit of the last segment flipped", flipTail)},
		{name: "torn-tail", destroys: true, run: damaging("garbage behind the last batch", tornTail)},
		{name: "small-file", destroys: true, run: damaging("a small file spoiled", spoilSmall)},
		{name: "small-file-gone", destroys: true, run: damaging("a small file deleted", deleteSmall)},
		{name: "wipe-range", destroys: true, run: damaging("the directory of a range removed", wipeRange)},
		{name: "wipe-disk", destroys: true, run: damaging("its whole disk wiped", wipeDisk)},
	}
}

func powerOne(b *blow) error {
	as := role(b.rng.IntN(int(coordinator)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	b.strike("power of %s, %s, cut", n.Name, as)
	b.w.disks[n.Index].PowerCut()
	n.Kill()
	b.hold(0, 4*time.Second)
	b.w.disks[n.Index].Remount()
	return b.start(n)
}

func powerAll(b *blow) error {
	defer b.claimAll()()
	b.strike("power of all nodes cut")
	var cut sync.WaitGroup
	for _, d := range b.w.disks {
		cut.Go(d.PowerCut)
	}
	cut.Wait()
	for _, n := range b.w.c.Nodes {
		n.Kill()
	}
	for _, d := range b.w.disks {
		d.Remount()
	}
	return b.startAll()
}

func diskFull(b *blow) error {
	as := role(b.rng.IntN(int(raftLeader)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	b.strike("disk of %s, %s, filled", n.Name, as)
	free := b.w.disks[n.Index].Fill(8 << 20)
	b.hold(3*time.Second, 10*time.Second)
	free()
	return b.ready(n)
}

func diskFullAll(b *blow) error {
	defer b.claimAll()()
	b.strike("all disks filled")
	var frees []func()
	for _, d := range b.w.disks {
		frees = append(frees, d.Fill(32<<20))
	}
	b.hold(3*time.Second, 8*time.Second)
	for _, free := range frees {
		free()
	}
	return nil
}

// fsyncError lets one fdatasync of a node fail.
func fsyncError(b *blow) error {
	as := role(b.rng.IntN(int(raftLeader)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	b.strike("one fdatasync of %s, %s, fails", n.Name, as)
	in, err := n.TryInject("trace=fdatasync", fmt.Sprintf("inject=fdatasync:error=EIO:when=%d", 1+b.rng.IntN(30)))
	if err != nil {
		return didNotRun(err)
	}
	err = harness.Within(calm, func() error {
		if !strings.Contains(in.Calls(), "EIO") {
			return errors.New("no fdatasync has failed yet")
		}
		return nil
	})
	b.hold(0, 2*time.Second)
	in.Stop()
	if err != nil {
		return err
	}
	return b.ready(n)
}

// fsyncHang lets a disk hang until the watchdog ends the process, and is its supervisor.
func fsyncHang(b *blow) error {
	as := role(b.rng.IntN(int(coordinator)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	before := len(n.Log())
	b.strike("disk of %s, %s, hangs", n.Name, as)
	in, err := n.TryInject("trace=fdatasync,fsync,sync_file_range,msync", "inject=fdatasync,fsync,sync_file_range,msync:delay_enter=120s")
	if err != nil {
		return didNotRun(err)
	}
	err = harness.Within(calm, func() error {
		if !strings.Contains(n.Log()[before:], "ending the process") {
			return fmt.Errorf("the disk of %s hangs, and its watchdog has not ended it: %s", n.Name, n.LogTail(2))
		}
		return nil
	})
	in.Stop() // a process with a thread that hangs in the kernel can't end
	if err != nil {
		return err
	}
	if code := n.WaitEnd(calm); code != exitDiskStall {
		return fmt.Errorf("the watchdog ended %s with code %d, want %d", n.Name, code, exitDiskStall)
	}
	return b.start(n)
}

// fsyncSlow lets every sync take seconds, for a while.
func fsyncSlow(b *blow) error {
	as := role(b.rng.IntN(int(raftLeader)))
	n, release, err := b.claim(as)
	if err != nil {
		return err
	}
	defer release()
	b.strike("every sync of %s, %s, takes two seconds", n.Name, as)
	in, err := n.TryInject("trace=fdatasync,fsync", "inject=fdatasync,fsync:delay_enter=2s")
	if err != nil {
		return didNotRun(err)
	}
	b.hold(3*time.Second, 9*time.Second)
	in.Stop()
	return b.ready(n)
}

// damaging kills a follower, has its disk damaged, and starts it again.
func damaging(what string, damage func(b *blow, n *harness.Node, dir string) error) func(*blow) error {
	return func(b *blow) error {
		n, release, err := b.claim(follower)
		if err != nil {
			return err
		}
		defer release()
		dir, err := b.rangeDirOn(n)
		if err != nil {
			return err
		}
		b.strike("%s of %s", what, n.Name)
		n.Kill()
		if err := damage(b, n, dir); err != nil {
			return errors.Join(err, b.start(n))
		}
		n.Start()
		return b.ready(n)
	}
}

// rangeDirOn is the directory of a range of exact that is replicated on n.
func (b *blow) rangeDirOn(n *harness.Node) (string, error) {
	var dirs []string
	err := harness.Within(calm, func() error {
		id, err := b.w.c.TopicID(exact)
		if err != nil {
			return err
		}
		if dirs, err = filepath.Glob(filepath.Join(n.Dir, "store", "ranges", id+"-*")); len(dirs) == 0 {
			return fmt.Errorf("no range of %s on %s (%v)", exact, n.Name, err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return dirs[b.rng.IntN(len(dirs))], nil
}

func flipSealed(b *blow, _ *harness.Node, dir string) error {
	files := harness.SealedFiles(dir)
	if len(files) == 0 {
		return flipTail(b, nil, dir) // nothing was sealed yet
	}
	file := files[b.rng.IntN(len(files))]
	return flip(b, file, int64(harness.WholeBatches(contents(file))))
}

func flipTail(b *blow, _ *harness.Node, dir string) error {
	tail, err := lastSegment(dir)
	if err != nil {
		return err
	}
	return flip(b, tail, int64(harness.WholeBatches(contents(tail))))
}

func contents(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return data
}

func lastSegment(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no segment in %s (%v)", dir, err)
	}
	slices.Sort(files)
	return files[len(files)-1], nil
}

// flip changes one bit among the first size bytes of a file.
func flip(b *blow, file string, size int64) error {
	if size <= 0 {
		b.did += " (it was empty)"
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	at := b.rng.Int64N(size)
	var one [1]byte
	_, err = f.ReadAt(one[:], at)
	one[0] ^= 1 << b.rng.IntN(8)
	if err == nil {
		_, err = f.WriteAt(one[:], at)
	}
	b.did += fmt.Sprintf(", byte %d of %s", at, filepath.Base(file))
	return errors.Join(err, f.Close())
}

// tornTail leaves behind the last good batch what a crash may leave there.
func tornTail(b *blow, _ *harness.Node, dir string) error {
	tail, err := lastSegment(dir)
	if err != nil {
		return err
	}
	data := contents(tail)
	end := harness.WholeBatches(data)
	switch b.rng.IntN(4) {
	case 0:
		data = append(data[:end:end], []byte(strings.Repeat("\xa5garbage", 512))...)
	case 1:
		data = append(data[:end:end], make([]byte, 10_000)...)
	case 2:
		data = append(data[:end:end], data[:min(end, 100)]...)
	default:
		data = data[:end]
	}
	return os.WriteFile(tail, data, 0o600)
}

// smallFile chooses one of the small files.
func smallFile(b *blow, n *harness.Node, dir string) (string, error) {
	var files []string
	for _, kind := range []string{"*.manifest", "*.producers", "*.index", "replica", "../../journal", "../../identity"} {
		found, err := filepath.Glob(filepath.Join(dir, kind))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			files = append(files, found[b.rng.IntN(len(found))])
		}
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no small file on %s", n.Name)
	}
	return files[b.rng.IntN(len(files))], nil
}

func deleteSmall(b *blow, n *harness.Node, dir string) error {
	file, err := smallFile(b, n, dir)
	if err != nil {
		return err
	}
	b.did += ", " + filepath.Base(file)
	return os.Remove(file)
}

// spoilSmall empties one of the small files, cuts it in half or fills it with zeros.
func spoilSmall(b *blow, n *harness.Node, dir string) error {
	file, err := smallFile(b, n, dir)
	if err != nil {
		return err
	}
	data := contents(file)
	how := b.rng.IntN(3)
	switch how {
	case 0:
		data = nil
	case 1:
		data = data[:len(data)/2]
	default:
		clear(data)
	}
	b.did += fmt.Sprintf(", %s: %s", filepath.Base(file), [...]string{"emptied", "cut in half", "zeroed"}[how])
	return os.WriteFile(file, data, 0o600)
}

func wipeRange(_ *blow, _ *harness.Node, dir string) error { return os.RemoveAll(dir) }

func wipeDisk(_ *blow, n *harness.Node, _ string) error {
	entries, err := os.ReadDir(n.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(n.Dir, e.Name())))
	}
	return err
}

// skipped is a fault that this machine can't make.
type skipped struct{ why error }

func (s skipped) Error() string { return "did not run: " + s.why.Error() }

func didNotRun(why error) error { return skipped{why} }
