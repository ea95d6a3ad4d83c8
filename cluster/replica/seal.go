package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// SealStep names a moment between two steps of a seal: see Config.SealStep.
type SealStep string

// The steps of a seal, in order.
const (
	SealAsked      SealStep = "asked"      // the leadership was found; nothing is pinned
	SealPinned     SealStep = "pinned"     // what is sealed already is held; the tail is open
	SealClosed     SealStep = "closed"     // the tail is closed; its end may not be committed
	SealCommitted  SealStep = "committed"  // a majority has all below the closed end; the root is computed, nothing is catalogued
	SealCatalogued SealStep = "catalogued" // the catalogue has the segment; its manifest is not published here
	SealPublished  SealStep = "published"  // the manifest is durable; the answer is not given yet
)

// sealLook is how often a seal looks whether the files of what it closed are finished, which nobody tells it.
const sealLook = 20 * time.Millisecond

// sealStep tells the listener that a seal of r has come to a step.
func (e *Engine) sealStep(r vtop.Range, step SealStep) {
	if e.cfg.SealStep != nil {
		e.cfg.SealStep(r, step)
	}
}

// SealTail closes the tail of a range that this node leads, waits until all below is committed, catalogued and sealed here,
// and answers with the pinned snapshot of the sealed segments. The epoch of the request is what the log itself checks, in the
// critical section in which it closes (I3): a stale one is vtop.ErrFenced and has changed nothing. Retention has no part in it,
// and cannot take what was pinned. An empty tail is a success; over a closed segment that is not catalogued yet, after waiting
// for that. Nothing more than the close happens under the lease: what publishes it is proposed under the epoch, and refused once
// that is over. It implements transport.SegmentHandler.
func (e *Engine) SealTail(ctx context.Context, _ transport.Caller, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	r, err := transport.RangeFrom(req.GetRange())
	if err != nil {
		return nil, err
	}
	ld, err := e.leadingUnder(r, vtop.Epoch(req.GetEpoch()))
	if err != nil {
		return nil, err
	}
	e.sealStep(r, SealAsked)
	pin := heldPin{engine: e}
	defer pin.release()
	if !req.GetNoPin() {
		if err := pin.take(storage.PinSpec{Range: r, ReplicaID: ld.self, Have: offsets(req.GetHave()), Growing: true, Job: req.GetJob()}); err != nil {
			return nil, err
		}
	}
	e.sealStep(r, SealPinned)
	closed, err := ld.log.CloseTail(vtop.Epoch(req.GetEpoch()))
	if err != nil {
		return nil, e.closeRefused(ld, err)
	}
	ld.kick()
	e.sealStep(r, SealClosed)
	if err := e.awaitSealed(ctx, ld, closed.End); err != nil {
		return nil, err
	}
	e.sealStep(r, SealPublished)
	snapshot, err := pin.settle(ld, closed.End)
	if err == nil {
		err = e.machine.Leases().Hold(r, ld.epoch, vtop.FenceLead, nothing) // else the destination would ask a leader that is none
	}
	if err != nil {
		return nil, err
	}
	pin.keep(snapshot)
	if old := storage.PinID(req.GetPin()); old != 0 && old != pin.id {
		e.unpin(old)
	}
	e.log.Info("tail sealed", "range", e.name(r), "epoch", ld.epoch, "end", closed.End, "records", closed.Records, "job", req.GetJob(), "pin", snapshot.GetPin())
	return &peerpb.SealTailResponse{SealedEnd: int64(closed.End), RecordsSealed: closed.Records, Snapshot: snapshot}, nil
}

// leadingUnder returns the leadership of r if it is of the given epoch; else vtop.ErrFenced, or an error that names what is
// missing. It is a courtesy: what takes effect is checked again where it does.
func (e *Engine) leadingUnder(r vtop.Range, epoch vtop.Epoch) (*leadership, error) {
	if !e.caughtUp() {
		return nil, fmt.Errorf("%w: node %q has not caught up with the metadata", vtop.ErrNotReady, e.self)
	}
	s := e.slotOf(r, false)
	if s == nil {
		return nil, e.notHere(r)
	}
	if err := e.machine.Leases().Hold(r, epoch, vtop.FenceLead, nothing); err != nil {
		return nil, err
	}
	ld := s.leading.Load()
	if ld == nil || ld.epoch != epoch {
		return nil, fmt.Errorf("%w: node %q is about to lead range %s under epoch %d", vtop.ErrNotReady, e.self, r, epoch)
	}
	return ld, nil
}

func (e *Engine) closeRefused(ld *leadership, err error) error {
	if errors.Is(err, storage.ErrNeverWritten) {
		return fmt.Errorf("%w: %s: produce to the range before repairing from it", transport.ErrNeverWritten, e.machine.State().RangeName(ld.r))
	}
	return err
}

