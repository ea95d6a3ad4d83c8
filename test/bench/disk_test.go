//go:build cluster

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// diskFigures are what the disk under the data does by itself.
type diskFigures struct {
	p50, p99   time.Duration // 4 KiB and fdatasync into a file that was written before
	sequential float64       // MB/s of 1 MiB writes into such a file, one fdatasync at the end
}

func (d diskFigures) String() string {
	return fmt.Sprintf("disk alone: 4 KiB + fdatasync into a zeroed file p50 %.3f ms, p99 %.3f ms; sequential writes %.0f MB/s",
		d.p50.Seconds()*1e3, d.p99.Seconds()*1e3, d.sequential)
}

// measureDisk writes beside where the nodes have their data.
func measureDisk(tb testing.TB) diskFigures {
	tb.Helper()
	const size, block, syncs = 256 << 20, 4 << 10, 2000
	dir, err := os.MkdirTemp("", "vtop-disk-figures-")
	if err != nil {
		tb.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	fill := func(value byte) float64 {
		mib := make([]byte, 1<<20)
		for i := range mib {
			mib[i] = value
		}
		started := time.Now()
		for at := int64(0); at < size; at += int64(len(mib)) {
			if _, err := f.WriteAt(mib, at); err != nil {
				tb.Fatal(err)
			}
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			tb.Fatal(err)
		}
		return size / 1e6 / time.Since(started).Seconds()
	}
	fill(0)
	out := diskFigures{sequential: fill(1)}
	times := make([]time.Duration, 0, syncs)
	for i := range syncs {
		started := time.Now()
		if _, err := f.WriteAt(make([]byte, block), int64(i*block)); err != nil {
			tb.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			tb.Fatal(err)
		}
		times = append(times, time.Since(started))
	}
	out.p50, out.p99 = quantiles(times)
	return out
}

func quantiles(times []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}
