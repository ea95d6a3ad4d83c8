package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/storage/iolock"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// slowWorkers is how many ranges may wait for the disk at once in their slow steps.
const slowWorkers = 8

// Engine holds the replicas of one node and does with each what the applied metadata wants. All methods are safe for
// concurrent use.
type Engine struct {
	// Set once.
	cfg      Config
	self     vtop.NodeName
	machine  *fsm.Machine
	store    *storage.Store
	log      hclog.Logger
	ctx      context.Context
	cancel   context.CancelCauseFunc
	watches  *watches
	dirty    *work // changed in the metadata: looked at by the loop, quickly
	slow     *work // wants a slow step
	promoter *promoter
	handIn   *handIn
	duties   chan struct{} // has room for one: do the duties now

	admitting atomic.Bool
	ready     atomic.Bool // the metadata has caught up
	// inherited is the highest replica id of this node that was given out before ready: its directory may be lost.
	inherited atomic.Uint64
	metrics   metrics
	suspects  *suspects
	pins      pinned
	pressure  pressure
	holes     chan struct{} // has room for one: a segment was found damaged
	healNow   chan struct{} // has room for one: a repair job or a set of replicas has changed
	served    chan struct{} // one entry per segment that is read for others
	mending   iolock.Mutex

	slotsMu sync.RWMutex
	slots   map[vtop.Range]*slot

	peersMu sync.Mutex
	peers   map[vtop.NodeName]*peer

	wgMu   sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// New starts an engine over an open store. It leads, follows and changes nothing before the metadata has caught up.
// The store's fence must be the machine's lease view. Close ends it; the store stays open.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, self: cfg.Self, machine: cfg.Machine, store: cfg.Store, log: cfg.Log.Named("replica"),
		watches: newWatches(), dirty: newWork(), slow: newWork(), duties: make(chan struct{}, 1),
		slots: make(map[vtop.Range]*slot), peers: make(map[vtop.NodeName]*peer),
		suspects: newSuspects(), holes: make(chan struct{}, 1), healNow: make(chan struct{}, 1), served: make(chan struct{}, maxServed),
	}
	e.pins.of = make(map[storage.PinID]*peerpb.Snapshot)
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.promoter, e.handIn = newPromoter(e), newHandIn(e)
	e.admitting.Store(true)
	e.machine.Observe(e.observe)
	e.goroutine(e.loop)
	e.goroutine(e.promoter.run)
	e.goroutine(e.handIn.run)
	e.goroutine(e.runDuties)
	e.goroutine(e.awaitCaughtUp)
	e.goroutine(e.runHealer)
	e.goroutine(e.runSuspects)
	e.goroutine(e.runMender)
	e.goroutine(e.runNames)
	for range slowWorkers {
		e.goroutine(e.slowWorker)
	}
	return e, nil
}

// goroutine runs fn until it returns; Close waits for it. Nothing is started once Close has begun to wait.
func (e *Engine) goroutine(fn func()) bool {
	e.wgMu.Lock()
	defer e.wgMu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		fn()
	}()
	return true
}

// observe runs on the machine's apply goroutine: it copies and enqueues.
func (e *Engine) observe(c fsm.Change) {
	e.dirty.add(c.Ranges...)
	if c.Restored || c.Topics || c.Nodes {
		e.Wake()
	}
	if c.Repairs || c.Restored {
		select {
		case e.healNow <- struct{}{}:
		default:
		}
	}
}

// Wake has the engine look at all its ranges again.
func (e *Engine) Wake() {
	for rg := range e.machine.State().RangesOf(e.self) {
		e.dirty.add(rg.ID)
	}
	for _, s := range e.allSlots() {
		e.dirty.add(s.r)
	}
}

func (e *Engine) caughtUp() bool { return e.ready.Load() }

// awaitCaughtUp turns the engine on.
func (e *Engine) awaitCaughtUp() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !e.cfg.CaughtUp() {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
	}
	for rg := range e.machine.State().RangesOf(e.self) {
		for _, rep := range rg.Replicas {
			if rep.Node == e.self && uint64(rep.ID) > e.inherited.Load() {
				e.inherited.Store(uint64(rep.ID))
			}
		}
	}
	e.ready.Store(true)
	e.adopt()
	e.Wake()
}