// awaitSealed waits until everything below end is committed, catalogued and sealed here. It helps: the clock of the duties is
// not waited for. After Config.SealTimeout, or when ctx ends, the error is a *transport.NotCommittedError.
func (e *Engine) awaitSealed(ctx context.Context, ld *leadership, end vtop.Offset) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.SealTimeout)
	defer cancel()
	wake := make(chan struct{}, 1)
	defer e.watches.add([]vtop.Range{ld.r}, wake)()
	look := time.NewTicker(sealLook)
	defer look.Stop()
	for {
		if ld.highWatermark() >= end {
			e.catalogue(ctx, ld)
			if rg, ok := e.machine.State().Range(ld.r); ok && rg.CatalogueEnd >= end && sealedBelow(ld.log, end) {
				return nil
			}
		}
		if err := ld.log.Err(); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-look.C:
		case <-ld.ctx.Done():
			return context.Cause(ld.ctx)
		case <-ctx.Done():
			return &transport.NotCommittedError{ClosedEnd: end, HighWatermark: ld.highWatermark()}
		}
	}
}

// catalogue does at once what the duties do on their clock: publishes what the catalogue has, and registers what is committed.
func (e *Engine) catalogue(ctx context.Context, ld *leadership) {
	st := e.machine.State()
	rg, ok := st.Range(ld.r)
	if !ok {
		return
	}
	e.publish(st, ld.slot, ld.log)
	e.register(ctx, st, rg, ld)
}

// sealedBelow reports whether every segment that begins below end is sealed here, be it a hole.
func sealedBelow(log *storage.Log, end vtop.Offset) bool {
	for _, seg := range log.Segments() {
		if seg.Base < end && seg.State != storage.SegmentSealed && seg.Hole == "" {
			return false
		}
	}
	return true
}

func offsets(raw []int64) []vtop.Offset {
	out := make([]vtop.Offset, len(raw))
	for i, o := range raw {
		out[i] = vtop.Offset(o)
	}
	return out
}

// snapshotOf puts a pin's segments, up to end, into the words of the wire. What is a hole here is listed as the catalogue has
// it: others can serve it.
func (e *Engine) snapshotOf(ld *leadership, pinned storage.Pinned, end vtop.Offset) (*peerpb.Snapshot, error) {
	st := e.machine.State()
	s := &transport.Snapshot{
		Epoch: ld.epoch, Replica: pinned.ReplicaID, LogStart: pinned.Base, SealedEnd: pinned.Base,
		Pin: uint64(pinned.ID), PinIdle: pinned.Idle, Producers: pinned.Producers,
	}
	if rg, ok := st.Range(ld.r); ok {
		s.ConfigVersion = rg.ConfigVersion
	}
	for _, info := range pinned.Segments {
		if info.End > end {
			break
		}
		for _, seg := range e.sealedAs(st, ld.r, info) {
			if seg.Base != s.SealedEnd {
				return nil, fmt.Errorf("%w: segment %d to %d of range %s is damaged here, and the catalogue does not have it any more: ask again",
					vtop.ErrNotReady, info.Base, info.End, ld.r)
			}
			s.Segments, s.SealedEnd = append(s.Segments, seg), seg.End
		}
	}
	if len(s.Segments) > 0 { // where the log start has moved on meanwhile, the destination follows it later
		s.LogStart = min(max(ld.log.Start(), s.LogStart), s.Segments[0].End-1)
	}
	// The high watermark is read first: it never passes the log end.
	s.HighWatermark = max(ld.highWatermark(), 0)
	s.LogEnd = ld.log.End()
	return transport.SnapshotTo(s), nil
}

// sealedAs lists a segment of the log as the wire wants it; a hole, which may stand for several, as the catalogue has it.
func (e *Engine) sealedAs(st *fsm.State, r vtop.Range, info storage.SegmentInfo) []transport.SealedSegment {
	if info.Hole == "" {
		out := transport.SealedSegment{Base: info.Base, End: info.End, Bytes: info.Bytes, Root: info.Root, SealEpoch: 1}
		if entry, ok := st.Segment(r, info.Base); ok {
			out.SealEpoch = entry.Epoch
		}
		return []transport.SealedSegment{out}
	}
	var out []transport.SealedSegment
	for entry := range st.Catalogue(r) {
		if entry.Base >= info.Base && entry.End <= info.End {
			out = append(out, transport.SealedSegment{Base: entry.Base, End: entry.End, Bytes: entry.Bytes, Root: entry.Root, SealEpoch: entry.Epoch})
		}
	}
	if len(out) == 0 {
		out = append(out, transport.SealedSegment{Base: info.End, End: info.End}) // fits nothing: see snapshotOf
	}
	return out
}
