package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The power fails at each call of WriteFileAtomic: the file is the old one or the new one, whole.
func TestWriteFileAtomic_PowerCutAtEachCall(t *testing.T) {
	old, young := strings.Repeat("o", 3000), strings.Repeat("n", 5000)
	for k := uint64(1); ; k++ {
		c := newData(t)
		ok(t, WriteFileAtomic(c, "/d/a", []byte(old)))
		c.SetHook(Fail(At(c.Ops()+k), ErrPowerCut))
		err := WriteFileAtomic(c, "/d/a", []byte(young))
		rng := newRand(k)
		for range 50 {
			got := content(t, c.CrashClone(rng, AnyPolicy(rng)), "/d/a")
			if got != old && got != young || err == nil && got != young {
				t.Fatalf("cut at call %d (%v): %d bytes %q…", k, err, len(got), got[:min(len(got), 20)])
			}
		}
		if err == nil {
			if k != 7 {
				t.Errorf("%d calls, want 6", k-1)
			}
			return
		}
	}
}

// Any error at any call leaves the old or the new file, no rubbish, and the next attempt succeeds.
func TestWriteFileAtomic_ErrorAtEachCall(t *testing.T) {
	for k := uint64(1); k <= 6; k++ {
		for _, fault := range []error{syscall.EIO, &ShortWrite{N: 2, Err: syscall.ENOSPC}} {
			c := newData(t)
			ok(t, WriteFileAtomic(c, "/d/a", []byte("old")))
			c.SetHook(Fail(At(c.Ops()+k), fault))
			if err := WriteFileAtomic(c, "/d/a", []byte("young")); !errors.Is(err, errors.Unwrap(fault)) && !errors.Is(err, fault) {
				t.Fatalf("call %d: got %v, want %v", k, err, fault)
			}
			if got := content(t, c, "/d/a"); got != "old" && got != "young" {
				t.Errorf("call %d: holds %q", k, got)
			}
			ok(t, WriteFileAtomic(c, "/d/a", []byte("young")))
			clone := c.CrashClone(newRand(1), KeepNone())
			names, err := clone.ReadDir("/d")
			ok(t, err)
			if got := content(t, clone, "/d/a"); got != "young" || !slices.Equal(names, []string{"a"}) {
				t.Errorf("call %d: after the next attempt %q in %v", k, got, names)
			}
		}
	}
}

// The order of the calls is pinned: a golden file.
func TestDurable_OrderOfCalls(t *testing.T) {
	c := NewCrashFS(1)
	var rec Recorder
	c.SetHook(rec.Hook)
	ok(t, MkdirAllSync(c, "/d/e"))
	ok(t, WriteFileAtomic(c, "/d/e/a", []byte("abc")))
	var got strings.Builder
	for _, op := range rec.Take() {
		fmt.Fprintln(&got, op)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "durable_order.golden"))
	ok(t, err)
	if got.String() != string(want) {
		t.Errorf("calls:\n%swant:\n%s", got.String(), want)
	}
}
