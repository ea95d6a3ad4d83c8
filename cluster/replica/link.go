package replica

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// link is the follower's end of one flow: one replica of this node that follows one epoch over one session.
type link struct {
	session *session
	handle  uint32
	r       vtop.Range
	replica vtop.ReplicaID
	epoch   vtop.Epoch
	index   uint64 // to be applied before the request is judged

	// log is set before active becomes true.
	log    *storage.Log
	active atomic.Bool

	// Guarded by session.mu.
	acking bool
	over   bool
	reset  *peerpb.Reset
}

// park leaves a request for the slow worker, which judges it when the applied state is far enough. A newer one takes the
// place of an older one: the leader has asked anew. One of a lower epoch than the one that waits is refused at once: a
// deposed leader that has not heard of it, since its disk hangs, asks over and over, and would push out the request of the
// present one, which asks once and waits for the answer. Whichever is pushed out is told so.
func (s *slot) park(f *link) {
	s.mu.Lock()
	out := s.parked
	if out != nil && out != f && out.epoch > f.epoch && !out.gone() {
		out = f
	} else {
		s.parked = f
	}
	if out == s.parked {
		out = nil
	}
	s.mu.Unlock()
	if out != nil {
		out.session.refuse(out, fmt.Errorf("%w: another request to follow range %s waits to be judged", vtop.ErrNotReady, s.r))
	}
}

func (s *slot) takeParked() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.parked
	s.parked = nil
	return f
}

// settleFollow judges a parked request. slow is held. err is why there is no usable log.
func (e *Engine) settleFollow(ctx context.Context, s *slot, st *fsm.State, rg *fsm.Range, mine fsm.Replica, log *storage.Log, err error) {
	f := s.takeParked()
	if f == nil || f.gone() {
		return
	}
	known := rg.Started && rg.Lease.Epoch == f.epoch && mine.ID == f.replica
	if st.Index() < f.index && rg.Lease.Epoch <= f.epoch && !known {
		s.park(f) // the metadata brings the range here again
		if e.machine.Applied() >= f.index {
			e.slow.add(s.r)
		}
		return
	}
	if err == nil {
		err = e.follow(ctx, s, st, rg, mine, log, f)
	}
	if err != nil {
		f.session.refuse(f, err)
		return
	}
	end, durable, runs := log.Position()
	f.session.control(&peerpb.FollowOK{
		Handle: f.handle, Epoch: int32(f.epoch), End: int64(end), Durable: int64(durable),
		LogStart: int64(log.Start()), Runs: transport.RunsTo(runs),
	})
}

// follow makes the link the one that feeds this replica: reconciled under the epoch, and nothing of an older epoch or link
// can come in any more.
func (e *Engine) follow(ctx context.Context, s *slot, st *fsm.State, rg *fsm.Range, mine fsm.Replica, log *storage.Log, f *link) error {
	// A deposed leader that has not heard of it asks over and over: it must not take the link of the present one away.
	if rg.Lease.Epoch > f.epoch {
		return &vtop.FencedError{Range: s.r, Claimed: f.epoch, Applied: rg.Lease, Reason: "lease moved"}
	}
	if !rg.Lease.HeldBy(f.session.from.Name, f.session.from.Incarnation) && rg.Lease.Epoch == f.epoch {
		return &vtop.FencedError{Range: s.r, Claimed: f.epoch, Applied: rg.Lease, Reason: "another process holds the lease"}
	}
	if old := s.following.Swap(nil); old != nil && old != f {
		old.active.Store(false)
	}
	if rg.Started && rg.Lease.Epoch == f.epoch {
		if err := s.reconcile(ctx, st, rg, log); err != nil {
			return err
		}
	}
	if err := protocol.Follow(f.epoch, f.replica, e.viewOf(st, rg), s.local(mine)); err != nil {
		return err
	}
	if reset := f.takeReset(); reset != nil && log.End() < vtop.Offset(reset.Start) {
		if err := e.reset(ctx, s, rg, log, reset); err != nil {
			return err
		}
	}
	f.log = log
	f.active.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promotion = nil
	s.becomeLocked(RoleFollowing, "")
	s.following.Store(f)
	return nil
}

// reset begins the log anew where the leader's begins: proof that it is too old is in one fenced answer, our end below
// the leader's log start (B8). The log start and the producer state come in the same step; promise and id stay.
func (e *Engine) reset(ctx context.Context, s *slot, rg *fsm.Range, log *storage.Log, m *peerpb.Reset) error {
	if vtop.Offset(m.Start) > rg.LogStart || log.End() >= rg.LogStart {
		return fmt.Errorf("%w: reset to %d, but the applied log start is %d and this log ends at %d",
			vtop.ErrNotReady, m.Start, rg.LogStart, log.End())
	}
	was := log.End()
	if err := log.ResetTo(ctx, rg.Lease.Epoch, vtop.Offset(m.SegmentBase), m.Producers); err != nil {
		return fmt.Errorf("reset to %d: %w", m.SegmentBase, err)
	}
	e.metrics.resets.Add(1)
	e.log.Warn("log began anew: it ended below the log start", "range", e.name(s.r), "ended_at", was, "log_start", rg.LogStart,
		"begins_at", m.SegmentBase, "epoch", rg.Lease.Epoch)
	return nil
}

func (f *link) takeReset() *peerpb.Reset {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	m := f.reset
	f.reset = nil
	return m
}

func (f *link) gone() bool {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	return f.over || f.session.closed
}

// append takes one frame of batches into the log. It runs on the session's reading goroutine and touches memory only.
func (f *link) append(a transport.Append, batches []byte) error {
	end, err := f.log.AppendFollow(f.epoch, vtop.FenceFollow, a.SegmentBase, batches)
	if err != nil {
		return err
	}
	if s := f.session.engine.slotOf(f.r, false); s != nil {
		s.tell(f.epoch, min(a.HighWatermark, end))
	}
	return nil
}
