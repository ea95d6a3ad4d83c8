package kafka

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

// Quotas bound what one client id moves through this node, in bytes a second, as Kafka has them: each node by itself,
// produce and fetch apart. A request beyond the limit is carried out all the same; its answer leaves at once and names
// the time after which the client is within its limit again, and for as long its connection is not read (KIP-219). A
// Fetch of a client that owes already gets no records.

// quotaKind says which of the two rates is meant.
type quotaKind uint8

const (
	quotaProduce quotaKind = iota
	quotaFetch
	quotaKinds
)

var quotaNames = [quotaKinds]string{"produce", "fetch"}

const (
	// maxThrottle bounds one throttle time, so that no client gives up on a request that it has sent meanwhile. What is
	// still owed then is asked of the next request.
	maxThrottle = 10 * time.Second
	// maxClientID bounds the client ids that are kept; longer ones are cut.
	maxClientID = 255
)

// bucket is what one client id may still move: one second's worth at most, below zero what it owes. It is safe for
// concurrent use. The zero value is full.
type bucket struct {
	mu    sync.Mutex
	begun bool
	level float64
	at    time.Time
}

// take charges n bytes under a rate in bytes a second, above 0, and returns how long the client now owes. 0 bytes ask only.
func (b *bucket) take(n int, rate int64, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := float64(rate)
	if !b.begun {
		b.begun, b.level, b.at = true, full, now
	}
	if d := now.Sub(b.at); d > 0 {
		b.level, b.at = b.level+full*d.Seconds(), now
	}
	b.level = min(b.level, full) - float64(n)
	if b.level >= 0 {
		return 0
	}
	owed := -b.level / full
	return min(max(time.Duration(owed*float64(time.Second)), time.Millisecond), maxThrottle)
}

// clientQuota is the state of one client id on this node.
type clientQuota struct {
	name    string
	conns   int // under clientQuotas.mu
	buckets [quotaKinds]bucket
}

// clientQuotas are the client ids that are connected, and those that went away in debt.
type clientQuotas struct {
	limit int // of entries kept without a connection
	mu    sync.Mutex
	byID  map[string]*clientQuota
	idle  int
}

// acquire returns the entry of a client id for a connection, to be given back with release.
func (q *clientQuotas) acquire(name string) *clientQuota {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.byID[name]
	switch {
	case e == nil:
		e = &clientQuota{name: name}
		q.byID[name] = e
	case e.conns == 0:
		q.idle--
	}
	e.conns++
	return e
}

// release gives an entry back. What a client owes outlives its connections; of such entries limit are kept, then all are forgotten.
func (q *clientQuotas) release(e *clientQuota) {
	if e == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.conns--; e.conns > 0 {
		return
	}
	if !e.owing() {
		delete(q.byID, e.name)
		return
	}
	if q.idle++; q.idle <= q.limit {
		return
	}
	for name, old := range q.byID {
		if old.conns == 0 {
			delete(q.byID, name)
		}
	}
	q.idle = 0
}

// owing reports whether the client owed something when it was last charged, and that was not long ago.
func (e *clientQuota) owing() bool {
	for k := range e.buckets {
		b := &e.buckets[k]
		b.mu.Lock()
		owes := b.begun && b.level < 0 && time.Since(b.at) < time.Minute
		b.mu.Unlock()
		if owes {
			return true
		}
	}
	return false
}

// rate is the limit of a client id in bytes a second, 0 for none: its own in the metadata, else that of all others there,
// else this node's setting.
func (s *Server) rate(client string, kind quotaKind) int64 {
	produce, fetch := s.node.ClientQuota(client)
	if kind == quotaProduce {
		if produce > 0 {
			return produce
		}
		return s.cfg.ProduceQuota
	}
	if fetch > 0 {
		return fetch
	}
	return s.cfg.FetchQuota
}

// charge takes n bytes off what the frame's client may move, mutes the connection for as long as it owes, and returns that.
func (c *conn) charge(f *frame, kind quotaKind, n int) time.Duration {
	rate := c.server.rate(f.client, kind)
	if rate <= 0 || f.quota == nil {
		return 0
	}
	owed := f.quota.buckets[kind].take(n, rate, time.Now())
	if owed > 0 {
		c.mute.until(time.Now().Add(owed))
		c.server.metrics.throttled[kind].Inc()
		c.server.metrics.throttleSeconds[kind].Add(owed.Seconds())
	}
	return owed
}

// chargeProduce charges a Produce that was read; the reader calls it.
func (c *conn) chargeProduce(f *frame) time.Duration { return c.charge(f, quotaProduce, f.size+4) }

// fetchDebt is how long the client of a Fetch owes before anything is read for it.
func (c *conn) fetchDebt(f *frame) time.Duration { return c.charge(f, quotaFetch, 0) }

// fetchLimit is the most bytes of records that one Fetch of the client gets: a second's worth. The first batch goes
// whatever its size.
func (c *conn) fetchLimit(f *frame) int {
	limit := c.server.cfg.FetchBytes
	if rate := c.server.rate(f.client, quotaFetch); rate > 0 && rate < int64(limit) {
		return int(rate)
	}
	return limit
}

// chargeFetch charges an encoded Fetch answer and writes the throttle time into its place.
func (c *conn) chargeFetch(f *frame, out *buffer) {
	if owed := c.charge(f, quotaFetch, len(out.b)); owed > 0 {
		patchThrottle(f, out.b, owed)
	}
}

// patchThrottle writes the throttle time of an encoded Fetch answer: behind length and correlation id, and behind the empty
// tag section of a flexible header.
func patchThrottle(f *frame, answer []byte, d time.Duration) {
	at := 8
	if f.flexible {
		at++
	}
	binary.BigEndian.PutUint32(answer[at:], uint32(millisOf(d)))
}

// millisOf is a throttle time as the protocol has it: rounded up, so that a client that comes back then owes nothing.
func millisOf(d time.Duration) int32 {
	return int32((d + time.Millisecond - 1) / time.Millisecond)
}

// muteUntil is when a connection is read again. Its writer and its reader set it, the reader waits for it.
type muteUntil struct{ at atomic.Int64 } // nanoseconds since processStart

// until moves the time on; it never goes back.
func (m *muteUntil) until(t time.Time) {
	now := int64(t.Sub(processStart))
	for {
		old := m.at.Load()
		if old >= now || m.at.CompareAndSwap(old, now) {
			return
		}
	}
}

// left is how long the connection is still muted; 0 or less if it is not.
func (m *muteUntil) left() time.Duration {
	at := m.at.Load()
	if at == 0 {
		return 0
	}
	return time.Duration(at) - time.Since(processStart)
}

// processStart is the origin of muteUntil: times are compared by the monotonic clock.
var processStart = time.Now()

// awaitUnmuted waits until the connection may be read again; errStopped when the server drains.
func (c *conn) awaitUnmuted() error {
	for left := c.mute.left(); left > 0; left = c.mute.left() {
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-c.server.draining:
			timer.Stop()
			return errStopped
		case <-c.ctx.Done():
			timer.Stop()
			return c.ended()
		}
	}
	return nil
}

// identifyClient keeps the client id of a request: one string for all requests of a connection that say the same. The
// reader calls it.
func (c *conn) identifyClient(f *frame, id []byte) {
	id = id[:min(len(id), maxClientID)]
	if c.quota == nil || c.quota.name != string(id) {
		c.server.quotas.release(c.quota)
		c.quota = c.server.quotas.acquire(string(id))
	}
	f.client, f.quota = c.quota.name, c.quota
}
