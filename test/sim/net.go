package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Times of the simulated network.
const (
	// patienceTCP is how long bytes may wait behind a cut before the connection breaks.
	patienceTCP = 12 * time.Second
	// callTimeout bounds a call whose caller has no deadline.
	callTimeout = 10 * time.Second
)

// way is one direction between two hosts; clients are hosts, too.
type way struct{ from, to string }

// network moves messages. A cut holds back what is on its way, as routers that drop everything do: it arrives after the cut
// if the connection still stands.
type network struct {
	seed uint64

	mu      sync.Mutex
	cut     map[way]bool
	frozen  map[string]bool // hosts that are paused
	off     map[string]bool // hosts without power: nobody refuses a connection
	rngs    map[way]*rand.Rand
	changed chan struct{} // closed and replaced when something may pass again
	ports   map[string]*listener
	conns   []*conn
	drop    float64 // chance of a call to lose its answer, or its question
}

func newNetwork(seed uint64) *network {
	return &network{
		seed: seed, cut: map[way]bool{}, frozen: map[string]bool{}, off: map[string]bool{}, rngs: map[way]*rand.Rand{},
		changed: make(chan struct{}), ports: map[string]*listener{}, drop: 0.004,
	}
}

func (n *network) rngLocked(w way) *rand.Rand {
	r := n.rngs[w]
	if r == nil {
		r = rngOf(n.seed, "link "+w.from+" "+w.to)
		n.rngs[w] = r
	}
	return r
}

// delay draws how long one message takes.
func (n *network) delay(from, to string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.rngLocked(way{from, to})
	d := 100*time.Microsecond + time.Duration(r.IntN(900))*time.Microsecond
	switch r.IntN(100) {
	case 0:
		d += time.Duration(r.IntN(400)) * time.Millisecond
	case 1, 2, 3:
		d += time.Duration(r.IntN(30)) * time.Millisecond
	}
	return d
}

// chance draws whether something of probability p happens to a message.
func (n *network) chance(from, to string, p float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rngLocked(way{from, to}).Float64() < p
}

// passes says whether messages pass now, and gives the channel that tells when to look again.
func (n *network) passes(from, to string) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.blockedLocked(way{from, to}), n.changed
}

func (n *network) blockedLocked(w way) bool {
	return n.cut[w] || n.frozen[w.from] || n.frozen[w.to] || n.off[w.from] || n.off[w.to]
}

// both says whether two hosts reach one another.
func (n *network) both(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return a == b && !n.frozen[a] && !n.off[a] || a != b && !n.blockedLocked(way{a, b}) && !n.blockedLocked(way{b, a})
}

// await waits until a message passes.
func (n *network) await(ctx context.Context, from, to string) error {
	for {
		ok, changed := n.passes(from, to)
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// update changes what passes, and wakes everybody who waits.
func (n *network) update(fn func()) {
	n.mu.Lock()
	fn()
	close(n.changed)
	n.changed = make(chan struct{})
	live := n.conns[:0]
	for _, c := range n.conns {
		if !c.isClosed() {
			live = append(live, c)
		}
	}
	n.conns = live
	wake := append([]*conn(nil), live...)
	n.mu.Unlock()
	for _, c := range wake {
		c.in.poke()
	}
}

func (n *network) setCut(from, to string, cut bool) { n.update(func() { n.cut[way{from, to}] = cut }) }
func (n *network) setFrozen(host string, on bool)   { n.update(func() { n.frozen[host] = on }) }
func (n *network) setOff(host string, on bool)      { n.update(func() { n.off[host] = on }) }

// heal ends all cuts.
func (n *network) heal() { n.update(func() { clear(n.cut); clear(n.frozen) }) }

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *network) isFrozen(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.frozen[host]
}
