package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// BenchmarkGather has a number of busy logs, each with a producer that waits for each sync of its 1 KiB, with gathering and
// without. The two take turns within one run, since a shared disk changes its speed from second to second. Told are the
// median and the 99th percentile of a producer's wait, and flushes a second over all logs.
func BenchmarkGather(b *testing.B) {
	for _, busy := range []int{1, 16, 32, 64, 128, 256} {
		b.Run(fmt.Sprintf("logs=%d", busy), func(b *testing.B) {
			sides := []*gatherSide{newGatherSide(b, "on", busy, 0), newGatherSide(b, "off", busy, -1)}
			for _, side := range sides {
				side.run(b, 100) // files are there, and zeroed ahead
				side.waits, side.took = nil, 0
			}
			for b.Loop() {
				for _, side := range sides {
					side.run(b, 100)
				}
			}
			for _, side := range sides {
				slices.Sort(side.waits)
				ms := func(at int) float64 { return float64(side.waits[at].Microseconds()) / 1000 }
				b.ReportMetric(ms(len(side.waits)/2), side.name+"-p50-ms")
				b.ReportMetric(ms(len(side.waits)*99/100), side.name+"-p99-ms")
				b.ReportMetric(float64(len(side.waits))/side.took.Seconds(), side.name+"-flushes/s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

type gatherSide struct {
	name  string
	logs  []*Log
	waits []time.Duration
	took  time.Duration
}

func newGatherSide(b *testing.B, name string, logs, gather int) *gatherSide {
	b.Helper()
	s, err := Open(vfs.OS(), filepath.Join(b.TempDir(), "data"), Options{Fence: &testFence{}, Reserve: 1, GatherSyncs: gather})
	ok(b, err)
	b.Cleanup(func() { _ = s.Close() })
	side := &gatherSide{name: name}
	for i := range logs {
		l, err := s.Create(testRange(i), vtop.ReplicaID(i+1), 0)
		ok(b, err)
		side.logs = append(side.logs, l)
	}
	return side
}

// run has every log flush n times.
func (g *gatherSide) run(b *testing.B, n int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	data, began := sized(1<<10), time.Now()
	for _, l := range g.logs {
		wg.Go(func() {
			waits := make([]time.Duration, 0, n)
			own := stamped(data, 0, 1)
			for range n {
				began := time.Now()
				if _, _, err := l.AppendLead(1, own); err != nil {
					b.Error(err)
				}
				if err := l.Flush(context.Background()); err != nil {
					b.Error(err)
				}
				waits = append(waits, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			g.waits = append(g.waits, waits...)
		})
	}
	wg.Wait()
	g.took += time.Since(began)
}
