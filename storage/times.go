package storage

import (
	"errors"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// timeReadBytes is how much of a segment one step of a search by time reads; timeRecordBytes bounds what a batch
// may decompress to in it.
const (
	timeReadBytes   = 256 << 10
	timeRecordBytes = 128 << 20
)

// OffsetForTime returns the first record below limit, at or above the log start, whose timestamp is ts (ms) or
// later; found is false if there is none. It reads from the place that the time index names, and decompresses one
// batch. vtop.ErrDamaged if the answer may lie in a hole.
func (l *Log) OffsetForTime(ts int64, limit vtop.Offset) (offset vtop.Offset, timestamp int64, found bool, err error) {
	l.mu.Lock()
	err = l.usableLocked()
	segs, start := append([]*segment(nil), l.segs...), l.start
	l.mu.Unlock()
	if err != nil {
		return 0, 0, false, err
	}
	var buf []byte
	for _, s := range segs {
		from, end, ok, err := l.timeRange(s, ts)
		if err != nil {
			return 0, 0, false, err
		}
		for from = max(from, start); ok && from < min(end, limit); {
			var batches []byte
			var next vtop.Offset
			batches, next, _, err = l.ReadPeer(from, timeReadBytes, limit, buf)
			if err != nil {
				return 0, 0, false, err
			}
			offset, timestamp, found, err = firstRecordAt(batches, ts, max(from, start))
			if err != nil || found && offset < limit {
				return offset, timestamp, found, err
			}
			if next == from {
				break
			}
			from, buf = next, batches
		}
	}
	return 0, 0, false, nil
}

// timeRange returns where in a segment to look for a time; ok is false if all of it is older.
func (l *Log) timeRange(s *segment, ts int64) (from, end vtop.Offset, ok bool, err error) {
	l.mu.Lock()
	plan := readPlan{readSpec: readSpec{from: s.base}, seg: s, sealed: s.state == SegmentSealed, fileEnd: s.size, generation: l.generation}
	end = s.end
	if s.gone || s.end <= l.start {
		l.mu.Unlock()
		return 0, 0, false, nil
	}
	if s.hole != "" {
		l.mu.Unlock()
		return 0, 0, false, fmt.Errorf("range %s segment %d: %w: %s", l.rng, s.base, vtop.ErrDamaged, s.hole)
	}
	if s.index != nil {
		from, ok = s.index.findTime(ts)
		l.mu.Unlock()
		return from, end, ok, nil
	}
	l.mu.Unlock()
	h, err := l.store.files.acquire(s, false, true)
	if err != nil {
		return 0, 0, false, fmt.Errorf("range %s: %w: open %s: %w", l.rng, vtop.ErrStorage, s.path, err)
	}
	defer l.store.files.release(h)
	x, err := l.sealedIndex(&plan, h)
	if err != nil {
		return 0, 0, false, err
	}
	from, ok = x.findTime(ts)
	return from, end, ok, nil
}

// errStop ends a walk over records.
var errStop = errors.New("stop")

// firstRecordAt returns the first record at or above an offset whose time is ts or later.
func firstRecordAt(batches []byte, ts int64, from vtop.Offset) (offset vtop.Offset, timestamp int64, found bool, err error) {
	for b, err := range batch.All(batches) {
		if err != nil {
			return 0, 0, false, err
		}
		if b.MaxTimestamp() < ts || b.LastOffset() < from {
			continue
		}
		err = b.Records(timeRecordBytes, func(r batch.Record) error {
			if r.Timestamp >= ts && r.Offset >= from {
				offset, timestamp, found = r.Offset, r.Timestamp, true
				return errStop
			}
			return nil
		})
		if found || err != nil && err != errStop {
			if found {
				err = nil
			}
			return offset, timestamp, found, err
		}
	}
	return 0, 0, false, nil
}