// adopt looks at the directories that were there before the metadata was.
func (e *Engine) adopt() {
	for _, info := range e.store.List() {
		e.slotOf(info.Range, true)
	}
}

func (e *Engine) slotOf(r vtop.Range, create bool) *slot {
	e.slotsMu.RLock()
	s := e.slots[r]
	e.slotsMu.RUnlock()
	if s != nil || !create {
		return s
	}
	e.slotsMu.Lock()
	defer e.slotsMu.Unlock()
	if s = e.slots[r]; s == nil {
		s = newSlot(e, r)
		e.slots[r] = s
	}
	return s
}

func (e *Engine) allSlots() []*slot {
	e.slotsMu.RLock()
	defer e.slotsMu.RUnlock()
	out := make([]*slot, 0, len(e.slots))
	for _, s := range e.slots {
		out = append(out, s)
	}
	return out
}

func (e *Engine) dial(ctx context.Context, to vtop.NodeName) (*transport.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return e.cfg.Network.Dial(ctx, to)
}

// loop compares each changed range with the applied state. It waits for nothing but work.
func (e *Engine) loop() {
	for {
		ranges, ok := e.dirty.takeAll()
		if !ok {
			return
		}
		if !e.caughtUp() {
			continue // awaitCaughtUp looks at everything
		}
		st := e.machine.State()
		for _, r := range ranges {
			e.turn(st, r)
		}
		e.promoter.kick()
		e.settleLater(st, ranges)
	}
}

// settleLater hands the ranges to the slow workers; where many directories are to be made, those are made together first.
func (e *Engine) settleLater(st *fsm.State, ranges []vtop.Range) {
	if len(ranges) < 2 {
		e.slow.add(ranges...)
		return
	}
	e.goroutine(func() {
		e.createMissing(st, ranges)
		e.slow.add(ranges...)
	})
}

// turn does at once what can be done at once, and hands the rest to the slow workers and the promoter.
func (e *Engine) turn(st *fsm.State, r vtop.Range) {
	rg, mine, ok := e.mine(st, r)
	s := e.slotOf(r, ok)
	if s == nil {
		return
	}
	if !ok {
		gone := fmt.Errorf("%w: the metadata names no replica of range %s on this node", vtop.ErrUnknownRange, r)
		s.stopLeading(gone)
		s.stopFollowing(gone)
		return
	}
	held := rg.Lease.HeldBy(e.self, e.cfg.Incarnation)
	if ld := s.leading.Load(); ld != nil && (!held || !rg.Started || ld.epoch != rg.Lease.Epoch || ld.self != mine.ID) {
		s.stopLeading(&vtop.FencedError{Range: r, Claimed: ld.epoch, Applied: rg.Lease, Reason: "lease moved"})
	}
	if f := s.following.Load(); f != nil && (f.epoch != rg.Lease.Epoch || f.replica != mine.ID) {
		s.stopFollowing(&vtop.FencedError{Range: r, Claimed: f.epoch, Applied: rg.Lease, Reason: "lease moved"})
	}
	s.forgive(rg)
	if !held {
		s.forgetPromotion()
	}
	switch {
	case held && rg.Started && mine.CanVote():
		e.turnLeader(s, st, rg, mine)
	case held && mine.CanVote():
		e.promoter.add(s, rg, mine)
	}
	if s.leading.Load() == nil {
		e.watches.moved(r) // whoever waits for this node to lead looks again
	}
}

// mine finds the range and the replica of it that this node is to keep.
func (e *Engine) mine(st *fsm.State, r vtop.Range) (*fsm.Range, fsm.Replica, bool) {
	rg, ok := st.Range(r)
	if !ok {
		return nil, fsm.Replica{}, false
	}
	mine, ok := rg.On(e.self)
	return rg, mine, ok
}

