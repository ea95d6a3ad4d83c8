package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/storage/iolock"
)

// slot is this node's place for its replica of one range, through all the lives of that replica.
type slot struct {
	engine *Engine
	r      vtop.Range

	// slow orders the steps that wait for a disk: opening, reconciling, promising, resetting, reopening. It is taken
	// before everything else and never on the way of a batch.
	slow iolock.Mutex

	leading   atomic.Pointer[leadership]
	following atomic.Pointer[link]

	mu   sync.Mutex
	role Role
	why  string
	log  *storage.Log
	// promise remembers to whom this process gave its promise; the epoch itself is on disk.
	promise protocol.Promise
	// reconciled is the state of the lease under which the log was last compared with the epoch table. It tells a table with
	// the epoch's own start from one without: a follower needs the former, for its log may be longer than the start.
	reconciled protocol.Compared
	// contradiction says why the log is quarantined by the metadata (I8); empty if it is not.
	contradiction string
	// told is the offset below which this replica knows its own records to be committed: a high watermark that a leader told it
	// after it had reconciled under that leader's epoch, at most its log end then, or its own as a leader; -1 if none.
	told vtop.Offset
	// given is the last loss of the range that an operator accepted, as far as this slot has taken note: what was told of the
	// offsets from there on, under epochs up to that one, is void.
	given fsm.LostOffsets
	// parked is a request to follow that waits for its turn.
	parked *link
	// dropped is the last epoch whose leadership this process gave up by itself: it does not take it up again.
	dropped vtop.Epoch
	// lossProposed is the replica id whose loss was handed in.
	lossProposed vtop.ReplicaID
	promotion    *promotion

	// mended belongs to Engine.mend.
	mended mending

	// reopens counts the attempts in a row to read a failed log anew, and reopenDue is when the next one may be. Under slow.
	reopens   int
	reopenDue time.Time
}

func newSlot(e *Engine, r vtop.Range) *slot { return &slot{engine: e, r: r, told: protocol.NoOffset} }

// opened returns the open log, or nil.
func (s *slot) opened() *storage.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log
}

// knownHighWatermark is the highest one that this process knows for sure.
func (s *slot) knownHighWatermark(floor vtop.Offset) vtop.Offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(floor, s.told)
}

// tell notes a high watermark that a leader told under an epoch.
func (s *slot) tell(epoch vtop.Epoch, hw vtop.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch <= s.given.Epoch && s.given.Index != 0 {
		hw = min(hw, s.given.From)
	}
	s.told = max(s.told, hw)
}

// forgive takes note of a loss that an operator accepted (fsm.RecoverRange): what this process was told of the lost offsets binds
// it no more. Otherwise the kept log, which ends there, could never be led again.
func (s *slot) forgive(rg *fsm.Range) {
	if len(rg.LostOffsets) == 0 {
		return
	}
	last := rg.LostOffsets[len(rg.LostOffsets)-1]
	s.mu.Lock()
	defer s.mu.Unlock()
	if last.Index <= s.given.Index {
		return
	}
	s.given = last
	s.told = min(s.told, last.From)
}

// become notes the role, and why, for those who ask.
func (s *slot) become(role Role, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.becomeLocked(role, why)
}

func (s *slot) becomeLocked(role Role, why string) {
	if s.role != role {
		s.engine.log.Debug("role", "range", s.engine.name(s.r), "from", s.role, "to", role, "why", why)
	}
	s.role, s.why = role, why
}

// local is what the directory says of the replica, as the protocol asks it.
func (s *slot) local(mine fsm.Replica) protocol.Local {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := protocol.Local{Lost: mine.Lost, Reconciled: s.reconciled}
	if s.log == nil {
		return l
	}
	l.Replica = s.log.ReplicaID()
	l.Promise = protocol.Promise{Epoch: s.log.Promised()}
	if l.Promise.Epoch == s.promise.Epoch {
		l.Promise = s.promise
	}
	if err := s.log.Err(); err != nil {
		l.Lost = err.Error()
	} else if s.contradiction != "" {
		l.Lost = s.contradiction
	}
	return l
}

// viewOf is what the applied state says of the range, as the protocol asks it.
func (e *Engine) viewOf(st *fsm.State, rg *fsm.Range) protocol.View {
	return protocol.View{
		CaughtUp: e.caughtUp(), Index: st.Index(), Lease: rg.Lease, Started: rg.Started, Table: rg.Epochs, Floor: rg.Floor,
	}
}

// reconcile compares the log with the epoch table under the present lease, and cuts what the table proves divergent
// (I8). slow is held. It is the one place from which a log is ever cut.
func (s *slot) reconcile(ctx context.Context, st *fsm.State, rg *fsm.Range, log *storage.Log) error {
	s.mu.Lock()
	known := max(s.told, 0)
	done := s.reconciled == (protocol.Compared{Epoch: rg.Lease.Epoch, Started: rg.Started})
	s.mu.Unlock()
	if done {
		return nil
	}
	end, _, runs := log.Position()
	d := protocol.Reconcile(s.engine.viewOf(st, rg), known, runs, end)
	if d.Action == protocol.Quarantine {
		return s.quarantine(d.Why)
	}
	cut, err := log.Reconcile(ctx, rg.Lease.Epoch, rg.Epochs, known)
	if err != nil {
		return fmt.Errorf("reconcile under epoch %d: %w", rg.Lease.Epoch, err)
	}
	if cut.Done {
		s.engine.metrics.cuts.Add(1)
		s.engine.log.Warn("cut divergent records", "range", st.RangeName(s.r), "from", cut.From, "to", cut.To, "bytes", cut.Bytes,
			"under_epoch", rg.Lease.Epoch, "proof", d.Why)
	}
	s.mu.Lock()
	s.reconciled, s.contradiction = protocol.Compared{Epoch: rg.Lease.Epoch, Started: rg.Started}, ""
	s.mu.Unlock()
	return nil
}

// quarantine says that the log contradicts the metadata; nothing is cut, and the replica does not vote.
func (s *slot) quarantine(why string) error {
	s.mu.Lock()
	news := s.contradiction != why
	s.contradiction = why
	s.becomeLocked(RoleLost, "quarantined: "+why)
	s.mu.Unlock()
	if news {
		s.engine.log.Error("log contradicts the metadata: quarantined, nothing is cut; see docs/operations.md", "range", s.engine.name(s.r), "why", why)
	}
	return &storage.QuarantineError{Range: s.r, Reason: why}
}

// forgetLog closes the chapter of one replica id. slow is held.
func (s *slot) forgetLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reopens, s.reopenDue = 0, time.Time{}
	s.log, s.promise, s.reconciled = nil, protocol.Promise{}, protocol.Compared{}
	s.contradiction, s.told = "", protocol.NoOffset
}

// touched says that the log was changed in another way than by appending: it has to be compared anew.
func (s *slot) touched() {
	s.mu.Lock()
	s.reconciled = protocol.Compared{}
	s.mu.Unlock()
}

// onDurable is told by the log's flusher how far it got. The end is read again here, after the epoch: a cut may have
// come between.
func (s *slot) onDurable(log *storage.Log, err error) {
	if err != nil {
		s.engine.failed(s, err)
		return
	}
	if ld := s.leading.Load(); ld != nil && ld.log == log {
		ld.acknowledge(ld.self, log.Durable())
		return
	}
	if f := s.following.Load(); f != nil && f.log == log {
		f.session.acknowledge(f)
	}
}
