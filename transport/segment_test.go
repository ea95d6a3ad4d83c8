package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// source is a handler that has one sealed segment.
type source struct {
	Refuser
	ref      SegmentRef
	log      io.ReaderAt
	size     int64
	manifest []byte
	err      error

	asked, opened, released atomic.Int64
}

var segment = SegmentRef{Range: vtop.Range{Topic: vtop.TopicID{7}, Index: 3}, Base: 1200, Root: [32]byte{1, 2, 3}, Pin: 1 << 63, Replica: 9, Epoch: 4}

// newSource has a segment of size pseudo-random bytes.
func newSource(size int) (*source, []byte) {
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = rng.Read(data) // it never fails
	ref := segment
	ref.Size = int64(size)
	return &source{ref: ref, log: bytes.NewReader(data), size: int64(size), manifest: []byte("manifest")}, data
}

func (s *source) open(seg SegmentRef, r io.ReaderAt, size int64) (*SegmentBytes, error) {
	s.asked.Add(1)
	if s.err != nil {
		return nil, s.err
	}
	if seg.Size = s.ref.Size; seg.Range != s.ref.Range || seg.Base != s.ref.Base {
		return nil, fmt.Errorf("%w: %+v", ErrNoSegment, seg)
	}
	if seg.Root != s.ref.Root {
		return nil, fmt.Errorf("%w: %x, asked for %x", ErrWrongRoot, s.ref.Root, seg.Root)
	}
	if seg != s.ref {
		return nil, fmt.Errorf("%w: %+v, have %+v", vtop.ErrFenced, seg, s.ref)
	}
	s.opened.Add(1)
	return &SegmentBytes{Bytes: r, Size: size, Pressure: 42, Release: func() { s.released.Add(1) }}, nil
}

func (s *source) OpenSegment(_ context.Context, _ Caller, seg SegmentRef) (*SegmentBytes, error) {
	return s.open(seg, s.log, s.size)
}

func (s *source) OpenManifest(_ context.Context, _ Caller, seg SegmentRef) (*SegmentBytes, error) {
	return s.open(seg, bytes.NewReader(s.manifest), int64(len(s.manifest)))
}

func (s *source) SealTail(context.Context, Caller, *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	s.asked.Add(1)
	return &peerpb.SealTailResponse{SealedEnd: 9, Snapshot: &peerpb.Snapshot{SealedEnd: 9}}, s.err
}

func TestFetch_BringsTheBytes(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		s, data := newSource(3*SegmentStep + 5)
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		for _, row := range []struct{ off, n int }{
			{0, len(data)}, {0, 1}, {len(data) - 1, 1}, {SegmentStep - 1, 2}, {SegmentStep, SegmentStep}, {17, 2 * SegmentStep}, {3 * SegmentStep, 5},
		} {
			buf := make([]byte, row.n)
			got, err := a.client.FetchRange(limit(t), b.target(), s.ref, int64(row.off), buf)
			must(t, err)
			if got != (Fetched{row.n, s.size, 42}) || !bytes.Equal(buf, data[row.off:row.off+row.n]) {
				t.Errorf("%d bytes from %d: %+v, equal %v", row.n, row.off, got, bytes.Equal(buf, data[row.off:row.off+row.n]))
			}
		}
		manifest, err := a.client.FetchManifest(limit(t), b.target(), s.ref, len(s.manifest))
		must(t, err)
		if !bytes.Equal(manifest, s.manifest) {
			t.Errorf("manifest %q", manifest)
		}
		must(t, b.Close()) // all that was served has ended
		if s.opened.Load() == 0 || s.opened.Load() != s.released.Load() {
			t.Errorf("%d opened, %d released", s.opened.Load(), s.released.Load())
		}
	})
}

