//go:build cluster

package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The bare quorum is what three processes on this machine can do at best: a leader hands 1 KiB on to two followers, all three
// write it into a file that was written before and sync it, and the second of the three syncs answers the client. There is no
// protocol, no check, no second record in flight and nobody else: what vtop takes beyond it is vtop's.

const (
	bareEnv    = "VTOP_BARE_QUORUM"
	bareRecord = 1 << 10
	bareFile   = 64 << 20
)

func TestMain(m *testing.M) {
	if role := os.Getenv(bareEnv); role != "" {
		err := bareProcess(role)
		if errors.Is(err, io.EOF) {
			os.Exit(0) // the client has seen enough
		}
		fmt.Fprintln(os.Stderr, "bare quorum:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bareQuorum times one record after the other through the bare quorum.
func bareQuorum(b *testing.B) (p50, p99 time.Duration) {
	b.Helper()
	dir := b.TempDir()
	followers := []string{bareStart(b, dir, "f1", ""), bareStart(b, dir, "f2", "")}
	conn, err := net.Dial("tcp", bareStart(b, dir, "l", strings.Join(followers, ",")))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	record, answer := make([]byte, bareRecord), make([]byte, 8)
	var times []time.Duration
	for end := time.Now().Add(syncTime); time.Now().Before(end); {
		started := time.Now()
		if _, err := conn.Write(record); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(started))
	}
	return quantiles(times)
}

// bareStart starts one process, which ends when its standard input does, and returns its address.
func bareStart(b *testing.B, dir, name, followers string) string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), bareEnv+"="+filepath.Join(dir, name)+" "+followers)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// bareProcess is one of the three.
func bareProcess(role string) error {
	path, followers, _ := strings.Cut(role, " ")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(make([]byte, bareFile), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	if followers == "" {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		return bareFollow(conn, f)
	}
	return bareLead(l, f, strings.Split(followers, ","))
}

func bareSync(f *os.File, seq uint64, record []byte) error {
	if _, err := f.WriteAt(record, int64(seq*bareRecord%bareFile)); err != nil {
		return err
	}
	return unix.Fdatasync(int(f.Fd()))
}

func bareFollow(conn net.Conn, f *os.File) error {
	record, ack := make([]byte, bareRecord), make([]byte, 8)
	for seq := uint64(1); ; seq++ {
		if _, err := io.ReadFull(conn, record); err != nil {
			return err
		}
		if err := bareSync(f, seq, record); err != nil {
			return err
		}
		binary.BigEndian.PutUint64(ack, seq)
		if _, err := conn.Write(ack); err != nil {
			return err
		}
	}
}

// bareAck is one of the three syncs.
type bareAck struct {
	who int
	seq uint64
	err error
}

func bareLead(l net.Listener, f *os.File, followers []string) error {
	var conns []net.Conn
	acks := make(chan bareAck, 64)
	for i, addr := range followers {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		go func() {
			ack := make([]byte, 8)
			for {
				_, err := io.ReadFull(conn, ack)
				acks <- bareAck{i + 1, binary.BigEndian.Uint64(ack), err}
				if err != nil {
					return
				}
			}
		}()
	}
	client, err := l.Accept()
	if err != nil {
		return err
	}
	record := make([]byte, bareRecord)
	own, mine := make(chan uint64, 1), make([]byte, bareRecord)
	go func() {
		for seq := range own {
			acks <- bareAck{0, seq, bareSync(f, seq, mine)}
		}
	}()
	ends := make([]uint64, 1+len(conns))
	for seq := uint64(1); ; seq++ {
		if _, err := io.ReadFull(client, record); err != nil {
			return err
		}
		for _, conn := range conns {
			if _, err := conn.Write(record); err != nil {
				return err
			}
		}
		select {
		case own <- seq:
		default: // still at the one before: the followers decide
		}
		for sorted := slices.Sorted(slices.Values(ends)); sorted[1] < seq; sorted = slices.Sorted(slices.Values(ends)) {
			ack := <-acks
			if ack.err != nil {
				return ack.err
			}
			ends[ack.who] = max(ends[ack.who], ack.seq)
		}
		if _, err := client.Write(binary.BigEndian.AppendUint64(nil, seq)); err != nil {
			return err
		}
	}
}
