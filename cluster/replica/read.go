package replica

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/storage"
)

func nothing() error { return nil }

// serving returns the leadership that may answer for r now: the lease is held, started, and its deadline has not passed
// (I7). clientEpoch is what the client believes.
func (e *Engine) serving(r vtop.Range, clientEpoch vtop.Epoch) (*leadership, error) {
	s := e.slotOf(r, false)
	if s == nil {
		return nil, e.notHere(r)
	}
	ld := s.leading.Load()
	if ld == nil {
		return nil, e.notLeading(s)
	}
	if err := e.machine.Leases().Hold(r, ld.epoch, vtop.FenceLead, nothing); err != nil {
		return nil, fmt.Errorf("%w: %w", vtop.ErrNotLeader, err)
	}
	return ld, checkEpoch(r, clientEpoch, ld.epoch)
}

func checkEpoch(r vtop.Range, client, own vtop.Epoch) error {
	switch {
	case client == vtop.AnyEpoch || client == own:
		return nil
	case client < own:
		return fmt.Errorf("%w: range %s is at epoch %d, the client named %d", vtop.ErrEpochFenced, r, own, client)
	}
	return fmt.Errorf("%w: range %s is at epoch %d, the client named %d", vtop.ErrEpochUnknown, r, own, client)
}

// checkRead refuses to say anything of an epoch above the leader's own, under which a client has read: somebody led after this
// holder, which is not yet due to know, and what the client has may be in a log that goes on where this one ends (I7).
func checkRead(r vtop.Range, read, own vtop.Epoch) error {
	if read <= own {
		return nil
	}
	return fmt.Errorf("%w: range %s is at epoch %d, the client has read under %d", vtop.ErrEpochUnknown, r, own, read)
}

func (e *Engine) notHere(r vtop.Range) error {
	if _, ok := e.machine.State().Range(r); ok {
		return fmt.Errorf("%w: node %q has no replica of range %s", vtop.ErrNotLeader, e.self, r)
	}
	return fmt.Errorf("%w: %s", vtop.ErrUnknownRange, r)
}

// notLeading says what this node does with a range instead of leading it.
func (e *Engine) notLeading(s *slot) error {
	s.mu.Lock()
	role, why := s.role, s.why
	s.mu.Unlock()
	if role == RolePromoting {
		return fmt.Errorf("%w: range %s is in promotion here: %s", vtop.ErrNotReady, s.r, why)
	}
	if _, ok := e.machine.State().Range(s.r); !ok {
		return fmt.Errorf("%w: %s", vtop.ErrUnknownRange, s.r)
	}
	return fmt.Errorf("%w: node %q is %s for range %s", vtop.ErrNotLeader, e.self, role, s.r)
}

// Append admits one checked batch to a range that this node leads. It touches memory only. b is stamped and copied before
// it returns. done is called exactly once, perhaps before it returns, never under a lock of this package:
//
//	acks  0: with the admission;
//	acks  1: when durable here;
//	acks -1: when durable on a majority of the voters under the epoch of the admission (I1).
//
// A batch that was admitted and whose epoch ends is answered vtop.ErrNotLeader, one that waits too long vtop.ErrTimeout:
// in both cases its fate is unknown, and the retry of an idempotent producer is deduplicated.
func (e *Engine) Append(_ context.Context, r vtop.Range, clientEpoch vtop.Epoch, b batch.Batch, acks int16, done func(vtop.AppendResult)) {
	refuse := func(err error) { done(vtop.AppendResult{Base: -1, LogStart: -1, Err: err}) }
	s := e.slotOf(r, false)
	if s == nil {
		refuse(e.notHere(r))
		return
	}
	ld := s.leading.Load()
	switch {
	case ld == nil:
		refuse(e.notLeading(s))
		return
	case !e.admitting.Load():
		refuse(fmt.Errorf("%w: node %q is stopping", vtop.ErrNotLeader, e.self))
		return
	case acks != 0 && ld.full():
		refuse(fmt.Errorf("%w: %d batches of range %s wait for their acknowledgement", vtop.ErrOverloaded, maxPending, r))
		return
	}
	if err := checkEpoch(r, clientEpoch, ld.epoch); err != nil {
		refuse(err)
		return
	}
	base, dup, err := ld.log.AppendLead(ld.epoch, b)
	if err != nil {
		refuse(e.appendRefused(s, ld, err))
		return
	}
	last := base + vtop.Offset(b.LastOffsetDelta())
	if dup != nil {
		base, last = dup.Base, dup.Last
	} else {
		ld.kick()
		e.metrics.appends.Add(1)
	}
	if acks == 0 {
		done(vtop.AppendResult{Base: base, LogStart: ld.log.Start()})
		return
	}
	ld.admit(base, last, acks, done)
}

