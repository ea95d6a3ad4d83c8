package replica

import (
	"context"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/topicconfig"
)

// dutyTime bounds one proposal of a duty.
const dutyTime = 5 * time.Second

// runDuties does what a leader owes on its own clock: floors first, for they are quick and others wait for them.
func (e *Engine) runDuties() {
	keeper := make(chan struct{}, 1)
	if !e.goroutine(func() { e.runKeeper(keeper) }) || e.cfg.DutyInterval < 0 {
		return
	}
	tick := time.NewTicker(e.cfg.DutyInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
		e.pulse(time.Now())
		_ = e.ReportFloors(e.ctx)
		select {
		case keeper <- struct{}{}:
		default: // still busy with the last round
		}
	}
}

// runKeeper does the slow duties: rolling, sealing, retention. They read whole segments and so run beside the floors.
func (e *Engine) runKeeper(due <-chan struct{}) {
	for {
		select {
		case <-due:
			e.housekeep(e.ctx)
		case <-e.ctx.Done():
			return
		}
	}
}

// Duties does one round of all duties now. The daemon's clock calls them by itself.
func (e *Engine) Duties(ctx context.Context) error {
	e.pulse(time.Now())
	err := e.ReportFloors(ctx)
	e.checkNames()
	e.housekeep(ctx)
	return err
}

// pulse answers what waits too long, looks for stuck replicas, and tells who has no room.
func (e *Engine) pulse(now time.Time) {
	var full []vtop.Range
	for _, s := range e.allSlots() {
		if ld := s.leading.Load(); ld != nil {
			ld.expire(now)
			if ld.noSpace.Swap(false) {
				full = append(full, s.r)
			}
		}
	}
	if len(full) > 0 && e.cfg.OnNoSpace != nil {
		e.cfg.OnNoSpace(full)
	}
	e.peersMu.Lock()
	peers := make([]*peer, 0, len(e.peers))
	for _, p := range e.peers {
		peers = append(peers, p)
	}
	e.peersMu.Unlock()
	for _, p := range peers {
		p.watchdog(now, e.cfg.StallTimeout)
	}
}

// ReportFloors tells the metadata how far the ranges that this node leads are safe: only what moved since it was told
// last, in few commands. While a change of voters is in flight nothing is reported for its range.
func (e *Engine) ReportFloors(ctx context.Context) error {
	var items []fsm.FloorReport
	var of []*leadership
	for _, s := range e.allSlots() {
		if ld := s.leading.Load(); ld != nil {
			if item, ok := ld.floorReport(); ok {
				items, of = append(items, item), append(of, ld)
			}
		}
	}
	var last error
	for len(items) > 0 {
		n := min(len(items), fsm.MaxItems)
		if err := e.reportFloors(ctx, items[:n], of[:n]); err != nil {
			last = err
		}
		items, of = items[n:], of[n:]
	}
	return last
}

func (e *Engine) reportFloors(ctx context.Context, items []fsm.FloorReport, of []*leadership) error {
	ctx, cancel := context.WithTimeout(ctx, dutyTime)
	defer cancel()
	out, err := e.cfg.Propose(ctx, &fsm.ReportFloors{Items: items})
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		if e.ctx.Err() == nil {
			e.log.Debug("report floors", "ranges", len(items), "error", err)
		}
		return err
	}
	for i, ld := range of {
		if i < len(out.Items) && out.Items[i].Refusal == nil {
			ld.mu.Lock()
			ld.reported = items[i]
			ld.mu.Unlock()
		}
	}
	return nil
}

// floorReport is what there is to tell, ok only if it differs from what was told.
func (l *leadership) floorReport() (item fsm.FloorReport, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pos, ok := l.book.Position()
	if !ok || l.ended != nil {
		return item, false
	}
	end := l.log.End()
	item = fsm.FloorReport{Range: l.r, Epoch: pos.Epoch, Config: pos.Version, Floor: pos.Floor, QuorumPosition: min(pos.Quorum, end), LogEnd: end}
	return item, item != l.reported
}

// housekeep goes through all ranges once.
func (e *Engine) housekeep(ctx context.Context) {
	if !e.caughtUp() {
		return
	}
	defer e.mend(ctx)
	st := e.machine.State()
	for _, s := range e.allSlots() {
		if ctx.Err() != nil || e.ctx.Err() != nil {
			return
		}
		log := s.opened()
		rg, ok := st.Range(s.r)
		if !ok || log == nil || log.Err() != nil {
			continue
		}
		// Again: the last record of a segment may have come after word of it, and nothing behind it.
		e.closeCatalogued(st, s.r, log)
		e.publish(st, s, log)
		if ld := s.leading.Load(); ld != nil {
			e.lead(ctx, st, rg, ld)
		}
	}
}

// publish seals what the catalogue has and this replica holds closed; another root than the catalogue's is damage (I9).
func (e *Engine) publish(st *fsm.State, s *slot, log *storage.Log) {
	for _, seg := range log.Closed() {
		entry, ok := st.Segment(s.r, seg.Base)
		if !ok || entry.End != seg.End {
			continue
		}
		if err := log.Seal(seg.Base, entry.Root); err != nil {
			e.log.Error("cannot seal a segment", "range", st.RangeName(s.r), "base", seg.Base, "end", seg.End, "error", err)
		}
	}
}

