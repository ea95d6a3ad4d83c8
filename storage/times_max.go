package storage

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// OffsetOfMaxTimestamp returns the first of the records below limit, at or above the log start, that have the latest
// timestamp (ms); found is false if there are none. It goes by the batches' own latest times and by the indexes, reads
// what they leave open at both ends, and decompresses one batch. vtop.ErrDamaged if the answer may lie in a hole.
func (l *Log) OffsetOfMaxTimestamp(limit vtop.Offset) (offset vtop.Offset, timestamp int64, found bool, err error) {
	l.mu.Lock()
	err = l.usableLocked()
	segs, start := slices.Clone(l.segs), l.start
	limit = min(limit, l.end)
	l.mu.Unlock()
	if err != nil {
		return 0, 0, false, err
	}
	search := latestSearch{log: l, start: start, limit: limit, time: math.MinInt64}
	for _, s := range segs {
		if err := search.segment(s); err != nil {
			return 0, 0, false, err
		}
	}
	if !search.found {
		return 0, 0, false, nil
	}
	return search.record()
}

// latestSearch looks for the latest batch time in [start, limit).
type latestSearch struct {
	log          *Log
	start, limit vtop.Offset
	// time is the latest found so far; the first batch that has it is the first one at or behind from that does.
	time  int64
	from  vtop.Offset
	found bool
	buf   []byte
}

// take notes a time, unless one as late was found before.
func (q *latestSearch) take(time int64, from vtop.Offset) {
	if !q.found || time > q.time {
		q.found, q.time, q.from = true, time, from
	}
}

// segment takes the latest time of one segment. An index entry has the latest time from the begin of the segment to
// the end of its block, so that blocks in the middle need not be read unless older ones are as late.
func (q *latestSearch) segment(s *segment) error {
	if s.base >= q.limit {
		return nil
	}
	x, end, err := q.log.timeEntries(s)
	lo, hi := max(s.base, q.start), min(end, q.limit)
	if err != nil || lo >= hi || len(x) == 0 {
		return err
	}
	blockEnd := func(i int) vtop.Offset {
		if i+1 < len(x) {
			return x[i+1].offset
		}
		return end
	}
	first := sort.Search(len(x), func(i int) bool { return x[i].offset >= lo })
	last := sort.Search(len(x), func(i int) bool { return blockEnd(i) > hi }) - 1
	switch {
	case first > last, first > 0 && x[last].maxTime == x[first-1].maxTime:
		return q.scan(lo, hi)
	}
	latest := x[last].maxTime // and later than all that is before first
	at := sort.Search(len(x), func(i int) bool { return x[i].maxTime >= latest })
	q.take(latest, x[at].offset)
	return q.scan(blockEnd(last), hi)
}

// scan reads the batches of [lo, hi) and takes the latest of their times.
func (q *latestSearch) scan(lo, hi vtop.Offset) error {
	return q.batches(lo, hi, func(b batch.Batch) (bool, error) {
		if b.BaseOffset() >= q.start {
			q.take(b.MaxTimestamp(), b.BaseOffset())
			return true, nil
		}
		_, time, found, err := latestRecord(b, q.start)
		if found {
			q.take(time, b.BaseOffset())
		}
		return true, err
	})
}

// batches hands the batches that touch [lo, hi) to fn until it returns false.
func (q *latestSearch) batches(lo, hi vtop.Offset, fn func(batch.Batch) (more bool, err error)) error {
	for lo < hi {
		read, next, _, err := q.log.ReadPeer(lo, timeReadBytes, q.limit, q.buf)
		if err != nil {
			return err
		}
		if next == lo { // a batch that ends above the limit
			return nil
		}
		lo, q.buf = next, read
		for b, err := range batch.All(read) {
			if err != nil {
				return err
			}
			if b.BaseOffset() >= hi {
				return nil
			}
			if more, err := fn(b); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// record finds the record in the batch that was found.
func (q *latestSearch) record() (offset vtop.Offset, timestamp int64, found bool, err error) {
	err = q.batches(q.from, q.limit, func(b batch.Batch) (bool, error) {
		if b.MaxTimestamp() < q.time {
			return true, nil
		}
		var err error
		offset, timestamp, found, err = latestRecord(b, q.start)
		return !found, err
	})
	return offset, timestamp, found, err
}

// latestRecord returns the first of the records at or above an offset that have the latest time.
func latestRecord(b batch.Batch, from vtop.Offset) (offset vtop.Offset, timestamp int64, found bool, err error) {
	err = b.Records(timeRecordBytes, func(r batch.Record) error {
		if r.Offset >= from && (!found || r.Timestamp > timestamp) {
			offset, timestamp, found = r.Offset, r.Timestamp, true
		}
		return nil
	})
	return offset, timestamp, found, err
}

// timeEntries returns the index of a segment, and its end; nothing if it is not of the log any more or below its start.
func (l *Log) timeEntries(s *segment) (entries []indexEntry, end vtop.Offset, err error) {
	l.mu.Lock()
	plan := readPlan{readSpec: readSpec{from: s.base}, seg: s, sealed: s.state == SegmentSealed, fileEnd: s.size, generation: l.generation}
	gone, hole, x := s.gone || s.end <= l.start, s.hole, s.index
	if end = s.end; x != nil {
		entries = slices.Clone(x.entries)
	}
	l.mu.Unlock()
	switch {
	case gone:
		return nil, end, nil
	case hole != "":
		return nil, end, fmt.Errorf("range %s segment %d: %w: %s", l.rng, s.base, vtop.ErrDamaged, hole)
	case x != nil:
		return entries, end, nil
	}
	h, err := l.store.files.acquire(s, false, true)
	if err != nil {
		return nil, end, fmt.Errorf("range %s: %w: open %s: %w", l.rng, vtop.ErrStorage, s.path, err)
	}
	defer l.store.files.release(h)
	if x, err = l.sealedIndex(&plan, h); err != nil {
		return nil, end, err
	}
	return x.entries, end, nil
}