// turnLeader begins or goes on leading an epoch that the metadata has started.
func (e *Engine) turnLeader(s *slot, st *fsm.State, rg *fsm.Range, mine fsm.Replica) {
	if ld := s.leading.Load(); ld != nil {
		ld.applied(rg)
		return
	}
	s.mu.Lock()
	log, dropped := s.log, s.dropped
	s.mu.Unlock()
	if dropped == rg.Lease.Epoch {
		return // given up: the release is on its way
	}
	err := e.mayLead(s, st, rg, mine, log)
	var ld *leadership
	if err == nil {
		ld, err = s.lead(rg, mine.ID, log, st.Index())
	}
	if err != nil {
		e.log.Error("cannot lead", "range", st.RangeName(s.r), "epoch", rg.Lease.Epoch, "error", err)
		e.giveUp(s, rg.Lease.Epoch, err)
		return
	}
	s.mu.Lock()
	s.promotion = nil
	s.becomeLocked(RoleLeading, "")
	s.mu.Unlock()
	s.leading.Store(ld)
	e.log.Info("leading", "range", st.RangeName(s.r), "epoch", ld.epoch, "start", ld.start, "high_watermark", ld.highWatermark())
	ld.applied(rg)
	ld.acknowledge(ld.self, log.Durable())
	e.watches.moved(s.r)
}

// mayLead looks whether the log is the one with which the epoch started.
func (e *Engine) mayLead(s *slot, st *fsm.State, rg *fsm.Range, mine fsm.Replica, log *storage.Log) error {
	if log == nil || log.ReplicaID() != mine.ID {
		return errors.New("the epoch started, but its log is not open")
	}
	start, _ := rg.Epochs.Last()
	if end, durable, _ := log.Position(); end != start.Start || durable != end {
		// An earlier proposal, thought lost, was taken after the log had grown by a longer voter's records: they lie beyond
		// the start, and to append behind them would give their offsets a second meaning (I2).
		return fmt.Errorf("epoch %d started at %d, but this log ends at %d (durable %d)", rg.Lease.Epoch, start.Start, end, durable)
	}
	s.mu.Lock()
	if s.reconciled.Epoch == rg.Lease.Epoch {
		s.reconciled.Started = true // the log ends where the epoch starts: the new entry of the table changes nothing
	}
	s.mu.Unlock()
	return protocol.Serve(rg.Lease, mine.ID, e.viewOf(st, rg), s.local(mine))
}

// stopLeading ends the leadership if there is one.
func (s *slot) stopLeading(cause error) {
	ld := s.leading.Load()
	if ld == nil {
		return
	}
	s.leading.CompareAndSwap(ld, nil)
	s.tell(ld.epoch, ld.highWatermark())
	s.become(RoleIdle, cause.Error())
	ld.stop(cause)
	s.engine.log.Info("no longer leading", "range", s.engine.name(s.r), "epoch", ld.epoch, "cause", cause)
}

// stopFollowing ends the link to the leader if there is one.
func (s *slot) stopFollowing(cause error) {
	f := s.following.Load()
	if f == nil || !s.following.CompareAndSwap(f, nil) {
		return
	}
	s.become(RoleIdle, cause.Error())
	f.session.refuse(f, cause)
}

// giveUp ends this process's part in an epoch that the metadata still holds for it, and hands the lease back.
func (e *Engine) giveUp(s *slot, epoch vtop.Epoch, cause error) {
	s.mu.Lock()
	s.dropped = max(s.dropped, epoch)
	s.promotion = nil
	s.mu.Unlock()
	s.stopLeading(cause)
	e.handIn.release(fsm.Release{Range: s.r, Epoch: epoch, Reason: clip(cause.Error())})
}

// failed is told that the disk failed under a log: its epoch ends, and the log is read anew before anything else.
func (e *Engine) failed(s *slot, err error) {
	e.metrics.storageFailures.Add(1)
	e.log.Error("storage failed under a range", "range", e.name(s.r), "error", err)
	s.touched()
	if ld := s.leading.Load(); ld != nil {
		e.giveUp(s, ld.epoch, err)
	}
	s.stopFollowing(err)
	s.become(RoleFailed, err.Error())
	e.slow.add(s.r)
}

func (e *Engine) slowWorker() {
	for {
		r, ok := e.slow.take()
		if !ok {
			return
		}
		e.settle(r)
		e.slow.done(r)
	}
}

// clip keeps a reason within what the metadata takes.
func clip(s string) string {
	if len(s) > 900 {
		return s[:900] + "…"
	}
	return s
}
