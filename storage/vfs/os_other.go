//go:build !linux

package vfs

import (
	"errors"
	"fmt"
	"os"
)

// fdatasync is fsync where the system has no weaker call.
func fdatasync(f *os.File) error { return f.Sync() }

// writeOut has nothing to prepare where there is no SyncFS.
func writeOut(*os.File) error { return nil }

func (osFS) SyncFS(name string) (Syncer, error) {
	return nil, fmt.Errorf("sync the file system of %s: %w here", name, errors.ErrUnsupported)
}
