package vfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
)

// syncFS: many files, also one without a name, under one sync, beside others that are written meanwhile.
func (s suite) syncFS(t *testing.T) {
	_, err := s.fs.SyncFS(s.path("missing"))
	wantErr(t, err, fs.ErrNotExist)
	all, err := s.fs.SyncFS(s.dir)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	must(t, err)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		name := s.path(fmt.Sprint(i))
		f, err := s.fs.Create(name)
		must(t, err)
		defer f.Close()
		if !all.Covers(f) {
			t.Fatalf("%s is not covered", name)
		}
		if i == 7 {
			must(t, s.fs.Remove(name))
		}
		wg.Go(func() {
			for round := range 10 {
				_, err := f.WriteAt([]byte("bytes"), int64(5*round))
				if err := errors.Join(err, f.WriteOut(), all.Sync()); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	must(t, <-errs)

	// Case: a file of another file system, and one that is closed.
	other, err := vfs.NewCrashFS(1).Create("/other")
	must(t, err)
	if all.Covers(other) {
		t.Error("a file of another file system is covered")
	}
	f, err := s.fs.OpenRW(s.path("0"))
	must(t, err)
	must(t, f.WriteOut()) // nothing to do
	must(t, f.Close())
	if err := f.WriteOut(); err == nil {
		t.Error("wrote out a closed file")
	}

	// Case: no sync after the end.
	must(t, all.Close())
	wantErr(t, all.Close(), fs.ErrClosed)
	if err := all.Sync(); err == nil {
		t.Error("synced after Close")
	}
}
