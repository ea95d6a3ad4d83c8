package vfs

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkGather compares the ways to make many busy tails durable at once: a SyncData of each, at the same time; a WriteOut
// of each and one SyncFS for all; and that SyncFS alone, which tells less. Each round writes 4 KiB into every file; the
// files were written before. The ways take turns within one run, since a shared disk changes its speed from second to
// second, and the medians of their rounds are told. "dirty" has another file of the same file system take 4 MiB a round that
// nobody waits for, as a transfer does: SyncFS writes that too.
func BenchmarkGather(b *testing.B) {
	for _, files := range []int{1, 4, 16, 32, 64, 128, 256} {
		for _, dirty := range []bool{false, true} {
			b.Run(fmt.Sprintf("files=%d/dirty=%v", files, dirty), func(b *testing.B) { gather(b, files, dirty) })
		}
	}
}

const gatherSize = 1 << 20

func gather(b *testing.B, count int, dirty bool) {
	dir := b.TempDir()
	all, err := OS().SyncFS(dir)
	if err != nil {
		b.Skip(err)
	}
	defer all.Close()
	files := make([]File, count)
	for i := range files {
		files[i] = writtenFile(b, filepath.Join(dir, fmt.Sprint(i)), make([]byte, gatherSize))
	}
	other, bulk := writtenFile(b, filepath.Join(dir, "other"), make([]byte, 64<<20)), make([]byte, 4<<20)
	ways := []struct {
		name   string
		each   func(File) error
		syncFS bool
	}{
		{"syncdata", File.SyncData, false},
		{"writeout+syncfs", File.WriteOut, true},
		{"syncfs", func(File) error { return nil }, true},
	}
	took := make([][]time.Duration, len(ways))
	round := int64(0)
	for b.Loop() {
		for i, way := range ways {
			round++
			if dirty {
				put(b, other, bulk, round*int64(len(bulk))%(64<<20))
			}
			began := time.Now()
			var wg sync.WaitGroup
			for _, f := range files {
				wg.Go(func() {
					put(b, f, bulk[:4<<10], round<<12%gatherSize)
					if err := way.each(f); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			if way.syncFS {
				if err := all.Sync(); err != nil {
					b.Fatal(err)
				}
			}
			took[i] = append(took[i], time.Since(began))
			if err := all.Sync(); err != nil { // nothing is left for the next way to pay
				b.Fatal(err)
			}
		}
	}
	for i, way := range ways {
		b.ReportMetric(median(took[i]), way.name+"-p50-ms")
	}
}

// BenchmarkSync_ZeroedOrRecycled compares a 4 KiB write and its sync in a file of zeros with the same in a file that
// holds old bytes, and with a file that grows.
func BenchmarkSync_ZeroedOrRecycled(b *testing.B) {
	dir := b.TempDir()
	old := make([]byte, 4<<20)
	for i := range old {
		old[i] = byte(i*i>>8 | 1)
	}
	names := []string{"zeroed", "recycled", "growing"}
	files := []File{
		writtenFile(b, filepath.Join(dir, names[0]), make([]byte, len(old))),
		writtenFile(b, filepath.Join(dir, names[1]), old),
		writtenFile(b, filepath.Join(dir, names[2]), nil),
	}
	took := make([][]time.Duration, len(files))
	for at := int64(0); b.Loop(); at += 4 << 10 {
		for i, f := range files {
			began := time.Now()
			if i == 2 {
				put(b, f, old[:4<<10], at)
			} else {
				put(b, f, old[:4<<10], at%int64(len(old)))
			}
			if err := f.SyncData(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, name := range names {
		b.ReportMetric(median(took[i]), name+"-p50-ms")
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

func put(b *testing.B, f File, data []byte, at int64) {
	if _, err := f.WriteAt(data, at); err != nil {
		b.Error(err)
	}
}

func writtenFile(b *testing.B, name string, data []byte) File {
	b.Helper()
	f, err := OS().Create(name)
	if err == nil {
		b.Cleanup(func() { _ = f.Close() })
		put(b, f, data, 0)
		err = f.Sync()
	}
	if err != nil {
		b.Fatal(err)
	}
	return f
}
