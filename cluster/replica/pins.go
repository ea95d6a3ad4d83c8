package replica

import (
	"context"
	"math"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// pinned remembers the snapshots of the pins that this process gave, so that one who keeps a pin gets the same again. As many as
// the store has pins (I13).
type pinned struct {
	mu sync.Mutex
	of map[storage.PinID]*peerpb.Snapshot
}

// heldPin is a pin on its way to an answer: let go unless the answer is given.
type heldPin struct {
	engine *Engine
	id     storage.PinID
	kept   bool
}

func (h *heldPin) take(spec storage.PinSpec) error {
	p, err := h.engine.store.Pin(spec)
	h.id = p.ID
	return err
}

// settle ends the pin's growing at end and returns the snapshot; without a pin, what a pin would have.
func (h *heldPin) settle(ld *leadership, end vtop.Offset) (*peerpb.Snapshot, error) {
	var p storage.Pinned
	var err error
	if h.id != 0 {
		p, err = h.engine.store.SettlePin(h.id, end)
	} else {
		p, err = unpinned(ld)
	}
	if err != nil {
		return nil, err
	}
	return h.engine.snapshotOf(ld, p, end)
}

// unpinned is what a pin of the leader's log would list now.
func unpinned(ld *leadership) (storage.Pinned, error) {
	base, producers, err := ld.log.ResetPoint()
	p := storage.Pinned{ReplicaID: ld.self, Base: base, Producers: producers}
	for _, seg := range ld.log.Segments() {
		if seg.State != storage.SegmentSealed {
			break
		}
		if seg.Base >= base {
			p.Segments = append(p.Segments, seg)
		}
	}
	return p, err
}

// keep leaves the pin to the caller who gets the snapshot.
func (h *heldPin) keep(s *peerpb.Snapshot) {
	h.kept = true
	if h.id == 0 {
		return
	}
	e := h.engine
	live := map[storage.PinID]bool{h.id: true}
	for _, info := range e.store.Pins() {
		live[info.ID] = true
	}
	e.pins.mu.Lock()
	defer e.pins.mu.Unlock()
	for id := range e.pins.of {
		if !live[id] {
			delete(e.pins.of, id)
		}
	}
	e.pins.of[h.id] = s
}

func (h *heldPin) release() {
	if h.id != 0 && !h.kept {
		h.engine.store.Unpin(h.id)
	}
}

func (e *Engine) unpin(id storage.PinID) bool {
	e.pins.mu.Lock()
	delete(e.pins.of, id)
	e.pins.mu.Unlock()
	return e.store.Unpin(id)
}

// PinSegments takes the snapshot that SealTail takes, without closing the tail: of a range that was never sealed, an empty one. A
// pin that is named and alive is kept, and its snapshot given again. It implements transport.SegmentHandler.
func (e *Engine) PinSegments(_ context.Context, _ transport.Caller, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error) {
	r, err := transport.RangeFrom(req.GetRange())
	if err != nil {
		return nil, err
	}
	ld, err := e.leadingUnder(r, vtop.Epoch(req.GetEpoch()))
	if err != nil {
		return nil, err
	}
	if s := e.keepPin(r, ld, storage.PinID(req.GetPin())); s != nil {
		return &peerpb.PinSegmentsResponse{Snapshot: s}, nil
	}
	p, err := e.store.Pin(storage.PinSpec{Range: r, ReplicaID: ld.self, Have: offsets(req.GetHave()), Job: req.GetJob()})
	if err != nil {
		return nil, err
	}
	pin := heldPin{engine: e, id: p.ID}
	defer pin.release()
	s, err := e.snapshotOf(ld, p, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	pin.keep(s)
	return &peerpb.PinSegmentsResponse{Snapshot: s}, nil
}

// keepPin starts the idle time of a pin anew and returns its snapshot; nil if it is gone, or of another range or leadership.
func (e *Engine) keepPin(r vtop.Range, ld *leadership, id storage.PinID) *peerpb.Snapshot {
	e.pins.mu.Lock()
	s := e.pins.of[id]
	e.pins.mu.Unlock()
	if id == 0 || s == nil || vtop.Epoch(s.GetEpoch()) != ld.epoch || vtop.ReplicaID(s.GetReplicaId()) != ld.self {
		return nil
	}
	for _, info := range e.store.Pins() {
		if info.ID == id && info.Range == r && e.store.TouchPin(id) == nil {
			return s
		}
	}
	return nil
}

// ReleasePin ends a pin. It implements transport.SegmentHandler.
func (e *Engine) ReleasePin(_ context.Context, _ transport.Caller, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error) {
	if _, err := transport.RangeFrom(req.GetRange()); err != nil {
		return nil, err
	}
	return &peerpb.ReleasePinResponse{Released: req.GetPin() != 0 && e.unpin(storage.PinID(req.GetPin()))}, nil
}
