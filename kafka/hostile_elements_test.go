package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patientConn sends one request and stays until it is answered, or the server closes.
type patientConn struct {
	nullConn
	once *sync.Once
	done chan struct{}
	got  *atomic.Int64 // bytes of the answer so far
	want *atomic.Int64 // of them, once its length is known
}

func newPatientConn(sent []byte) patientConn {
	return patientConn{nullConn{bytes.NewReader(sent)}, new(sync.Once), make(chan struct{}), new(atomic.Int64), new(atomic.Int64)}
}

func (c patientConn) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err != nil {
		<-c.done
	}
	return n, err
}

func (c patientConn) Write(b []byte) (int, error) {
	if c.got.Load() == 0 {
		c.want.Store(4 + int64(binary.BigEndian.Uint32(b)))
	}
	if c.got.Add(int64(len(b))) >= c.want.Load() {
		c.Close()
	}
	return len(b), nil
}

func (c patientConn) Close() error { c.once.Do(func() { close(c.done) }); return nil }

// manyElements makes a request of the newest version of an API with n elements, each with another name, in array at; nil if it has no
// such array.
func manyElements(a *api, at, n int) []byte {
	w := &shaper{flexible: a.newRequest(a.max).IsFlexible(), version: a.max, lieAt: -1, manyAt: at, many: n}
	w.fields(a.shape)
	if !w.reached {
		return nil
	}
	return w.b
}

// TestHostile_ManyElementsOfEveryAPI: twenty thousand elements, if it may have as many, are really there, each with another name, in each array of
// every API in its newest version. What the server allocates to read, run and answer that stays in proportion (I13), to the elements as
// they are reserved for; too many are refused.
func TestHostile_ManyElementsOfEveryAPI(t *testing.T) {
	s := hostileServer(t)
	for _, a := range advertised(t, s) {
		flexible := a.newRequest(a.max).IsFlexible()
		for at := 0; ; at++ {
			n := min(a.most()-16, 20_000) // some are for the other arrays
			body := manyElements(a, at, n)
			if body == nil {
				break
			}
			if len(body) > s.cfg.MaxFrame-1<<10 {
				n = n * (s.cfg.MaxFrame - 1<<10) / len(body)
				body = manyElements(a, at, n)
			}
			if _, err := a.check(a.max, flexible, body); err != nil {
				t.Errorf("%s: %d elements in array %d: %v", a.name, n, at, err)
			}
			if _, err := a.check(a.max, flexible, manyElements(a, at, a.most()+1)); !errors.Is(err, errTooMany) {
				t.Errorf("%s: %d elements in array %d: the guard says %v", a.name, a.most()+1, at, err)
			}
			sent := whole(a, a.max, body)
			got := allocates(s, sent)
			most := uint64(1<<20 + 16*len(sent) + 2*elementCost*n)
			if a.key == keyFetch {
				most = uint64(1<<20 + 64*len(sent)) // it reserves nothing for its elements; it looks twice here, and its answers are in the other budget
			}
			if got > most {
				t.Errorf("%s v%d: %d elements in array %d, %d bytes, made it allocate %d, want at most %d", a.name, a.max, n, at, len(sent), got, most)
			}
		}
	}
	if used := s.work.used.Load(); used != 0 {
		t.Errorf("%d bytes of the budget for work are gone", used)
	}
}

// TestHostile_ManyElementsTakeTheirTurns: many connections that each ask for as much as a request can do not get it at once. Their
// answers come all the same.
func TestHostile_ManyElementsTakeTheirTurns(t *testing.T) {
	s := hostileServer(t)
	a := s.api(keyDescribeGroups)
	n := maxElements
	if raceEnabled {
		n /= 10
		s.work = newBudget(int64(n) * elementCost)
	}
	sent := whole(a, a.max, manyElements(a, 0, n))
	var answered atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			nc := newPatientConn(sent)
			newConn(s, nc, "hostile").serve()
			answered.Add(nc.got.Load())
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); all.Wait() }()
	const limit = 384 << 20
	most := uint64(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(time.Millisecond):
		}
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		most = max(most, sample[0].Value.Uint64())
	}
	t.Logf("at most %d MiB on the heap", most>>20)
	if most > limit {
		t.Errorf("%d MiB on the heap, want at most %d", most>>20, limit>>20)
	}
	if got := answered.Load(); got < 16*int64(n) {
		t.Errorf("%d bytes of answers", got)
	}
}

// TestHostile_ManyElementsAreReservedUntilTheAnswerHasLeft: a client that asks for much and is slow to read what it gets keeps its part of the
// budget for as long (I13).
func TestHostile_ManyElementsAreReservedUntilTheAnswerHasLeft(t *testing.T) {
	s := hostileServer(t)
	a := s.api(keyDescribeGroups)
	client, server := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); newConn(s, server, "hostile").serve() }()
	if _, err := client.Write(whole(a, a.max, manyElements(a, 0, 1000))); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(client, answer); err != nil { // the rest is being written: a pipe holds nothing
		t.Fatal(err)
	}
	if s.work.used.Load() == 0 {
		t.Error("nothing is reserved for an answer that has not left")
	}
	if _, err := io.CopyN(io.Discard, client, int64(binary.BigEndian.Uint32(answer))); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if <-served; s.work.used.Load() != 0 {
		t.Errorf("%d bytes of the budget for work are gone", s.work.used.Load())
	}
}
