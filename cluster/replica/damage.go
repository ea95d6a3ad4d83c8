package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// maxSuspects bounds the segments that others have reported and that are not looked at yet (I13).
	maxSuspects = 64
	// reportPatience is how long a report waits for the verdict; after that it is pending, and the look goes on.
	reportPatience = 8 * time.Second
	// mendFirst and mendLast bound the pause between two attempts to have the same replica's damage mended.
	mendFirst, mendLast = 10 * time.Second, 10 * time.Minute
	// StateDamaged is the word for a replica with holes, on the wire too: see LogEnds.
	StateDamaged = "damaged"
)

// suspects are segments that another node could not verify. They are read one after another.
type suspects struct {
	mu sync.Mutex
	of map[suspect]*look
	// next has room for all of them.
	next chan suspect
}

type suspect struct {
	r    vtop.Range
	base vtop.Offset
}

// look is one segment being read; done is closed when err is set.
type look struct {
	done chan struct{}
	err  error
}

func newSuspects() *suspects {
	return &suspects{of: make(map[suspect]*look), next: make(chan suspect, maxSuspects)}
}

// ReportDamage reads this node's own bytes of a segment that another node could not verify. What is bad becomes a hole: it is
// served no more, and mended. It implements transport.SegmentHandler.
func (e *Engine) ReportDamage(ctx context.Context, from transport.Caller, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error) {
	r, err := transport.RangeFrom(req.GetRange())
	if err != nil {
		return nil, err
	}
	answer := func(v peerpb.DamageVerdict, format string, args ...any) (*peerpb.ReportDamageResponse, error) {
		return &peerpb.ReportDamageResponse{Verdict: v, Message: fmt.Sprintf(format, args...)}, nil
	}
	log := e.store.Get(r)
	if log == nil || req.GetReplicaId() != 0 && uint64(log.ReplicaID()) != req.GetReplicaId() {
		return answer(peerpb.DamageVerdict_DAMAGE_VERDICT_UNKNOWN, "replica %d of range %s is not on node %q", req.GetReplicaId(), r, e.self)
	}
	e.log.Warn("another node could not verify a segment that it read here", "range", e.name(r), "base", req.GetBase(), "chunk", req.GetChunk(),
		"node", from.Name, "reason", clip(req.GetReason()))
	l, err := e.suspects.add(suspect{r, vtop.Offset(req.GetBase())})
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(reportPatience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		return answer(peerpb.DamageVerdict_DAMAGE_VERDICT_PENDING, "it is being read")
	case <-ctx.Done():
		return answer(peerpb.DamageVerdict_DAMAGE_VERDICT_PENDING, "it is being read")
	}
	switch {
	case l.err == nil:
		return answer(peerpb.DamageVerdict_DAMAGE_VERDICT_OK, "its bytes verify on node %q: they were damaged on the way", e.self)
	case errors.Is(l.err, vtop.ErrDamaged):
		return answer(peerpb.DamageVerdict_DAMAGE_VERDICT_BAD, "%v", l.err)
	}
	return answer(peerpb.DamageVerdict_DAMAGE_VERDICT_UNKNOWN, "%v", l.err)
}

func (q *suspects) add(s suspect) (*look, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.of[s]; l != nil {
		return l, nil
	}
	l := &look{done: make(chan struct{})}
	select {
	case q.next <- s:
		q.of[s] = l
		return l, nil
	default:
		return nil, fmt.Errorf("%w: %d reported segments wait to be read", vtop.ErrOverloaded, maxSuspects)
	}
}

// runSuspects reads what was reported.
func (e *Engine) runSuspects() {
	q := e.suspects
	for {
		select {
		case s := <-q.next:
			err := fmt.Errorf("%w: %s", vtop.ErrUnknownRange, s.r)
			if log := e.store.Get(s.r); log != nil {
				err = log.VerifySegment(e.ctx, s.base)
			}
			q.mu.Lock()
			l := q.of[s]
			delete(q.of, s)
			q.mu.Unlock()
			l.err = err
			close(l.done)
		case <-e.ctx.Done():
			return
		}
	}
}

// Damaged is told by the store what it found damaged or gone; it does not block. A hole is mended, a lost replica handed in.
func (e *Engine) Damaged(d storage.Damage) {
	if !d.Hole {
		e.slow.add(d.Range)
		return
	}
	select {
	case e.holes <- struct{}{}:
	default:
	}
}

