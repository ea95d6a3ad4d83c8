package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// newData returns a file system with a durable directory /d.
func newData(t testing.TB) *CrashFS {
	t.Helper()
	c := NewCrashFS(1)
	if err := MkdirAllSync(c, "/d"); err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t testing.TB, f File, off int64, s string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(s), off); err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, c FS, name string) File {
	t.Helper()
	f, err := c.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content gives what a file holds, or "<missing>".
func content(t testing.TB, c FS, name string) string {
	t.Helper()
	data, err := ReadFile(c, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "<missing>"
	}
	ok(t, err)
	return string(data)
}

// outcomes gives all contents of a file that many power cuts leave.
func outcomes(t testing.TB, c *CrashFS, name string, policy func(*rand.Rand) Policy) map[string]int {
	t.Helper()
	rng, seen := newRand(3), map[string]int{}
	for range 400 {
		seen[content(t, c.CrashClone(rng, policy(rng)), name)]++
	}
	return seen
}

func torn(*rand.Rand) Policy { return Torn() }

func TestCrashFS_SyncedBytesNeedASyncedName(t *testing.T) {
	c := newData(t)
	f := create(t, c, "/d/a")
	write(t, f, 0, "x")
	ok(t, f.Sync())
	if got := content(t, c.CrashClone(newRand(1), KeepNone()), "/d/a"); got != "<missing>" {
		t.Errorf("file whose directory was not synced holds %q", got)
	}
	if got := outcomes(t, c, "/d/a", torn); got["x"] == 0 || got["<missing>"] == 0 || len(got) != 2 {
		t.Errorf("outcomes %v, want whole or missing", got)
	}
	ok(t, c.SyncDir("/d"))
	if got := content(t, c.CrashClone(newRand(1), KeepNone()), "/d/a"); got != "x" {
		t.Errorf("synced file holds %q", got)
	}
}

func TestCrashFS_UnsyncedWritesTearAndReorder(t *testing.T) {
	c := newData(t)
	f := create(t, c, "/d/a")
	write(t, f, 0, "....")
	ok(t, f.Sync())
	ok(t, c.SyncDir("/d"))
	write(t, f, 0, "AB")
	write(t, f, 2, "CD")
	got := outcomes(t, c, "/d/a", torn)
	for _, want := range []string{"....", "ABCD", "AB..", "..CD", "A...", ".B..", "...D"} {
		if got[want] == 0 {
			t.Errorf("never saw %q", want)
		}
	}
	for s := range got {
		for i, r := range s {
			if r != '.' && r != rune("ABCD"[i]) {
				t.Errorf("saw %q: byte %d was never written", s, i)
			}
		}
	}
	if got := content(t, c.CrashClone(newRand(1), KeepAll()), "/d/a"); got != "ABCD" {
		t.Errorf("all kept: %q", got)
	}
}

func TestCrashFS_GranuleTearsAtBlocks(t *testing.T) {
	c := newData(t)
	f := create(t, c, "/d/a")
	write(t, f, 0, strings.Repeat(".", 2048))
	ok(t, f.Sync())
	ok(t, c.SyncDir("/d"))
	write(t, f, 0, strings.Repeat("N", 2048))
	rng, mixed := newRand(1), 0
	for range 100 {
		s := content(t, c.CrashClone(rng, Policy{Writes: 0.5, Granule: 512}), "/d/a")
		for b := 0; b < len(s); b += 512 {
			if block := s[b : b+512]; block != strings.Repeat(block[:1], 512) {
				t.Fatalf("block at %d is torn", b)
			}
		}
		if strings.Contains(s, ".") && strings.Contains(s, "N") {
			mixed++
		}
	}
	if mixed == 0 {
		t.Error("no clone had some blocks and not others")
	}
}

func TestCrashFS_LengthAndTruncationMayBeLost(t *testing.T) {
	c := newData(t)
	f := create(t, c, "/d/a")
	write(t, f, 0, "abcdef")
	ok(t, f.Sync())
	ok(t, c.SyncDir("/d"))
	ok(t, f.Truncate(2))
	write(t, f, 2, "XY")
	got := outcomes(t, c, "/d/a", torn)
	// The bytes cut off may come back, the length too, and the new bytes may be zeros.
	for _, want := range []string{"abcdef", "ab", "abXY", "ab\x00\x00", "abcd", "abXYef"} {
		if got[want] == 0 {
			t.Errorf("never saw %q", want)
		}
	}
	ok(t, f.SyncData())
	if got := outcomes(t, c, "/d/a", torn); got["abXY"] != 400 {
		t.Errorf("after the sync: %v", got)
	}
}

func TestCrashFS_RenameIsAtomic(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		c := newData(t)
		ok(t, WriteFileAtomic(c, "/d/a", []byte("old")))
		f := create(t, c, "/d/b")
		write(t, f, 0, "new")
		ok(t, f.Sync())
		ok(t, c.Rename("/d/b", "/d/a"))
		ok(t, MkdirAllSync(c, "/d/e"))
		rng := newRand(5)
		seen := map[string]int{}
		for range 200 {
			clone := c.CrashClone(rng, Policy{Names: 0.5, NamesInOrder: inOrder})
			seen[content(t, clone, "/d/a")+"+"+content(t, clone, "/d/b")]++
		}
		// /d was synced by MkdirAllSync, after the rename.
		if seen["new+<missing>"] != 200 {
			t.Errorf("synced rename: %v", seen)
		}
		ok(t, c.Rename("/d/a", "/d/e/a"))
		seen = map[string]int{}
		for range 200 {
			clone := c.CrashClone(rng, Policy{Names: 0.5, NamesInOrder: inOrder})
			seen[content(t, clone, "/d/a")+"+"+content(t, clone, "/d/e/a")]++
		}
		if len(seen) != 2 || seen["new+<missing>"] == 0 || seen["<missing>+new"] == 0 {
			t.Errorf("rename to another directory: %v", seen)
		}
	}
}

