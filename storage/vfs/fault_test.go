package vfs

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFaultFS_Faults(t *testing.T) {
	dir := t.TempDir()
	f := NewFaultFS(OS())
	name := filepath.Join(dir, "a.log")
	file := create(t, f, name)
	defer file.Close()

	// Case: exactly one call fails, and names the path.
	f.SetHook(FailOnce(On(OpSyncData, "*.log"), syscall.EIO))
	if err := file.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
	ok(t, file.SyncData())

	// Case: a budget cuts a write short, as a full disk does, and Add heals it.
	budget := NewBudget(5)
	f.SetHook(budget.Hook)
	n, err := file.WriteAt([]byte("12345678"), 0)
	if n != 5 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if got := content(t, OS(), name); got != "12345" {
		t.Errorf("on disk %q", got)
	}
	budget.Add(3)
	write(t, file, 5, "678")

	// Case: reads can fail; numbers count changing calls only.
	before := f.Ops()
	f.SetHook(Chain(nilHook, Fail(On(OpRead, "*"), syscall.EIO)))
	if _, err := file.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %v", err)
	}
	if f.Ops() != before {
		t.Errorf("a read was numbered")
	}

	// Case: the space told can be chosen.
	f.SetFree(1, 2)
	if free, total, err := f.Free(dir); free != 1 || total != 2 || err != nil {
		t.Errorf("free %d of %d, %v", free, total, err)
	}

	// Case: after a power cut nothing reaches the disk.
	f.SetHook(Fail(On(OpWrite, "*"), ErrPowerCut))
	for range 2 {
		if _, err := file.WriteAt([]byte("X"), 0); !errors.Is(err, ErrPowerCut) {
			t.Errorf("got %v", err)
		}
		f.SetHook(nil)
	}
	if _, err := f.Stat(name); !errors.Is(err, ErrPowerCut) {
		t.Errorf("stat after the cut: %v", err)
	}
	if got := content(t, OS(), name); got != "12345678" {
		t.Errorf("on disk %q", got)
	}
}

func nilHook(Op) error { return nil }
