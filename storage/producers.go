package storage

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// lastBatches is how many batches of a producer are remembered: as many as an idempotent client has in flight.
const lastBatches = 5

// expiryMinBatches is how many idempotent batches a range must have seen since a producer's last one before its
// age counts. It protects retries in flight from one client with a clock years ahead (F5).
const expiryMinBatches = 1024

// producerTable knows the last batches of every idempotent producer of a range. It is a pure function of the log:
// what it forgets, it forgets by log order and batch time, never by a clock or by memory pressure, since it is
// part of a segment's root. Not safe for concurrent use: the log's mu guards it.
type producerTable struct {
	limit    int
	expiryMs int64

	byID map[int64]*producer
	// newest and oldest end the list in the order of their last batches.
	newest, oldest *producer
	// clock is the latest batch time seen, in ms; ticks counts idempotent batches.
	clock int64
	ticks uint64
}

// producer is one idempotent producer.
type producer struct {
	id    int64
	epoch int16
	// count of batches valid in last, the newest at last[count-1].
	count int
	last  [lastBatches]producedBatch
	// clock and ticks are the table's at the last batch.
	clock        int64
	ticks        uint64
	newer, older *producer
}

type producedBatch struct {
	firstSeq, lastSeq int32
	base, last        vtop.Offset
}

func newProducerTable(opt *Options) *producerTable {
	return &producerTable{limit: opt.MaxProducers, expiryMs: opt.ProducerExpiry.Milliseconds(), byID: map[int64]*producer{}}
}

// check decides on a batch that an idempotent producer sent to the leader: nil and nil to append it. A producer
// that is not known may begin with any sequence number (D4).
func (t *producerTable) check(b batch.Batch) (*Duplicate, error) {
	p := t.byID[b.ProducerID()]
	if p == nil {
		return nil, nil
	}
	epoch, first, last := b.ProducerEpoch(), b.BaseSequence(), b.LastSequence()
	if epoch < p.epoch {
		return nil, fmt.Errorf("producer %d epoch %d, epoch %d has written: %w", p.id, epoch, p.epoch, vtop.ErrStaleProducerEpoch)
	}
	if epoch > p.epoch {
		if first != 0 {
			return nil, fmt.Errorf("producer %d begins epoch %d with sequence %d, want 0: %w", p.id, epoch, first, vtop.ErrOutOfOrderSequence)
		}
		return nil, nil
	}
	for i := p.count - 1; i >= 0; i-- {
		if p.last[i].firstSeq == first && p.last[i].lastSeq == last {
			return &Duplicate{Base: p.last[i].base, Last: p.last[i].last}, nil
		}
	}
	if want := batch.AddSequence(p.last[p.count-1].lastSeq, 1); first != want {
		return nil, fmt.Errorf("producer %d epoch %d sends sequence %d, want %d: %w", p.id, epoch, first, want, vtop.ErrOutOfOrderSequence)
	}
	return nil, nil
}

// add takes over an appended batch, stamped. It never refuses: what is in the log is in the log.
func (t *producerTable) add(b batch.Batch) {
	id := b.ProducerID()
	if id == batch.NoProducer {
		return
	}
	t.ticks++
	t.clock = max(t.clock, b.MaxTimestamp())
	p := t.byID[id]
	if p == nil {
		p = &producer{id: id}
		t.byID[id] = p
	} else {
		t.unlink(p)
	}
	t.pushNewest(p)
	if p.epoch != b.ProducerEpoch() {
		p.epoch, p.count = b.ProducerEpoch(), 0
	}
	if p.count == lastBatches {
		copy(p.last[:], p.last[1:])
		p.count--
	}
	p.last[p.count] = producedBatch{b.BaseSequence(), b.LastSequence(), b.BaseOffset(), b.LastOffset()}
	p.count++
	p.clock, p.ticks = t.clock, t.ticks
	t.evict()
}

func (t *producerTable) evict() {
	for len(t.byID) > t.limit || t.oldest != nil && t.expired(t.oldest) {
		p := t.oldest
		t.unlink(p)
		delete(t.byID, p.id)
	}
}

func (t *producerTable) expired(p *producer) bool {
	return t.clock-p.clock > t.expiryMs && t.ticks-p.ticks >= expiryMinBatches
}

