package storage

import (
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
)

// A segment between sealed ones loses its manifest, and there is no snapshot of the producers at its end, as there is none where a repair
// brought it: it is sealed anew, with the same root (E7, I9; seen in chaos).
func TestDamage_ManifestGoneWithoutASnapshot(t *testing.T) {
	_, l := damaged(t, func(fsys *vfs.CrashFS, _ *Log) {
		s := openStore(t, fsys)
		l := s.Get(testRange(0))
		second := l.Closed()[0].Base
		root, _, err := l.Root(second)
		ok(t, err)
		ok(t, l.Seal(second, root))
		ok(t, s.Close())
		ok(t, fsys.Remove(l.path(0, manifestSuffix)))
		ok(t, fsys.Remove(l.path(second, producerSuffix)))
	})
	if closed := l.Closed(); len(closed) != 1 || closed[0].Base != 0 {
		t.Fatalf("closed and not sealed: %+v, want the first", closed)
	}
	root, _, err := l.Root(0)
	ok(t, err)
	ok(t, l.Seal(0, root))
	checkLog(t, l)
	mustRead(t, l, 0, 95)
}
