package transport

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/vtop-log/vtop/transport/peerpb"
)

func bothBench(b *testing.B, bench func(b *testing.B, w *world)) {
	for _, secure := range []bool{false, true} {
		b.Run(map[bool]string{false: "plaintext", true: "tls"}[secure], func(b *testing.B) { bench(b, newWorld(b, secure)) })
	}
}

// BenchmarkStream_Append is one direction, one flush per frame: what a leader sends.
func BenchmarkStream_Append(b *testing.B) {
	bothBench(b, func(b *testing.B, w *world) {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
				done := make(chan int)
				s, _, _ := pair(b, w, Replication, func(_ context.Context, s *Stream) {
					n := 0
					for {
						f, err := s.Recv()
						if err != nil {
							done <- n
							return
						}
						n++
						f.Release()
					}
				})
				batches := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := s.SendAppend(Append{Epoch: 1}, batches); err != nil {
						b.Fatal(err)
					}
					if err := s.Flush(); err != nil {
						b.Fatal(err)
					}
				}
				must(b, s.End(nil))
				<-done
				must(b, s.Close())
			})
		}
	})
}

// BenchmarkStream_RoundTrip is an append and its acknowledgement, one at a time.
func BenchmarkStream_RoundTrip(b *testing.B) {
	bothBench(b, func(b *testing.B, w *world) {
		s, _, _ := pair(b, w, Replication, func(_ context.Context, s *Stream) {
			acks := []Ack{{Epoch: 1}}
			for {
				f, err := s.Recv()
				if err == io.EOF || err != nil {
					return
				}
				f.Release()
				if s.SendAcks(acks) != nil || s.Flush() != nil {
					return
				}
			}
		})
		batches := make([]byte, 1<<10)
		b.ReportAllocs()
		for b.Loop() {
			must(b, s.SendAppend(Append{Epoch: 1}, batches))
			must(b, s.Flush())
			f, err := s.Recv()
			must(b, err)
			f.Release()
		}
		must(b, s.Close())
	})
}

func BenchmarkCall(b *testing.B) {
	bothBench(b, func(b *testing.B, w *world) {
		x, y := w.node("x", clusterA), w.node("y", clusterA)
		y.SetHandler(&echo{})
		req := &peerpb.ProposeRequest{Command: make([]byte, 100)}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := x.client.Propose(context.Background(), y.target(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
}
