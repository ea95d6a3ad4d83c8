package replica

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
)

// maxPending bounds the batches of one range that wait for their acknowledgement (I13). Beyond it Append answers
// vtop.ErrOverloaded.
const maxPending = 16384

// leadership is one epoch of one range that this process leads. It begins when StartEpoch is applied and ends with
// the lease; its context ends with it, the cause being the error that ended it. It is never used again.
type leadership struct {
	slot  *slot
	r     vtop.Range
	epoch vtop.Epoch
	start vtop.Offset // where the epoch began to serve
	self  vtop.ReplicaID
	log   *storage.Log
	index uint64 // applied when it began: a follower that has applied as much knows of the epoch
	ctx   context.Context
	end   context.CancelCauseFunc

	// visible is the high watermark; it only rises. Written under mu.
	visible atomic.Int64
	// flows are the replicas fed; the slice is replaced, never edited. Written under mu.
	flows atomic.Pointer[[]*flow]
	// noSpace: a batch was refused for want of space since the duties looked last.
	noSpace atomic.Bool
	// registering has room for the one goroutine that computes roots and proposes segments.
	registering chan struct{}

	mu       sync.Mutex
	ended    error
	book     *protocol.Leading
	all      waitList // acks=all
	one      waitList // acks=1
	change   *voterChange
	reported fsm.FloorReport // what the state machine was told last
}

// lead opens a leadership. The log is reconciled, durable up to start, and the metadata has started the epoch.
func (s *slot) lead(rg *fsm.Range, self vtop.ReplicaID, log *storage.Log, index uint64) (*leadership, error) {
	start, _ := rg.Epochs.Last()
	book, err := protocol.Lead(rg.Lease.Epoch, start.Start, self, membersOf(rg), s.knownHighWatermark(rg.Floor))
	if err != nil {
		return nil, err
	}
	l := &leadership{slot: s, r: s.r, epoch: rg.Lease.Epoch, start: start.Start, self: self, log: log, index: index, book: book,
		registering: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancelCause(s.engine.ctx)
	l.visible.Store(int64(book.HighWatermark()))
	l.flows.Store(new([]*flow))
	return l, nil
}

// membersOf reads who counts from the applied state. A lost voter is in the set, since it counts in the quorum's size, but
// what it says counts for nothing (I10).
func membersOf(rg *fsm.Range) protocol.Members {
	var voters, learners, lost []vtop.ReplicaID
	for _, rep := range rg.Replicas {
		if rep.Role == fsm.Voter {
			voters = append(voters, rep.ID)
		} else {
			learners = append(learners, rep.ID)
		}
		if rep.Lost != "" {
			lost = append(lost, rep.ID)
		}
	}
	return protocol.Members{Version: rg.ConfigVersion, Voters: protocol.NewSet(voters...),
		Learners: protocol.NewSet(learners...), Lost: protocol.NewSet(lost...)}
}

// highWatermark is the offset below which everything is durable on a majority.
func (l *leadership) highWatermark() vtop.Offset { return vtop.Offset(l.visible.Load()) }

// settled reports whether the high watermark has reached the epoch's start, so that an end offset told now is not
// below one that an earlier leader told (I7).
func (l *leadership) settled() bool { return l.highWatermark() >= l.start }

// admit has done answered when the batch [base, last] is safe enough for acks. The batch is in the log already. A
// recognised duplicate comes by the same door and waits as its original would.
func (l *leadership) admit(base, last vtop.Offset, acks int16, done func(vtop.AppendResult)) {
	now := time.Now()
	w := waiter{base: base, last: last, since: now, expires: now.Add(l.slot.engine.cfg.AckTimeout), done: done}
	l.mu.Lock()
	switch {
	case l.ended != nil:
		err := l.ended
		l.mu.Unlock()
		done(vtop.AppendResult{Base: base, LogStart: -1, Err: err}) // it is in the log: its fate is unknown
		return
	case acks == 1 && last >= l.log.Durable():
		l.one.add(w)
	case acks != 1 && l.book.Verdict(protocol.Pending{Epoch: l.epoch, End: last + 1}) == protocol.Wait:
		l.all.add(w)
	default:
		l.mu.Unlock()
		done(vtop.AppendResult{Base: base, LogStart: l.log.Start()})
		return
	}
	l.mu.Unlock()
}

// full reports whether no more batches may wait.
func (l *leadership) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.len() >= maxPending || l.one.len() >= maxPending
}

// acknowledge notes that replica id has everything below end durable under this epoch, moves the high watermark by
// the majority rule, and answers what became safe. Ends that go back are old news and change nothing (A7).
func (l *leadership) acknowledge(id vtop.ReplicaID, end vtop.Offset) {
	var room [32]waiter
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return
	}
	moved := l.book.Acknowledge(l.epoch, id, end)
	ready := room[:0]
	if id == l.self {
		ready = l.one.below(end, ready)
	}
	if moved {
		ready = l.raiseLocked(ready)
	}
	l.mu.Unlock()
	l.answer(ready, moved)
}

