package storage

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// twin is the simple and obvious model of one replica: what was asked of it, and what it has answered for. Bounds
// are set before an operation begins and tightened after it has returned, so that a power cut at any moment in
// between has to leave something within them.
type twin struct {
	id vtop.ReplicaID
	// created: Create has returned. gone: it may be missing. removed: it must be missing.
	created, gone, removed bool
	// log is the whole log since offset 0 or the last reset.
	log []batch.Batch
	// from is where log begins; state the producer state there.
	from  vtop.Offset
	state []byte
	// base: segments below may have been reclaimed, up to here.
	base vtop.Offset
	// durable is what was reported.
	durable vtop.Offset
	// resetting, if not 0, is where a reset that has not returned begins anew.
	resetting               vtop.Offset
	promised, promiseToCome vtop.Epoch
	epoch                   vtop.Epoch
	sealed                  map[vtop.Offset][32]byte
}

func (w *twin) clone() *twin {
	c := *w
	c.log = slices.Clone(w.log)
	c.sealed = maps.Clone(w.sealed)
	return &c
}

func (w *twin) end() vtop.Offset {
	if n := len(w.log); n > 0 {
		return w.log[n-1].LastOffset() + 1
	}
	return w.from
}

// bytesBetween returns the batches from a base to an end, both between batches.
func (w *twin) bytesBetween(from, to vtop.Offset) ([]byte, error) {
	var out []byte
	at := from
	for _, b := range w.log {
		if b.BaseOffset() < from || b.BaseOffset() >= to {
			continue
		}
		if b.BaseOffset() != at {
			return nil, fmt.Errorf("offset %d is inside a batch", at)
		}
		at = b.LastOffset() + 1
		out = append(out, b...)
	}
	if at != to {
		return nil, fmt.Errorf("offset %d is not an end of a batch", to)
	}
	return out, nil
}

// producersAt replays the log from its begin.
func (w *twin) producersAt(opt *Options, end vtop.Offset) []byte {
	t, err := decodeProducers(opt, w.state)
	if err != nil {
		panic(err)
	}
	for _, b := range w.log {
		if b.BaseOffset() < end {
			t.add(b)
		}
	}
	return t.encode()
}

// runsBetween are the epochs of a part of the log.
func (w *twin) runsBetween(from, to vtop.Offset) (runs []vtop.EpochRun) {
	for _, b := range w.log {
		if b.BaseOffset() < from || b.BaseOffset() >= to {
			continue
		}
		if n := len(runs); n == 0 || runs[n-1].Epoch != b.Epoch() {
			runs = append(runs, vtop.EpochRun{Epoch: b.Epoch(), Start: b.BaseOffset()})
		}
	}
	return runs
}

// check holds a recovered replica to what its twin allows.
func (w *twin) check(s *Store, r vtop.Range) error {
	l := s.Get(r)
	if l == nil {
		if w.created && !w.gone {
			return fmt.Errorf("%s: the replica is missing", r)
		}
		return nil
	}
	if w.removed {
		return fmt.Errorf("%s: the replica is there after its removal", r)
	}
	info := l.Info()
	if info.State != StateHealthy {
		return fmt.Errorf("I10: %s is %s without any damage: %s", r, info.State, info.Reason)
	}
	if info.ReplicaID != w.id {
		return fmt.Errorf("%s: replica id %d, want %d", r, info.ReplicaID, w.id)
	}
	if info.Promised < w.promised || info.Promised > w.promiseToCome {
		return fmt.Errorf("I6: %s: promise is %d, want %d to %d", r, info.Promised, w.promised, w.promiseToCome)
	}
	l.mu.Lock()
	err := l.checkLocked()
	base := l.segs[0].base
	producers := l.producers.encode()
	runs := slices.Clone(l.runs)
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", r, err)
	}
	if w.resetting != 0 && base == w.resetting && info.End == base {
		return nil
	}
	return w.checkLog(s, l, base, runs, producers)
}

func (w *twin) checkLog(s *Store, l *Log, base vtop.Offset, runs []vtop.EpochRun, producers []byte) error {
	end := l.End()
	if end < w.durable || end > w.end() {
		return fmt.Errorf("I1: %s ends at %d, reported durable %d, appended up to %d", l.rng, end, w.durable, w.end())
	}
	if base < w.from || base > max(w.base, w.from) {
		return fmt.Errorf("%s begins at %d, want %d to %d", l.rng, base, w.from, w.base)
	}
	want, err := w.bytesBetween(base, end)
	if err != nil {
		return fmt.Errorf("I2: %s from %d to %d: %w", l.rng, base, end, err)
	}
	got, err := readAll(l, base, end)
	if err != nil {
		return fmt.Errorf("I9: %s: %w", l.rng, err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("I2: %s from %d to %d has other bytes than were appended", l.rng, base, end)
	}
	if want := w.runsBetween(base, end); !slices.Equal(runs, want) {
		return fmt.Errorf("%s: epoch runs %v, want %v", l.rng, runs, want)
	}
	if want := w.producersAt(&s.opt, end); !bytes.Equal(producers, want) {
		return fmt.Errorf("D5: %s: producer state at %d is not what the log gives", l.rng, end)
	}
	for _, seg := range l.Segments() {
		if root, ok := w.sealed[seg.Base]; ok && (seg.State != SegmentSealed || seg.Root != root) {
			return fmt.Errorf("I9: %s: segment %d is %s with another root than it was sealed with", l.rng, seg.Base, seg.State)
		}
	}
	return nil
}
