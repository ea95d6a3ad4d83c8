package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// rngOf makes the generator of one part of a life. Each part has its own, so that one more draw here shifts nothing there.
func rngOf(seed uint64, part string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(part)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// traceLines is how many of the last events are kept for a report.
const traceLines = 4000

// FNV-1a, 64 bits.
const basis, prime uint64 = 14695981039346656037, 1099511628211

// trace is what happened in a life, in order. Its hash tells whether two lives went the same way.
type trace struct {
	began time.Time

	mu    sync.Mutex
	sum   uint64
	count int
	lines []string
}

func newTrace(began time.Time) *trace { return &trace{began: began, sum: basis} }

// note writes one event down, with the virtual time since the life began.
func (t *trace) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf("%9.4fs ", time.Since(t.began).Seconds()) + fmt.Sprintf(format, args...)
	t.mixLocked(line)
	t.count++
	if len(t.lines) >= 2*traceLines {
		t.lines = append(t.lines[:0], t.lines[traceLines:]...)
	}
	t.lines = append(t.lines, line)
}

// mix counts an event into the hash at its time, without a line of its own: there are too many of its kind.
func (t *trace) mix(who string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mixLocked(who)
	t.numberLocked(uint64(n))
	t.numberLocked(uint64(time.Since(t.began)))
}

func (t *trace) mixLocked(s string) {
	for i := range len(s) {
		t.sum = (t.sum ^ uint64(s[i])) * prime
	}
}

func (t *trace) numberLocked(n uint64) {
	for ; n > 0; n >>= 8 {
		t.sum = (t.sum ^ n&255) * prime
	}
}

// hash is of all events so far.
func (t *trace) hash() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}

// tail gives the last n events.
func (t *trace) tail(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines[max(0, len(t.lines)-n):], "\n")
}
