package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
)

func put(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	ok(t, vfs.MkdirAllSync(fsys, filepath.Dir(name)))
	ok(t, vfs.WriteFileAtomic(fsys, name, data))
}

// verify gives one line for each report.
func verify(t testing.TB, fsys vfs.FS, path string) string {
	t.Helper()
	var out strings.Builder
	ok(t, VerifyPath(context.Background(), fsys, path, func(r Report) {
		fmt.Fprintf(&out, "%s %s [%d, %d) %d bytes", r.Path, r.Status, r.Base, r.End, r.Bytes)
		if r.Slack > 0 {
			fmt.Fprintf(&out, " slack %d", r.Slack)
		}
		for _, p := range r.Problems {
			fmt.Fprintf(&out, "\n  %s", p)
		}
		fmt.Fprintln(&out)
	}))
	return out.String()
}

const replica = "/data/r/0"

// newReplica has two sealed segments [0,3), [3,5) and a tail [5,7) with slack.
func newReplica(t *testing.T) (fsys *vfs.CrashFS, first []byte) {
	fsys = vfs.NewCrashFS(1)
	first, second := makeSegment(0, 10, 20, 30), makeSegment(3, 1_500_000, 10)
	put(t, fsys, replica+"/00000000000000000000.log", first)
	put(t, fsys, replica+"/00000000000000000000.manifest", compute(t, first, 0).Encode())
	put(t, fsys, replica+"/00000000000000000003.log", second)
	put(t, fsys, replica+"/00000000000000000003.manifest", compute(t, second, 3).Encode())
	put(t, fsys, replica+"/00000000000000000005.log", append(makeSegment(5, 10, 10), make([]byte, 5000)...))
	put(t, fsys, replica+"/replica", []byte("not a segment"))
	put(t, fsys, "/data/notes.log", []byte("not a segment either"))
	return fsys, first
}

const wholeReplica = `/data/r/0/00000000000000000000.log whole [0, 3) 264 bytes
/data/r/0/00000000000000000003.log whole [3, 5) 1500152 bytes
/data/r/0/00000000000000000005.log checked [5, 7) 5156 bytes slack 5000
`

func TestVerifyPath_Whole(t *testing.T) {
	fsys, _ := newReplica(t)
	for _, path := range []string{"/data", replica} {
		if got := verify(t, fsys, path); got != wholeReplica {
			t.Errorf("%s:\n%s", path, got)
		}
	}
	lines := strings.SplitAfter(wholeReplica, "\n")
	for _, suffix := range []string{LogSuffix, ManifestSuffix} {
		if got := verify(t, fsys, replica+"/00000000000000000003"+suffix); got != lines[1] {
			t.Errorf("%s: %s", suffix, got)
		}
	}
}

// I12: each kind of damage is told, with its place, and no file but the damaged one is blamed.
func TestVerifyPath_Damage(t *testing.T) {
	name := func(base, suffix string) string { return replica + "/" + strings.Repeat("0", 19) + base + suffix }
	edit := func(file string, fn func([]byte) []byte) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			data, err := vfs.ReadFile(fsys, file, 1<<30)
			ok(t, err)
			put(t, fsys, file, fn(data))
		}
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	remove := func(files ...string) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			for _, f := range files {
				ok(t, fsys.Remove(f))
			}
		}
	}
	for _, c := range []struct {
		name   string
		damage func(*testing.T, vfs.FS)
		want   []string // of the report on the damaged segment
	}{
		{"a bit of a sealed segment", edit(name("3", ".log"), flip(1_200_000)), []string{
			"00000000000000000003.log damaged [3, 3)", "chunk 1 (bytes 1048576 to 1500152)", "byte 0, where offset 3 is due", "CRC32C"}},
		{"an epoch of a sealed segment, which no CRC covers", edit(name("0", ".log"), flip(15)), []string{
			"00000000000000000000.log damaged", "chunk 0 (bytes 0 to 264)"}},
		{"a bit of a tail", edit(name("5", ".log"), flip(100)), []string{
			"00000000000000000005.log damaged [5, 6)", "byte 78, where offset 6 is due"}},
		{"a bit in the slack", edit(name("5", ".log"), flip(3000)), []string{
			"00000000000000000005.log damaged [5, 7)", "5000 bytes from there to the end"}},
		{"a manifest", edit(name("0", ".manifest"), flip(20)), []string{
			"00000000000000000000.log damaged [0, 3)", "manifest: CRC32C"}},
		{"an empty manifest", edit(name("0", ".manifest"), func([]byte) []byte { return nil }), []string{
			"00000000000000000000.log damaged [0, 3)", "manifest: 0 bytes"}},
		{"a sealed segment with slack", edit(name("0", ".log"), func(b []byte) []byte { return append(b, make([]byte, 10)...) }), []string{
			"00000000000000000000.log damaged", "274 bytes, manifest tells 264"}},
		{"a sealed segment cut short", edit(name("0", ".log"), func(b []byte) []byte { return b[:200] }), []string{
			"00000000000000000000.log damaged [0, 2)", "200 bytes, manifest tells 264"}},
		{"a missing sealed segment", remove(name("3", ".log")), []string{
			"00000000000000000003.log damaged [3, 3)", "no such file"}},
		{"a missing segment and its manifest", remove(name("3", ".log"), name("3", ".manifest")), []string{
			"00000000000000000005.log damaged [5, 7)", "ends at offset 3"}},
		{"the manifest of another segment", func(t *testing.T, fsys vfs.FS) {
			put(t, fsys, name("0", ".manifest"), compute(t, makeSegment(1, 10, 20, 30), 1).Encode())
		}, []string{"00000000000000000000.log damaged [0, 3)", "of the segment at 1"}},
	} {
		fsys, _ := newReplica(t)
		c.damage(t, fsys)
		got := verify(t, fsys, "/data")
		if strings.Count(got, ".log damaged [") != 1 {
			t.Errorf("%s: want one damaged segment, got\n%s", c.name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: want %q in\n%s", c.name, want, got)
			}
		}
	}
}

func TestVerifyPath_CannotLook(t *testing.T) {
	fsys, first := newReplica(t)
	none := func(r Report) { t.Errorf("reported %+v", r) }
	ctx := context.Background()
	if err := VerifyPath(ctx, fsys, "/data/none", none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, path := range []string{"/data/notes.log", replica + "/replica"} {
		if err := VerifyPath(ctx, fsys, path, none); err == nil || !strings.Contains(err.Error(), "not a segment") {
			t.Errorf("%s: %v", path, err)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := VerifyPath(gone, fsys, "/data", none); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// Case: a disk that does not give the bytes is damage, not silence.
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpRead, "00000000000000000005.log"), syscall.EIO))
	if got := verify(t, fsys, "/data"); strings.Count(got, ".log damaged [") != 1 || !strings.Contains(got, "input/output error") {
		t.Errorf("unreadable:\n%s", got)
	}
	fsys.SetHook(nil)
	// Case: looking changes nothing.
	data, err := vfs.ReadFile(fsys, replica+"/00000000000000000000.log", 1<<20)
	if err != nil || !bytes.Equal(data, first) {
		t.Errorf("the segment changed: %v", err)
	}
}
