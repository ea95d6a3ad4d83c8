package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/peerpb"
)

// raw is a stranger's TCP connection.
func raw(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	deadline, _ := limit(t).Deadline()
	must(t, c.SetDeadline(deadline))
	return c
}

// closedByPeer reads until the other side closes; what it says before is given back.
func closedByPeer(t *testing.T, c net.Conn) string {
	t.Helper()
	var said bytes.Buffer
	_, err := io.Copy(&said, c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("connection was not closed")
	}
	return said.String()
}

// growth is how many bytes were allocated while f ran, collected or not.
func growth(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// hello is a well-formed hello from an honest node.
func hello(t *testing.T, p Purpose) []byte {
	t.Helper()
	var b bytes.Buffer
	preamble := preambleStream
	if p == peerpb.Purpose_PURPOSE_RAFT {
		preamble = preambleRaft
	}
	must(t, writeMessage(&b, preamble, helloOf(Self{Name: "a", Cluster: clusterA}, "", p)))
	return b.Bytes()
}

// TestStrangers_GetNoMemory: few bytes never cost much memory (S1): lengths of 2 GiB and the like.
func TestStrangers_GetNoMemory(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	b.SetHandler(&echo{})
	b.serve(Replication, mirror(t))
	frame := func(length uint32) []byte {
		return binary.BigEndian.AppendUint32(append(hello(t, Replication), byte(FrameAppend)), length)
	}
	call := "POST /vtop.peer.v1.PeerService/Propose HTTP/1.1\r\nHost: b\r\nContent-Type: application/proto\r\nConnect-Protocol-Version: 1\r\n"
	from := fmt.Sprintf("Vtop-Protocol: 1\r\nVtop-From: a\r\nVtop-Generation: 0\r\nVtop-Incarnation: 0\r\nVtop-Cluster: %s\r\n", clusterA)
	rows := map[string][]byte{
		"hello of 2 GiB":              []byte(preambleStream + "\x7f\xff\xff\xff"),
		"hello of 4 GiB":              []byte(preambleRaft + "\xff\xff\xff\xff"),
		"hello that is no message":    []byte(preambleRaft + "\x00\x00\x00\x04\xff\xff\xff\xff"),
		"hello with a huge field":     []byte(preambleStream + "\x00\x00\x00\x06\x12\xff\xff\xff\xff\x07"),
		"frame of 2 GiB":              frame(1<<31 - 1),
		"frame of 4 GiB":              frame(1<<32 - 1),
		"frame just above the cap":    frame(MaxFrame + 1),
		"control frame of 64 MiB":     append(hello(t, Replication), byte(FrameFollow), 4, 0, 0, 0),
		"frame at the cap, cut":       frame(MaxFrame),
		"tls hello":                   []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		"call of 2 GiB by nobody":     []byte(call + "Content-Length: 2147483647\r\n\r\n"),
		"call of 2 GiB by a node":     []byte(call + from + "Content-Length: 2147483647\r\n\r\n"),
		"call of negative length":     []byte(call + from + "Content-Length: -1\r\n\r\n"),
		"headers without end":         []byte(call + strings.Repeat("X-Y: "+strings.Repeat("z", 1000)+"\r\n", 100)),
		"half a preamble":             []byte("VTOP"),
		"http of another kind":        []byte("GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"),
		"nothing, then hanging up":    nil,
		"kafka request":               {0, 0, 0, 20, 0, 18, 0, 3, 0, 0, 0, 1, 0, 4, 't', 'e', 's', 't', 0, 0},
		"kafka request of 2 GiB":      {0x7f, 0xff, 0xff, 0xff, 0, 18, 0, 3, 0, 0, 0, 1},
		"chunked call without an end": []byte(call + from + "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n"),
	}
	grown := growth(func() {
		for range 3 {
			for name, bytes := range rows {
				c := raw(t, b.Addr())
				_, _ = c.Write(bytes)             // the node may have closed it before the last byte
				_ = c.(*net.TCPConn).CloseWrite() // likewise
				said := closedByPeer(t, c)
				if strings.Contains(said, "200 OK") {
					t.Errorf("%s: answered %q", name, said)
				}
			}
		}
	})
	if grown > 64<<20 {
		t.Errorf("%d MiB allocated", grown>>20)
	}
	// Case: honest nodes are not affected.
	_, err := a.client.Identify(limit(t), b.target(), &peerpb.IdentifyRequest{})
	must(t, err)
	if b.Stats().Rejected == 0 {
		t.Error("nothing was counted as rejected")
	}
}

// TestStrangers_LongFrameClosesAtOnce: the connection is closed although the stranger goes on holding it.
func TestStrangers_LongFrameClosesAtOnce(t *testing.T) {
	w := newWorld(t, false)
	b := w.node("b", clusterA)
	refused := make(chan error, 1)
	b.serve(Replication, func(_ context.Context, s *Stream) {
		_, err := s.Recv()
		refused <- err
	})
	c := raw(t, b.Addr())
	_, err := c.Write(append(hello(t, Replication), byte(FrameAppend), 0x7f, 0xff, 0xff, 0xff))
	must(t, err)
	closedByPeer(t, c)
	if err := <-refused; !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("%v", err)
	}
}

