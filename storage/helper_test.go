package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// testFence is a lease view that a test moves by hand. A range without an entry has a lease of any epoch.
type testFence struct {
	mu     sync.RWMutex
	leases map[vtop.Range]vtop.Epoch
}

func (f *testFence) Hold(r vtop.Range, e vtop.Epoch, mode vtop.FenceMode, fn func() error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if have, ok := f.leases[r]; ok && have != e {
		return &vtop.FencedError{Range: r, Claimed: e, Applied: vtop.Lease{Range: r, Epoch: have}, Reason: "lease moved"}
	}
	return fn()
}

func (f *testFence) set(r vtop.Range, e vtop.Epoch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leases == nil {
		f.leases = map[vtop.Range]vtop.Epoch{}
	}
	f.leases[r] = e
}

const testDir = "/data"

func testRange(i int) vtop.Range { return vtop.Range{Topic: vtop.UUID{1, 2, 3}, Index: int32(i)} }

// testOptions are small bounds, so that a test reaches them.
func testOptions() Options {
	return Options{
		Fence: &testFence{}, SegmentBytes: 4 << 10, MaxBatchBytes: 1 << 20, IndexBytes: 512, Reserve: 1 << 20,
		TickInterval: -1, ZeroStepBytes: 64 << 10, LogBufferBytes: 1 << 20, StoreBufferBytes: 4 << 20, OpenFiles: 4,
	}
}

// openStore opens a store on fsys and closes it with the test.
func openStore(t testing.TB, fsys vfs.FS, change ...func(*Options)) *Store {
	t.Helper()
	s, err := tryOpen(fsys, change...)
	ok(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func tryOpen(fsys vfs.FS, change ...func(*Options)) (*Store, error) {
	opt := testOptions()
	for _, c := range change {
		c(&opt)
	}
	s, err := Open(fsys, testDir, opt)
	if err == nil && opt.GatherSyncs > 0 {
		s.openGatherNow()
	}
	return s, err
}

// newLogOn opens a store with one empty replica.
func newLogOn(t testing.TB, fsys vfs.FS, change ...func(*Options)) (*Store, *Log) {
	t.Helper()
	s := openStore(t, fsys, change...)
	l, err := s.Create(testRange(0), 1, 0)
	ok(t, err)
	return s, l
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

// records makes a batch of n records of about size bytes each.
func records(n, size int, seed uint64) batch.Spec {
	rng := rand.New(rand.NewPCG(seed, 3))
	spec := batch.Spec{Epoch: 1}
	for i := range n {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(rng.UintN(256))
		}
		spec.Records = append(spec.Records, batch.Record{Timestamp: int64(1000*seed) + int64(i), Value: value})
	}
	return spec
}

func plainBatch(n, size int, seed uint64) batch.Batch { return batch.Build(records(n, size, seed)) }

func producerBatch(id int64, epoch int16, seq int32, n int) batch.Batch {
	spec := records(n, 20, uint64(seq)+1)
	spec.Producer = &batch.Producer{ID: id, Epoch: epoch, Sequence: seq}
	return batch.Build(spec)
}

// stamped is a batch as a leader of the epoch would send it.
func stamped(b batch.Batch, base vtop.Offset, e vtop.Epoch) batch.Batch {
	b = bytes.Clone(b)
	b.Stamp(base, e)
	return b
}

func mustLead(t testing.TB, l *Log, e vtop.Epoch, b batch.Batch) vtop.Offset {
	t.Helper()
	base, dup, err := l.AppendLead(e, b)
	ok(t, err)
	if dup != nil {
		t.Fatalf("append: duplicate of %d to %d", dup.Base, dup.Last)
	}
	return base
}

func mustFlush(t testing.TB, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ok(t, l.Flush(ctx))
}

// readAll reads a log from an offset to a limit as a peer does.
func readAll(l *Log, from, limit vtop.Offset) ([]byte, error) {
	var out []byte
	for from < limit {
		got, next, _, err := l.ReadPeer(from, 1000, limit, nil)
		if err != nil {
			return out, err
		}
		if len(got) == 0 {
			return out, fmt.Errorf("no batches at %d of %d", from, limit)
		}
		out = append(out, got...)
		from = next
	}
	return out, nil
}

func mustRead(t testing.TB, l *Log, from, limit vtop.Offset) []byte {
	t.Helper()
	out, err := readAll(l, from, limit)
	ok(t, err)
	return out
}

// checkLog holds a log to its own invariants.
func checkLog(t testing.TB, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkLocked(); err != nil {
		t.Fatalf("%s: %v", l.rng, err)
	}
}

// checkLocked returns what is wrong with the state of a log.
func (l *Log) checkLocked() error {
	if l.state == StateLost || l.shut {
		return nil
	}
	if len(l.segs) == 0 || l.tailLocked().state != SegmentTail {
		return errors.New("no tail")
	}
	base := l.segs[0].base
	if base > l.start || l.start > l.end || l.durable > l.end || l.durable < base {
		return fmt.Errorf("base %d, start %d, durable %d, end %d", base, l.start, l.durable, l.end)
	}
	at, bytes := base, int64(0)
	for i, s := range l.segs {
		if s.base != at || s.end < s.base || (s.state == SegmentTail) != (i == len(l.segs)-1) {
			return fmt.Errorf("segment %d to %d, %s, at %d", s.base, s.end, s.state, at)
		}
		at, bytes = s.end, bytes+s.size
	}
	if at != l.end || bytes != l.bytes {
		return fmt.Errorf("segments end at %d with %d bytes, the log at %d with %d", at, bytes, l.end, l.bytes)
	}
	var buffered int64
	next := l.durable
	for _, c := range l.chunks {
		if c.base != next {
			return fmt.Errorf("chunk at %d, want %d", c.base, next)
		}
		next, buffered = c.end, buffered+int64(len(c.data))
	}
	if buffered != l.buffered || l.state != StateFailed && next != l.end {
		return fmt.Errorf("%d bytes buffered up to %d, want %d up to %d", buffered, next, l.buffered, l.end)
	}
	for i, run := range l.runs {
		if run.Start >= l.end || i > 0 && (run.Start <= l.runs[i-1].Start || run.Epoch <= l.runs[i-1].Epoch) {
			return fmt.Errorf("runs %v of a log that ends at %d", l.runs, l.end)
		}
	}
	if len(l.runs) == 0 && l.end > base || len(l.runs) > 0 && l.runs[0].Start != base && l.segs[0].hole == "" {
		return fmt.Errorf("runs %v of a log from %d to %d", l.runs, base, l.end)
	}
	return nil
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

func asErr[T error](err error, target *T) bool { return errors.As(err, target) }

func testTime() time.Time { return time.UnixMilli(1e12) }
