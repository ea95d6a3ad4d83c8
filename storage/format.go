package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/vtop-log/vtop"
)

// Every small file has one frame. All integers are big endian.
//
//	offset size field
//	     0    8 magic           which kind of file
//	     8    4 version         1
//	    12    4 length          bytes of the payload
//	    16    n payload
//	  16+n    4 CRC32C          of all bytes before
//
// Payloads:
//
//	identity    16 storage id, 16 cluster id (zeros: none), 8 incarnation
//	replica     16 cluster id, 16 topic id, 4 range index, 8 replica id, 8 base: no segment below it exists
//	producers   16 topic id, 4 range index, 8 offset, then the state (see producers.go)
//	index       8 base, 8 size of the segment, 4 count, then entries (see index.go)
//	hole        the reason, as text
//	stage       16 cluster id, 16 topic id, 4 range index
//
// A file that is empty, cut short, longer, zeroed or altered fails to decode, and is then rebuilt from the log or
// counts as lost; it is never taken for an empty one (E7).
const (
	smallHeader  = 16
	smallVersion = 1
	maxSmallFile = 16 << 20

	magicIdentity  = "vtopidnt"
	magicReplica   = "vtoprepl"
	magicProducers = "vtopprod"
	magicIndex     = "vtopindx"
	magicHole      = "vtophole"
	magicStage     = "vtopstge"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeSmall frames a payload.
func encodeSmall(magic string, payload []byte) []byte {
	b := make([]byte, 0, smallHeader+len(payload)+4)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, smallVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeSmall returns the payload, aliasing data. Its errors wrap vtop.ErrDamaged.
func decodeSmall(magic string, data []byte) ([]byte, error) {
	if len(data) < smallHeader+4 {
		return nil, fmt.Errorf("%w: %d bytes, want at least %d", vtop.ErrDamaged, len(data), smallHeader+4)
	}
	if got := string(data[:8]); got != magic {
		return nil, fmt.Errorf("%w: magic %q, want %q", vtop.ErrDamaged, got, magic)
	}
	if v := binary.BigEndian.Uint32(data[8:]); v != smallVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d", vtop.ErrDamaged, v, smallVersion)
	}
	if n := binary.BigEndian.Uint32(data[12:]); int64(n) != int64(len(data)-smallHeader-4) {
		return nil, fmt.Errorf("%w: length field %d in a file of %d bytes", vtop.ErrDamaged, n, len(data))
	}
	body := data[:len(data)-4]
	if sum, want := crc32.Checksum(body, castagnoli), binary.BigEndian.Uint32(data[len(body):]); sum != want {
		return nil, fmt.Errorf("%w: CRC32C %08x, want %08x", vtop.ErrDamaged, sum, want)
	}
	return body[smallHeader:], nil
}

// reader takes fields off a payload; the first that is missing makes all later ones zero and bad true.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uuid() (u vtop.UUID) {
	copy(u[:], r.take(len(u)))
	return u
}

func (r *reader) rng() vtop.Range {
	return vtop.Range{Topic: r.uuid(), Index: int32(r.u32())}
}

// done returns an error unless all bytes were taken and none was missing.
func (r *reader) done() error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: payload has the wrong length", vtop.ErrDamaged)
	}
	return nil
}

func appendRange(b []byte, r vtop.Range) []byte {
	b = append(b, r.Topic[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(r.Index))
}

// replicaMeta is what the file `replica` tells.
type replicaMeta struct {
	cluster   vtop.ClusterID
	rng       vtop.Range
	replicaID vtop.ReplicaID
	// base: segments below it are leftovers of a retention or a reset that was cut short, and go.
	base vtop.Offset
}

func (m replicaMeta) encode() []byte {
	b := append([]byte(nil), m.cluster[:]...)
	b = appendRange(b, m.rng)
	b = binary.BigEndian.AppendUint64(b, uint64(m.replicaID))
	b = binary.BigEndian.AppendUint64(b, uint64(m.base))
	return encodeSmall(magicReplica, b)
}

func decodeReplicaMeta(data []byte) (replicaMeta, error) {
	payload, err := decodeSmall(magicReplica, data)
	if err != nil {
		return replicaMeta{}, err
	}
	r := reader{b: payload}
	m := replicaMeta{cluster: r.uuid(), rng: r.rng(), replicaID: vtop.ReplicaID(r.u64()), base: vtop.Offset(r.u64())}
	if err := r.done(); err != nil {
		return replicaMeta{}, err
	}
	if m.base < 0 || m.rng.Index < 0 {
		return replicaMeta{}, fmt.Errorf("%w: base %d, range index %d", vtop.ErrDamaged, m.base, m.rng.Index)
	}
	return m, nil
}

// stageMeta is what the file `stage` of a staging tells.
type stageMeta struct {
	cluster vtop.ClusterID
	rng     vtop.Range
}

func (m stageMeta) encode() []byte {
	return encodeSmall(magicStage, appendRange(append([]byte(nil), m.cluster[:]...), m.rng))
}

func decodeStageMeta(data []byte) (stageMeta, error) {
	payload, err := decodeSmall(magicStage, data)
	if err != nil {
		return stageMeta{}, err
	}
	r := reader{b: payload}
	m := stageMeta{cluster: r.uuid(), rng: r.rng()}
	return m, r.done()
}
