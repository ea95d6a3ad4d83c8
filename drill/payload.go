package drill

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
)

// MinPayload is the least size of a Payload in bytes.
const MinPayload = 24

// Payload is the value of record id: the id, a filler that follows from it, and a checksum. size is at least MinPayload.
func Payload(id uint64, size int) []byte {
	b := make([]byte, max(size, MinPayload))
	binary.BigEndian.PutUint64(b, id)
	x := id
	for i := 8; i+8 <= len(b)-4; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.BigEndian.PutUint64(b[i:], x)
	}
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.ChecksumIEEE(b[:len(b)-4]))
	return b
}

// PayloadID checks a payload and gives its id.
func PayloadID(b []byte) (uint64, error) {
	if len(b) < 12 {
		return 0, fmt.Errorf("payload of %d bytes", len(b))
	}
	if crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return 0, fmt.Errorf("payload of record %d is damaged", binary.BigEndian.Uint64(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// sumOf tells values apart; it is never 0.
func sumOf(value []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(value) // a hash takes everything
	return max(h.Sum64(), 1)
}
