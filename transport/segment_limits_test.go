package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// impostor answers every request with the same bytes and closes.
func impostor(t *testing.T, answer string) Target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c)) // whatever it asks
			_, _ = io.WriteString(c, answer)            // the caller may hang up before the end
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return Target{Name: "b", Addr: ln.Addr().String()}
}

// TestFetch_BelievesNothingUnproven: what a source claims costs no memory, and what is not the segment that was
// asked for is refused.
func TestFetch_BelievesNothingUnproven(t *testing.T) {
	w := newWorld(t, false)
	a := w.node("a", clusterA)
	who := fmt.Sprintf("Vtop-Protocol: 1\r\nVtop-From: b\r\nVtop-Generation: 0\r\nVtop-Incarnation: 0\r\nVtop-Cluster: %s\r\n", clusterA)
	tag := `ETag: "` + hex.EncodeToString(segment.Root[:]) + "\"\r\n"
	part := "HTTP/1.1 206 Partial Content\r\n" + who + tag
	whole := "HTTP/1.1 200 OK\r\n" + who + tag
	ten := "Content-Range: bytes 0-9/100\r\nContent-Length: 10\r\n"
	for _, row := range []struct {
		name, answer string
		manifest     bool
		want         error
	}{
		{"what was asked for", part + ten + "\r\n0123456789", false, nil},
		{"another root", "HTTP/1.1 206 Partial Content\r\n" + who + "ETag: \"" + strings.Repeat("ab", 32) + "\"\r\n" + ten + "\r\n0123456789", false, ErrWrongRoot},
		{"no root", "HTTP/1.1 206 Partial Content\r\n" + who + ten + "\r\n0123456789", false, ErrWrongRoot},
		{"a weak root", strings.Replace(part, "ETag: ", "ETag: W/", 1) + ten + "\r\n0123456789", false, ErrWrongRoot},
		{"a length of 2 GiB", part + "Content-Range: bytes 0-9/100\r\nContent-Length: 2147483647\r\n\r\n0123456789", false, ErrInvalid},
		{"a range of 2 GiB", part + "Content-Range: bytes 0-2147483646/2147483647\r\nContent-Length: 2147483647\r\n\r\n01", false, ErrInvalid},
		{"another range", part + "Content-Range: bytes 1-10/100\r\nContent-Length: 10\r\n\r\n0123456789", false, ErrInvalid},
		{"a shorter range", part + "Content-Range: bytes 0-8/100\r\nContent-Length: 9\r\n\r\n012345678", false, ErrInvalid},
		{"a range without end", part + "Content-Range: bytes 0-9/*\r\nContent-Length: 10\r\n\r\n0123456789", false, ErrInvalid},
		{"a range outside the whole", part + "Content-Range: bytes 0-9/9\r\nContent-Length: 10\r\n\r\n0123456789", false, ErrInvalid},
		{"no range", part + "Content-Length: 10\r\n\r\n0123456789", false, ErrInvalid},
		{"no length", part + "Content-Range: bytes 0-9/100\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", false, ErrInvalid},
		{"the whole instead of a part", whole + "Content-Length: 100\r\n\r\n" + strings.Repeat("x", 100), false, ErrInvalid},
		{"fewer bytes than promised", part + ten + "\r\n01234", false, ErrCut},
		{"nothing at all", "", false, ErrCut},
		{"no HTTP", "VTOPSTRM\x00\x00\x00\x00", false, ErrCut},
		{"a redirect", "HTTP/1.1 302 Found\r\n" + who + "Location: /elsewhere\r\nContent-Length: 0\r\n\r\n", false, ErrInvalid},
		{"no name", "HTTP/1.1 206 Partial Content\r\n" + tag + ten + "\r\n0123456789", false, ErrInvalid},
		{"another name", strings.Replace(part, "Vtop-From: b", "Vtop-From: c", 1) + ten + "\r\n0123456789", false, ErrWrongNode},
		{"headers without end", "HTTP/1.1 206 Partial Content\r\n" + strings.Repeat("X-Y: "+strings.Repeat("z", 1000)+"\r\n", 100), false, ErrCut},
		{"a refusal without a reason", "HTTP/1.1 404 Not Found\r\n" + who + "Content-Length: 0\r\n\r\n", false, ErrInvalid},
		{"a reason that is none", "HTTP/1.1 404 Not Found\r\n" + who + "Content-Type: " + errorType + "\r\nContent-Length: 2\r\n\r\n\xff\xff", false, ErrInvalid},
		{"a reason of 2 GiB", "HTTP/1.1 404 Not Found\r\n" + who + "Content-Type: " + errorType + "\r\nContent-Length: 2147483647\r\n\r\n" + strings.Repeat("\x12", 3*maxError), false, ErrInvalid},
		{"a manifest", whole + "Content-Length: 10\r\n\r\n0123456789", true, nil},
		{"a manifest of 2 GiB", whole + "Content-Length: 2147483647\r\n\r\n0123456789", true, ErrInvalid},
		{"a manifest of the largest size, cut", whole + "Content-Length: 1073741824\r\n\r\n0123456789", true, ErrCut},
		{"a manifest without length", whole + "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", true, ErrInvalid},
		{"an empty manifest", whole + "Content-Length: 0\r\n\r\n", true, ErrInvalid},
		{"a part of a manifest", part + ten + "\r\n0123456789", true, ErrInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			to := impostor(t, row.answer)
			var err error
			got, buf := "", make([]byte, 10)
			grown := growth(func() {
				if row.manifest {
					buf, err = a.client.FetchManifest(limit(t), to, segment, 1<<30)
				} else {
					_, err = a.client.FetchRange(limit(t), to, segment, 0, buf)
				}
			})
			if got = string(buf); row.want == nil && (err != nil || got != "0123456789") || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("%q, %v, want %v", got, err, row.want)
			}
			if grown > 4<<20 {
				t.Errorf("%d KiB allocated", grown>>10)
			}
		})
	}
}