// runMender looks at the holes of this node's replicas when one was found, and with every round of the duties.
func (e *Engine) runMender() {
	for {
		select {
		case <-e.holes:
			e.mend(e.ctx)
		case <-e.ctx.Done():
			return
		}
	}
}

// mend goes through the replicas of this node that have holes (I9): where this node leads and another voter is whole, the lease
// goes there; and a repair job is asked for that fetches the missing segments alone.
func (e *Engine) mend(ctx context.Context) {
	e.mending.Lock()
	defer e.mending.Unlock()
	if !e.caughtUp() {
		return
	}
	for _, s := range e.allSlots() {
		log := s.opened()
		if log == nil || ctx.Err() != nil {
			continue
		}
		info := log.Info()
		if info.State != storage.StateHoles {
			s.mended = mending{}
			continue
		}
		st := e.machine.State()
		rg, mine, ok := e.mine(st, s.r)
		if !ok || !mine.CanVote() || log.ReplicaID() != mine.ID || time.Now().Before(s.mended.due) {
			continue
		}
		if ld := s.leading.Load(); ld != nil {
			e.handOver(ctx, rg, ld, info.Reason)
		}
		if e.cfg.RepairJobs {
			e.askMending(ctx, st, rg, info.Reason)
		}
		s.mended.due = time.Now().Add(min(mendFirst<<min(s.mended.tries, 8), mendLast))
		s.mended.tries++
	}
}

// mending counts the attempts to have one replica mended. It belongs to Engine.mend.
type mending struct {
	tries int
	due   time.Time
}

// askMending asks for a repair job that fills this node's holes, unless there is one.
func (e *Engine) askMending(ctx context.Context, st *fsm.State, rg *fsm.Range, why string) {
	if _, ok := st.ActiveRepair(rg.ID, e.self); ok || st.Heal().Paused {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dutyTime)
	defer cancel()
	out, err := e.cfg.Propose(ctx, &fsm.SubmitRepairs{At: e.cfg.Now().UnixMilli(), Items: []fsm.RepairRequest{{
		Range: rg.ID, Destination: e.self, Holes: true, Origin: fsm.OriginHeal, Reason: clip(why), Config: rg.ConfigVersion, MaxRate: e.cfg.RepairRate,
	}}})
	if err == nil {
		err = out.Err()
	}
	if err == nil && len(out.Items) == 1 {
		err = out.Items[0].Err()
	}
	if err != nil {
		e.log.Warn("damaged segments are not mended yet", "range", st.RangeName(rg.ID), "error", err)
		return
	}
	e.log.Info("damaged segments are to be fetched again", "range", st.RangeName(rg.ID), "repair", out.Items[0].Repair)
}

// handOver gives the lease back if another voter that follows says of itself that it is whole.
func (e *Engine) handOver(ctx context.Context, rg *fsm.Range, ld *leadership, why string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	live := ld.live()
	for _, rep := range rg.Voters() {
		if rep.ID == ld.self || !rep.CanVote() || !live[rep.ID] || !e.saysWhole(ctx, rg.ID, rep) {
			continue
		}
		e.giveUp(ld.slot, ld.epoch, fmt.Errorf("%w: replica %d on %q is whole: %s", vtop.ErrDamaged, rep.ID, rep.Node, why))
		return
	}
}

func (e *Engine) saysWhole(ctx context.Context, r vtop.Range, rep fsm.Replica) bool {
	resp, err := e.cfg.Network.Peer(rep.Node).LogEnds(ctx, &peerpb.LogEndsRequest{
		Items: []*peerpb.LogEndsItem{{Range: rangeTo(r), ReplicaId: uint64(rep.ID)}},
	})
	if err != nil || len(resp.GetResults()) != 1 {
		return false
	}
	m := resp.GetResults()[0]
	return m.GetCode() == peerpb.Code_CODE_UNSPECIFIED && m.GetState() != StateDamaged
}

// live are the replicas that follow this leadership now, itself among them: connected, and reconciled under its epoch.
func (l *leadership) live() map[vtop.ReplicaID]bool {
	out := map[vtop.ReplicaID]bool{l.self: true}
	for _, f := range *l.flows.Load() {
		f.peer.mu.Lock()
		out[f.replica] = f.state == flowLive
		f.peer.mu.Unlock()
	}
	return out
}
