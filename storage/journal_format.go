package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/vtop-log/vtop"
)

// The journal is one file per node. It begins with a header, whose base section is written and renamed into place
// at once, and goes on with frames that are appended.
//
//	offset size field
//	     0    8 magic "vtopjrnl"
//	     8    4 version         1
//	    12   16 storage id
//	    28    8 base length     bytes of the file that were renamed into place: damage below is damage, never a torn end
//	    36    4 CRC32C          of the bytes before
//	    40    - frames
//
// A frame:
//
//	 0    4 magic "vjf1"
//	 4    4 length          bytes of the body
//	 8    4 CRC32C          of the body
//	12    - body: 8 synced (all bytes of the file below were synced when this was written), then entries
//
// An entry has 37 bytes: 1 kind, 16 topic id, 4 range index, 8 replica id, 8 value.
// The last entry of a kind for a replica counts; a lost replica stays lost, a forgotten one is gone with all it had.
const (
	journalMagic  = "vtopjrnl"
	frameMagic    = "vjf1"
	journalHeader = 40
	frameHeader   = 12
	entrySize     = 37
	// maxFrame bounds one frame; longer batches become several frames under one sync.
	maxFrame = 1 << 20
	// maxJournal bounds what is read at start: far above what compaction leaves.
	maxJournal = 1 << 30
)

// entryKind is what an entry says.
type entryKind uint8

const (
	// entryPromise: value is the epoch promised.
	entryPromise entryKind = 1
	// entryMark: value is the offset below which all was synced. Goes down at a cut.
	entryMark entryKind = 2
	// entryLost: the replica may have forgotten (I10); value is 0.
	entryLost entryKind = 3
	// entryForget: the replica was deleted or set aside; value is 0.
	entryForget entryKind = 4
)

type entry struct {
	kind entryKind
	key  replicaKey
	// value is an epoch or an offset.
	value uint64
}

// replicaKey is one life of one replica.
type replicaKey struct {
	rng vtop.Range
	id  vtop.ReplicaID
}

func encodeJournalHeader(id vtop.StorageID, baseLength uint64) []byte {
	b := append(make([]byte, 0, journalHeader), journalMagic...)
	b = binary.BigEndian.AppendUint32(b, smallVersion)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint64(b, baseLength)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// appendFrames frames entries, in as many frames as maxFrame asks for. synced goes into each.
func appendFrames(b []byte, synced uint64, entries []entry) []byte {
	const perFrame = (maxFrame - 8) / entrySize
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), perFrame)
		start := len(b)
		b = append(b, frameMagic...)
		b = binary.BigEndian.AppendUint32(b, uint32(8+n*entrySize))
		b = append(b, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint64(b, synced)
		for _, e := range entries[:n] {
			b = append(b, byte(e.kind))
			b = appendRange(b, e.key.rng)
			b = binary.BigEndian.AppendUint64(b, uint64(e.key.id))
			b = binary.BigEndian.AppendUint64(b, e.value)
		}
		body := b[start+frameHeader:]
		binary.BigEndian.PutUint32(b[start+8:], crc32.Checksum(body, castagnoli))
		entries = entries[n:]
	}
	return b
}

// parseFrame reads the frame at the head of b; size is 0 if there is none.
func parseFrame(b []byte) (size int, synced uint64, entries []entry) {
	if len(b) < frameHeader+8 || string(b[:4]) != frameMagic {
		return 0, 0, nil
	}
	length := int64(binary.BigEndian.Uint32(b[4:]))
	if length < 8 || length > maxFrame || length > int64(len(b)-frameHeader) || (length-8)%entrySize != 0 {
		return 0, 0, nil
	}
	body := b[frameHeader : frameHeader+length]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return 0, 0, nil
	}
	r := reader{b: body}
	synced = r.u64()
	entries = make([]entry, 0, len(r.b)/entrySize)
	for len(r.b) > 0 {
		e := entry{kind: entryKind(r.u8()), key: replicaKey{rng: r.rng(), id: vtop.ReplicaID(r.u64())}, value: r.u64()}
		entries = append(entries, e)
	}
	return frameHeader + int(length), synced, entries
}

// journalDamage says that a part of the journal that was once durable cannot be read any more.
type journalDamage struct {
	at     int
	reason string
}

func (d *journalDamage) Error() string {
	return fmt.Sprintf("the journal is damaged at byte %d: %s", d.at, d.reason)
}

// Is makes errors.Is(err, vtop.ErrDamaged) true.
func (d *journalDamage) Is(target error) bool { return target == vtop.ErrDamaged }

// parseJournal reads a whole journal. It returns the entries up to the first bad frame and, if what follows was
// durable once, a *journalDamage: then the entries are not all that was promised, and nothing may be concluded
// from a promise that is missing (I10). A torn end, above what was last known to be synced, is no damage.
func parseJournal(data []byte, id vtop.StorageID) (entries []entry, torn int, err error) {
	if len(data) < journalHeader || string(data[:8]) != journalMagic ||
		crc32.Checksum(data[:journalHeader-4], castagnoli) != binary.BigEndian.Uint32(data[journalHeader-4:]) {
		return nil, 0, &journalDamage{0, "its header is not one"}
	}
	r := reader{b: data[8:journalHeader]}
	if version := r.u32(); version != smallVersion {
		return nil, 0, &journalDamage{8, fmt.Sprintf("version %d, this program knows %d", version, smallVersion)}
	}
	if owner := r.uuid(); owner != id {
		return nil, 0, &journalDamage{12, fmt.Sprintf("it belongs to storage %s, this is %s", owner, id)}
	}
	synced := r.u64()
	pos := journalHeader
	for pos < len(data) {
		size, s, es := parseFrame(data[pos:])
		if size == 0 {
			break
		}
		for _, e := range es {
			if e.kind < entryPromise || e.kind > entryForget {
				return entries, 0, &journalDamage{pos, fmt.Sprintf("entry of unknown kind %d", e.kind)}
			}
		}
		entries = append(entries, es...)
		synced = max(synced, s)
		pos += size
	}
	if uint64(pos) < max(synced, syncedLater(data[pos:])) {
		return entries, 0, &journalDamage{pos, "a frame that was synced does not pass its check"}
	}
	return entries, len(data) - pos, nil
}

// syncedLater looks for whole frames behind a bad one and returns the highest position that they know as synced.
func syncedLater(b []byte) (synced uint64) {
	for i := 0; i+frameHeader+8 <= len(b); i++ {
		if size, s, _ := parseFrame(b[i:]); size > 0 {
			synced = max(synced, s)
			i += size - 1
		}
	}
	return synced
}
