package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// maxFenceItems bounds one Fence call (I13); the promoter's chunks are far smaller.
	maxFenceItems = 4096
	// fenceParallel is how many ranges of one call are reconciled and flushed at once.
	fenceParallel = 16
	// fenceWait bounds how long a voter waits for the grant to be applied here.
	fenceWait = 2 * time.Second
)

// promised is a voter's answer for one range: a durable promise, or a refusal.
type promised struct {
	end, logEnd, start vtop.Offset
	runs               []vtop.EpochRun
	told               vtop.Offset
	epoch              vtop.Epoch // the promise as it stands, given or refused
	err                error
}

// Fence is the voter's side of a promotion, as transport wants it. Every promise in the answer is durable (I6).
func (e *Engine) Fence(ctx context.Context, from transport.Caller, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	if len(req.Items) > maxFenceItems {
		return nil, fmt.Errorf("%w: %d ranges in one fence, at most %d", vtop.ErrOverloaded, len(req.Items), maxFenceItems)
	}
	asks := make([]protocol.Ask, len(req.Items))
	for i, item := range req.Items {
		r, err := transport.RangeFrom(item.Range)
		if err != nil {
			return nil, err
		}
		asks[i] = protocol.Ask{
			Lease: vtop.Lease{Range: r, Holder: from.Name, Incarnation: from.Incarnation, Epoch: vtop.Epoch(item.Epoch)},
			Grant: req.GrantIndex, Replica: vtop.ReplicaID(item.ReplicaId),
		}
	}
	answers, err := e.promise(ctx, req.GrantIndex, asks)
	if err != nil {
		return nil, err
	}
	resp := &peerpb.FenceResponse{Results: make([]*peerpb.FenceResult, len(answers))}
	for i, a := range answers {
		resp.Results[i] = a.message()
	}
	return resp, nil
}

func (a promised) message() *peerpb.FenceResult {
	m := &peerpb.FenceResult{
		DurableEnd: int64(a.end), LogEnd: int64(a.logEnd), LogStart: int64(a.start), Runs: transport.RunsTo(a.runs),
		HighWatermark: int64(a.told), Promised: int32(a.epoch),
	}
	if a.err != nil {
		m.Code, m.Message = transport.CodeOf(a.err), a.err.Error()
	}
	return m
}

// promise answers many asks with one sync. Each range is reconciled first, so that nothing of a lower epoch is on its way;
// then the promises are made durable, and then what the logs hold is flushed and told.
func (e *Engine) promise(ctx context.Context, grant uint64, asks []protocol.Ask) ([]promised, error) {
	if !e.caughtUp() {
		return nil, fmt.Errorf("%w: node %q has not caught up with the metadata", vtop.ErrNotReady, e.self)
	}
	wait, cancel := context.WithTimeout(ctx, fenceWait)
	defer cancel()
	if err := e.machine.WaitApplied(wait, grant); err != nil {
		return nil, fmt.Errorf("%w: node %q has applied %d, the grant is at %d", vtop.ErrNotReady, e.self, e.machine.Applied(), grant)
	}
	if len(asks) > 1 {
		ranges := make([]vtop.Range, len(asks))
		for i, ask := range asks {
			ranges[i] = ask.Lease.Range
		}
		e.createMissing(e.machine.State(), ranges)
	}
	answers := make([]promised, len(asks))
	logs := make([]*storage.Log, len(asks))
	each(len(asks), func(i int) { logs[i], answers[i] = e.prepare(ctx, asks[i]) })
	var batch []storage.Promise
	var at []int
	for i, log := range logs {
		if answers[i].err == nil {
			batch = append(batch, storage.Promise{Range: asks[i].Lease.Range, ReplicaID: log.ReplicaID(), Epoch: asks[i].Lease.Epoch})
			at = append(at, i)
		}
	}
	for k, err := range e.store.Promise(batch) {
		i := at[k]
		if err != nil {
			answers[i] = refusal(asks[i], logs[i], err)
		}
	}
	each(len(asks), func(i int) {
		if answers[i].err == nil {
			answers[i] = e.position(ctx, asks[i], logs[i])
		}
	})
	return answers, nil
}