func (t *producerTable) unlink(p *producer) {
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		t.newest = p.older
	}
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		t.oldest = p.newer
	}
	p.newer, p.older = nil, nil
}

func (t *producerTable) pushNewest(p *producer) {
	p.older = t.newest
	if t.newest != nil {
		t.newest.newer = p
	} else {
		t.oldest = p
	}
	t.newest = p
}

// The state, as it stands in snapshots and manifests, oldest producer first:
//
//	8 clock, 8 ticks, 4 count, then for each producer:
//	8 id, 2 epoch, 8 clock, 8 ticks, 1 batches, then for each batch: 4 first sequence, 4 last sequence, 8 base, 8 last
const (
	producerSize = 8 + 2 + 8 + 8 + 1
	producedSize = 4 + 4 + 8 + 8
)

// encode returns the canonical bytes of the state: equal tables give equal bytes.
func (t *producerTable) encode() []byte {
	b := make([]byte, 0, 20+len(t.byID)*(producerSize+2*producedSize))
	b = binary.BigEndian.AppendUint64(b, uint64(t.clock))
	b = binary.BigEndian.AppendUint64(b, t.ticks)
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.byID)))
	for p := t.oldest; p != nil; p = p.newer {
		b = binary.BigEndian.AppendUint64(b, uint64(p.id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.clock))
		b = binary.BigEndian.AppendUint64(b, p.ticks)
		b = append(b, byte(p.count))
		for _, last := range p.last[:p.count] {
			b = binary.BigEndian.AppendUint32(b, uint32(last.firstSeq))
			b = binary.BigEndian.AppendUint32(b, uint32(last.lastSeq))
			b = binary.BigEndian.AppendUint64(b, uint64(last.base))
			b = binary.BigEndian.AppendUint64(b, uint64(last.last))
		}
	}
	return b
}

// decodeProducers reads what encode wrote. Empty bytes are the empty state. It refuses anything that encode does
// not write, so that a state has one form only.
func decodeProducers(opt *Options, data []byte) (*producerTable, error) {
	t := newProducerTable(opt)
	if len(data) == 0 {
		return t, nil
	}
	r := reader{b: data}
	t.clock, t.ticks = int64(r.u64()), r.u64()
	count := int64(r.u32())
	if count*(producerSize+producedSize) > int64(len(r.b)) {
		return nil, fmt.Errorf("producer state: %w: %d producers in %d bytes", vtop.ErrDamaged, count, len(data))
	}
	var ticks uint64
	for range count {
		p := &producer{id: int64(r.u64()), epoch: int16(r.u16()), clock: int64(r.u64()), ticks: r.u64(), count: int(r.u8())}
		if p.count < 1 || p.count > lastBatches || t.byID[p.id] != nil || p.ticks <= ticks || p.ticks > t.ticks || p.clock > t.clock {
			return nil, fmt.Errorf("producer state: %w: producer %d", vtop.ErrDamaged, p.id)
		}
		ticks = p.ticks
		for i := range p.count {
			p.last[i] = producedBatch{int32(r.u32()), int32(r.u32()), vtop.Offset(r.u64()), vtop.Offset(r.u64())}
		}
		t.byID[p.id] = p
		t.pushNewest(p)
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("producer state: %w", err)
	}
	return t, nil
}

// encodeSnapshot frames the state at an offset for the file of producers; decodeSnapshot takes only the one of the
// same range and offset.
func encodeSnapshot(r vtop.Range, at vtop.Offset, state []byte) []byte {
	b := appendRange(nil, r)
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	return encodeSmall(magicProducers, append(b, state...))
}

func decodeSnapshot(data []byte, rng vtop.Range, at vtop.Offset) (state []byte, err error) {
	payload, err := decodeSmall(magicProducers, data)
	if err != nil {
		return nil, err
	}
	r := reader{b: payload}
	if got, offset := r.rng(), vtop.Offset(r.u64()); r.bad || got != rng || offset != at {
		return nil, fmt.Errorf("%w: snapshot of range %s at %d, want %s at %d", vtop.ErrDamaged, got, offset, rng, at)
	}
	return slices.Clone(r.b), nil
}