func TestFetch_RefusalsKeepIdentityAndText(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		s, _ := newSource(100)
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		fetch := func(seg SegmentRef, off int64) error {
			got, err := a.client.FetchRange(limit(t), b.target(), seg, off, make([]byte, 100))
			if err != nil && got != (Fetched{}) {
				t.Errorf("%+v beside %v", got, err)
			}
			return err
		}
		vary := func(change func(*SegmentRef)) SegmentRef {
			seg := s.ref
			change(&seg)
			return seg
		}
		for _, row := range []struct {
			name string
			seg  SegmentRef
			off  int64
			want error
		}{
			{"another root", vary(func(s *SegmentRef) { s.Root[31] = 1 }), 0, ErrWrongRoot},
			{"no root", vary(func(s *SegmentRef) { s.Root = [32]byte{} }), 0, ErrInvalid},
			{"another base", vary(func(s *SegmentRef) { s.Base++ }), 0, ErrNoSegment},
			{"another replica", vary(func(s *SegmentRef) { s.Replica = 8 }), 0, vtop.ErrFenced},
			{"another epoch", vary(func(s *SegmentRef) { s.Epoch = 3 }), 0, vtop.ErrFenced},
			{"another size than the catalogue's", vary(func(s *SegmentRef) { s.Size = 101 }), 0, ErrInvalid},
			{"shorter than asked for", s.ref, 1, ErrInvalid},
			{"behind the end", s.ref, 100, vtop.ErrOffsetOutOfRange},
		} {
			if err := fetch(row.seg, row.off); !errors.Is(err, row.want) {
				t.Errorf("%s: %v, want %v", row.name, err, row.want)
			}
		}
		for _, row := range codes {
			s.err = fmt.Errorf("range x/1: wanted 7, found 8: %w", row.err)
			err := fetch(s.ref, 0)
			if !errors.Is(err, ErrorOf(row.code, "").(*PeerError).Unwrap()) || !strings.Contains(err.Error(), "wanted 7, found 8") || !strings.Contains(err.Error(), `node "b"`) {
				t.Errorf("%s came back as %v", row.code, err)
			}
		}
		s.err = errors.New("odd \xff\xfe" + strings.Repeat("x", 1<<20))
		if err := fetch(s.ref, 0); CodeOf(err) != peerpb.Code_CODE_INTERNAL || !strings.Contains(err.Error(), "odd") {
			t.Errorf("odd error came back as %.200v", err)
		}
	})
}

func TestSeal_NotCommittedKeepsItsOffsets(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	s, _ := newSource(1)
	b.SetHandler(Join(nil, nil, nil).WithSegments(s))
	s.err = fmt.Errorf("range x/1: %w", &NotCommittedError{ClosedEnd: 900, HighWatermark: 850})
	_, err := a.client.SealTail(limit(t), b.target(), &peerpb.SealTailRequest{})
	var open *NotCommittedError
	if !errors.Is(err, ErrNotCommitted) || !errors.As(err, &open) || *open != (NotCommittedError{900, 850}) || !Retryable(err) {
		t.Errorf("%v, %+v", err, open)
	}
	// Case: an answer whose two ends differ.
	s.err = nil
	b.SetHandler(Join(nil, nil, nil).WithSegments(twoEnds{}))
	if _, err := a.client.SealTail(limit(t), b.target(), &peerpb.SealTailRequest{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("two ends: %v", err)
	}
}

type twoEnds struct{ Refuser }

func (twoEnds) SealTail(context.Context, Caller, *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	return &peerpb.SealTailResponse{SealedEnd: 9, Snapshot: &peerpb.Snapshot{SealedEnd: 8}}, nil
}

// failing reads as r does, up to the byte at which it fails; wall moves on by stride with each failure.
type failing struct {
	r      io.ReaderAt
	err    error
	mu     sync.Mutex
	wall   int64
	stride int64
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off+int64(len(p)) > f.wall {
		f.wall += f.stride
		return 0, f.err
	}
	return f.r.ReadAt(p, off)
}

// TestFetch_GoesOnAtTheByte: a source that breaks off again and again, at seeded places, gives the whole.
func TestFetch_GoesOnAtTheByte(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		s, data := newSource(5*SegmentStep + 77)
		s.log = &failing{r: s.log, err: fmt.Errorf("chunk 2: %w", vtop.ErrDamaged), wall: 3*SegmentStep - 1, stride: SegmentStep}
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		buf, have, cuts := make([]byte, len(data)), 0, 0
		for have < len(buf) {
			got, err := a.client.FetchRange(limit(t), b.target(), s.ref, int64(have), buf[have:])
			if err != nil {
				cuts++
				// Broken off in the middle, or refused with the reason at the very place.
				if got.Bytes > 0 == errors.Is(err, vtop.ErrDamaged) || got.Bytes > 0 != errors.Is(err, ErrCut) {
					t.Fatalf("after %d bytes: %v", got.Bytes, err)
				}
			}
			have += got.Bytes
		}
		must(t, b.Close())
		if left := b.transfers.Load(); cuts < 2 || left != 0 || !bytes.Equal(buf, data) {
			t.Errorf("%d cuts, equal %v, %d places not given back", cuts, bytes.Equal(buf, data), left)
		}
	})
}

func TestFetch_SourceClosesMidway(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		s, data := newSource(64 * SegmentStep)
		var once sync.Once
		closed := make(chan struct{})
		s.log = readerAt(func(p []byte, off int64) (int, error) {
			if off >= 2*SegmentStep {
				once.Do(func() {
					go func() {
						defer close(closed)
						_ = b.Close() // closed again at the end
					}()
				})
				<-b.ctx.Done()
			}
			return bytes.NewReader(data).ReadAt(p, off)
		})
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		buf := make([]byte, len(data))
		got, err := a.client.FetchRange(limit(t), b.target(), s.ref, 0, buf)
		if !errors.Is(err, ErrCut) || !Retryable(err) || got.Bytes >= len(buf) || !bytes.Equal(buf[:got.Bytes], data[:got.Bytes]) {
			t.Errorf("%d bytes, then %v", got.Bytes, err)
		}
		<-closed
		if s.opened.Load() != s.released.Load() {
			t.Errorf("%d opened, %d released", s.opened.Load(), s.released.Load())
		}
	})
}

