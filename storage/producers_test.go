package storage

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"pgregory.net/rapid"
)

// slowProducers remembers every batch and looks through all of them for each question.
type slowProducers struct {
	opt *Options
	log []batch.Batch
}

// known returns the batches of a producer's present epoch, oldest first; none if it was forgotten.
func (s *slowProducers) known(id int64) (out []batch.Batch) {
	var order []int64
	var clock int64
	clocks, ticks := map[int64]int64{}, map[int64]int{}
	batches := map[int64][]batch.Batch{}
	for i, b := range s.log {
		p := b.ProducerID()
		clock = max(clock, b.MaxTimestamp())
		order = append(slices.DeleteFunc(order, func(o int64) bool { return o == p }), p)
		clocks[p], ticks[p] = clock, i
		if old := batches[p]; len(old) > 0 && old[0].ProducerEpoch() != b.ProducerEpoch() {
			batches[p] = nil
		}
		batches[p] = append(batches[p], b)
		for len(order) > s.opt.MaxProducers || clock-clocks[order[0]] > s.opt.ProducerExpiry.Milliseconds() && i-ticks[order[0]] >= expiryMinBatches {
			delete(batches, order[0])
			order = order[1:]
		}
	}
	return batches[id]
}

// The table answers as its slow twin does, and is the same after it was encoded and decoded (D1, D4).
func TestProducers_AgainstSlowTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opt := &Options{MaxProducers: 3, ProducerExpiry: time.Second}
		table, twin := newProducerTable(opt), &slowProducers{opt: opt}
		end := vtop.Offset(0)
		for range rapid.IntRange(1, 60).Draw(rt, "batches") {
			id := rapid.Int64Range(0, 5).Draw(rt, "producer")
			epoch := int16(rapid.IntRange(0, 2).Draw(rt, "epoch"))
			seq := int32(rapid.IntRange(0, 3).Draw(rt, "sequence"))
			b := producerBatch(id, epoch, seq, rapid.IntRange(1, 2).Draw(rt, "records"))
			known := twin.known(id)
			dup, err := table.check(b)
			checkAnswer(rt, known, b, dup, err)
			b.Stamp(end, 1)
			end = b.LastOffset() + 1
			table.add(b)
			twin.log = append(twin.log, b)
			again, err := decodeProducers(opt, table.encode())
			if err != nil || !bytes.Equal(again.encode(), table.encode()) {
				rt.Fatalf("decode: %v", err)
			}
			if rapid.Bool().Draw(rt, "reload") {
				table = again
			}
		}
	})
}

func checkAnswer(rt *rapid.T, known []batch.Batch, b batch.Batch, dup *Duplicate, err error) {
	switch {
	case len(known) == 0:
		if dup != nil || err != nil {
			rt.Fatalf("an unknown producer is answered %v, %v", dup, err)
		}
		return
	case b.ProducerEpoch() < known[0].ProducerEpoch(), b.ProducerEpoch() > known[0].ProducerEpoch() && b.BaseSequence() != 0:
		if err == nil {
			rt.Fatalf("epoch %d after %d at sequence %d is taken", b.ProducerEpoch(), known[0].ProducerEpoch(), b.BaseSequence())
		}
		return
	case b.ProducerEpoch() > known[0].ProducerEpoch():
		if dup != nil || err != nil {
			rt.Fatalf("a new epoch is answered %v, %v", dup, err)
		}
		return
	}
	if len(known) > lastBatches {
		known = known[len(known)-lastBatches:]
	}
	for i := len(known) - 1; i >= 0; i-- {
		if k := known[i]; k.BaseSequence() == b.BaseSequence() && k.LastSequence() == b.LastSequence() {
			if dup == nil || dup.Base != k.BaseOffset() || dup.Last != k.LastOffset() {
				rt.Fatalf("duplicate %+v, want %d to %d", dup, k.BaseOffset(), k.LastOffset())
			}
			return
		}
	}
	follows := b.BaseSequence() == batch.AddSequence(known[len(known)-1].LastSequence(), 1)
	if dup != nil || (err == nil) != follows {
		rt.Fatalf("sequence %d is answered %v, %v; follows: %v", b.BaseSequence(), dup, err, follows)
	}
}

// A clock that is years ahead does not make the range forget producers whose retries are in flight (F5); a producer
// that was idle for long, by log and by batch time, is forgotten, and nobody else.
func TestProducers_Expiry(t *testing.T) {
	opt := &Options{MaxProducers: 100, ProducerExpiry: time.Hour}
	table := newProducerTable(opt)
	add := func(id int64, seq int32, at int64) {
		b := batch.Build(batch.Spec{Records: []batch.Record{{Timestamp: at}}, Producer: &batch.Producer{ID: id, Sequence: seq}})
		table.add(b)
	}
	add(1, 0, 1000)
	add(2, 0, 1<<50)
	if table.byID[1] == nil {
		t.Fatal("forgotten at once after a jump of the clock")
	}
	for i := range int32(expiryMinBatches) {
		add(2, 1+i, 2000)
	}
	if table.byID[1] != nil || table.byID[2] == nil {
		t.Fatalf("idle producer known: %v, busy one: %v", table.byID[1] != nil, table.byID[2] != nil)
	}
	for i := range int32(2 * expiryMinBatches) {
		add(3, i, 3000)
	}
	if table.byID[2] == nil {
		t.Fatal("forgotten although the clock of the log did not move")
	}
}
