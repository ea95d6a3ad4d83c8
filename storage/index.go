package storage

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/vtop-log/vtop"
)

// index is the sparse index of one segment by offset and by time. It is rebuilt from the segment whenever its file
// is missing or does not fit, so nothing depends on it but speed (E8). For a segment that is not sealed it is
// guarded by the log's mu; once sealed it never changes.
//
// On disk an entry has 24 bytes: 8 offset, 8 position, 8 latest batch time up to the end of the block.
type index struct {
	every   int64
	entries []indexEntry
}

// indexEntry begins a block of batches of about index.every bytes.
type indexEntry struct {
	offset vtop.Offset
	pos    int64
	// maxTime is the latest batch time in the segment up to the end of this block, in ms.
	maxTime int64
}

const indexEntrySize = 24

func newIndex(every int64) *index { return &index{every: every} }

// add takes over a batch in order.
func (x *index) add(base vtop.Offset, pos, maxTime int64) {
	n := len(x.entries)
	if n > 0 && pos-x.entries[n-1].pos < x.every {
		x.entries[n-1].maxTime = max(x.entries[n-1].maxTime, maxTime)
		return
	}
	if n > 0 {
		maxTime = max(maxTime, x.entries[n-1].maxTime)
	}
	x.entries = append(x.entries, indexEntry{base, pos, maxTime})
}

// find returns a position at or before the batch that holds offset o, and the offset of the batch there. ok is
// false for an empty index.
func (x *index) find(o vtop.Offset) (pos int64, at vtop.Offset, ok bool) {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].offset > o }) - 1
	if i < 0 {
		return 0, 0, false
	}
	return x.entries[i].pos, x.entries[i].offset, true
}

// findTime returns the offset of the block that holds the first batch whose time is ts or later.
func (x *index) findTime(ts int64) (at vtop.Offset, ok bool) {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].maxTime >= ts })
	if i == len(x.entries) {
		return 0, false
	}
	return x.entries[i].offset, true
}

// encode frames the index of the segment that begins at base and has size bytes.
func (x *index) encode(base vtop.Offset, size int64) []byte {
	b := make([]byte, 0, 20+len(x.entries)*indexEntrySize)
	b = binary.BigEndian.AppendUint64(b, uint64(base))
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	b = binary.BigEndian.AppendUint32(b, uint32(len(x.entries)))
	for _, e := range x.entries {
		b = binary.BigEndian.AppendUint64(b, uint64(e.offset))
		b = binary.BigEndian.AppendUint64(b, uint64(e.pos))
		b = binary.BigEndian.AppendUint64(b, uint64(e.maxTime))
	}
	return encodeSmall(magicIndex, b)
}

// decodeIndex reads the index of a segment and refuses one of another segment or size.
func decodeIndex(data []byte, every int64, base vtop.Offset, size int64) (*index, error) {
	payload, err := decodeSmall(magicIndex, data)
	if err != nil {
		return nil, err
	}
	r := reader{b: payload}
	if b, n := vtop.Offset(r.u64()), int64(r.u64()); b != base || n != size {
		return nil, fmt.Errorf("%w: index of segment %d with %d bytes, want %d with %d", vtop.ErrDamaged, b, n, base, size)
	}
	count := int64(r.u32())
	if count*indexEntrySize != int64(len(r.b)) {
		return nil, fmt.Errorf("%w: %d index entries in %d bytes", vtop.ErrDamaged, count, len(r.b))
	}
	x := &index{every: every, entries: make([]indexEntry, 0, count)}
	last := indexEntry{offset: base - 1, pos: -1}
	for i := range count {
		e := indexEntry{vtop.Offset(r.u64()), int64(r.u64()), int64(r.u64())}
		if e.offset <= last.offset || e.pos <= last.pos || e.pos >= size || i > 0 && e.maxTime < last.maxTime ||
			i == 0 && (e.offset != base || e.pos != 0) {
			return nil, fmt.Errorf("%w: index entry %d is out of order", vtop.ErrDamaged, i)
		}
		x.entries = append(x.entries, e)
		last = e
	}
	return x, nil
}
