package vfs

import (
	"strings"
	"testing"
)

func TestSyncFS_KernelsThatTellErrors(t *testing.T) {
	for release, want := range map[string]bool{
		"5.8.0": false, "5.17.3-arch1": false, "6.12.48+deb13-amd64": false, "6.13.0-rc1": true, "6.18.44": true,
		"7.0": true, "10.1": true, "": false, "unknown": false,
	} {
		if got := syncfsTellsErrors(release); got != want {
			t.Errorf("%q: %v, want %v", release, got, want)
		}
	}
}

func TestSyncFS_TypeOfAMount(t *testing.T) {
	const mounts = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
28 27 254:1 / /a\040-\040b rw - ext2 /dev/vdb rw
broken line
29 27 254:16 /sub /data rw - xfs /dev/vdc rw
`
	for dev, want := range map[[2]uint32]string{{254, 0}: "ext4", {254, 1}: "ext2", {254, 16}: "xfs", {254, 2}: ""} {
		got, err := mountType(strings.NewReader(mounts), dev[0], dev[1])
		ok(t, err)
		if got != want {
			t.Errorf("%v: %q, want %q", dev, got, want)
		}
	}
}