func TestCrashFS_RemovedFileMayComeBack(t *testing.T) {
	c := newData(t)
	ok(t, WriteFileAtomic(c, "/d/a", []byte("old")))
	ok(t, c.Remove("/d/a"))
	if got := outcomes(t, c, "/d/a", torn); got["old"] == 0 || got["<missing>"] == 0 {
		t.Errorf("outcomes %v", got)
	}
	ok(t, c.SyncDir("/d"))
	if got := content(t, c.CrashClone(newRand(1), KeepNone()), "/d/a"); got != "<missing>" {
		t.Errorf("a synced removal came back: %q", got)
	}
}

// A name that moved away and is then given to another file: syncing the second must not lose the first.
func TestCrashFS_SyncDirCarriesWhatItNeeds(t *testing.T) {
	c := newData(t)
	ok(t, MkdirAllSync(c, "/e"))
	ok(t, WriteFileAtomic(c, "/d/x", []byte("one")))
	ok(t, c.Rename("/d/x", "/e/x"))
	f := create(t, c, "/d/x")
	write(t, f, 0, "two")
	ok(t, f.Sync())
	ok(t, c.SyncDir("/d"))
	clone := c.CrashClone(newRand(1), KeepNone())
	if one, two := content(t, clone, "/e/x"), content(t, clone, "/d/x"); one != "one" || two != "two" {
		t.Errorf("moved file %q, new file %q", one, two)
	}
}

// The state in which a failed fsync leaves a file: the next sync succeeds and the bytes are not there.
func TestCrashFS_FailedSyncLosesAndLaterSyncLies(t *testing.T) {
	for _, mode := range []SyncFailure{KeepCache, DropCache} {
		lost := 0
		for seed := range uint64(50) {
			c := NewCrashFS(seed)
			c.SetSyncFailure(mode)
			f := create(t, c, "/a")
			write(t, f, 0, "....")
			ok(t, f.Sync())
			ok(t, c.SyncDir("/"))
			write(t, f, 0, "DATA")
			c.SetHook(FailOnce(On(OpSyncData, "a"), syscall.EIO))
			if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
				t.Fatalf("got %v, want EIO", err)
			}
			ok(t, f.SyncData())
			cached := content(t, c, "/a")
			disk := content(t, c.CrashClone(newRand(seed), KeepAll()), "/a")
			if disk != "DATA" {
				lost++
			}
			if want := map[SyncFailure]string{KeepCache: "DATA", DropCache: disk}[mode]; cached != want {
				t.Errorf("mode %d: reads show %q, disk has %q", mode, cached, disk)
			}
			// Case: bytes written anew and synced are durable again.
			write(t, f, 0, "data")
			ok(t, f.Sync())
			if got := content(t, c.CrashClone(newRand(seed), KeepNone()), "/a"); got != "data" {
				t.Errorf("written anew: %q", got)
			}
		}
		if lost == 0 || lost == 50 {
			t.Errorf("mode %d: lost %d of 50, want some and not all", mode, lost)
		}
	}
}

