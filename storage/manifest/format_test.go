package manifest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/vtop-log/vtop"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestDecode_RoundTrip(t *testing.T) {
	m := compute(t, large(), 100)
	data := m.Encode()
	got, err := Decode(data)
	ok(t, err)
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", m) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	clear(data) // what was decoded does not alias
	if !bytes.Equal(got.Encode(), m.Encode()) {
		t.Error("encoded anew, it differs")
	}
}

// I9, E7: no flipped bit, no cut and no zeroed manifest is taken, even with a mended CRC.
func TestDecode_Refusals(t *testing.T) {
	data := compute(t, makeSegment(0, 10, 20, 30), 0).Encode()
	mend := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		return b
	}
	refused := func(name string, b []byte) {
		t.Helper()
		if m, err := Decode(b); !errors.Is(err, vtop.ErrDamaged) || m != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for i := range data {
		for bit := range 8 {
			b := bytes.Clone(data)
			b[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), b)
			if i < len(data)-4 {
				refused(fmt.Sprintf("bit %d of byte %d, CRC mended", bit, i), mend(b))
			}
		}
		refused("cut", data[:i])
	}
	refused("a byte more", append(bytes.Clone(data), 0))
	refused("zeros", make([]byte, len(data)))
	for off, name := range map[int]string{40: "runs", 44: "chunks", 48: "producers"} {
		b := bytes.Clone(data)
		binary.BigEndian.PutUint32(b[off:], 0xffff_ffff)
		refused("four billion "+name, mend(b))
	}
}

// TestDecode_ChecksFields: what fits CRC and root but not itself is refused too.
func TestDecode_ChecksFields(t *testing.T) {
	for name, edit := range map[string]func(*Manifest){
		"negative base":         func(m *Manifest) { m.Base, m.Runs[0].Start = -1, -1 },
		"nothing in it":         func(m *Manifest) { m.End = m.Base },
		"size below a batch":    func(m *Manifest) { m.Size = 60 },
		"negative size":         func(m *Manifest) { m.Size = -1 },
		"a chunk too many":      func(m *Manifest) { m.Chunks = append(m.Chunks, Hash{}) },
		"no chunk":              func(m *Manifest) { m.Chunks = nil },
		"no run":                func(m *Manifest) { m.Runs = nil },
		"first run after base":  func(m *Manifest) { m.Runs[0].Start++ },
		"run beyond the end":    func(m *Manifest) { m.Runs[1].Start = m.End },
		"epochs that fall":      func(m *Manifest) { m.Runs[1].Epoch = 2 },
		"epoch 0":               func(m *Manifest) { m.Runs[0].Epoch = 0 },
		"starts that stay":      func(m *Manifest) { m.Runs[1].Start = 0 },
		"size of a petabyte":    func(m *Manifest) { m.Size = 1 << 50 },
		"size beyond the chunk": func(m *Manifest) { m.Size = ChunkSize + 1 },
	} {
		m := compute(t, makeSegment(0, 10, 20, 30), 0)
		edit(m)
		m.Root = rootOf(m.appendBody(nil))
		if _, err := Decode(m.Encode()); !errors.Is(err, vtop.ErrDamaged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestEncode_Golden(t *testing.T) {
	m := compute(t, makeSegment(5, 10, 20, 30), 5)
	got := hex.Dump(m.Encode())
	name := filepath.Join("testdata", "manifest_v1.golden")
	if *update {
		ok(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	ok(t, err)
	if got != string(want) {
		t.Errorf("the encoding changed. A changed format needs a new version number.\n%s", got)
	}
}
