package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// pair opens a stream from a to b; serve runs on b's side.
func pair(t testing.TB, w *world, p Purpose, serve func(ctx context.Context, s *Stream)) (*Stream, *node, *node) {
	t.Helper()
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	b.serve(p, serve)
	s, err := a.dialer.DialStream(limit(t), b.target(), p)
	must(t, err)
	return s, a, b
}

// mirror sends every frame back.
func mirror(t testing.TB) func(context.Context, *Stream) {
	return func(_ context.Context, s *Stream) {
		for {
			f, err := s.Recv()
			if err == io.EOF {
				if err := s.End(nil); err != nil {
					t.Error(err)
				}
				return
			}
			if err != nil {
				return
			}
			err = s.Send(f.Type, nil, f.Body)
			f.Release()
			if err == nil && s.in.Buffered() == 0 {
				err = s.Flush()
			}
			if err != nil {
				return
			}
		}
	}
}

func recv(t testing.TB, s *Stream, want FrameType) Frame {
	t.Helper()
	f, err := s.Recv()
	must(t, err)
	if f.Type != want {
		t.Fatalf("%s frame, want %s", f.Type, want)
	}
	return f
}

func TestStream_CarriesEveryFrame(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		s, _, b := pair(t, w, Replication, mirror(t))
		if s.Peer().Name != "b" || s.Peer().ServerID != "srv-b" || s.Purpose() != Replication {
			t.Fatalf("peer %+v, purpose %s", s.Peer(), s.Purpose())
		}
		head := Append{Handle: 3, Epoch: 4, SegmentBase: 5, Base: 6, HighWatermark: 7, LogStart: 2}
		for _, size := range []int{1, directWrite - 1, directWrite, sendBuffer, firstRead + 1, 5 << 20} {
			batches := bytes.Repeat([]byte{byte(size)}, size)
			must(t, s.SendAppend(head, batches))
			must(t, s.Flush())
			f := recv(t, s, FrameAppend)
			got, rest, err := DecodeAppend(f.Body)
			must(t, err)
			if got != head || !bytes.Equal(rest, batches) {
				t.Fatalf("%d bytes came back as %+v and %d bytes", size, got, len(rest))
			}
			f.Release()
			f.Release() // harmless
		}
		acks := []Ack{{1, 2, 3, 4}, {5, 6, 7, 8}}
		must(t, s.SendAcks(acks))
		marks := []Mark{{1, 2, 3, 4}}
		must(t, s.SendMarks(marks))
		must(t, s.SendRewind(Rewind{1, 2, 3}))
		follow := &peerpb.Follow{Handle: 9, Range: RangeTo(vtop.Range{Topic: vtop.TopicID{1}, Index: 2}), Epoch: 4}
		must(t, s.SendControl(follow))
		reset := &peerpb.Reset{Handle: 9, Producers: bytes.Repeat([]byte{1}, 200_000)}
		must(t, s.SendControl(reset))
		must(t, s.Flush())
		gotAcks, err := DecodeAcks(nil, recv(t, s, FrameAcks).Body)
		must(t, err)
		gotMarks, err := DecodeMarks(nil, recv(t, s, FrameMarks).Body)
		must(t, err)
		rewind, err := DecodeRewind(recv(t, s, FrameRewind).Body)
		must(t, err)
		if fmt.Sprint(gotAcks, gotMarks, rewind) != fmt.Sprint(acks, marks, Rewind{1, 2, 3}) {
			t.Fatal(gotAcks, gotMarks, rewind)
		}
		for _, want := range []proto.Message{follow, reset} {
			kind, _ := ControlType(want)
			m, err := DecodeControl(kind, recv(t, s, kind).Body)
			must(t, err)
			if !proto.Equal(m, want) {
				t.Fatalf("%v came back as %v", want, m)
			}
		}
		// Case: an orderly end, both ways.
		must(t, s.End(nil))
		if _, err := s.Recv(); err != io.EOF {
			t.Fatalf("after the end: %v", err)
		}
		if err := s.SendAcks(acks); !errors.Is(err, vtop.ErrClosed) {
			t.Fatalf("send after End: %v", err)
		}
		must(t, s.Close())
		must(t, b.Close())
	})
}

func TestStream_EndSaysWhy(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		s, _, _ := pair(t, w, Replication, func(_ context.Context, s *Stream) {
			if err := s.End(fmt.Errorf("range x/0 epoch 7: %w", vtop.ErrFenced)); err != nil {
				t.Error(err)
			}
		})
		_, err := s.Recv()
		if !errors.Is(err, vtop.ErrFenced) || !strings.Contains(err.Error(), "range x/0 epoch 7") {
			t.Fatalf("%v", err)
		}
		must(t, s.Close())
	})
}

func TestStream_CutIsNoEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		s, _, _ := pair(t, w, Replication, func(_ context.Context, s *Stream) { _ = s.Close() }) // the case
		if _, err := s.Recv(); !errors.Is(err, ErrCut) || errors.Is(err, io.EOF) && err == io.EOF {
			t.Fatalf("cut stream: %v", err)
		}
		must(t, s.Close())
		if _, err := s.Recv(); !errors.Is(err, vtop.ErrClosed) {
			t.Fatalf("own close: %v", err)
		}
		if err := errors.Join(s.SendMarks([]Mark{{}}), s.Flush()); !errors.Is(err, vtop.ErrClosed) {
			t.Fatalf("send after own close: %v", err)
		}
	})
}

