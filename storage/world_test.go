package storage

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// world runs random operations on a store and on twins of its replicas.
type world struct {
	t    testing.TB
	fs   *vfs.CrashFS
	rng  *rand.Rand
	s    *Store
	opts []func(*Options)

	// mu guards the twins: a hook copies them from the goroutines of the flushers.
	mu          sync.Mutex
	twins       map[vtop.Range]*twin
	incarnation vtop.Incarnation
	storage     vtop.StorageID
	nextID      vtop.ReplicaID
	// step names the operation that runs.
	step string
}

func newWorld(t testing.TB, fsys *vfs.CrashFS, seed uint64, opts ...func(*Options)) *world {
	w := &world{t: t, fs: fsys, rng: newRand(seed), opts: opts, twins: map[vtop.Range]*twin{}}
	return w
}

// update changes the twins under the lock.
func (w *world) update(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

func (w *world) open() {
	s, err := tryOpen(w.fs, w.opts...)
	ok(w.t, err)
	w.s = s
	w.update(func() { w.incarnation, w.storage = s.Identity().Incarnation, s.Identity().Storage })
}

func (w *world) pick() (vtop.Range, *twin, *Log) {
	r := testRange(w.rng.IntN(2))
	tw := w.twins[r]
	if tw == nil || tw.gone {
		w.create(r)
		tw = w.twins[r]
	}
	return r, tw, w.s.Get(r)
}

func (w *world) create(r vtop.Range) {
	w.step = "create"
	w.nextID++
	tw := &twin{id: w.nextID, sealed: map[vtop.Offset][32]byte{}, epoch: 1}
	w.update(func() { w.twins[r] = tw; tw.gone = true })
	_, err := w.s.Create(r, tw.id, 0)
	ok(w.t, err)
	w.update(func() { tw.created, tw.gone = true, false })
}

// randomBatch is small mostly; some are larger than a chunk or a segment.
func (w *world) randomBatch() batch.Batch {
	size := []int{5, 30, 200, 900, 6000}[w.rng.IntN(5)]
	spec := records(1+w.rng.IntN(3), size, w.rng.Uint64N(1000))
	if w.rng.IntN(2) == 0 {
		spec.Producer = &batch.Producer{ID: int64(w.rng.IntN(3)), Sequence: int32(w.rng.IntN(100))}
	}
	return batch.Build(spec)
}

// do runs one random operation.
func (w *world) do() {
	r, tw, l := w.pick()
	switch op := w.rng.IntN(26); {
	case op < 8:
		w.appendLead(tw, l)
	case op < 11:
		w.appendFollow(tw, l)
	case op < 15:
		w.flush(tw, l)
	case op < 16:
		if w.rng.IntN(3) == 0 {
			w.burst(tw, l)
			return
		}
		w.step = "tick"
		ok(w.t, w.s.Tick())
	case op < 17:
		w.step = "roll"
		_, err := l.Roll(tw.epoch, testTime(), 0)
		ok(w.t, err)
	case op < 19:
		w.seal(tw, l)
	case op < 20:
		w.promise(r, tw)
	case op < 22:
		w.cut(tw, l)
	case op < 23:
		w.logStart(tw, l)
	case op < 24:
		w.reset(tw, l)
	case op < 25:
		if w.rng.IntN(3) == 0 {
			w.remove(r, tw)
		}
	default:
		w.restart()
	}
}

func (w *world) appendLead(tw *twin, l *Log) {
	w.step = "lead"
	b := w.randomBatch()
	w.update(func() { tw.log = append(tw.log, stamped(b, tw.end(), tw.epoch)) })
	base, dup, err := l.AppendLead(tw.epoch, b)
	if dup != nil || errors.Is(err, vtop.ErrOutOfOrderSequence) {
		w.update(func() { tw.log = tw.log[:len(tw.log)-1] })
		return
	}
	ok(w.t, err)
	if last := tw.log[len(tw.log)-1]; base != last.BaseOffset() {
		w.t.Fatalf("I2: offset %d given out, want %d", base, last.BaseOffset())
	}
}

func (w *world) appendFollow(tw *twin, l *Log) {
	w.step = "follow"
	segs := l.Segments()
	segment := segs[len(segs)-1].Base
	if n := len(segs); n > 1 && segs[n-1].Bytes == 0 && segs[n-2].State == SegmentClosed && w.rng.IntN(2) == 0 {
		w.flush(tw, l)
		ok(w.t, l.takeAlone(context.Background())) // the flusher has finished the closed segment
		l.leaveAlone()
		w.step, segment = "follow undone roll", segs[n-2].Base
	} else if w.rng.IntN(3) == 0 {
		segment = tw.end()
	}
	var sent []byte
	w.update(func() {
		for range 1 + w.rng.IntN(3) {
			b := stamped(w.randomBatch(), tw.end(), tw.epoch)
			tw.log = append(tw.log, b)
			sent = append(sent, b...)
		}
	})
	end, err := l.AppendFollow(tw.epoch, vtop.FenceFollow, segment, sent)
	ok(w.t, err)
	if end != tw.end() {
		w.t.Fatalf("follower ends at %d, want %d", end, tw.end())
	}
}

func (w *world) flush(tw *twin, l *Log) {
	w.step = "flush"
	mustFlush(w.t, l)
	w.update(func() { tw.durable = tw.end() })
}

// burst is enough small flushes that the tail is zeroed ahead, and then one that ends it.
func (w *world) burst(tw *twin, l *Log) {
	for range 2 * zeroAfterFlushes {
		w.appendLead(tw, l)
		w.flush(tw, l)
	}
	w.step = "roll"
	_, err := l.Roll(tw.epoch, testTime(), 0)
	ok(w.t, err)
}

func (w *world) seal(tw *twin, l *Log) {
	w.step = "seal"
	closed := l.Closed()
	if len(closed) == 0 {
		return
	}
	root, _, err := l.Root(closed[0].Base)
	ok(w.t, err)
	ok(w.t, l.Seal(closed[0].Base, root))
	w.update(func() { tw.sealed[closed[0].Base] = root })
}

func (w *world) promise(r vtop.Range, tw *twin) {
	w.step = "promise"
	w.update(func() { tw.epoch++; tw.promiseToCome = tw.epoch })
	for _, err := range w.s.Promise([]Promise{{r, tw.id, tw.epoch}}) {
		ok(w.t, err)
	}
	w.update(func() { tw.promised = tw.epoch })
}

// cut begins a new epoch somewhere above what is sealed.
func (w *world) cut(tw *twin, l *Log) {
	w.step = "cut"
	lowest := tw.from
	for _, seg := range l.Segments() {
		if seg.State == SegmentSealed {
			lowest = seg.End
		}
	}
	lowest = max(lowest, l.Start())
	at := tw.end()
	if n := len(tw.log); n > 0 {
		at = tw.log[n-1-w.rng.IntN(min(n, 12))].BaseOffset()
	}
	if at < lowest {
		return
	}
	var table vtop.EpochTable
	for _, run := range tw.runsBetween(tw.from, at) {
		table = append(table, vtop.EpochStart(run))
	}
	w.update(func() { tw.epoch++; tw.durable = min(tw.durable, at) })
	table = append(table, vtop.EpochStart{Epoch: tw.epoch, Start: at})
	want := at < tw.end()
	cut, err := l.Reconcile(context.Background(), tw.epoch, table, lowest)
	ok(w.t, err)
	if cut.Done != want || want && cut.From != at {
		w.t.Fatalf("cut %+v, want at %d of %d", cut, at, tw.end())
	}
	w.update(func() {
		for len(tw.log) > 0 && tw.log[len(tw.log)-1].BaseOffset() >= at {
			tw.log = tw.log[:len(tw.log)-1]
		}
	})
}

func (w *world) logStart(tw *twin, l *Log) {
	w.step = "log start"
	span := int64(tw.durable - l.Start())
	if span <= 0 {
		return
	}
	start := l.Start() + vtop.Offset(w.rng.Int64N(span+1))
	w.update(func() { tw.base = max(tw.base, start) })
	ok(w.t, l.SetLogStart(start))
}

func (w *world) reset(tw *twin, l *Log) {
	w.step = "reset"
	base := tw.end() + 1 + vtop.Offset(w.rng.IntN(5))
	table := newProducerTable(&w.s.opt)
	for range w.rng.IntN(3) {
		table.add(stamped(producerBatch(int64(w.rng.IntN(3)), 0, 5, 1), base-1, 1))
	}
	w.update(func() { tw.resetting = base })
	ok(w.t, l.ResetTo(context.Background(), tw.epoch, base, table.encode()))
	w.update(func() {
		tw.log, tw.from, tw.base, tw.durable, tw.state, tw.resetting = nil, base, base, base, table.encode(), 0
		clear(tw.sealed)
	})
}

func (w *world) remove(r vtop.Range, tw *twin) {
	w.step = "remove"
	w.update(func() { tw.gone = true })
	if w.rng.IntN(2) == 0 {
		ok(w.t, w.s.Delete(r))
	} else {
		ok(w.t, w.s.SetAside(r, "test"))
	}
	w.update(func() { tw.removed = true })
}

func (w *world) restart() {
	w.step = "close"
	ok(w.t, w.s.Close())
	w.update(func() {
		for _, tw := range w.twins {
			if !tw.gone {
				tw.durable = tw.end()
			}
		}
	})
	w.step = "open"
	w.open()
	for r, tw := range w.twins {
		ok(w.t, tw.check(w.s, r))
	}
}