// appendRefused puts what the log said into a client's words.
func (e *Engine) appendRefused(s *slot, ld *leadership, err error) error {
	switch {
	case errors.Is(err, vtop.ErrFenced):
		return fmt.Errorf("%w: %w", vtop.ErrNotLeader, err)
	case errors.Is(err, vtop.ErrNoSpace):
		e.metrics.noSpace.Add(1)
		ld.noSpace.Store(true)
	case errors.Is(err, vtop.ErrStorage):
		return fmt.Errorf("%w: %w", vtop.ErrNotLeader, err)
	}
	return err
}

// Fetch reads whole batches below the high watermark and appends them verbatim to dst: at most spec.MaxBytes, but one at
// least if spec.AtLeastOne and there is one. Nothing to read yet is no error. The errors are those of package vtop; with
// vtop.ErrOffsetOutOfRange the watermarks are filled in.
func (e *Engine) Fetch(r vtop.Range, spec vtop.FetchSpec, dst []byte) (vtop.FetchResult, error) {
	res := vtop.FetchResult{Dst: dst, HighWatermark: -1, LogStart: -1}
	ld, err := e.serving(r, spec.ClientEpoch)
	if err != nil {
		return res, err
	}
	if err := checkRead(r, spec.LastFetchedEpoch, ld.epoch); err != nil {
		return res, err
	}
	hw, start := ld.highWatermark(), ld.log.Start()
	res.LogStart = start
	if hw >= ld.start {
		res.HighWatermark = hw // before that an earlier leader may have shown a higher one (I7)
	}
	outside := func(end vtop.Offset) error {
		return fmt.Errorf("%w: %d is outside %d to %d of range %s", vtop.ErrOffsetOutOfRange, spec.Offset, start, end, r)
	}
	end := ld.log.End()
	if spec.Offset < start {
		return res, outside(end)
	}
	if spec.LastFetchedEpoch >= 0 { // told before any end of the log: a client that hears where it parts need not begin anew
		if res.Diverging = e.diverging(ld, spec); res.Diverging != nil {
			return res, nil
		}
	}
	if spec.Offset > end {
		return res, outside(end)
	}
	if spec.Offset >= hw || spec.MaxBytes <= 0 && !spec.AtLeastOne {
		return res, nil
	}
	room := dst[len(dst):cap(dst)]
	got, _, _, err := ld.log.Read(spec.Offset, max(spec.MaxBytes, 1), hw, room)
	switch {
	case errors.Is(err, vtop.ErrOffsetOutOfRange) && spec.Offset >= ld.log.Start():
		return res, nil // between two looks the end moved; the client asks again
	case err != nil:
		return res, err
	case len(got) > spec.MaxBytes && !spec.AtLeastOne:
		return res, nil
	}
	if len(got) > 0 && len(room) > 0 && cap(got) > 0 && &got[:1][0] == &room[:1][0] {
		res.Dst = dst[:len(dst)+len(got)]
	} else {
		res.Dst = append(dst, got...)
	}
	return res, nil
}

// diverging says where the client's log and this one part, nil if they do not.
func (e *Engine) diverging(ld *leadership, spec vtop.FetchSpec) *vtop.EpochOffset {
	at := e.epochEnd(ld, spec.LastFetchedEpoch)
	if at.Epoch < 0 && spec.Offset == ld.log.Start() {
		return nil // what the client had is below the log start: nothing proves divergence
	}
	if at.Epoch < spec.LastFetchedEpoch || at.Offset < spec.Offset {
		return &at
	}
	return nil
}

// EndOffset is the high watermark and the epoch of the leader that tells it, not that of the record below: so a client knows the
// word of a deposed leader, whose deadline has not come, from that of the next one, also before that wrote (C1).
// vtop.ErrOffsetNotAvailable until the high watermark has reached the start of the epoch (I7).
func (e *Engine) EndOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error) {
	ld, err := e.serving(r, clientEpoch)
	if err != nil {
		return vtop.EpochOffset{Epoch: -1, Offset: -1}, err
	}
	if !ld.settled() {
		return vtop.EpochOffset{Epoch: -1, Offset: -1}, fmt.Errorf("%w: range %s: high watermark %d, epoch %d started at %d",
			vtop.ErrOffsetNotAvailable, r, ld.highWatermark(), ld.epoch, ld.start)
	}
	return vtop.EpochOffset{Epoch: ld.epoch, Offset: ld.highWatermark()}, nil
}

// StartOffset is the log start and the epoch that owns it.
func (e *Engine) StartOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error) {
	ld, err := e.serving(r, clientEpoch)
	if err != nil {
		return vtop.EpochOffset{Epoch: -1, Offset: -1}, err
	}
	start := ld.log.Start()
	return vtop.EpochOffset{Epoch: e.ownerOf(r, start, ld.epoch), Offset: start}, nil
}