func TestStream_CloseEndsAWaitingRecv(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		served := make(chan struct{})
		s, a, b := pair(t, w, Heartbeat, func(ctx context.Context, s *Stream) {
			_, err := s.Recv() // until the mux closes
			if err == nil || ctx.Err() == nil {
				t.Errorf("%v", err)
			}
			close(served)
		})
		must(t, b.Close())
		<-served
		if _, err := s.Recv(); err == nil {
			t.Error("frame from a closed node")
		}
		must(t, a.dialer.Close())
		if _, err := a.dialer.DialStream(limit(t), b.target(), Heartbeat); err == nil {
			t.Error("dialled after Close")
		}
	})
}

func TestStream_PurposeNobodyServes(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	for _, p := range []Purpose{Replication, 0, 77} {
		if _, err := a.dialer.DialStream(limit(t), b.target(), p); !errors.Is(err, vtop.ErrNotReady) {
			t.Errorf("purpose %s: %v", p, err)
		}
	}
}

func TestStream_ManySenders(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		s, _, _ := pair(t, w, Replication, mirror(t))
		const senders, each = 4, 200
		var wg sync.WaitGroup
		for n := range senders {
			wg.Go(func() {
				payload := bytes.Repeat([]byte{byte(n)}, 1+n*20_000)
				for i := range each {
					err := s.SendAppend(Append{Handle: uint32(n), Epoch: 1, Base: vtop.Offset(i)}, payload)
					if err = errors.Join(err, s.Flush()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		next := map[uint32]vtop.Offset{}
		for range senders * each {
			f := recv(t, s, FrameAppend)
			a, rest, err := DecodeAppend(f.Body)
			must(t, err)
			if a.Base != next[a.Handle] || len(rest) != 1+int(a.Handle)*20_000 || bytes.Count(rest, []byte{byte(a.Handle)}) != len(rest) {
				t.Fatalf("%+v with %d bytes, want base %d", a, len(rest), next[a.Handle])
			}
			next[a.Handle]++
			f.Release()
		}
		wg.Wait()
		must(t, s.Close())
	})
}

func TestStream_IdleTimeout(t *testing.T) {
	w := newWorld(t, false)
	done := make(chan struct{})
	s, _, _ := pair(t, w, Heartbeat, func(context.Context, *Stream) { <-done })
	s.SetIdleTimeout(time.Millisecond)
	_, err := s.Recv()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	close(done)
	must(t, s.Close())
}

// TestStream_NoAllocationPerFrame: the steady state of replication costs no garbage.
func TestStream_NoAllocationPerFrame(t *testing.T) {
	w := newWorld(t, false)
	s, _, _ := pair(t, w, Replication, mirror(t))
	batches, acks := make([]byte, 1<<10), []Ack{{1, 2, 3, 4}}
	big := make([]byte, 100<<10)
	var dst []Ack
	round := func() {
		err := s.SendAppend(Append{Epoch: 1}, batches)
		err = errors.Join(err, s.SendAppend(Append{Epoch: 1}, big), s.SendAcks(acks), s.Flush())
		must(t, err)
		for range 2 {
			f := recv(t, s, FrameAppend)
			_, _, err := DecodeAppend(f.Body)
			must(t, err)
			f.Release()
		}
		f := recv(t, s, FrameAcks)
		dst, err = DecodeAcks(dst[:0], f.Body)
		must(t, err)
		f.Release()
	}
	round()
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool forget on purpose")
	}
	// The three frames there and back; a collection in between may empty the pool.
	if n := testing.AllocsPerRun(200, round); n >= 1 {
		t.Errorf("%.2f allocations per round of three frames", n)
	}
	must(t, s.Close())
}

func TestRaftLayer_CarriesBytesAndClosesAll(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA)
		accepted := make(chan net.Conn)
		go func() {
			for {
				c, err := b.Raft().Accept()
				if err != nil {
					close(accepted)
					return
				}
				accepted <- c
			}
		}()
		out, err := a.Raft().Dial(b.Addr().String(), time.Minute)
		must(t, err)
		in := <-accepted
		_, err = out.Write([]byte("append entries"))
		must(t, err)
		got := make([]byte, 14)
		_, err = io.ReadFull(in, got)
		must(t, err)
		if string(got) != "append entries" {
			t.Fatalf("%q", got)
		}
		// Closing Raft's side closes its connections and nothing else.
		must(t, b.Raft().Close())
		if _, err := out.Read(got); err == nil {
			t.Error("raft connection outlived its layer")
		}
		if _, open := <-accepted; open {
			t.Error("accepted after Close")
		}
		b.SetHandler(&echo{})
		_, err = a.client.Identify(limit(t), b.target(), &peerpb.IdentifyRequest{})
		must(t, err)
		must(t, a.Raft().Close())
		if _, err := a.Raft().Dial(b.Addr().String(), time.Minute); err == nil {
			t.Error("dialled after Close")
		}
	})
}
