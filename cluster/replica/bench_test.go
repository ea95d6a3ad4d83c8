package replica

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// BenchmarkEngine_Synchronous is one producer with one 1 KiB batch in flight, three replicas on one disk; beside it the disk's
// own write and fdatasync, to compare with.
func BenchmarkEngine_Synchronous(b *testing.B) {
	c := newCluster(b, 3, 1)
	r := c.r(0)
	c.lead("a", r)
	a := c.nodes["a"]
	value := strings.Repeat("x", 1024)
	a.mustProduce(r, value)
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		a.mustProduce(r, value)
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	disk := fdatasync(b, 200)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(disk.Microseconds()), "disk-p50-µs")
	b.ReportMetric(float64(took[len(took)/2])/float64(disk), "times-disk")
}

// fdatasync measures the disk alone: the median of 4 KiB writes into a file that was written before, each synced.
func fdatasync(b *testing.B, n int) time.Duration {
	f, err := vfs.OS().Create(filepath.Join(b.TempDir(), "probe"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	for i := range n {
		if _, err := f.WriteAt(page, int64(i)*4096); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i)*4096); err != nil {
			b.Fatal(err)
		}
		if err := f.SyncData(); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2]
}

// BenchmarkEngine_Pipelined keeps 64 batches of 16 KiB in flight on each of some ranges.
func BenchmarkEngine_Pipelined(b *testing.B) {
	const ranges, window = 4, 16
	c := newCluster(b, 3, ranges)
	for i := range ranges {
		c.lead("a", c.r(i))
	}
	a := c.nodes["a"]
	value := strings.Repeat("x", 16<<10)
	b.SetBytes(int64(len(value)))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range ranges {
		wg.Go(func() {
			room := make(chan struct{}, window)
			for range b.N / ranges {
				room <- struct{}{}
				a.engine.Append(b.Context(), c.r(i), vtop.AnyEpoch, plain(value), -1, func(res vtop.AppendResult) {
					if res.Err != nil {
						b.Error(res.Err)
					}
					<-room
				})
			}
			for range window {
				room <- struct{}{}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}