// TestRefusals_DoNotFillTheLog: one line a host and quiet time, and a bounded memory of hosts.
func TestRefusals_DoNotFillTheLog(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	for i, want := range []bool{true, false, false} {
		if _, say := r.count("h", now.Add(time.Duration(i))); say != want {
			t.Errorf("refusal %d: line %v", i, say)
		}
	}
	if skipped, say := r.count("h", now.Add(refusalQuiet)); !say || skipped != 2 {
		t.Errorf("after the quiet time: line %v, %d left out", say, skipped)
	}
	for i := range 3 * refusalHosts {
		r.count(fmt.Sprint(i), now)
	}
	if len(r.hosts) > refusalHosts || r.sum() != 4+3*refusalHosts {
		t.Errorf("%d hosts remembered, %d counted", len(r.hosts), r.sum())
	}
}

// TestStrangers_SilentCrowdGivesWay: connections that say nothing do not keep a node out.
func TestStrangers_SilentCrowdGivesWay(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a, b := w.node("a", clusterA), w.node("b", clusterA, func(o *Options) { o.MaxPending = 4 })
		b.SetHandler(&echo{})
		var crowd []net.Conn
		for range 12 {
			crowd = append(crowd, raw(t, b.Addr()))
		}
		for _, c := range crowd[:8] {
			closedByPeer(t, c)
		}
		_, err := a.client.Identify(limit(t), b.target(), &peerpb.IdentifyRequest{})
		must(t, err)
		if s := b.Stats(); s.Evicted < 8 || s.Conns > 6 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStrangers_CapOnConnections(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA, func(o *Options) { o.MaxConns, o.MaxPending = 2, 2 })
	serving := make(chan struct{})
	b.serve(Heartbeat, func(_ context.Context, s *Stream) {
		serving <- struct{}{}
		_, _ = s.Recv() // until it is closed
	})
	var open []*Stream
	for range 2 {
		s, err := a.dialer.DialStream(limit(t), b.target(), Heartbeat)
		must(t, err)
		<-serving
		open = append(open, s)
	}
	if _, err := a.dialer.DialStream(limit(t), b.target(), Heartbeat); !errors.Is(err, ErrCut) {
		t.Errorf("third connection of two: %v", err)
	}
	if s := b.Stats(); s.Refused != 1 || s.Conns != 2 || s.Pending != 0 {
		t.Errorf("%+v", s)
	}
	for _, s := range open {
		must(t, s.Close())
	}
}

// TestStrangers_SlowOnesAreCut: whoever does not get to the point within HandshakeTimeout is closed.
func TestStrangers_SlowOnesAreCut(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for HandshakeTimeout")
	}
	plain, secure := newWorld(t, false).node("b", clusterA), newWorld(t, true).node("b", clusterA)
	var conns []net.Conn
	for _, start := range []string{"", "VTOP", preambleStream, preambleRaft + "\x00\x00\x00\x20ab", "POST /vtop.peer.v1", "POST / HTTP/1.1\r\nHost: b\r\n"} {
		c := raw(t, plain.Addr())
		_, err := io.WriteString(c, start)
		must(t, err)
		conns = append(conns, c)
	}
	for _, start := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		c := raw(t, secure.Addr())
		_, err := io.WriteString(c, start)
		must(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns {
		closedByPeer(t, c)
	}
}
