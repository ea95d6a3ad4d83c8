package transport

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
)

// kind says what a connection turned out to be for.
type kind uint8

const (
	kindPending kind = iota
	kindHTTP
	kindRaft
	kindStream
)

// conn is a connection that its set knows of until it is closed.
type conn struct {
	net.Conn
	// raw is the connection under TLS, or Conn itself.
	raw net.Conn
	set *connSet
	// name is proven by TLS; empty in plaintext.
	name vtop.NodeName

	once sync.Once
	err  error

	// under set.mu
	kind    kind
	pending *list.Element
}

// Close closes the connection and forgets it. It is safe to call twice.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.set.forget(c)
		// Below TLS: a close alert to a peer that takes nothing would wait for seconds.
		c.err = c.raw.Close()
	})
	return c.err
}

// connSet holds all connections of one Mux or Dialer, so that closing it leaves none alive.
type connSet struct {
	max, maxPending int

	mu      sync.Mutex
	all     map[*conn]struct{}
	pending *list.List // oldest first
	closed  bool
	evicted uint64
	refused uint64
}

func newConnSet(maxConns, maxPending int) *connSet {
	return &connSet{max: maxConns, maxPending: maxPending, all: map[*conn]struct{}{}, pending: list.New()}
}

// add takes in a fresh connection as pending; nil if the set is closed or full, and raw was closed. Where too
// many are pending the oldest gives way.
func (s *connSet) add(raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, set: s}
	s.mu.Lock()
	if s.closed || len(s.all) >= s.max {
		s.refused++
		s.mu.Unlock()
		_ = raw.Close() // nothing was said on it
		return nil
	}
	var victim *conn
	if s.pending.Len() >= s.maxPending {
		victim, _ = s.pending.Front().Value.(*conn)
		s.evicted++
	}
	s.all[c] = struct{}{}
	c.pending = s.pending.PushBack(c)
	s.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // it has not said who it is
	}
	return c
}

// settle notes what c is for; it is no longer pending.
func (s *connSet) settle(c *conn, k kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.kind = k
	s.unpend(c)
}

func (s *connSet) unpend(c *conn) {
	if c.pending != nil {
		s.pending.Remove(c.pending)
		c.pending = nil
	}
}

func (s *connSet) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	s.unpend(c)
}

// closeKind closes all connections of one kind.
func (s *connSet) closeKind(k kind) {
	s.closeIf(func(c *conn) bool { return c.kind == k })
}

// close closes all connections and takes in no more.
func (s *connSet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeIf(func(*conn) bool { return true })
}

func (s *connSet) closeIf(match func(*conn) bool) {
	s.mu.Lock()
	var victims []*conn
	for c := range s.all {
		if match(c) {
			victims = append(victims, c)
		}
	}
	s.mu.Unlock()
	for _, c := range victims {
		_ = c.Close() // its user sees the error
	}
}

// Stats counts the connections of a Mux, for metrics.
type Stats struct {
	// Conns are open now, Pending those of them that have not said who they are.
	Conns, Pending int
	// Refused were closed because MaxConns were open, Evicted because MaxPending were pending.
	Refused, Evicted uint64
	// Rejected connections and calls did not fit: another cluster, another name, no certificate, no sense.
	Rejected uint64
}

func (s *connSet) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Conns: len(s.all), Pending: s.pending.Len(), Refused: s.refused, Evicted: s.evicted}
}

// deadline sets a deadline for reading and writing, zero for none. An error means that the connection is
// gone, which the next read says better.
func deadline(c net.Conn, t time.Time) { _ = c.SetDeadline(t) }

// brokenError gives a broken connection one identity, and a clear text where TLS meets plaintext.
func brokenError(what string, err error) error {
	if errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%s: %w", what, vtop.ErrClosed)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrCut, err)
}
