package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/zeebo/blake3"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// The bytes of a manifest file. All integers are big endian.
//
//	offset size field
//	     0    8 magic            "vtopmani"
//	     8    4 version          1
//	    12    8 base             offset of the first record
//	    20    8 end              offset after the last record
//	    28    8 size             bytes of the segment
//	    36    4 chunk size       1048576
//	    40    4 runs             r
//	    44    4 chunks           c: size / chunk size, rounded up
//	    48    4 producers        p: bytes of the producer state at end
//	    52  12r runs             each: epoch 4, start 8; epochs and starts rise, the first start is base
//	       32c chunks            each: hash of the chunk
//	         p producers
//	        32 root              hash of all bytes before
//	         4 CRC32C            Castagnoli, of all bytes before
//
// Hashes are BLAKE3 with 256 bits in its key derivation mode, one context for chunks and one for the root, so that
// no segment's bytes can pose as a manifest. The place of a chunk is bound by the root, and not by the chunk's hash.
const (
	magic        = "vtopmani"
	version      = 1
	headerSize   = 52
	runSize      = 12
	hashSize     = 32
	trailerSize  = hashSize + 4
	chunkContext = "vtop 2026-11-30 segment chunk v1"
	rootContext  = "vtop 2026-11-30 segment manifest root v1"
)

const (
	// ChunkSize is the size in bytes of every chunk but the last.
	ChunkSize = 1 << 20
	// MaxSegmentSize is the largest segment in bytes that a manifest describes.
	MaxSegmentSize = 1 << 40
	// MaxProducersSize is the largest producer state in bytes that a manifest holds.
	MaxProducersSize = 64 << 20
	// MaxEncodedSize is the largest manifest file in bytes: what to give to vfs.ReadFile.
	MaxEncodedSize = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Hash is the hash of a chunk or of a manifest.
type Hash = [hashSize]byte

// Manifest describes one sealed segment. It is a value: nobody changes it once it is made.
type Manifest struct {
	// Base is the offset of the first record, End the one after the last.
	Base, End vtop.Offset
	// Runs are the epochs of the records. The first begins at Base.
	Runs []vtop.EpochRun
	// Size of the segment in bytes. A sealed segment has no slack.
	Size int64
	// Chunks are the hashes of the chunks in order.
	Chunks []Hash
	// Producers is the producer state at End, as storage encodes it.
	Producers []byte
	// Root is the hash over all of the above. It names the segment in the catalogue.
	Root Hash
}

// appendBody writes all that the root covers.
func (m *Manifest) appendBody(b []byte) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Base))
	b = binary.BigEndian.AppendUint64(b, uint64(m.End))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Size))
	b = binary.BigEndian.AppendUint32(b, ChunkSize)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Runs)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Chunks)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Producers)))
	for _, run := range m.Runs {
		b = binary.BigEndian.AppendUint32(b, uint32(run.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(run.Start))
	}
	for i := range m.Chunks {
		b = append(b, m.Chunks[i][:]...)
	}
	return append(b, m.Producers...)
}

// rootOf hashes what appendBody wrote.
func rootOf(body []byte) (root Hash) {
	h := blake3.NewDeriveKey(rootContext)
	h.Write(body)
	h.Sum(root[:0])
	return root
}

