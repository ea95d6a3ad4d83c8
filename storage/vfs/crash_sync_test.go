package vfs

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func syncerOf(t testing.TB, c FS, name string) Syncer {
	t.Helper()
	s, err := c.SyncFS(name)
	ok(t, err)
	return s
}

// onDisk is what a file holds after a power cut that keeps what was synced and nothing else.
func onDisk(t testing.TB, c *CrashFS, name string) string {
	t.Helper()
	return content(t, c.CrashClone(newRand(1), KeepNone()), name)
}

// One SyncFS makes durable what was written out before it, of all files, and no name.
func TestCrashFS_SyncFSKeepsToTheLetter(t *testing.T) {
	c := newData(t)
	all := syncerOf(t, c, "/d")
	a, b := create(t, c, "/d/a"), create(t, c, "/d/b")
	ok(t, c.SyncDir("/d"))
	late := create(t, c, "/d/late")
	write(t, a, 0, "out")
	ok(t, a.WriteOut())
	write(t, a, 3, " not out")
	write(t, b, 0, "not out")
	write(t, late, 0, "no name")
	ok(t, late.WriteOut())
	gate := NewGate(On(OpSyncFS, "d"))
	c.SetHook(gate.Hook)
	done := make(chan error)
	go func() { done <- all.Sync() }()
	<-gate.Arrived()
	ok(t, b.WriteOut()) // after the sync began
	if got := onDisk(t, c, "/d/a"); got != "" {
		t.Errorf("a holds %q before the sync has ended", got)
	}
	gate.Open()
	ok(t, <-done)
	for name, want := range map[string]string{"/d/a": "out", "/d/b": "", "/d/late": "<missing>"} {
		if got := onDisk(t, c, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	ok(t, a.WriteOut())
	ok(t, all.Sync())
	ok(t, c.SyncDir("/d"))
	for name, want := range map[string]string{"/d/a": "out not out", "/d/b": "not out", "/d/late": "no name"} {
		if got := onDisk(t, c, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	// Case: an old WriteOut does not undo what a later sync of the file did.
	write(t, a, 0, "OUT")
	ok(t, a.Truncate(20))
	ok(t, a.Sync())
	write(t, a, 20, "more")
	ok(t, all.Sync())
	if got := onDisk(t, c, "/d/a"); len(got) != 20 {
		t.Errorf("a holds %d bytes, want 20", len(got))
	}
}

// A power cut inside a SyncFS leaves any part of any file.
func TestCrashFS_PowerCutInsideSyncFS(t *testing.T) {
	c := newData(t)
	all := syncerOf(t, c, "/d")
	a, b := create(t, c, "/d/a"), create(t, c, "/d/b")
	ok(t, c.SyncDir("/d"))
	for _, f := range []File{a, b} {
		write(t, f, 0, "AB")
		ok(t, f.WriteOut())
	}
	c.SetHook(Fail(On(OpSyncFS, "d"), ErrPowerCut))
	if err := all.Sync(); !errors.Is(err, ErrPowerCut) {
		t.Fatalf("got %v", err)
	}
	rng, seen := newRand(3), map[string]int{}
	for range 400 {
		clone := c.CrashClone(rng, Torn())
		seen[content(t, clone, "/d/a")+"+"+content(t, clone, "/d/b")]++
	}
	for _, want := range []string{"AB+AB", "AB+", "+AB", "+", "A\x00+AB"} {
		if seen[want] == 0 {
			t.Errorf("never saw %q in %v", want, seen)
		}
	}
}

// A SyncFS that fails may have lost bytes of every file. It tells it once, and so does each file that was open.
func TestCrashFS_FailedSyncFS(t *testing.T) {
	lost := 0
	for seed := range uint64(30) {
		c := NewCrashFS(seed)
		all := syncerOf(t, c, "/")
		var files []File
		for i := range 3 {
			files = append(files, create(t, c, fmt.Sprint("/", i)))
		}
		ok(t, c.SyncDir("/"))
		write(t, files[0], 0, "A")
		ok(t, files[0].WriteOut())
		write(t, files[1], 0, "B")
		c.SetHook(FailOnce(func(op Op) bool { return op.Kind == OpSyncFS }, syscall.EIO))
		if err := all.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("got %v", err)
		}
		ok(t, all.Sync())
		later, err := c.OpenRW("/1")
		ok(t, err)
		for i, f := range files[:2] {
			if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
				t.Errorf("file %d: got %v, want EIO", i, err)
			}
			ok(t, f.SyncData())
			if got := onDisk(t, c, fmt.Sprint("/", i)); got == "" {
				lost++
			}
		}
		ok(t, files[2].SyncData()) // was not written
		ok(t, later.SyncData())    // had not been open
	}
	if lost == 0 || lost == 60 {
		t.Errorf("lost %d of 60, want some and not all", lost)
	}
}
