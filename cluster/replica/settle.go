package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/topicconfig"
)

// reopenFirst and reopenLast bound the pause between two attempts to read a failed log anew.
const reopenFirst, reopenLast = time.Second, 10 * time.Second

// slowStepTime bounds one slow step of one range, so that a disk that hangs does not take a worker for ever.
const slowStepTime = time.Minute

// settle brings one range's replica to what the applied state wants, as far as that needs the disk. It compares and acts
// anew each time; whatever changes meanwhile brings the range here again.
func (e *Engine) settle(r vtop.Range) {
	if !e.caughtUp() || e.ctx.Err() != nil {
		return
	}
	st := e.machine.State()
	rg, mine, ok := e.mine(st, r)
	s := e.slotOf(r, ok || e.store.Get(r) != nil) // directories are made ahead of slots, for a topic that may be deleted meanwhile
	if s == nil {
		return
	}
	s.slow.Lock()
	defer s.slow.Unlock()
	ctx, cancel := context.WithTimeout(e.ctx, slowStepTime)
	defer cancel()
	if !ok {
		e.clear(s, st)
		return
	}
	s.forgive(rg)
	log, err := e.openSlow(s, st, rg, mine)
	if err != nil {
		e.settleFollow(ctx, s, st, rg, mine, nil, err)
		return
	}
	e.followLogStart(s, rg, log)
	e.closeCatalogued(st, r, log)
	e.settleFollow(ctx, s, st, rg, mine, log, nil)
}

// clear takes away the replica of a range that the metadata does not keep on this node. Only a tombstone deletes (E4);
// everything else is set aside.
func (e *Engine) clear(s *slot, st *fsm.State) {
	if f := s.takeParked(); f != nil {
		if st.Index() < f.index {
			s.park(f) // what it speaks of has not been applied yet
			return
		}
		f.session.refuse(f, fmt.Errorf("%w: range %s has no replica on node %q", vtop.ErrUnknownRange, s.r, e.self))
	}
	if rg, ok := st.Range(s.r); ok {
		if why, lost := lostOn(rg, e.self); lost {
			s.become(RoleLost, why)
			return // nothing has taken its place yet: the bytes may be wanted
		}
	}
	if e.store.Get(s.r) != nil || s.opened() != nil {
		s.forgetLog()
		var err error
		if st.Deleted(s.r.Topic) {
			err = e.store.Delete(s.r)
		} else {
			err = e.store.SetAside(s.r, "the metadata names no replica of it on this node")
		}
		if err != nil {
			e.log.Error("cannot take a replica away", "range", e.name(s.r), "error", err)
			return
		}
		e.log.Info("replica taken away", "range", e.name(s.r), "deleted", st.Deleted(s.r.Topic))
	}
	e.slotsMu.Lock()
	delete(e.slots, s.r)
	e.slotsMu.Unlock()
	if _, _, back := e.mine(e.machine.State(), s.r); back {
		e.dirty.add(s.r)
	}
}

// lostOn says why the node's replica of the range is lost in the metadata, if it is.
func lostOn(rg *fsm.Range, self vtop.NodeName) (why string, lost bool) {
	for _, rep := range rg.Replicas {
		if rep.Node == self && rep.Lost != "" {
			return rep.Lost, true
		}
	}
	return "", false
}

