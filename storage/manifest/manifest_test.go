package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/zeebo/blake3"
	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeSegment returns the bytes of a segment: one batch for each size, one record of that many bytes each, two
// batches to an epoch.
func makeSegment(base vtop.Offset, sizes ...int) []byte {
	var seg []byte
	rng := rand.NewChaCha8([32]byte{1})
	for i, size := range sizes {
		value := make([]byte, size)
		rng.Read(value)
		seg = append(seg, batch.Build(batch.Spec{
			Base: base + vtop.Offset(i), Epoch: vtop.Epoch(3 + i/2), Records: []batch.Record{{Timestamp: int64(i), Value: value}},
		})...)
	}
	return seg
}

func compute(t testing.TB, seg []byte, base vtop.Offset) *Manifest {
	t.Helper()
	m, err := Compute(bytes.NewReader(seg), int64(len(seg)), base, []byte("producers"))
	ok(t, err)
	return m
}

// large has batches that straddle chunks and one larger than a chunk.
func large() []byte { return makeSegment(100, 900_000, 900_000, 10, 2_500_000, 700_000) }

func TestCompute_DescribesTheSegment(t *testing.T) {
	seg := large()
	m := compute(t, seg, 100)
	if m.Base != 100 || m.End != 105 || m.Size != int64(len(seg)) || string(m.Producers) != "producers" {
		t.Errorf("manifest [%d, %d) of %d bytes", m.Base, m.End, m.Size)
	}
	if got := fmt.Sprint(m.Runs); got != "[{3 100} {4 102} {5 104}]" {
		t.Errorf("runs %s", got)
	}
	if len(m.Chunks) != 5 {
		t.Fatalf("%d chunks", len(m.Chunks))
	}
	for i := range m.Chunks {
		pos, length := m.ChunkRange(i)
		chunk := seg[pos : pos+int64(length)]
		var want Hash
		blake3.DeriveKey("vtop 2026-11-30 segment chunk v1", chunk, want[:])
		if m.Chunks[i] != want {
			t.Errorf("chunk %d hashes to %x, want %x", i, m.Chunks[i], want)
		}
		ok(t, m.VerifyChunk(i, chunk))
	}
	if bad := m.Verify(bytes.NewReader(seg), m.Size); len(bad) != 0 {
		t.Errorf("whole segment: %v", bad)
	}
}

// I9: the root depends on the log alone, and on all of it.
func TestRoot_DependsOnAllOfTheLog(t *testing.T) {
	seg := makeSegment(0, 10, 20, 30)
	root := compute(t, seg, 0).Root
	if again := compute(t, bytes.Clone(seg), 0).Root; again != root {
		t.Errorf("the same log gave %x and %x", root, again)
	}
	stamped := bytes.Clone(seg)
	last := batch.Batch(stamped)
	for range 2 {
		last = last[last.Size():]
	}
	last.Stamp(2, 9)
	other, err := Compute(bytes.NewReader(seg), int64(len(seg)), 0, []byte("other producers"))
	ok(t, err)
	roots := map[Hash]string{root: "the segment"}
	for name, m := range map[string]*Manifest{
		"another epoch at the end": compute(t, stamped, 0),
		"another value":            compute(t, makeSegment(0, 10, 20, 31), 0),
		"another base":             compute(t, makeSegment(1, 10, 20, 30), 1),
		"a batch less":             compute(t, makeSegment(0, 10, 20), 0),
		"another producer state":   other,
	} {
		if twin, taken := roots[m.Root]; taken {
			t.Errorf("%s has the root of %s", name, twin)
		}
		roots[m.Root] = name
	}
}

func TestCompute_RefusesWhatIsNotALog(t *testing.T) {
	seg := makeSegment(50, 100, 100, 100)
	size := len(seg) / 3
	flip := func(at int) []byte {
		b := bytes.Clone(seg)
		b[at] ^= 4
		return b
	}
	stamp := func(i int, base vtop.Offset, epoch vtop.Epoch) []byte {
		b := bytes.Clone(seg)
		batch.Batch(b[i*size:]).Stamp(base, epoch)
		return b
	}
	for _, c := range []struct {
		name string
		seg  []byte
		pos  int64
	}{
		{"a flipped bit in the second batch", flip(size + 80), int64(size)},
		{"another base than the name's", stamp(0, 49, 3), 0},
		{"a gap", stamp(1, 52, 3), int64(size)},
		{"an offset told twice", stamp(1, 50, 3), int64(size)},
		{"an epoch that falls", stamp(1, 51, 2), int64(size)},
		{"an epoch that nobody granted", stamp(0, 50, 0), 0},
		{"slack of zeros", append(bytes.Clone(seg), make([]byte, 4096)...), int64(3 * size)},
		{"a cut batch", seg[:len(seg)-1], int64(2 * size)},
		{"a cut length field", seg[:2*size+5], int64(2 * size)},
	} {
		_, err := Compute(bytes.NewReader(c.seg), int64(len(c.seg)), 50, nil)
		var bad *BadBatch
		if !errors.As(err, &bad) || !errors.Is(err, vtop.ErrDamaged) || bad.Pos != c.pos {
			t.Errorf("%s: got %v, want damage at byte %d", c.name, err, c.pos)
		}
	}
	if _, err := Compute(bytes.NewReader(nil), 0, 50, nil); !errors.Is(err, vtop.ErrDamaged) {
		t.Errorf("an empty segment: %v", err)
	}
}

