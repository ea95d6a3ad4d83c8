//go:build cluster

package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

const maxGrowth = 64 << 20

// hostile is what strangers send, by the name of what it pretends to be.
func hostile() map[string][]byte {
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	u32 := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	kafka := func(key, version int16, body ...[]byte) []byte {
		var b []byte
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = append(b, 0, 0, 0, 1, 0xff, 0xff)
		for _, part := range body {
			b = append(b, part...)
		}
		return append(u32(uint32(len(b))), b...)
	}
	return map[string][]byte{
		"length of 2 GiB":                 append(u32(0x7fffffff), noise...),
		"negative length":                 append(u32(0xffffffff), noise...),
		"length of 100 MiB":               append(u32(100<<20), noise...),
		"metadata with 2^31-1 topics":     kafka(3, 1, u32(0x7fffffff)),
		"produce with 2^31-1 topics":      kafka(0, 3, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, u32(0x7fffffff)),
		"produce with a records length":   kafka(0, 3, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, u32(1), []byte{0, 1, 'x'}, u32(1), u32(0), u32(0x7fffffff)),
		"fetch of 2^31-1 topics":          kafka(1, 4, u32(0xffffffff), u32(100), u32(1), u32(0x7fffffff), []byte{0}, u32(0x7fffffff)),
		"create 2^31-1 topics":            kafka(19, 2, u32(0x7fffffff)),
		"flexible header, endless varint": kafka(18, 3, bytes.Repeat([]byte{0xff}, 4096)),
		"unknown key":                     kafka(9999, 0, noise[:100]),
		"noise":                           noise,
		"raft preamble, noise":            append([]byte("VTOPRAFT"), noise...),
		"stream preamble, 2 GiB frame":    append(append([]byte("VTOPSTRM"), 1), append(u32(0x7fffffff), noise...)...),
		"stream preamble, noise":          append([]byte("VTOPSTRM"), noise...),
		"HTTP, huge header":               []byte("GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 8<<20) + "\r\n\r\n"),
		"HTTP, 2 GiB body":                []byte("POST /v1/topics HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2147483647\r\n\r\n{\"name\":\"" + strings.Repeat("a", 1<<20)),
		"RPC, 2 GiB message":              []byte("POST /vtop.peer.v1.PeerService/Propose HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nContent-Length: 2147483647\r\n\r\n" + string(noise)),
		"RPC, garbage":                    []byte("POST /vtop.peer.v1.PeerService/Propose HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nContent-Length: 65536\r\n\r\n" + string(noise)),
	}
}

// send writes b as a stranger would, goes on writing noise while it is taken, and waits for the end of the connection.
func send(addr string, b []byte, patience time.Duration) (closed bool, err error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		if _, err := conn.Write(b); err != nil {
			return
		}
		for more := make([]byte, 256<<10); ; { // as much as it takes, up to the patience
			if _, err := conn.Write(more); err != nil {
				return
			}
		}
	})
	_, err = io.Copy(io.Discard, conn)
	_ = conn.Close()
	writer.Wait()
	return !errors.Is(err, os.ErrDeadlineExceeded), nil
}

// I13: strangers' bytes on the Kafka, peer and admin ports get a closed connection. The node's memory does not grow
// by more than 64 MiB, and clients are not disturbed.
func TestHostile_BytesAreRefusedWithoutMemory(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 3, Flags: []string{"--log-level", "info"}})
	createTopic(t, c, "ledger", 1, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 1, InFlight: 8})
	ledger.WaitMore(2000, 60*time.Second)
	holder, before := c.Holder("ledger", 0)
	term := c.RaftTerm()
	base := holder.RSS()
	var peak int64
	watch, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			peak = max(peak, holder.RSS())
			select {
			case <-watch:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	for name, b := range hostile() {
		for port, addr := range map[string]string{"kafka": holder.Kafka, "peer": holder.Peer, "admin": holder.Admin} {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					closed, err := send(addr, b, 40*time.Second)
					if err != nil {
						t.Errorf("%s to the %s port: %v", name, port, err)
					} else if !closed {
						t.Errorf("%s to the %s port: the connection was kept for 40 s of noise", name, port)
					}
				})
			}
			all.Wait()
		}
		ledger.WaitMore(1, 10*time.Second)
	}
	close(watch)
	<-watched
	t.Logf("resident memory %d MiB before, %d MiB at most", base>>20, peak>>20)
	if peak-base > maxGrowth {
		t.Errorf("memory grew by %d MiB, want under %d", (peak-base)>>20, maxGrowth>>20)
	}
	if _, after := c.Holder("ledger", 0); after.Epoch != before.Epoch {
		t.Errorf("the lease moved: epoch %d, was %d", after.Epoch, before.Epoch)
	}
	if now := c.RaftTerm(); now != term {
		t.Errorf("Raft term went from %d to %d", term, now)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