type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

func TestFetch_SilentSourceIsGivenUp(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		s, data := newSource(2 * SegmentStep)
		hang := make(chan struct{})
		s.log = readerAt(func(p []byte, off int64) (int, error) {
			if off >= SegmentStep {
				<-hang
			}
			return bytes.NewReader(data).ReadAt(p, off)
		})
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		buf := make([]byte, len(data))
		// Case: the caller gives up.
		ctx, cancel := context.WithCancel(limit(t))
		stop := time.AfterFunc(10*time.Millisecond, cancel)
		defer stop.Stop()
		if _, err := a.client.FetchRange(ctx, b.target(), s.ref, 0, buf); !errors.Is(err, context.Canceled) {
			t.Errorf("caller gave up: %v", err)
		}
		// Case: nobody does.
		a.client.silence = 100 * time.Millisecond
		if _, err := a.client.FetchRange(limit(t), b.target(), s.ref, 0, buf); !errors.Is(err, vtop.ErrTimeout) || !Retryable(err) {
			t.Errorf("silence: %v", err)
		}
		close(hang)
	})
}

// TestSegments_AreReadInSteps: once each, in order, none across a multiple of SegmentStep.
func TestSegments_AreReadInSteps(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	s, data := newSource(3*SegmentStep + 9)
	var reads [][2]int64
	s.log = readerAt(func(p []byte, off int64) (int, error) {
		reads = append(reads, [2]int64{off, int64(len(p))})
		return bytes.NewReader(data).ReadAt(p, off)
	})
	b.SetHandler(Join(nil, nil, nil).WithSegments(s))
	_, err := a.client.FetchRange(limit(t), b.target(), s.ref, 5, make([]byte, len(data)-5))
	must(t, err)
	must(t, b.Close())
	want := [][2]int64{{5, SegmentStep - 5}, {SegmentStep, SegmentStep}, {2 * SegmentStep, SegmentStep}, {3 * SegmentStep, 9}}
	if fmt.Sprint(reads) != fmt.Sprint(want) {
		t.Errorf("read %v, want %v", reads, want)
	}
}

func TestSegments_ManyAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, c, b := w.node("a", clusterA), w.node("c", clusterA), w.node("b", clusterA)
		s, data := newSource(2*SegmentStep + 123)
		b.SetHandler(Join(nil, nil, nil).WithSegments(s))
		ctx := limit(t)
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				rng, from := rand.New(rand.NewPCG(1, uint64(i))), []*node{a, c}[i%2]
				for range 4 {
					off := rng.IntN(len(data))
					buf := make([]byte, 1+rng.IntN(len(data)-off))
					if _, err := from.client.FetchRange(ctx, b.target(), s.ref, int64(off), buf); err != nil || !bytes.Equal(buf, data[off:off+len(buf)]) {
						t.Errorf("%d bytes from %d: %v", len(buf), off, err)
					}
				}
			})
		}
		wg.Wait()
		// Case: of one node, no more than its share of connections.
		if n := b.Stats().Conns; n > 2*segmentConns {
			t.Errorf("%d connections", n)
		}
	})
}

// gate is a handler whose segments open one by one, as it is told.
type gate struct {
	*source
	entered, open chan struct{}
}

func (g gate) OpenSegment(ctx context.Context, from Caller, seg SegmentRef) (*SegmentBytes, error) {
	g.entered <- struct{}{}
	<-g.open
	return g.source.OpenSegment(ctx, from, seg)
}

func TestSegments_TooManyAreRefused(t *testing.T) {
	w := newWorld(t, false)
	b := w.node("b", clusterA)
	s, _ := newSource(10)
	g := gate{s, make(chan struct{}), make(chan struct{})}
	b.SetHandler(Join(nil, nil, nil).WithSegments(g))
	ctx := limit(t)
	fetch := func(from *node) error {
		_, err := from.client.FetchRange(ctx, b.target(), s.ref, 0, make([]byte, 10))
		return err
	}
	var wg sync.WaitGroup
	for i := range maxTransfers / segmentConns {
		from := w.node(vtop.NodeName(fmt.Sprint("a", i)), clusterA)
		for range segmentConns {
			wg.Go(func() {
				if err := fetch(from); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for range maxTransfers {
		<-g.entered
	}
	last := w.node("z", clusterA)
	if err := fetch(last); !errors.Is(err, vtop.ErrOverloaded) || !Retryable(err) {
		t.Errorf("transfer %d: %v", maxTransfers+1, err)
	}
	close(g.open)
	wg.Wait()
	go func() { <-g.entered }()
	// The others may not have given their place back yet.
	for err := fetch(last); err != nil; err = fetch(last) {
		if !errors.Is(err, vtop.ErrOverloaded) {
			t.Fatal(err)
		}
	}
}