// TestSegments_RequestsCostNothing: requests that make no sense, or too much of it, get a short answer.
func TestSegments_RequestsCostNothing(t *testing.T) {
	w := newWorld(t, false)
	b := w.node("b", clusterA, func(o *Options) {
		o.AllowTransfer = func(c Caller) error {
			if c.Name != "a" {
				return errors.New("not registered")
			}
			return nil
		}
	})
	s, data := newSource(10)
	b.SetHandler(Join(nil, nil, nil).WithSegments(s))
	path, query := s.ref.url(false)
	url := path + "?" + query
	from := func(name string) string {
		return fmt.Sprintf("Host: b\r\nConnection: close\r\nVtop-Protocol: 1\r\nVtop-From: %s\r\nVtop-Generation: 0\r\nVtop-Incarnation: 0\r\nVtop-Cluster: %s\r\n", name, clusterA)
	}
	rows := map[string]int{
		"GET " + url + " HTTP/1.1\r\n" + from("a"):                                                           200,
		"HEAD " + url + " HTTP/1.1\r\n" + from("a"):                                                          200,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=2-\r\n":                                   206,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=0-9223372036854775807\r\n":                206,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=10-\r\n":                                  416,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=0-9223372036854775808\r\n":                400,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=-5\r\n":                                   400,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=5-4\r\n":                                  400,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=0-1,3-4\r\n":                              400,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Range: bytes=" + strings.Repeat("0-1,", 1000) + "\r\n": 400,
		"POST " + url + " HTTP/1.1\r\n" + from("a") + "Content-Length: 0\r\n":                                400,
		"GET " + url + " HTTP/1.1\r\n" + from("a") + "Content-Length: 2147483647\r\n":                        400,
		"GET " + strings.Replace(url, ".log", ".txt", 1) + " HTTP/1.1\r\n" + from("a"):                       400,
		"GET " + strings.Replace(url, "/3/", "/03/", 1) + " HTTP/1.1\r\n" + from("a"):                        400,
		"GET " + url + "&pin=1 HTTP/1.1\r\n" + from("a"):                                                     400,
		"GET " + url + "&other=1 HTTP/1.1\r\n" + from("a"):                                                   400,
		"GET " + path + " HTTP/1.1\r\n" + from("a"):                                                          400,
		"GET /segments/ HTTP/1.1\r\n" + from("a"):                                                            400,
		"GET /segments/../../etc/passwd HTTP/1.1\r\n" + from("a"):                                            400,
		"GET " + url + " HTTP/1.1\r\n" + from("c"):                                                           403,
		"GET /segments/../../etc/passwd HTTP/1.1\r\n" + from("c"):                                            403,
		"GET /segments//x HTTP/1.1\r\n" + from("c"):                                                          403,
		"DELETE " + url + " HTTP/1.1\r\n" + from("c"):                                                        403,
		"GET " + url + " HTTP/1.1\r\n" + from("c") + "Range: bytes=10-\r\n":                                  403,
		"POST " + "/vtop.peer.v1.RepairService/SealTail" + " HTTP/1.1\r\n" + from("c") + "Content-Type: application/proto\r\nConnect-Protocol-Version: 1\r\nContent-Length: 2147483647\r\n": 403,
		"GET " + url + " HTTP/1.1\r\nHost: b\r\nConnection: close\r\n": 400,
	}
	grown := growth(func() {
		for request, status := range rows {
			before := s.asked.Load()
			c := raw(t, b.Addr())
			_, err := io.WriteString(c, request+"\r\n")
			must(t, err)
			must(t, c.(*net.TCPConn).CloseWrite())
			said := closedByPeer(t, c)
			if !strings.HasPrefix(said, fmt.Sprintf("HTTP/1.1 %d ", status)) {
				t.Errorf("%.300q: %.200q, want %d", request, said, status)
			}
			if status == 403 && s.asked.Load() != before {
				t.Errorf("%.300q reached the handler", request)
			}
		}
	})
	if grown > 64<<20 {
		t.Errorf("%d MiB allocated", grown>>20)
	}
	// Case: what an HTTP tool would see.
	c := raw(t, b.Addr())
	_, err := io.WriteString(c, "GET "+url+" HTTP/1.1\r\n"+from("a")+"Range: bytes=2-4\r\n\r\n")
	must(t, err)
	said := closedByPeer(t, c)
	for _, want := range []string{"206 ", "Content-Range: bytes 2-4/10\r\n", "Content-Length: 3\r\n", `ETag: "` + hex.EncodeToString(s.ref.Root[:]) + `"`,
		"Accept-Ranges: bytes", "Vtop-Pressure: 42", "\r\n\r\n" + string(data[2:5])} {
		if !strings.Contains(strings.Replace(said, "\r\nEtag: ", "\r\nETag: ", 1), want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}

// TestSegments_LargeOnesAreNeverHeld: a segment of 2 GiB, read to the end or left in the middle, costs the
// source one step.
func TestSegments_LargeOnesAreNeverHeld(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	s := &source{ref: segment, size: 2 << 30, log: readerAt(func(p []byte, _ int64) (int, error) { return len(p), nil })}
	s.ref.Size = s.size
	b.SetHandler(Join(nil, nil, nil).WithSegments(s))
	path, query := s.ref.url(false)
	grown := growth(func() {
		for range 8 {
			got, err := a.client.FetchRange(limit(t), b.target(), s.ref, s.size-10, make([]byte, 10))
			must(t, err)
			if got.Size != s.size {
				t.Errorf("%+v", got)
			}
			// Case: all of it is asked for, and the connection closed after a little.
			c := raw(t, b.Addr())
			_, err = fmt.Fprintf(c, "GET %s?%s HTTP/1.1\r\nHost: b\r\nVtop-Protocol: 1\r\nVtop-From: a\r\nVtop-Generation: 0\r\nVtop-Incarnation: 0\r\nVtop-Cluster: %s\r\n\r\n", path, query, clusterA)
			must(t, err)
			_, err = io.CopyN(io.Discard, c, 3*SegmentStep)
			must(t, errors.Join(err, c.Close()))
		}
		must(t, b.Close())
	})
	if grown > 64<<20 {
		t.Errorf("%d MiB allocated", grown>>20)
	}
	if s.opened.Load() != 16 || s.released.Load() != 16 {
		t.Errorf("%d opened, %d released", s.opened.Load(), s.released.Load())
	}
}

// empty is a handler that opens nothing and says nothing of it.
type empty struct {
	Refuser
	bytes *SegmentBytes
}

func (e empty) OpenSegment(context.Context, Caller, SegmentRef) (*SegmentBytes, error) {
	return e.bytes, nil
}

func TestSegments_OpenedWithoutBytes(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.node("a", clusterA), w.node("b", clusterA)
	released := 0
	for _, bytes := range []*SegmentBytes{nil, {}, {Bytes: bytes.NewReader(nil), Release: func() { released++ }}, {Bytes: bytes.NewReader(nil), Size: 10}} {
		b.SetHandler(Join(nil, nil, nil).WithSegments(empty{bytes: bytes}))
		if _, err := a.client.FetchRange(limit(t), b.target(), segment, 0, make([]byte, 10)); CodeOf(err) != peerpb.Code_CODE_INTERNAL {
			t.Errorf("%+v: %v", bytes, err)
		}
	}
	if released != 1 {
		t.Errorf("%d released", released)
	}
}

func FuzzSegmentURL(f *testing.F) {
	for _, seg := range []SegmentRef{segment, {Range: segment.Range, Root: segment.Root}} {
		for _, manifest := range []bool{false, true} {
			path, query := seg.url(manifest)
			f.Add(path, query)
		}
	}
	f.Add("/segments/00000000-0000-0000-0000-000000000000/1/00000000000000000000.log", "root=00")
	f.Fuzz(func(t *testing.T, path, query string) {
		seg, manifest, err := segmentFromURL(path, query)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || seg != (SegmentRef{}) && seg.check() == nil {
				t.Fatalf("%+v, %v", seg, err)
			}
			return
		}
		p, q := seg.url(manifest)
		again, m, err := segmentFromURL(p, q)
		if p != path || err != nil || again != seg || m != manifest {
			t.Fatalf("%q %q is %+v, whose url is %q %q: %+v, %v", path, query, seg, p, q, again, err)
		}
	})
}

func FuzzByteRange(f *testing.F) {
	for _, h := range []string{"", "bytes=0-9", "bytes=5-", "bytes=-5", "bytes=9-5", "bytes=0-18446744073709551615", "bytes=1-2,3-4"} {
		f.Add(h, int64(7))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 1 || size > MaxSegmentSize {
			return
		}
		off, n, err := byteRange(header, size)
		if err == nil && (off < 0 || n < 1 || off >= size || n > size-off) {
			t.Fatalf("%q of %d: %d from %d", header, size, n, off)
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, h := range []string{"", "bytes 0-9/10", "bytes 0-9/*", "bytes 9-0/10", "bytes 0-9223372036854775807/9223372036854775807"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, header string) {
		off, n, size, err := contentRange(header)
		if err == nil && (off < 0 || n < 1 || size > MaxSegmentSize || off > size-n || fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, size) != header) {
			t.Fatalf("%q: %d from %d of %d", header, n, off, size)
		}
	})
}

func FuzzRefusal(f *testing.F) {
	for _, row := range codes {
		body, err := proto.Marshal(detailOf("b", fmt.Errorf("why: %w", row.err)))
		must(f, err)
		f.Add(body)
	}
	body, err := proto.Marshal(detailOf("b", &NotCommittedError{7, 5}))
	must(f, err)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		err := decodeRefusal(body, "404 Not Found")
		if err == nil || CodeOf(err) == peerpb.Code_CODE_UNSPECIFIED || err.Error() == "" && len(body) == 0 {
			t.Fatalf("%x: %v", body, err)
		}
	})
}