// openSlow returns the open, healthy log of the replica that the metadata names, making its directory where that is
// right (I10). slow is held. If the replica may have forgotten, its loss is handed in and the error says why.
func (e *Engine) openSlow(s *slot, st *fsm.State, rg *fsm.Range, mine fsm.Replica) (*storage.Log, error) {
	s.mu.Lock()
	log := s.log
	s.mu.Unlock()
	if log != nil && log.ReplicaID() == mine.ID {
		return log, e.checkHealth(s, rg, mine, log)
	}
	if e.receiving(st, rg, mine) {
		return nil, s.receive(mine)
	}
	found := e.store.Get(s.r)
	if found != nil && found.ReplicaID() != mine.ID {
		if err := e.makeRoom(s, mine, found); err != nil {
			return nil, err
		}
		found = nil
	}
	if found == nil {
		if rg.EverStarted() && mine.Role == fsm.Voter && !e.isNew(mine.ID) {
			return nil, e.lose(s, mine, "its directory is missing, though the range has begun to serve")
		}
		made, err := e.store.Create(s.r, mine.ID, 0)
		if err != nil {
			s.become(RoleFailed, err.Error())
			return nil, fmt.Errorf("create the directory of range %s: %w", s.r, err)
		}
		found = made
	}
	found.OnDurable(func(_ vtop.Offset, err error) { s.onDurable(found, err) })
	s.mu.Lock()
	s.log = found
	s.promise, s.reconciled = protocol.Promise{}, protocol.Compared{}
	if s.role == RoleLost || s.role == RoleFailed || s.role == RoleReceiving {
		s.becomeLocked(RoleIdle, "")
	}
	s.mu.Unlock()
	if t, ok := st.Topic(s.r.Topic); ok {
		found.SetSegmentBytes(topicconfig.Parse(t.Config).RollBytes())
	}
	if mine.Role == fsm.Voter && found.Err() == nil {
		if err := found.Verify(rg.Floor); err != nil && !errors.Is(err, vtop.ErrReplicaLost) && !errors.Is(err, vtop.ErrDamaged) {
			return nil, err
		}
	}
	return found, e.checkHealth(s, rg, mine, found)
}

// receive leaves the replica's directory to the repair job that brings it. slow is held. The error answers for it meanwhile.
func (s *slot) receive(mine fsm.Replica) error {
	s.forgetLog()
	s.become(RoleReceiving, fmt.Sprintf("replica %d is being received", mine.ID))
	return fmt.Errorf("%w: replica %d of range %s is being received", vtop.ErrNotReady, mine.ID, s.r)
}

// isNew reports whether the replica id was given out in this life of the node, after it had caught up: then no directory
// of it was ever here, and an empty one forgets nothing, though others may have begun to serve already (I10).
func (e *Engine) isNew(id vtop.ReplicaID) bool { return id > vtop.ReplicaID(e.inherited.Load()) }

// makeRoom sets the directory of another replica id aside: a lost one whose successor is this, or one that the
// metadata no longer knows.
func (e *Engine) makeRoom(s *slot, mine fsm.Replica, found *storage.Log) error {
	if found.ReplicaID() > mine.ID {
		return e.lose(s, mine, fmt.Sprintf("its directory belongs to the later replica %d", found.ReplicaID()))
	}
	why := fmt.Sprintf("replica %d was replaced by replica %d", found.ReplicaID(), mine.ID)
	s.forgetLog()
	if err := e.store.SetAside(s.r, why); err != nil {
		s.become(RoleFailed, err.Error())
		return fmt.Errorf("set range %s aside: %w", s.r, err)
	}
	e.log.Info("replica set aside", "range", e.name(s.r), "why", why)
	return nil
}

// checkHealth returns nil for a log that may vote; it reads a failed one anew and hands in the loss of a lost one.
func (e *Engine) checkHealth(s *slot, rg *fsm.Range, mine fsm.Replica, log *storage.Log) error {
	err := log.Err()
	switch {
	case err == nil:
		s.mu.Lock()
		if s.role == RoleFailed {
			s.becomeLocked(RoleIdle, "")
		}
		s.mu.Unlock()
		return nil
	case errors.Is(err, vtop.ErrReplicaLost):
		return e.lose(s, mine, err.Error())
	case errors.Is(err, vtop.ErrStorage):
		return e.reopen(s, rg, mine, log)
	default:
		s.become(RoleLost, err.Error())
		return err
	}
}

