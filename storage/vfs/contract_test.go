package vfs_test

import (
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/storage/vfs/vfstest"
)

func TestOS_Contract(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() })
}

func TestCrashFS_Contract(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) {
		fsys := vfs.NewCrashFS(1)
		if err := fsys.MkdirAll("/data"); err != nil {
			t.Fatal(err)
		}
		return fsys, "/data"
	})
}

func TestFaultFS_Contract(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.NewFaultFS(vfs.OS()), t.TempDir() })
}