// lead does the duties of one leadership. Each effect is under the lease: in the metadata by the epoch, on disk by the fence.
func (e *Engine) lead(ctx context.Context, st *fsm.State, rg *fsm.Range, ld *leadership) {
	topic, ok := st.Topic(rg.ID.Topic)
	if !ok {
		return
	}
	cfg := topicconfig.Parse(topic.Config)
	ld.log.SetSegmentBytes(cfg.RollBytes())
	age := cfg.RollAge()
	if tailBytes(ld.log) >= cfg.RollBytes() {
		age = 0 // it was set lower since, and nobody appends
	}
	if rolled, err := ld.log.Roll(ld.epoch, time.Now(), age); err != nil {
		e.log.Debug("roll", "range", e.name(ld.r), "error", err)
	} else if rolled {
		ld.kick()
	}
	e.register(ctx, st, rg, ld)
	st = e.machine.State() // what was catalogued just now is subject to retention in this round
	if rg, ok = st.Range(ld.r); ok {
		e.retain(ctx, st, rg, ld, cfg)
	}
}

// register catalogues closed segments that are committed as a whole. The root is computed under no lock.
func (e *Engine) register(ctx context.Context, st *fsm.State, rg *fsm.Range, ld *leadership) {
	select {
	case ld.registering <- struct{}{}:
		defer func() { <-ld.registering }()
	case <-ctx.Done():
		return
	}
	if now, ok := e.machine.State().Range(ld.r); ok {
		st, rg = e.machine.State(), now // it may have been another's turn
	}
	for _, seg := range ld.log.Closed() {
		if _, known := st.Segment(ld.r, seg.Base); known || seg.End > ld.highWatermark() || seg.Base < rg.CatalogueEnd {
			continue
		}
		root, bytes, err := ld.log.Root(seg.Base)
		if err != nil {
			e.log.Error("cannot compute the root of a segment", "range", st.RangeName(ld.r), "base", seg.Base, "error", err)
			return
		}
		ld.mu.Lock()
		version := ld.book.Version()
		ld.mu.Unlock()
		e.sealStep(ld.r, SealCommitted)
		cmd := &fsm.RegisterSegment{Range: ld.r, Epoch: ld.epoch, Config: version, Base: seg.Base, End: seg.End, Bytes: bytes,
			Root: root, SealedAt: e.cfg.Now().UnixMilli()}
		if !e.duty(ctx, ld, cmd) {
			return
		}
		e.sealStep(ld.r, SealCatalogued)
		if err := ld.log.Seal(seg.Base, root); err != nil {
			e.log.Error("cannot seal a segment", "range", st.RangeName(ld.r), "base", seg.Base, "error", err)
			return
		}
	}
}

// retain moves the log start over catalogued segments that are too old by the time of their sealing, or too many by their
// bytes, keeping at least the configured bytes.
func (e *Engine) retain(ctx context.Context, st *fsm.State, rg *fsm.Range, ld *leadership, cfg topicconfig.Config) {
	start, now, left := rg.LogStart, e.cfg.Now(), bytesAbove(ld.log, rg.LogStart)
	for seg := range st.Catalogue(ld.r) {
		if seg.Base < rg.LogStart && seg.End <= rg.LogStart {
			continue
		}
		old := cfg.RetentionTime >= 0 && now.Sub(time.UnixMilli(seg.SealedAt)) > cfg.RetentionTime
		many := cfg.RetentionBytes >= 0 && left-seg.Bytes >= cfg.RetentionBytes
		if !old && !many || seg.End > rg.Floor {
			break
		}
		start, left = seg.End, left-seg.Bytes
	}
	if start > rg.LogStart && e.duty(ctx, ld, &fsm.MoveLogStart{Range: ld.r, Epoch: ld.epoch, Start: start}) {
		e.log.Info("retention moved the log start", "range", st.RangeName(ld.r), "from", rg.LogStart, "to", start)
	}
}

// duty proposes under the lease's context.
func (e *Engine) duty(ctx context.Context, ld *leadership, cmd fsm.Command) bool {
	ctx, cancel := context.WithTimeout(ctx, dutyTime)
	defer cancel()
	stop := context.AfterFunc(ld.ctx, cancel)
	defer stop()
	out, err := e.cfg.Propose(ctx, cmd)
	if err == nil {
		err = out.Err()
	}
	if err != nil && ld.ctx.Err() == nil {
		e.log.Debug("duty", "command", cmd.Op(), "range", e.name(ld.r), "error", err)
	}
	return err == nil
}

// tailBytes is the size of what is not closed yet.
func tailBytes(log *storage.Log) (size int64) {
	for _, s := range log.Segments() {
		if s.State == storage.SegmentTail {
			size = s.Bytes
		}
	}
	return size
}

// bytesAbove is the size of the segments that hold anything at or above the log start. What is below it and not yet
// unlinked does not count: it would have retention keep less than was asked for.
func bytesAbove(log *storage.Log, start vtop.Offset) (size int64) {
	for _, s := range log.Segments() {
		if s.End > start || s.State == storage.SegmentTail {
			size += s.Bytes
		}
	}
	return size
}
