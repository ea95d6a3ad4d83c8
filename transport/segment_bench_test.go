package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vtop-log/vtop/transport/tlsid"
)

// benchSegment is the size of the segment that the benchmarks copy from a file in the page cache.
const benchSegment = 64 << 20

// BenchmarkSegment_Copy is a whole segment fetched in requests of some size, some at a time. Beside it,
// BenchmarkSegment_PlainCopy is the same file through a bare TCP or TLS connection, in the same run.
func BenchmarkSegment_Copy(b *testing.B) {
	bothBench(b, func(b *testing.B, w *world) {
		x, y := w.node("x", clusterA), w.node("y", clusterA)
		file := benchFile(b)
		s := &source{ref: segment, log: file, size: benchSegment}
		s.ref.Size = benchSegment
		y.SetHandler(Join(nil, nil, nil).WithSegments(s))
		for _, row := range []struct{ step, flight int }{{SegmentStep, 1}, {SegmentStep, 2}, {SegmentStep, 4}, {8 << 20, 1}, {8 << 20, 2}} {
			b.Run(fmt.Sprintf("%dMiBx%d", row.step>>20, row.flight), func(b *testing.B) {
				b.SetBytes(benchSegment)
				b.ReportAllocs()
				bufs := make([][]byte, row.flight)
				for i := range bufs {
					bufs[i] = make([]byte, row.step)
				}
				for b.Loop() {
					var next atomic.Int64
					var wg sync.WaitGroup
					for _, buf := range bufs {
						wg.Go(func() {
							for {
								off := next.Add(int64(len(buf))) - int64(len(buf))
								if off >= benchSegment {
									return
								}
								if _, err := x.client.FetchRange(context.Background(), y.target(), s.ref, off, buf); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
				}
			})
		}
	})
}

func benchFile(b *testing.B) *os.File {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "segment"))
	must(b, err)
	b.Cleanup(func() { _ = f.Close() })
	buf := make([]byte, 1<<20)
	for range benchSegment >> 20 {
		_, err := f.Write(buf)
		must(b, err)
	}
	return f
}

// BenchmarkSegment_PlainCopy is what the machine can do: one connection, no requests.
func BenchmarkSegment_PlainCopy(b *testing.B) {
	for name, row := range map[string]struct{ secure, sendfile bool }{"tcp": {}, "tcp-sendfile": {sendfile: true}, "tls": {secure: true}} {
		b.Run(name, func(b *testing.B) { benchPlain(b, newWorld(b, row.secure), row.sendfile) })
	}
}

func benchPlain(b *testing.B, w *world, sendfile bool) {
	file := benchFile(b)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	server, client := w.identity(tlsid.Subject{Role: tlsid.Node, Name: "y"}), w.identity(tlsid.Subject{Role: tlsid.Node, Name: "x"})
	done := make(chan error, 1)
	go func() { done <- servePlain(ln, server, file, sendfile) }()
	conn, err := net.DialTimeout("tcp", ln.Addr().String(), time.Minute)
	must(b, err)
	if client != nil {
		conn = tls.Client(conn, client.ClientConfig("y"))
	}
	buf := make([]byte, SegmentStep)
	b.SetBytes(benchSegment)
	for b.Loop() {
		_, err := conn.Write([]byte{1})
		must(b, err)
		for range benchSegment / SegmentStep {
			_, err := io.ReadFull(conn, buf)
			must(b, err)
		}
	}
	_ = conn.Close() // ends the server
	if err := <-done; err != nil && err != io.EOF {
		b.Log(err)
	}
	must(b, ln.Close())
}

// servePlain sends the file for each byte that it reads.
func servePlain(ln net.Listener, id *tlsid.Identity, file *os.File, sendfile bool) error {
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if id != nil {
		conn = tls.Server(conn, id.ServerConfig([]tlsid.Role{tlsid.Node}))
	}
	var one [1]byte
	buf := make([]byte, SegmentStep)
	for {
		if _, err := conn.Read(one[:]); err != nil {
			return err
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		var from, to any = file, conn
		if !sendfile {
			from, to = struct{ io.Reader }{file}, struct{ io.Writer }{conn}
		}
		if _, err := io.CopyBuffer(to.(io.Writer), from.(io.Reader), buf); err != nil {
			return err
		}
	}
}