// snapshot is one of two segments, the first of which holds the log start.
func snapshot() *Snapshot {
	return &Snapshot{Epoch: 4, Replica: 9, LogStart: 15, SealedEnd: 30, HighWatermark: 31, LogEnd: 40, ConfigVersion: 2, Pin: 5, PinIdle: 1500 * 1e6,
		Segments: []SealedSegment{{10, 20, 1 << 20, [32]byte{1}, 3}, {20, 30, 7, [32]byte{2}, 4}}, Producers: []byte("p")}
}

func TestSnapshot_RoundTrip(t *testing.T) {
	got, err := SnapshotFrom(SnapshotTo(snapshot()))
	must(t, err)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", snapshot()) {
		t.Errorf("%+v", got)
	}
	ref := got.Ref(segment.Range, got.Segments[1])
	if ref != (SegmentRef{segment.Range, 20, [32]byte{2}, 7, 5, 9, 4}) || ref.check() != nil {
		t.Errorf("%+v", ref)
	}
	none, err := SnapshotFrom(&peerpb.Snapshot{Epoch: 1, ReplicaId: 1, LogStart: 5, SealedEnd: 5, LogEnd: 5})
	must(t, err)
	if len(none.Segments) != 0 {
		t.Errorf("%+v", none)
	}
}