func TestCrashFS_SyncCoversWhatCameBeforeIt(t *testing.T) {
	c := newData(t)
	f := create(t, c, "/d/a")
	ok(t, c.SyncDir("/d"))
	write(t, f, 0, "before")
	gate := NewGate(On(OpSync, "a"))
	c.SetHook(gate.Hook)
	done := make(chan error)
	go func() { done <- f.Sync() }()
	<-gate.Arrived()
	// Case: a sync that hangs stops nobody else, and what is written meanwhile is not covered.
	write(t, f, 6, " after")
	ok(t, WriteFileAtomic(c, "/d/b", []byte("b")))
	gate.Open()
	ok(t, <-done)
	if got := content(t, c.CrashClone(newRand(1), KeepNone()), "/d/a"); got != "before" {
		t.Errorf("durable: %q", got)
	}
}

func TestCrashFS_PowerCutEndsAllCalls(t *testing.T) {
	c := newData(t)
	f := create(t, c, "/d/a")
	ok(t, c.SyncDir("/d"))
	c.SetHook(Fail(On(OpWrite, "a"), ErrPowerCut))
	if _, err := f.WriteAt([]byte("torn"), 0); !errors.Is(err, ErrPowerCut) {
		t.Fatalf("got %v", err)
	}
	c.SetHook(nil)
	for name, err := range map[string]error{
		"sync":    f.Sync(),
		"mkdir":   c.MkdirAll("/d/x"),
		"rename":  c.Rename("/d/a", "/d/b"),
		"syncdir": c.SyncDir("/d"),
	} {
		if !errors.Is(err, ErrPowerCut) {
			t.Errorf("%s after the cut: %v", name, err)
		}
	}
	if got := outcomes(t, c, "/d/a", torn); got["torn"] == 0 || got[""] == 0 || got["to\x00\x00"] == 0 {
		t.Errorf("the write during which the power failed: %v", got)
	}
	clone := c.CrashClone(newRand(1), KeepAll())
	if l, err := clone.Lock("/d/a"); err != nil {
		t.Errorf("the clone is not usable: %v", err)
	} else {
		ok(t, l.Close())
	}
}

func TestCrashFS_CapacityHealsWhenRemoved(t *testing.T) {
	c := newData(t)
	c.SetCapacity(10)
	f := create(t, c, "/d/a")
	n, err := f.WriteAt([]byte("0123456789abc"), 0)
	if n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if free, total, _ := c.Free("/d"); free != 0 || total != 10 {
		t.Errorf("free %d of %d", free, total)
	}
	write(t, f, 0, "overwrites") // take no room
	t.Run("removed", func(t *testing.T) {
		ok(t, c.Remove("/d/a"))
		g := create(t, c, "/d/b")
		if _, err := g.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room before the last handle closed: %v", err)
		}
		ok(t, f.Close())
		write(t, g, 0, "x")
		if free, _, _ := c.Free("/d"); free != 9 {
			t.Errorf("free %d, want 9", free)
		}
	})
}

func TestCrashFS_CloneIsDeterministic(t *testing.T) {
	c := newData(t)
	for i := range 20 {
		f := create(t, c, fmt.Sprintf("/d/%d", i))
		write(t, f, 0, strings.Repeat("x", 50))
	}
	list := func(c *CrashFS) string {
		names, _ := c.ReadDir("/d")
		var b strings.Builder
		for _, n := range names {
			fmt.Fprintf(&b, "%s=%q\n", n, content(t, c, "/d/"+n))
		}
		return b.String()
	}
	if a, b := list(c.CrashClone(newRand(9), Torn())), list(c.CrashClone(newRand(9), Torn())); a != b || a == "" {
		t.Errorf("one seed gave\n%s\nand\n%s", a, b)
	}
}
