package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage/vfs"
)

// openBench opens a store with default options on a real disk.
func openBench(b testing.TB, ranges int) (*Store, []*Log) {
	b.Helper()
	s, err := Open(vfs.OS(), filepath.Join(b.TempDir(), "data"), Options{Fence: &testFence{}, Reserve: 1})
	ok(b, err)
	b.Cleanup(func() { _ = s.Close() })
	var logs []*Log
	for i := range ranges {
		l, err := s.Create(testRange(i), vtop.ReplicaID(i+1), 0)
		ok(b, err)
		logs = append(logs, l)
	}
	return s, logs
}

// One producer that waits for each sync.
func BenchmarkAppend_Synchronous(b *testing.B) {
	for _, size := range []int{1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			_, logs := openBench(b, 1)
			data := sized(size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			for b.Loop() {
				_, _, err := logs[0].AppendLead(1, data)
				ok(b, err)
				ok(b, logs[0].Flush(context.Background()))
			}
		})
	}
}

// Many batches in flight: one sync serves all that arrived.
func BenchmarkAppend_GroupCommit(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		for _, ranges := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/ranges=%d", sizeName(size), ranges), func(b *testing.B) {
				_, logs := openBench(b, ranges)
				data := sized(size)
				inFlight := make([]vtop.Offset, ranges)
				b.SetBytes(int64(size))
				i := 0
				for b.Loop() {
					l := logs[i%ranges]
					for {
						base, _, err := l.AppendLead(1, data)
						if err == nil {
							inFlight[i%ranges] = base
							break
						}
						ok(b, l.Flush(context.Background()))
					}
					if i++; i%64 == 0 && size < 64<<10 {
						ok(b, l.Flush(context.Background()))
					}
				}
				for _, l := range logs {
					ok(b, l.Flush(context.Background()))
				}
			})
		}
	}
}

// A consumer that reads through a log in steps of 1 MiB.
func BenchmarkRead(b *testing.B) {
	_, logs := openBench(b, 1)
	l := logs[0]
	data := sized(16 << 10)
	for range 8 << 10 {
		for {
			if _, _, err := l.AppendLead(1, data); err == nil {
				break
			}
			ok(b, l.Flush(context.Background()))
		}
	}
	ok(b, l.Flush(context.Background()))
	var buf []byte
	from, end := vtop.Offset(0), l.End()
	b.ReportAllocs()
	b.SetBytes(1 << 20)
	for b.Loop() {
		if from >= end {
			from = 0
		}
		got, next, _, err := l.Read(from, 1<<20, end, buf)
		ok(b, err)
		from, buf = next, got
	}
}

// What an append costs without the disk.
func BenchmarkAppend_MemoryOnly(b *testing.B) {
	_, l := newLogOn(b, vfs.NewCrashFS(1), func(o *Options) {
		o.SegmentBytes, o.LogBufferBytes, o.StoreBufferBytes, o.ZeroStepBytes = 1<<30, 1<<40, 1<<40, -1
	})
	data := sized(1 << 10)
	b.ReportAllocs()
	b.SetBytes(1 << 10)
	for b.Loop() {
		if _, _, err := l.AppendLead(1, data); err != nil {
			b.Fatal(err)
		}
	}
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}

func sized(n int) batch.Batch { return plainBatch(1, n-80, 1) }

// An append allocates nothing of its own: chunks come from a pool, and index and flusher cost a share of a batch.
func TestAppendLead_AllocatesNothing(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys, func(o *Options) { o.SegmentBytes, o.IndexBytes = 1<<30, 1<<20 })
	gate := vfs.NewGate(vfs.On(vfs.OpSyncData, "*.log"))
	fsys.SetHook(gate.Hook)
	defer gate.Open()
	small := producerBatch(1, 0, 0, 3)
	mustLead(t, l, 1, small)
	<-gate.Arrived() // the flusher stands still: only the append is measured
	plain := plainBatch(3, 20, 1)
	if n := testing.AllocsPerRun(1000, func() { _, _, _ = l.AppendLead(1, plain) }); n >= 1 {
		t.Fatalf("%v allocations for each batch", n)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _, _ = l.AppendLead(1, small) }); n > 1 {
		t.Fatalf("%v allocations for each duplicate", n)
	}
}