// prepare opens and reconciles one replica and decides whether it may promise. From the grant's application on, nothing of
// a lower epoch can enter the log: the fence refuses it.
func (e *Engine) prepare(ctx context.Context, ask protocol.Ask) (*storage.Log, promised) {
	st := e.machine.State()
	rg, mine, ok := e.mine(st, ask.Lease.Range)
	if !ok {
		return nil, promised{err: e.noReplica(st, rg, ask), told: protocol.NoOffset}
	}
	s := e.slotOf(ask.Lease.Range, true)
	s.slow.Lock()
	defer s.slow.Unlock()
	s.forgive(rg)
	log, err := e.openSlow(s, st, rg, mine)
	if err == nil && rg.Lease.Epoch == ask.Lease.Epoch {
		err = s.reconcile(ctx, st, rg, log)
	}
	if err != nil {
		return nil, refusal(ask, log, err)
	}
	if err := protocol.Fence(ask, e.viewOf(st, rg), s.local(mine)); err != nil {
		return nil, refusal(ask, log, err)
	}
	s.mu.Lock()
	s.promise = protocol.To(ask.Lease)
	s.mu.Unlock()
	return log, promised{}
}

// noReplica says why this node cannot answer for the replica that was asked for.
func (e *Engine) noReplica(st *fsm.State, rg *fsm.Range, ask protocol.Ask) error {
	if rg == nil {
		return fmt.Errorf("%w: %s is not in the state at %d of node %q", vtop.ErrUnknownRange, ask.Lease.Range, st.Index(), e.self)
	}
	if rep, ok := rg.Replica(ask.Replica); ok && rep.Lost != "" {
		return fmt.Errorf("%w: replica %d: %s", vtop.ErrReplicaLost, rep.ID, rep.Lost)
	}
	return fmt.Errorf("%w: node %q holds no replica %d of %s", vtop.ErrReplicaLost, e.self, ask.Replica, ask.Lease.Range)
}

// refusal names the promise that stands, so that the next grant can be above it.
func refusal(ask protocol.Ask, log *storage.Log, err error) promised {
	a := promised{err: err, told: protocol.NoOffset}
	var no *protocol.Refusal
	if errors.As(err, &no) && (no.Code == protocol.Promised || no.Code == protocol.Superseded) {
		a.epoch = no.Epoch
	}
	var higher *storage.PromiseError
	if errors.As(err, &higher) {
		a.epoch = higher.Promised
	}
	if log != nil {
		a.epoch = max(a.epoch, log.Promised())
	}
	return a
}

// position flushes one promised log and reads where it stands.
func (e *Engine) position(ctx context.Context, ask protocol.Ask, log *storage.Log) promised {
	if log.Durable() < log.End() {
		if err := log.Flush(ctx); err != nil {
			return promised{err: fmt.Errorf("flush before the answer: %w", err), epoch: ask.Lease.Epoch, told: protocol.NoOffset}
		}
	}
	end, durable, runs := log.Position()
	told := protocol.NoOffset
	if s := e.slotOf(ask.Lease.Range, false); s != nil {
		s.mu.Lock()
		told = s.told
		s.mu.Unlock()
	}
	return promised{end: durable, logEnd: end, start: log.Start(), runs: runs, told: told, epoch: ask.Lease.Epoch}
}

// each runs fn for 0 to n-1, some at once, and waits for all.
func each(n int, fn func(int)) {
	if n == 1 {
		fn(0)
		return
	}
	var wg sync.WaitGroup
	room := make(chan struct{}, fenceParallel)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			fn(i)
			<-room
		})
	}
	wg.Wait()
}