func TestWalk_TellsReadErrorsFromDamage(t *testing.T) {
	seg := large()
	_, err := Walk(failingReader{bytes.NewReader(seg), 2 << 20}, int64(len(seg)), 100, nil)
	var bad *BadBatch
	if !errors.Is(err, syscall.EIO) || errors.As(err, &bad) || errors.Is(err, vtop.ErrDamaged) {
		t.Errorf("got %v, want EIO and no verdict", err)
	}
	// Case: the file is shorter than was said.
	_, err = Walk(bytes.NewReader(seg[:2<<20]), int64(len(seg)), 100, nil)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	// Case: the caller ends the walk, and is told where it stood.
	stop := errors.New("stop")
	found, err := Walk(bytes.NewReader(seg), int64(len(seg)), 100, func(pos int64, b batch.Batch) error {
		if b.BaseOffset() == 102 {
			return stop
		}
		return nil
	})
	if err != stop || found.End != 102 || found.Batches != 2 {
		t.Errorf("got %+v, %v", found, err)
	}
}

// failingReader gives EIO for reads that touch bytes from a place on.
type failingReader struct {
	r    io.ReaderAt
	from int64
}

func (f failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, syscall.EIO
	}
	return f.r.ReadAt(p, off)
}

// Segments of any batches: computing in chunks finds what was put in, and hands out every batch at its place.
func TestCompute_AnyBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(ChunkSize-200, ChunkSize+200)), 1, 4).Draw(rt, "sizes")
		seg := makeSegment(7, sizes...)
		m := compute(t, seg, 7)
		if int(m.End-m.Base) != len(sizes) || m.Size != int64(len(seg)) {
			rt.Fatalf("[%d, %d) of %d bytes", m.Base, m.End, m.Size)
		}
		var copied []byte
		_, err := Walk(bytes.NewReader(seg), m.Size, 7, func(pos int64, b batch.Batch) error {
			if pos != int64(len(copied)) {
				rt.Fatalf("batch at %d, want %d", pos, len(copied))
			}
			copied = append(copied, b...)
			return nil
		})
		if err != nil || !bytes.Equal(copied, seg) {
			rt.Fatalf("walked %d of %d bytes: %v", len(copied), len(seg), err)
		}
		if bad := m.Verify(bytes.NewReader(seg), m.Size); len(bad) != 0 {
			rt.Fatal(bad)
		}
	})
}

// I9: every flipped bit is found, and its chunk named.
func TestVerify_NamesEachBadChunk(t *testing.T) {
	seg := large()
	m := compute(t, seg, 100)
	for _, at := range []int{0, 9, ChunkSize - 1, ChunkSize, 3*ChunkSize + 5, len(seg) - 1} {
		seg[at] ^= 1
		bad := m.Verify(bytes.NewReader(seg), m.Size)
		want := fmt.Sprintf("chunk %d (bytes %d to ", at/ChunkSize, at/ChunkSize*ChunkSize)
		if len(bad) != 1 || !errors.Is(bad[0], vtop.ErrDamaged) || !strings.Contains(bad[0].Error(), want) {
			t.Errorf("byte %d: got %v, want %q", at, bad, want)
		}
		seg[at] ^= 1
	}
	// Case: two chunks.
	seg[5] ^= 1
	seg[len(seg)-5] ^= 1
	if bad := m.Verify(bytes.NewReader(seg), m.Size); len(bad) != 2 {
		t.Errorf("two bad chunks: %v", bad)
	}
	seg[5] ^= 1
	seg[len(seg)-5] ^= 1
	// Case: short, long, unreadable.
	if bad := m.Verify(bytes.NewReader(seg[:ChunkSize]), ChunkSize); len(bad) != 2 || !strings.Contains(bad[1].Error(), "chunks 1 to 4 are missing") {
		t.Errorf("short: %v", bad)
	}
	if bad := m.Verify(bytes.NewReader(append(seg, 0)), m.Size+1); len(bad) != 1 {
		t.Errorf("a byte too many: %v", bad)
	}
	if bad := m.Verify(failingReader{bytes.NewReader(seg), 4 << 20}, m.Size); len(bad) != 1 || !errors.Is(bad[0], syscall.EIO) {
		t.Errorf("unreadable: %v", bad)
	}
	// Case: a chunk in another's place, a chunk that is not there.
	if err := m.VerifyChunk(1, seg[:ChunkSize]); !errors.Is(err, vtop.ErrDamaged) {
		t.Errorf("chunk 0 passes for chunk 1: %v", err)
	}
	for _, i := range []int{-1, 5} {
		if err := m.VerifyChunk(i, nil); !errors.Is(err, vtop.ErrDamaged) {
			t.Errorf("chunk %d: %v", i, err)
		}
	}
}

func BenchmarkCompute(b *testing.B) {
	seg := makeSegment(0, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000)
	b.SetBytes(int64(len(seg)))
	b.ReportAllocs()
	for b.Loop() {
		compute(b, seg, 0)
	}
}