// Encode returns the manifest file. The same manifest gives the same bytes.
func (m *Manifest) Encode() []byte {
	size := headerSize + runSize*len(m.Runs) + hashSize*len(m.Chunks) + len(m.Producers) + trailerSize
	b := m.appendBody(make([]byte, 0, size))
	b = append(b, m.Root[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode reads a manifest file and checks its CRC, its root and that its fields fit each other, so that what it
// returns is what some replica computed. It copies what it keeps. Errors wrap vtop.ErrDamaged.
func Decode(data []byte) (*Manifest, error) {
	counts, err := checkFrame(data)
	if err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", vtop.ErrDamaged, err)
	}
	m := &Manifest{
		Base:      vtop.Offset(binary.BigEndian.Uint64(data[12:])),
		End:       vtop.Offset(binary.BigEndian.Uint64(data[20:])),
		Size:      int64(binary.BigEndian.Uint64(data[28:])),
		Runs:      make([]vtop.EpochRun, counts.runs),
		Chunks:    make([]Hash, counts.chunks),
		Producers: make([]byte, counts.producers),
	}
	rest := data[headerSize:]
	for i := range m.Runs {
		m.Runs[i].Epoch = vtop.Epoch(binary.BigEndian.Uint32(rest))
		m.Runs[i].Start = vtop.Offset(binary.BigEndian.Uint64(rest[4:]))
		rest = rest[runSize:]
	}
	for i := range m.Chunks {
		rest = rest[copy(m.Chunks[i][:], rest):]
	}
	rest = rest[copy(m.Producers, rest):]
	copy(m.Root[:], rest)
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", vtop.ErrDamaged, err)
	}
	if root := rootOf(data[:len(data)-trailerSize]); root != m.Root {
		return nil, fmt.Errorf("%w: manifest: root of its fields is %x, it tells %x", vtop.ErrDamaged, root, m.Root)
	}
	return m, nil
}

type frameCounts struct{ runs, chunks, producers int64 }

// checkFrame looks at all that must hold before the fields can be taken, so that no count is believed that the bytes
// do not bear out.
func checkFrame(data []byte) (c frameCounts, err error) {
	if len(data) < headerSize+trailerSize || len(data) > MaxEncodedSize {
		return c, fmt.Errorf("%d bytes, want %d to %d", len(data), headerSize+trailerSize, MaxEncodedSize)
	}
	if string(data[:8]) != magic {
		return c, fmt.Errorf("magic %q, want %q", data[:8], magic)
	}
	if v := binary.BigEndian.Uint32(data[8:]); v != version {
		return c, fmt.Errorf("version %d, this program knows %d", v, version)
	}
	body := data[:len(data)-4]
	if sum, told := crc32.Checksum(body, castagnoli), binary.BigEndian.Uint32(data[len(body):]); sum != told {
		return c, fmt.Errorf("CRC32C of the bytes is %08x, file tells %08x", sum, told)
	}
	if size := binary.BigEndian.Uint32(data[36:]); size != ChunkSize {
		return c, fmt.Errorf("chunk size %d, want %d", size, ChunkSize)
	}
	c.runs = int64(binary.BigEndian.Uint32(data[40:]))
	c.chunks = int64(binary.BigEndian.Uint32(data[44:]))
	c.producers = int64(binary.BigEndian.Uint32(data[48:]))
	want := headerSize + runSize*c.runs + hashSize*c.chunks + c.producers + trailerSize
	if int64(len(data)) != want {
		return c, fmt.Errorf("%d bytes, its counts want %d", len(data), want)
	}
	return c, nil
}

// check holds the fields to each other.
func (m *Manifest) check() error {
	switch {
	case m.Base < 0 || m.End <= m.Base:
		return fmt.Errorf("offsets [%d, %d)", m.Base, m.End)
	case m.Size < batch.HeaderSize || m.Size > MaxSegmentSize:
		return fmt.Errorf("segment of %d bytes, want %d to %d", m.Size, batch.HeaderSize, MaxSegmentSize)
	case int64(len(m.Chunks)) != (m.Size+ChunkSize-1)/ChunkSize:
		return fmt.Errorf("%d chunks of a segment of %d bytes", len(m.Chunks), m.Size)
	case len(m.Producers) > MaxProducersSize:
		return fmt.Errorf("producer state of %d bytes, want at most %d", len(m.Producers), MaxProducersSize)
	case len(m.Runs) == 0 || m.Runs[0].Start != m.Base:
		return fmt.Errorf("%d epoch runs, and the first must begin at %d", len(m.Runs), m.Base)
	}
	for i, run := range m.Runs {
		if run.Epoch <= vtop.NoEpoch || run.Start >= m.End ||
			i > 0 && (run.Epoch <= m.Runs[i-1].Epoch || run.Start <= m.Runs[i-1].Start) {
			return fmt.Errorf("epoch run %d: epoch %d at %d does not follow, or is not below %d", i, run.Epoch, run.Start, m.End)
		}
	}
	return nil
}