// LogEnds tells how far this node's replicas have come. It changes nothing.
func (e *Engine) LogEnds(_ context.Context, _ transport.Caller, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	if len(req.Items) > maxFenceItems {
		return nil, fmt.Errorf("%w: %d ranges in one question, at most %d", vtop.ErrOverloaded, len(req.Items), maxFenceItems)
	}
	resp := &peerpb.LogEndsResponse{Results: make([]*peerpb.LogEndsResult, len(req.Items))}
	for i, item := range req.Items {
		r, err := transport.RangeFrom(item.Range)
		if err != nil {
			return nil, err
		}
		resp.Results[i] = e.logEnd(r, vtop.ReplicaID(item.ReplicaId))
	}
	return resp, nil
}

func (e *Engine) logEnd(r vtop.Range, id vtop.ReplicaID) *peerpb.LogEndsResult {
	refuse := func(err error) *peerpb.LogEndsResult {
		return &peerpb.LogEndsResult{Code: transport.CodeOf(err), Message: err.Error(), HighWatermark: int64(protocol.NoOffset)}
	}
	s := e.slotOf(r, false)
	if s == nil || s.opened() == nil {
		return refuse(fmt.Errorf("%w: node %q has no open replica of %s", vtop.ErrUnknownRange, e.self, r))
	}
	s.mu.Lock()
	log, role, told := s.log, s.role, s.told
	s.mu.Unlock()
	if id != 0 && log.ReplicaID() != id {
		return refuse(fmt.Errorf("%w: replica %d lives here, not %d", vtop.ErrReplicaLost, log.ReplicaID(), id))
	}
	if ld := s.leading.Load(); ld != nil {
		told = ld.highWatermark()
	}
	end, durable, _ := log.Position()
	m := &peerpb.LogEndsResult{
		ReplicaId: uint64(log.ReplicaID()), DurableEnd: int64(durable), LogEnd: int64(end), LogStart: int64(log.Start()),
		LastEpoch: int32(log.LastEpoch()), HighWatermark: int64(told), Promised: int32(log.Promised()), State: role.String(),
	}
	if err := log.Err(); err != nil {
		m.Code, m.Message = transport.CodeOf(err), err.Error()
	} else if log.Info().State == storage.StateHoles {
		m.State = StateDamaged
	}
	return m
}

// maxReadLog bounds one answer of ReadLog in bytes, unless a single batch is larger.
const maxReadLog = 8 << 20

// ReadLog serves the missing part of the longest log to the holder that this replica promised its epoch to (A9).
func (e *Engine) ReadLog(_ context.Context, from transport.Caller, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	r, err := transport.RangeFrom(req.Range)
	if err != nil {
		return nil, err
	}
	s := e.slotOf(r, false)
	if s == nil || s.opened() == nil {
		return nil, fmt.Errorf("%w: node %q has no open replica of %s", vtop.ErrUnknownRange, e.self, r)
	}
	log, epoch := s.opened(), vtop.Epoch(req.Epoch)
	lease, _ := e.machine.Leases().Get(r)
	switch {
	case log.ReplicaID() != vtop.ReplicaID(req.ReplicaId):
		return nil, fmt.Errorf("%w: replica %d lives here, not %d", vtop.ErrReplicaLost, log.ReplicaID(), req.ReplicaId)
	case log.Promised() != epoch || lease.Epoch != epoch || !lease.HeldBy(from.Name, from.Incarnation):
		return nil, &vtop.FencedError{Range: r, Claimed: epoch, Applied: lease, Reason: fmt.Sprintf("promise is of epoch %d", log.Promised())}
	}
	if err := log.Err(); err != nil {
		return nil, err
	}
	limit := log.Durable()
	if req.Limit > 0 {
		limit = min(limit, vtop.Offset(req.Limit))
	}
	size := min(max(int(req.MaxBytes), 1), maxReadLog)
	batches, next, base, err := log.ReadPeer(vtop.Offset(req.From), size, limit, nil)
	if err != nil {
		return nil, err
	}
	return &peerpb.ReadLogResponse{SegmentBase: int64(base), Next: int64(next), LogEnd: int64(log.End()), Batches: batches}, nil
}
