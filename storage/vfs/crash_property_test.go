package vfs

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Every byte of a clone is one that the file had at that place since the last sync, or zero if it was beyond the end.
func TestCrashFS_BytesAreOldOrWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := NewCrashFS(rapid.Uint64().Draw(rt, "seed"))
		f := create(t, c, "/a")
		ok(t, c.SyncDir("/"))
		allowed := make([]map[byte]bool, 64)
		live := []byte{}
		synced := func() {
			for i := range allowed {
				allowed[i] = map[byte]bool{0: true}
				if i < len(live) {
					allowed[i] = map[byte]bool{live[i]: true}
				}
			}
		}
		synced()
		sizes := map[int]bool{0: true}
		steps := rapid.IntRange(1, 12).Draw(rt, "steps")
		for s := range steps {
			switch rapid.IntRange(0, 5).Draw(rt, "op") {
			case 0:
				ok(t, f.Sync())
				synced()
				sizes = map[int]bool{len(live): true}
			case 1:
				n := rapid.IntRange(0, 63).Draw(rt, "size")
				ok(t, f.Truncate(int64(n)))
				live = resize(live, int64(n))
				for i := n; i < len(allowed); i++ {
					allowed[i][0] = true
				}
				sizes[n] = true
			default:
				off := rapid.IntRange(0, 40).Draw(rt, "off")
				data := bytes.Repeat([]byte{byte(s + 1)}, rapid.IntRange(1, 20).Draw(rt, "len"))
				_, err := f.WriteAt(data, int64(off))
				ok(t, err)
				live = resize(live, int64(max(len(live), off+len(data))))
				copy(live[off:], data)
				for i := range data {
					allowed[off+i][byte(s+1)] = true
				}
				sizes[len(live)] = true
			}
		}
		rng := newRand(rapid.Uint64().Draw(rt, "cut"))
		got := []byte(content(t, c.CrashClone(rng, AnyPolicy(rng)), "/a"))
		if !sizes[len(got)] {
			rt.Fatalf("length %d was never the file's: %v", len(got), sizes)
		}
		for i, b := range got {
			if !allowed[i][b] {
				rt.Fatalf("byte %d is %d, allowed %v", i, b, allowed[i])
			}
		}
	})
}