func (e *Engine) ownerOf(r vtop.Range, o vtop.Offset, fallback vtop.Epoch) vtop.Epoch {
	if rg, ok := e.machine.State().Range(r); ok {
		if epoch, ok := rg.Epochs.At(o); ok {
			return epoch
		}
	}
	return fallback
}

// OffsetForTime finds the first record below the high watermark whose timestamp (ms since 1970) is at least ts; found is
// false if there is none.
func (e *Engine) OffsetForTime(r vtop.Range, clientEpoch vtop.Epoch, ts int64) (at vtop.TimeOffset, found bool, err error) {
	ld, err := e.serving(r, clientEpoch)
	if err != nil {
		return vtop.TimeOffset{}, false, err
	}
	if !ld.settled() {
		return vtop.TimeOffset{}, false, fmt.Errorf("%w: range %s", vtop.ErrOffsetNotAvailable, r)
	}
	find := ld.log.OffsetForTime
	if ts == vtop.MaxTimestamp {
		find = func(_ int64, limit vtop.Offset) (vtop.Offset, int64, bool, error) { return latest(ld.log, limit) }
	}
	o, when, found, err := find(ts, ld.highWatermark())
	if err != nil || !found {
		return vtop.TimeOffset{}, false, err
	}
	return vtop.TimeOffset{Timestamp: when, Offset: o, Epoch: e.ownerOf(r, o, ld.epoch)}, true, nil
}

// latest finds the first record below limit with the greatest timestamp by halving the times in question: some sixty looks into
// the indexes at most.
func latest(log *storage.Log, limit vtop.Offset) (o vtop.Offset, when int64, found bool, err error) {
	o, when, found, err = log.OffsetForTime(0, limit)
	for high := int64(math.MaxInt64); err == nil && found && when < high; {
		mid := when + (high-when)/2 + 1
		at, t, later, lookErr := log.OffsetForTime(mid, limit)
		switch {
		case lookErr != nil:
			return 0, 0, false, lookErr
		case later:
			o, when = at, t
		default:
			high = mid - 1
		}
	}
	return o, when, found, err
}

// EpochEnd answers from the epoch table: the largest epoch at or below epoch that has a span, and where it ends: the next
// epoch's start, or the log end for this leader's own. Epoch and offset are -1 if there is none. An epoch above this leader's own
// is vtop.ErrEpochUnknown.
func (e *Engine) EpochEnd(r vtop.Range, clientEpoch, epoch vtop.Epoch) (vtop.EpochOffset, error) {
	ld, err := e.serving(r, clientEpoch)
	if err != nil {
		return vtop.EpochOffset{Epoch: -1, Offset: -1}, err
	}
	if err := checkRead(r, epoch, ld.epoch); err != nil {
		return vtop.EpochOffset{Epoch: -1, Offset: -1}, err
	}
	return e.epochEnd(ld, epoch), nil
}

func (e *Engine) epochEnd(ld *leadership, epoch vtop.Epoch) vtop.EpochOffset {
	rg, ok := e.machine.State().Range(ld.r)
	if !ok {
		return vtop.EpochOffset{Epoch: -1, Offset: -1}
	}
	for i := len(rg.Epochs) - 1; i >= 0; i-- {
		if rg.Epochs[i].Epoch > epoch {
			continue
		}
		if i == len(rg.Epochs)-1 {
			return vtop.EpochOffset{Epoch: rg.Epochs[i].Epoch, Offset: ld.log.End()}
		}
		return vtop.EpochOffset{Epoch: rg.Epochs[i].Epoch, Offset: rg.Epochs[i+1].Start}
	}
	return vtop.EpochOffset{Epoch: -1, Offset: -1}
}

// Watch sends on wake, never blocking, whenever the visible end, the log start or the lease of one of the ranges changes,
// until stop is called. wake must have room for one. Watch first, then look.
func (e *Engine) Watch(ranges []vtop.Range, wake chan<- struct{}) (stop func()) {
	return e.watches.add(ranges, wake)
}

// WaitLeading waits while this node holds the lease of r but is still in promotion. nil: it leads. vtop.ErrNotLeader at once
// if the lease is elsewhere; vtop.ErrNotReady if ctx ended first.
func (e *Engine) WaitLeading(ctx context.Context, r vtop.Range) error {
	wake := make(chan struct{}, 1)
	defer e.watches.add([]vtop.Range{r}, wake)()
	for {
		rg, ok := e.machine.State().Range(r)
		if !ok {
			return fmt.Errorf("%w: %s", vtop.ErrUnknownRange, r)
		}
		if s := e.slotOf(r, false); s != nil && s.leading.Load() != nil {
			return nil
		}
		if !rg.Lease.HeldBy(e.self, e.cfg.Incarnation) {
			return fmt.Errorf("%w: the lease of range %s is with node %q", vtop.ErrNotLeader, r, rg.Lease.Holder)
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return fmt.Errorf("%w: range %s is in promotion", vtop.ErrNotReady, r)
		}
	}
}
