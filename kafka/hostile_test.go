package kafka

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestApiVersions_EveryVersionIsAnswered(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	conn := dial(t, c.nodes[0])
	for version := int16(0); version < 100; version++ {
		frame := binary.BigEndian.AppendUint32(nil, 0)
		frame = binary.BigEndian.AppendUint16(frame, keyApiVersions)
		frame = binary.BigEndian.AppendUint16(frame, uint16(version))
		frame = binary.BigEndian.AppendUint32(frame, uint32(version)+1000)
		frame = append(frame, 0xff, 0xff) // null client id
		if version >= 3 {
			frame = append(frame, 0, 2, 'x', 2, 'y', 0) // header tags, software name and version, tags
		}
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		corr, body := conn.frame(t)
		resp := kmsg.NewPtrApiVersionsResponse()
		newest := int16(4)
		if version <= newest {
			resp.Version = version
		}
		if err := resp.ReadFrom(body); err != nil || corr != int32(version)+1000 {
			t.Fatalf("v%d: correlation id %d: %v", version, corr, err)
		}
		if want := map[bool]int16{true: 0, false: kerr.UnsupportedVersion.Code}[version <= newest]; resp.ErrorCode != want {
			t.Fatalf("v%d: code %d, want %d", version, resp.ErrorCode, want)
		}
		if len(resp.ApiKeys) != len(apiTable()) {
			t.Fatalf("v%d: %d keys", version, len(resp.ApiKeys))
		}
		for _, k := range resp.ApiKeys {
			if k.ApiKey == keyProduce && k.MinVersion != 0 {
				t.Fatal("Produce begins at 3: librdkafka 2.0 would send gzip batches uncompressed")
			}
		}
	}
}

// rss is the resident memory of this process in bytes.
func rss(t testing.TB) int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc: this test did not run")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// hostileFrames are what nobody should allocate for (S1).
func hostileFrames() map[string][]byte {
	length := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	whole := func(key, version int16, body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(10+len(body)))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = binary.BigEndian.AppendUint32(b, 1)
		return append(append(b, 0xff, 0xff), body...)
	}
	zeros := make([]byte, 6<<20)
	lying := append([]byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0x2f, 0, 0}, zeros...)                            // Produce v3: kmsg would make 3M topics for 6 MiB
	empty := append([]byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0x0f, 0xff, 0}, zeros...)                         // 1M empty topics that are really there
	metadata := append([]byte{0, 0x1f, 0, 0}, zeros[:4<<20-20]...)                                            // Metadata v0 with 2M empty names
	tags := append([]byte{0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x07}, zeros[:1<<20]...)                     // Metadata v9 with 2^31-1 tags
	manyTags := append([]byte{0, 1, 0, 0, 0, 0x80, 0x80, 0x08}, bytes.Repeat([]byte{1, 0}, 130_000)...)       // 130k tags
	byID := append([]byte{0, 0, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x7f}, zeros...)                    // Produce v13: 2^28 topics by id
	ids := append([]byte{0, 0xff, 0xff, 0x0f}, zeros[:1<<20]...)                                              // Metadata v12: 256k topics for 1 MiB
	partitions := append([]byte{0, 0xff, 0xff, 0xff, 0x7f}, zeros[:1<<20]...)                                 // DescribeTopicPartitions: 2^28 names
	forgotten := append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0) // Fetch v7 cut short
	return map[string][]byte{
		"length 0":                 length(0),
		"length 7":                 length(7, 0, 0, 0, 0, 0, 0, 0),
		"length -1":                length(math.MaxUint32, 0, 0, 0, 9),
		"length 2^31-1":            length(math.MaxInt32, 0, 0, 0, 9, 0, 0, 0, 1),
		"length -2^31":             length(1<<31, 0, 0, 0, 9),
		"produce of 100 MiB, cut":  length(100<<20, 0, 0, 0, 9, 0, 0, 0, 1),
		"metadata of 5 MiB":        length(5<<20, 0, 3, 0, 9, 0, 0, 0, 1),
		"TLS hello":                {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"HTTP":                     []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"unknown key":              whole(999, 0, nil),
		"produce v2":               whole(keyProduce, 2, lying[2:]),
		"metadata v14":             whole(keyMetadata, 14, nil),
		"client id beyond the end": append(length(10, 0, 3, 0, 1, 0, 0, 0, 1), 0x7f, 0xff),
		"3M topics claimed":        whole(keyProduce, 3, lying),
		"1M empty topics":          whole(keyProduce, 3, empty),
		"2M empty names":           whole(keyMetadata, 0, metadata),
		"2^31 tags":                whole(keyMetadata, 9, tags),
		"130k tags":                whole(keyMetadata, 9, manyTags),
		"2^28 topic ids":           whole(keyProduce, 13, byID),
		"256k topic ids":           whole(keyMetadata, 12, ids),
		"2^28 names of a page":     whole(keyDescribeTopicPartitions, 0, partitions),
		"fetch cut short":          whole(keyFetch, 7, forgotten),
		"records beyond the end":   whole(keyProduce, 3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}),
	}
}