// raiseLocked publishes the book's high watermark and takes out what it covers.
func (l *leadership) raiseLocked(ready []waiter) []waiter {
	l.visible.Store(int64(l.book.HighWatermark()))
	return l.all.below(l.highWatermark(), ready)
}

// answer completes waiters; no lock may be held. What became safe is told under a lease that is still held: a process
// that slept, and finds in its sockets what followers acknowledged before, acknowledges nothing once its deadline has
// passed. The records are where they are; the client asks the next leader.
func (l *leadership) answer(ready []waiter, moved bool) {
	if len(ready) > 0 {
		start := l.log.Start()
		err := l.slot.engine.machine.Leases().Hold(l.r, l.epoch, vtop.FenceLead, nothing)
		if err != nil {
			err = fmt.Errorf("%w: %w", vtop.ErrNotLeader, err)
		}
		for i := range ready {
			ready[i].done(vtop.AppendResult{Base: ready[i].base, LogStart: start, Err: err})
		}
	}
	if moved {
		l.slot.engine.watches.moved(l.r)
	}
}

// stop ends the leadership: its context, and every batch that still waits, with an error that tells the client to
// look for the next leader. It waits for nothing and may be called twice.
func (l *leadership) stop(cause error) {
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return
	}
	err := fmt.Errorf("%w: epoch %d of range %s has ended: %w", vtop.ErrNotLeader, l.epoch, l.r, cause)
	l.ended = err
	waiting := l.one.all(l.all.all(nil))
	flows := *l.flows.Swap(new([]*flow))
	l.mu.Unlock()
	l.end(err)
	for _, f := range flows {
		f.peer.drop(f)
	}
	for _, w := range waiting {
		w.done(vtop.AppendResult{Base: w.base, LogStart: -1, Err: err})
	}
	l.slot.engine.watches.moved(l.r)
}

// expire answers the batches whose time is over: the outcome is unknown.
func (l *leadership) expire(now time.Time) {
	l.mu.Lock()
	late := l.one.expired(now, l.all.expired(now, nil))
	l.mu.Unlock()
	for _, w := range late {
		w.done(vtop.AppendResult{Base: w.base, LogStart: -1, Err: fmt.Errorf("%w: range %s offset %d is not on a majority yet",
			vtop.ErrTimeout, l.r, w.base)})
	}
}

// kick tells the senders that the log has grown.
func (l *leadership) kick() {
	for _, f := range *l.flows.Load() {
		f.peer.ready(f)
	}
}

// applied takes over what the applied state says of the range's replicas: who counts, and who is to be fed.
func (l *leadership) applied(rg *fsm.Range) {
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return
	}
	moved := l.book.Applied(membersOf(rg))
	var ready []waiter
	if moved {
		ready = l.raiseLocked(nil)
	}
	dropped := l.refeedLocked(rg)
	l.mu.Unlock()
	for _, f := range dropped {
		f.peer.drop(f)
	}
	l.answer(ready, moved)
}

// refeedLocked makes the flows those of the replicas that are neither lost nor this one, and returns the flows that are no
// longer wanted.
func (l *leadership) refeedLocked(rg *fsm.Range) (dropped []*flow) {
	old := *l.flows.Load()
	kept := make([]*flow, 0, len(rg.Replicas))
	for _, f := range old {
		if rep, ok := rg.Replica(f.replica); ok && rep.Lost == "" {
			kept = append(kept, f)
		} else {
			dropped = append(dropped, f)
		}
	}
	for _, rep := range rg.Replicas {
		if rep.ID == l.self || rep.Lost != "" || rep.Node == l.slot.engine.self || slices.ContainsFunc(kept, func(f *flow) bool { return f.replica == rep.ID }) {
			continue
		}
		kept = append(kept, l.slot.engine.peerOf(rep.Node).feed(l, rep.ID))
	}
	l.flows.Store(&kept)
	return dropped
}

// fits checks what a follower says of its reconciled log: it must be a prefix of this one.
func (l *leadership) fits(end, durable vtop.Offset, runs []vtop.EpochRun) error {
	own := l.log.End()
	if end > own || durable > end {
		return fmt.Errorf("follower ends at %d (durable %d), the leader's log ends at %d: it was not reconciled", end, durable, own)
	}
	mine := l.log.Runs()
	for i, run := range runs {
		if run.Start >= end || len(mine) == 0 || run.Start < mine[0].Start {
			continue
		}
		last := end - 1
		if i+1 < len(runs) {
			last = runs[i+1].Start - 1
		}
		for _, at := range [2]vtop.Offset{run.Start, last} {
			if e := epochAt(mine, at); at >= mine[0].Start && e != run.Epoch {
				return fmt.Errorf("follower has epoch %d at offset %d, the leader has epoch %d: it was not reconciled", run.Epoch, at, e)
			}
		}
	}
	return nil
}

// epochAt returns the epoch of the record at o in a log of these runs.
func epochAt(runs []vtop.EpochRun, o vtop.Offset) vtop.Epoch {
	epoch := vtop.NoEpoch
	for _, run := range runs {
		if run.Start > o {
			break
		}
		epoch = run.Epoch
	}
	return epoch
}