// reopen reads a failed log anew from the disk. It is tried again with growing pauses, and not between, whatever brings the range
// here: a disk that was full or failing once is a follower's disk again when it works. A log whose files are gone is lost.
func (e *Engine) reopen(s *slot, rg *fsm.Range, mine fsm.Replica, log *storage.Log) error {
	if left := time.Until(s.reopenDue); left > 0 {
		return fmt.Errorf("range %s is read anew in %s: %w", s.r, left.Round(time.Millisecond), log.Err())
	}
	s.touched()
	err := log.Reopen()
	if err == nil {
		err = log.Err()
	}
	switch {
	case errors.Is(err, vtop.ErrReplicaLost):
		return e.lose(s, mine, err.Error())
	case err != nil:
		s.become(RoleFailed, err.Error())
		e.again(s, err)
		return fmt.Errorf("read range %s anew: %w", s.r, err)
	}
	s.reopens, s.reopenDue = 0, time.Time{}
	e.log.Info("log read anew after a storage failure", "range", e.name(s.r), "end", log.End(), "floor", rg.Floor)
	s.become(RoleIdle, "read anew after a storage failure")
	return nil
}

// reopenPause is how long a failed log is left alone after n attempts in a row to read it anew.
func reopenPause(n int) time.Duration {
	d := min(reopenFirst<<min(n, 10), reopenLast)
	return d/2 + rand.N(d/2+1)
}

// again brings the range back to its slow step after a pause. slow is held.
func (e *Engine) again(s *slot, cause error) {
	pause := reopenPause(s.reopens)
	s.reopens++
	s.reopenDue = time.Now().Add(pause)
	e.goroutine(func() {
		if e.rest(pause) {
			e.slow.add(s.r)
		}
	})
	e.log.Debug("slow step is tried again", "range", e.name(s.r), "pause", pause, "cause", cause)
}

// lose says, here and to the metadata, that the replica may have forgotten (I10): it neither leads nor follows any more. It returns
// the error that answers for the replica from now on.
func (e *Engine) lose(s *slot, mine fsm.Replica, why string) error {
	lost := fmt.Errorf("%w: range %s replica %d: %s", vtop.ErrReplicaLost, s.r, mine.ID, why)
	if ld := s.leading.Load(); ld != nil {
		e.giveUp(s, ld.epoch, lost)
	}
	s.stopFollowing(lost)
	s.mu.Lock()
	news := s.lossProposed != mine.ID
	s.lossProposed = mine.ID
	s.becomeLocked(RoleLost, why)
	s.mu.Unlock()
	if news {
		e.log.Error("replica may have forgotten what it held: it does not vote, and is to be repaired",
			"range", e.name(s.r), "replica", mine.ID, "why", why)
		e.handIn.lost(fsm.LostReplica{Range: s.r, ReplicaID: mine.ID}, why)
	}
	return lost
}

// followLogStart takes over the applied log start. A log that ends below it waits to be reset by the leader.
func (e *Engine) followLogStart(s *slot, rg *fsm.Range, log *storage.Log) {
	if rg.LogStart < log.Start() || log.End() < rg.LogStart {
		return // (where it is equal, segments may have been closed since, and go now)
	}
	moved := rg.LogStart > log.Start()
	if err := log.SetLogStart(rg.LogStart); err != nil {
		e.log.Warn("cannot move the log start", "range", e.name(s.r), "to", rg.LogStart, "error", err)
		return
	}
	if moved {
		e.watches.moved(s.r)
	}
}

// closeCatalogued closes a tail that the catalogue ends at the log end, so that the next record begins a segment here as it
// does everywhere (I9). A boundary within the log has come with the records beyond it.
func (e *Engine) closeCatalogued(st *fsm.State, r vtop.Range, log *storage.Log) {
	last, ok := st.LastSegment(r)
	if !ok || log == nil || last.End != log.End() {
		return
	}
	if err := log.CloseAt(last.End); err != nil {
		e.log.Warn("cannot close a segment that the catalogue has", "range", st.RangeName(r), "base", last.Base, "end", last.End, "error", err)
	}
}
