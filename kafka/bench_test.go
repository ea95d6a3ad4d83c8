package kafka

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// sinkNode acknowledges at once and keeps nothing: what is left is the cost of the client face.
type sinkNode struct {
	*fakeNode
	data batch.Batch
}

func (n *sinkNode) Append(_ context.Context, _ vtop.Range, _ vtop.Epoch, _ batch.Batch, _ int16, done func(vtop.AppendResult)) {
	done(vtop.AppendResult{Base: 1})
}

func (n *sinkNode) Fetch(_ vtop.Range, _ vtop.FetchSpec, dst []byte) (vtop.FetchResult, error) {
	return vtop.FetchResult{Dst: append(dst, n.data...), HighWatermark: 10}, nil
}

// wire is a connection that repeats one frame count times.
type wire struct {
	nullConn
	written int
}

func (w *wire) Write(b []byte) (int, error) { w.written += len(b); return len(b), nil }

type repeat struct {
	frame []byte
	at    int
	left  int
}

func (r *repeat) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.frame[r.at:])
	if r.at += n; r.at == len(r.frame) {
		r.at = 0
		r.left--
	}
	return n, nil
}

func sinkServer(tb testing.TB, ranges int32, data batch.Batch) *Server {
	c := newFakeCluster(tb, 1, nil)
	c.topic("t", ranges)
	s := c.nodes[0].server
	s.node = &sinkNode{c.nodes[0], data}
	return s
}

// sinkTopic is the id of a sinkServer's topic.
func sinkTopic(s *Server) vtop.TopicID {
	t, _ := s.node.State().TopicByName("t")
	return t.ID
}

// manyRanges is a Produce to the first ranges of t, or, from v13 on, of the topic with the id.
func manyRanges(version int16, id vtop.TopicID, ranges int, records []byte) *kmsg.ProduceRequest {
	req := produceRequest(version, -1, "t", 0, records)
	req.Topics[0].TopicID = id
	for i := 1; i < ranges; i++ {
		p := req.Topics[0].Partitions[0]
		p.Partition = int32(i)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	return req
}

func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		for _, ranges := range []int{1, 16} {
			b.Run(fmt.Sprintf("%dKiB_x%d", size>>10, ranges), func(b *testing.B) {
				s := sinkServer(b, int32(ranges), nil)
				frame := encodeRequest(manyRanges(13, sinkTopic(s), ranges, batch.Build(batch.Spec{Records: []batch.Record{{Value: bytes.Repeat([]byte("x"), size-100)}}})), 1)
				b.SetBytes(int64(len(frame)))
				b.ReportAllocs()
				b.ResetTimer()
				newConn(s, &wire{nullConn: nullConn{&repeat{frame: frame, left: b.N}}}, "bench").serve()
			})
		}
	}
}

func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := sinkServer(b, 1, batch.Build(batch.Spec{Records: []batch.Record{{Value: make([]byte, size)}}}))
			frame := encodeRequest(fetchByID(17, sinkTopic(s), 0, 0), 1)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			newConn(s, &wire{nullConn: nullConn{&repeat{frame: frame, left: b.N}}}, "bench").serve()
		})
	}
}

// quietNode has records in the first range only.
type quietNode struct{ *sinkNode }

func (n *quietNode) Fetch(r vtop.Range, spec vtop.FetchSpec, dst []byte) (vtop.FetchResult, error) {
	if r.Index != 0 {
		return vtop.FetchResult{Dst: dst, HighWatermark: 10}, nil
	}
	return n.sinkNode.Fetch(r, spec, dst)
}

// BenchmarkFetch_QuietRanges is a consumer of many ranges of which one has something to tell: what a fetch session would save
// is in here.
func BenchmarkFetch_QuietRanges(b *testing.B) {
	for _, ranges := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(ranges), func(b *testing.B) {
			s := sinkServer(b, int32(ranges), batch.Build(batch.Spec{Records: []batch.Record{{Value: make([]byte, 1000)}}}))
			s.node = &quietNode{s.node.(*sinkNode)}
			req := fetchByID(17, sinkTopic(s), 0, 5)
			for i := 1; i < ranges; i++ {
				p := req.Topics[0].Partitions[0]
				p.Partition = int32(i)
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
			}
			frame := encodeRequest(req, 1)
			w := &wire{nullConn: nullConn{&repeat{frame: frame, left: b.N}}}
			b.ReportAllocs()
			b.ResetTimer()
			newConn(s, w, "bench").serve()
			b.ReportMetric(float64(len(frame)), "B-asked/op")
			b.ReportMetric(float64(w.written)/float64(b.N), "B-answered/op")
		})
	}
}

// TestProduce_AllocatesNothingForEachBatch: what a request costs does not depend on how many batches are in it, nor
// on their size.
func TestProduce_AllocatesNothingForEachBatch(t *testing.T) {
	if raceEnabled {
		t.Skip("counts allocations: not under the race detector")
	}
	const requests = 400
	for _, version := range []int16{9, 13} {
		cost := func(ranges, size int) float64 {
			s := sinkServer(t, 64, nil)
			records := batch.Build(batch.Spec{Records: []batch.Record{{Value: make([]byte, size)}}})
			frame := encodeRequest(manyRanges(version, sinkTopic(s), ranges, records), 1)
			return testing.AllocsPerRun(3, func() {
				newConn(s, &wire{nullConn: nullConn{&repeat{frame: frame, left: requests}}}, "test").serve()
			}) / requests
		}
		one, many, large := cost(1, 100), cost(50, 100), cost(1, 500<<10)
		t.Logf("v%d: allocations for each request: one batch %.1f, fifty %.1f, one of 500 KiB %.1f", version, one, many, large)
		if one > 12 || many > one+10 || large > one+4 {
			t.Errorf("v%d: allocations for each request: one batch %.1f, fifty %.1f, one of 500 KiB %.1f", version, one, many, large)
		}
	}
}