func TestHostile_FewBytesTakeNoMemoryAndHarmNobody(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.FrameTimeout = 500 * time.Millisecond })
	c.topic("t", 1)
	frames := hostileFrames()
	healthy := newClient(t, c.seeds(), kgo.DefaultProduceTopic("t"))
	if err := healthy.ProduceSync(testContext(t), kgo.StringRecord("before")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	before, most, limit := rss(t), int64(0), int64(64<<20)
	if raceEnabled {
		limit *= 4 // its shadow memory
	}
	defer func() { t.Logf("at most %d KiB more resident memory", most>>10) }()
	for name, frame := range frames {
		var conns []*rawConn
		for range max(1, min(8, 16<<20/len(frame))) { // at once, all of them held, but for what is really sent
			conn := dial(t, c.nodes[0])
			go conn.Write(frame)
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			if strings.HasSuffix(name, "cut") || name == "length 7" {
				conn.Conn.(*net.TCPConn).CloseWrite()
			}
			conn.SetDeadline(time.Now().Add(hangs))
			if n, err := io.Copy(io.Discard, conn.r); isTimeout(err) || n > 0 {
				t.Errorf("%s: %d bytes of answer, then %v: want a closed connection", name, n, err)
			}
			conn.Close()
		}
		grown := rss(t) - before
		most = max(most, grown)
		if grown > limit {
			t.Errorf("%s: %d MiB more resident memory (S1)", name, grown>>20)
			before = rss(t)
		}
		if err := healthy.ProduceSync(testContext(t), kgo.StringRecord(name)).FirstErr(); err != nil {
			t.Errorf("%s: a healthy client got %v", name, err)
		}
	}
	if used := c.nodes[0].server.requests.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget are gone", used)
	}
}

func TestHostile_HalfOpenFramesEnd(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.FrameTimeout = 30 * time.Millisecond })
	for _, part := range [][]byte{{0, 0, 0, 50}, {0, 0, 0, 50, 0, 3, 0, 1, 0, 0}, {0, 0x10, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0}} {
		conn := dial(t, c.nodes[0])
		conn.Write(part)
		conn.closed(t)
	}
}

// nullConn is a connection for the fuzzer: it reads from memory and forgets what is written.
type nullConn struct{ r io.Reader }

func (c nullConn) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c nullConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c nullConn) Close() error                     { return nil }
func (c nullConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c nullConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c nullConn) SetDeadline(time.Time) error      { return nil }
func (c nullConn) SetReadDeadline(time.Time) error  { return nil }
func (c nullConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzConnection feeds whole connections to the server: it must neither panic, nor hang, nor allocate far beyond
// what it was sent.
func FuzzConnection(f *testing.F) {
	c := newFakeCluster(f, 1, func(cfg *Config) {
		cfg.LeaderWait, cfg.MaxTimeout, cfg.AdminTimeout = time.Millisecond, time.Millisecond, time.Millisecond
		cfg.AutoCreate = false
	})
	c.topic("t", 1)
	for _, req := range sampleRequests() {
		f.Add(encodeRequest(req, 1))
	}
	for _, frame := range hostileFrames() {
		if len(frame) < 1<<10 {
			f.Add(frame)
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		newConn(c.nodes[0].server, nullConn{bytes.NewReader(sent)}, "fuzz").serve()
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20+64*uint64(len(sent)) {
			t.Fatalf("%d bytes made it allocate %d", len(sent), grown)
		}
	})
}

func TestHostile_ImpossibleLengthsAreClosedAtOnce(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.FrameTimeout = 2 * hangs }) // longer than this client waits
	frames := hostileFrames()
	for _, name := range []string{"length -1", "length 2^31-1", "length -2^31", "TLS hello", "HTTP", "metadata of 5 MiB", "unknown key", "metadata v14"} {
		conn := dial(t, c.nodes[0])
		conn.Write(frames[name])
		conn.SetDeadline(time.Now().Add(hangs))
		if _, err := io.Copy(io.Discard, conn.r); isTimeout(err) {
			t.Errorf("%s: the connection is still open", name)
		}
	}
}
