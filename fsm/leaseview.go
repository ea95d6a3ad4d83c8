package fsm

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vtop-log/vtop"
)

// LeaseView is where a fence is checked and its effect takes place in one critical section (I3). docs/leases.md
// gives the reasons.
//
// Every range of the applied state has a cell with a read-write lock. The apply goroutine takes it for writing
// when it changes that range's lease, or whether it is started; Hold takes it for reading, checks, runs its function and lets
// go. So while a function runs, the state machine cannot apply a change to that range's lease. In the other direction,
// apply waits for the functions that are running under a lease which it ends: they must be short.
//
// Lock order: a cell, then whatever the function locks (the log's append lock). Nothing is locked before a cell.
type LeaseView struct {
	clock func() time.Duration

	identity atomic.Pointer[identity]
	// deadline is a reading of clock in nanoseconds; at or after it this process leads nothing. 0 until first set.
	deadline atomic.Int64

	shards [leaseShards]leaseShard
}

const leaseShards = 64

// leaseShard holds the cells of some ranges. Its lock is a leaf, held for one look into the map.
type leaseShard struct {
	mu    sync.RWMutex
	cells map[vtop.Range]*leaseCell
}

// leaseCell is what the applied state says of one range's lease.
type leaseCell struct {
	mu sync.RWMutex
	// under mu
	lease   vtop.Lease
	started bool
}

// identity is who this process is.
type identity struct {
	name        vtop.NodeName
	incarnation vtop.Incarnation
}

// NewLeaseView returns a view without cells, under which nothing can be held. clock is monotonic and should count the time
// that the machine sleeps; it must not block.
func NewLeaseView(clock func() time.Duration) *LeaseView {
	v := &LeaseView{clock: clock}
	for i := range v.shards {
		v.shards[i].cells = make(map[vtop.Range]*leaseCell)
	}
	return v
}

// SetIdentity says who this process is, once it is registered. Until then it leads and follows nothing.
func (v *LeaseView) SetIdentity(name vtop.NodeName, incarnation vtop.Incarnation) {
	v.identity.Store(&identity{name, incarnation})
}

// SetDeadline says until when, by the view's clock, this process may lead: the time at which the question was sent
// that the metadata quorum answered, plus the lease time. Answers may overtake one another: an earlier deadline
// than the present one changes nothing. It never waits.
func (v *LeaseView) SetDeadline(t time.Duration) {
	for {
		old := v.deadline.Load()
		if int64(t) <= old || v.deadline.CompareAndSwap(old, int64(t)) {
			return
		}
	}
}

// Expire ends the deadline now: this process leads nothing until the next SetDeadline. Functions that are running go on.
func (v *LeaseView) Expire() { v.deadline.Store(0) }

// Deadline returns the deadline, 0 if there is none.
func (v *LeaseView) Deadline() time.Duration { return time.Duration(v.deadline.Load()) }

// Get returns the range's lease in the applied state and whether its epoch serves. It may be outdated when it returns:
// to act on it, Hold it.
func (v *LeaseView) Get(r vtop.Range) (lease vtop.Lease, started bool) {
	c := v.shard(r).get(r)
	if c == nil {
		return vtop.Lease{}, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.lease, c.started
}

// Hold runs fn while the applied state holds the lease of r at epoch e in the way that mode asks (see vtop.FenceMode), and
// returns what fn returns. If it does not, fn does not run and the error is a *vtop.FencedError.
//
// fn works in memory only. It does no I/O, waits for no channel, calls neither Raft nor Hold, and takes no lock
// under which anybody else does: the state machine of the node waits for it. Any number of functions of one
// range run at once. Hold allocates nothing.
func (v *LeaseView) Hold(r vtop.Range, e vtop.Epoch, mode vtop.FenceMode, fn func() error) error {
	c := v.shard(r).get(r)
	if c == nil {
		return &vtop.FencedError{Range: r, Claimed: e, Reason: "unknown or deleted range"}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if reason := v.refuses(c, e, mode); reason != "" {
		return &vtop.FencedError{Range: r, Claimed: e, Applied: c.lease, Reason: reason}
	}
	return fn()
}

// refuses says why a cell, locked by the caller, does not hold; "" if it does.
func (v *LeaseView) refuses(c *leaseCell, e vtop.Epoch, mode vtop.FenceMode) string {
	switch {
	case c.lease.Holder == "":
		return "no lease"
	case c.lease.Epoch != e:
		return "lease moved"
	case mode == vtop.FenceCut:
		return ""
	}
	id := v.identity.Load()
	if id == nil {
		return "this process is not registered yet"
	}
	mine := c.lease.HeldBy(id.name, id.incarnation)
	switch mode {
	case vtop.FenceLead, vtop.FencePromote:
		return v.refusesHolder(c, mode, mine)
	case vtop.FenceFollow:
		if mine {
			return "the holder does not follow itself"
		}
		if !c.started {
			return "not started"
		}
		return ""
	}
	return "unknown mode"
}

func (v *LeaseView) refusesHolder(c *leaseCell, mode vtop.FenceMode, mine bool) string {
	switch {
	case !mine:
		return "held by another process"
	case mode == vtop.FenceLead && !c.started:
		return "not started"
	case mode == vtop.FencePromote && c.started:
		return "already started"
	case int64(v.clock()) >= v.deadline.Load():
		return "deadline passed"
	}
	return ""
}

func (v *LeaseView) shard(r vtop.Range) *leaseShard {
	h := binary.LittleEndian.Uint32(r.Topic[:]) ^ binary.LittleEndian.Uint32(r.Topic[12:]) ^ uint32(r.Index)*0x9e3779b1
	return &v.shards[h>>26%leaseShards]
}

func (s *leaseShard) get(r vtop.Range) *leaseCell {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cells[r]
}

// set brings one cell to what the state about to be published says; nil means that the range is gone. It waits for
// the functions that run under the cell, if and only if the lease changes. Only the apply goroutine calls it.
func (v *LeaseView) set(id vtop.Range, r *Range) {
	s := v.shard(id)
	c := s.get(id)
	switch {
	case c == nil && r == nil:
	case c == nil:
		s.mu.Lock()
		s.cells[id] = &leaseCell{lease: r.Lease, started: r.Started}
		s.mu.Unlock()
	case r == nil:
		c.mu.Lock()
		c.lease, c.started = vtop.Lease{}, false // for ever, for those who found the cell before
		c.mu.Unlock()
		s.mu.Lock()
		delete(s.cells, id)
		s.mu.Unlock()
	case c.lease != r.Lease || c.started != r.Started: // read without the lock: this goroutine is the only writer
		c.mu.Lock()
		c.lease, c.started = r.Lease, r.Started
		c.mu.Unlock()
	}
}