func TestSnapshot_RefusesContradictions(t *testing.T) {
	if _, err := SnapshotFrom(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("none: %v", err)
	}
	for name, spoil := range map[string]func(*peerpb.Snapshot){
		"no epoch":                       func(m *peerpb.Snapshot) { m.Epoch = 0 },
		"no replica":                     func(m *peerpb.Snapshot) { m.ReplicaId = 0 },
		"negative log start":             func(m *peerpb.Snapshot) { m.LogStart = -1 },
		"sealed above the log end":       func(m *peerpb.Snapshot) { m.LogEnd = 29 },
		"high watermark above the end":   func(m *peerpb.Snapshot) { m.HighWatermark = 41 },
		"segments that end elsewhere":    func(m *peerpb.Snapshot) { m.SealedEnd = 31 },
		"no segments below a sealed end": func(m *peerpb.Snapshot) { m.Segments = nil },
		"a hole":                         func(m *peerpb.Snapshot) { m.Segments[1].Base = 21 },
		"an overlap":                     func(m *peerpb.Snapshot) { m.Segments[1].Base = 19 },
		"an empty segment":               func(m *peerpb.Snapshot) { m.Segments[0].End = 10 },
		"a segment below the log start":  func(m *peerpb.Snapshot) { m.LogStart = 20 },
		"a segment above the log start":  func(m *peerpb.Snapshot) { m.LogStart = 9 },
		"no bytes":                       func(m *peerpb.Snapshot) { m.Segments[0].Bytes = 0 },
		"too many bytes":                 func(m *peerpb.Snapshot) { m.Segments[0].Bytes = MaxSegmentSize + 1 },
		"a short root":                   func(m *peerpb.Snapshot) { m.Segments[0].Root = m.Segments[0].Root[1:] },
		"no sealing epoch":               func(m *peerpb.Snapshot) { m.Segments[0].SealEpoch = 0 },
		"a pin for ever":                 func(m *peerpb.Snapshot) { m.PinIdleMs = 1 << 62 },
	} {
		m := SnapshotTo(snapshot())
		spoil(m)
		if _, err := SnapshotFrom(m); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	body, err := proto.Marshal(SnapshotTo(snapshot()))
	must(f, err)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		m := new(peerpb.Snapshot)
		if proto.Unmarshal(body, m) != nil {
			return
		}
		s, err := SnapshotFrom(m)
		if err != nil {
			return
		}
		at := vtop.Offset(0)
		for i, seg := range s.Segments {
			if i > 0 && seg.Base != at || seg.End <= seg.Base || seg.Bytes < 1 {
				t.Fatalf("%+v", s)
			}
			at = seg.End
		}
		again, err := SnapshotFrom(SnapshotTo(s))
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", s) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}
