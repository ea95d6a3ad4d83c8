package storage

import (
	"bytes"
	"io"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Any read gives the bytes that are there, whatever its place and length.
func TestSealedReader_AnyRead(t *testing.T) {
	ld := bigLeader(t, 9)
	w := ld.all[0]
	want, err := vfs.ReadFile(ld.fs, ld.l.path(w.Base, logSuffix), 1<<30)
	ok(t, err)
	if len(want) <= 2*manifest.ChunkSize {
		t.Fatalf("%d bytes are too few chunks", len(want))
	}
	r, err := ld.s.OpenSealed(testRange(0), w.Base, w.Root, 0)
	ok(t, err)
	rng := newRand(5)
	for range 60 {
		off := rng.IntN(len(want) + 100)
		if rng.IntN(3) == 0 {
			off = off / manifest.ChunkSize * manifest.ChunkSize
		}
		p := make([]byte, []int{0, 1, 5000, manifest.ChunkSize, 2*manifest.ChunkSize + 3}[rng.IntN(5)])
		n, err := r.ReadAt(p, int64(off))
		whole := off+len(p) <= len(want)
		if whole && (n != len(p) || err != nil) || !whole && err != io.EOF {
			t.Fatalf("read of %d at %d: %d, %v", len(p), off, n, err)
		}
		if off < len(want) && !bytes.Equal(p[:n], want[off:off+n]) {
			t.Fatalf("other bytes at %d", off)
		}
	}
	if r.Info().Base != w.Base || r.Size() != w.Bytes || r.ReplicaID() != 1 {
		t.Fatalf("%+v", r.Info())
	}
	ok(t, r.Close())
	_, err = r.ReadAt(make([]byte, 1), 0)
	wantErr(t, err, vtop.ErrClosed)
}

// A flipped bit is never handed out: not by a read of the chunk, nor by one beside it; the segment is a hole from then on,
// and what the reader filled in before shows nothing of it (I9).
func TestSealedReader_NeverServesDamage(t *testing.T) {
	for _, through := range []string{"log", "pin"} {
		for _, at := range []int64{0, manifest.ChunkSize + 5, -1} {
			var told []Damage
			ld := bigLeader(t, 9)
			ld.s.opt.OnDamage = func(d Damage) { told = append(told, d) }
			w := ld.all[0]
			p, err := ld.s.Pin(PinSpec{Range: testRange(0)})
			ok(t, err)
			flipInPlace(t, ld.fs, ld.l.path(w.Base, logSuffix), at)
			if through == "pin" {
				ok(t, ld.l.SetLogStart(ld.l.End()))
			}
			r, err := ld.s.OpenSealed(testRange(0), w.Base, w.Root, p.ID)
			ok(t, err)
			place := (at + w.Bytes) % w.Bytes
			buf := bytes.Repeat([]byte{0xee}, 10)
			n, err := r.ReadAt(buf, max(place-3, 0))
			wantErr(t, err, vtop.ErrDamaged)
			if n != 0 {
				t.Fatalf("%d bytes of a bad chunk", n)
			}
			ok(t, r.Close())
			_, err = readSealed(ld.s, w, p.ID)
			wantErr(t, err, vtop.ErrDamaged)
			if through == "pin" {
				continue
			}
			if len(told) != 1 || !told[0].Hole || told[0].Base != w.Base || ld.l.Info().State != StateHoles {
				t.Fatalf("told %+v, %+v", told, ld.l.Info())
			}
			_, err = readSealed(ld.s, w, 0)
			wantErr(t, err, vtop.ErrDamaged)
			_, err = ld.s.ReadManifest(testRange(0), w.Base, w.Root, 0)
			wantErr(t, err, vtop.ErrDamaged)
		}
	}
}

// flipInPlace changes a bit of a file without making a new one.
func flipInPlace(t testing.TB, fsys vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fsys.OpenRW(name)
	ok(t, err)
	defer f.Close()
	size, err := f.Size()
	ok(t, err)
	b := make([]byte, 1)
	at = (at + size) % size
	_, err = f.ReadAt(b, at)
	ok(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b, at)
	ok(t, err)
	ok(t, f.Sync())
}

// What is not sealed here, or not what was asked for, is refused with the reason.
func TestOpenSealed_Refusals(t *testing.T) {
	ld := newLeader(t, 100)
	root := ld.all[0].Root
	for _, c := range []struct {
		name string
		open func() error
		want error
	}{
		{"another root", func() error { _, err := readSealed(ld.s, Want{Base: 0, Root: [32]byte{1}}, 0); return err }, ErrWrongRoot},
		{"the tail", func() error { _, err := readSealed(ld.s, Want{Base: ld.l.tailBase(), Root: root}, 0); return err }, ErrNoSegment},
		{"inside a segment", func() error { _, err := readSealed(ld.s, Want{Base: 1, Root: root}, 0); return err }, ErrNoSegment},
		{"no such range", func() error { _, err := ld.s.OpenSealed(testRange(3), 0, root, 0); return err }, vtop.ErrUnknownRange},
		{"no such pin", func() error { _, err := ld.s.OpenSealed(testRange(3), 0, root, 12); return err }, ErrPinGone},
	} {
		t.Run(c.name, func(t *testing.T) { wantErr(t, c.open(), c.want) })
	}
	// A pin that is gone does no harm while the segment is there.
	_, err := readSealed(ld.s, ld.all[0], 12)
	ok(t, err)
}

// A manifest or a file that vanished or rotted is damage of the segment too.
func TestOpenSealed_FilesGone(t *testing.T) {
	for _, suffix := range []string{logSuffix, manifestSuffix} {
		for _, how := range []string{"removed", "flipped"} {
			if suffix == logSuffix && how == "flipped" {
				continue
			}
			ld := newLeader(t, 100)
			ld.s.files.drop(ld.l.segs[0])
			name := ld.l.path(0, suffix)
			if how == "removed" {
				ok(t, ld.fs.Remove(name))
			} else {
				edit(t, ld.fs, name, flip(30))
			}
			_, err := readSealed(ld.s, ld.all[0], 0)
			wantErr(t, err, vtop.ErrDamaged)
			if holes := ld.l.Holes(); len(holes) != 1 || holes[0].Base != 0 || ld.l.Info().State != StateHoles {
				t.Fatalf("%s %s: %+v", suffix, how, holes)
			}
		}
	}
}
