package repair

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// peers is the edge: the other nodes as the runner reaches them, over the leader's real store.
type peers struct {
	w *world

	mu sync.Mutex
	// dead do not answer; liars give other bytes; deaf refuse with an error.
	dead, liars map[vtop.NodeName]bool
	fails       map[vtop.NodeName]error
	// before is called with each request for bytes, and may wait; its error is the answer.
	before func(ctx context.Context, node vtop.NodeName, seg transport.SegmentRef, chunk int64) error
	// sealFails and learnerFails are the answers to come.
	sealFails, pinFails, learnerFails []error
	afterSeal                         func()

	fetched  map[vtop.NodeName]int64
	chunks   map[vtop.Offset]int
	reports  []*peerpb.ReportDamageRequest
	seals    int
	resumed  int // requests that began within a chunk
	snaps    map[uint64]*peerpb.Snapshot
	using    map[*byte]bool
	buffers  map[*byte]bool
	mostUsed int
	pressure int
	pin      storage.PinID
}

func newPeers(w *world) *peers {
	return &peers{
		w: w, dead: map[vtop.NodeName]bool{}, liars: map[vtop.NodeName]bool{}, fails: map[vtop.NodeName]error{},
		fetched: map[vtop.NodeName]int64{}, chunks: map[vtop.Offset]int{}, using: map[*byte]bool{}, snaps: map[uint64]*peerpb.Snapshot{}, buffers: map[*byte]bool{},
	}
}

func (p *peers) with(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

func (p *peers) alive(node vtop.NodeName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead[node]
}

func pop(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

// leads checks what every leader checks.
func (p *peers) leads(node vtop.NodeName, epoch int32) error {
	rg, found := p.w.machine.State().Range(p.w.rng)
	if !found {
		return fmt.Errorf("%w: %s", vtop.ErrUnknownRange, p.w.rng)
	}
	lease := rg.Lease
	if !p.alive(node) {
		return fmt.Errorf("%w: node %q", transport.ErrUnreachable, node)
	}
	if lease.Holder != node || lease.Epoch != vtop.Epoch(epoch) {
		return &vtop.FencedError{Range: p.w.rng, Claimed: vtop.Epoch(epoch), Applied: lease, Reason: "lease moved"}
	}
	return nil
}

// SealTail implements Peers.
func (p *peers) SealTail(_ context.Context, to vtop.NodeName, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	if err := p.leads(to, req.GetEpoch()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	err := pop(&p.sealFails)
	p.seals++
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	records := p.w.seal()
	snap, err := p.snapshot(to, req.GetPin())
	if err != nil {
		return nil, err
	}
	if p.afterSeal != nil {
		p.afterSeal()
	}
	return &peerpb.SealTailResponse{SealedEnd: snap.GetSealedEnd(), RecordsSealed: records, Snapshot: snap}, nil
}

// PinSegments implements Peers.
func (p *peers) PinSegments(ctx context.Context, to vtop.NodeName, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error) {
	if r, err := transport.RangeFrom(req.GetRange()); err != nil || r != p.w.rng {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := p.leads(to, req.GetEpoch()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	err := pop(&p.pinFails)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	snap, err := p.snapshot(to, req.GetPin())
	return &peerpb.PinSegmentsResponse{Snapshot: snap}, err
}

func (p *peers) snapshot(node vtop.NodeName, old uint64) (*peerpb.Snapshot, error) {
	rg := p.w.state()
	p.mu.Lock()
	kept := p.snaps[old]
	p.mu.Unlock()
	if kept != nil && p.w.source.TouchPin(storage.PinID(old)) == nil && vtop.Epoch(kept.GetEpoch()) == rg.Lease.Epoch {
		return kept, nil // as it was
	}
	pinned, err := p.w.source.Pin(storage.PinSpec{Range: p.w.rng})
	if err != nil {
		return nil, err
	}
	snap := &transport.Snapshot{
		Epoch: rg.Lease.Epoch, Replica: p.w.replicaOf(node), LogStart: rg.LogStart, SealedEnd: rg.LogStart, HighWatermark: rg.Floor,
		LogEnd: p.w.leader.End(), ConfigVersion: rg.ConfigVersion, Pin: uint64(pinned.ID), PinIdle: pinned.Idle, Producers: pinned.Producers,
	}
	for _, seg := range pinned.Segments {
		snap.Segments = append(snap.Segments, transport.SealedSegment{Base: seg.Base, End: seg.End, Bytes: seg.Bytes, Root: seg.Root, SealEpoch: 1})
		snap.SealedEnd = seg.End
	}
	out := transport.SnapshotTo(snap)
	p.with(func() { p.pin, p.snaps[snap.Pin] = pinned.ID, out })
	return out, nil
}

// ReleasePin implements Peers.
func (p *peers) ReleasePin(_ context.Context, _ vtop.NodeName, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error) {
	return &peerpb.ReleasePinResponse{Released: p.w.source.Unpin(storage.PinID(req.GetPin()))}, nil
}

// AddLearner implements Peers.
func (p *peers) AddLearner(ctx context.Context, to vtop.NodeName, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error) {
	if err := p.leads(to, req.GetEpoch()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	err := pop(&p.learnerFails)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	rg := p.w.state()
	out, err := p.w.propose(ctx, &fsm.ChangeReplicas{
		Range: p.w.rng, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Change: fsm.AddLearner, Node: vtop.NodeName(req.GetNode()), SettleMark: p.w.leader.End(),
	})
	if err == nil {
		err = out.Err()
	}
	return &peerpb.AddLearnerResponse{ReplicaId: uint64(out.ReplicaID), ConfigVersion: out.ConfigVersion, Index: out.Index}, err
}

// ReportDamage implements Peers.
func (p *peers) ReportDamage(_ context.Context, _ vtop.NodeName, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error) {
	p.with(func() { p.reports = append(p.reports, req) })
	return &peerpb.ReportDamageResponse{Verdict: peerpb.DamageVerdict_DAMAGE_VERDICT_PENDING}, nil
}

func (p *peers) refuses(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, chunk int64) error {
	p.mu.Lock()
	err := p.fails[to]
	if p.dead[to] {
		err = fmt.Errorf("%w: node %q", transport.ErrUnreachable, to)
	}
	before := p.before
	p.mu.Unlock()
	if err == nil && before != nil {
		err = before(ctx, to, seg, chunk)
	}
	rg, found := p.w.machine.State().Range(p.w.rng)
	if !found {
		return fmt.Errorf("%w: %s", vtop.ErrUnknownRange, p.w.rng)
	}
	if lease := rg.Lease; err == nil && seg.Epoch != 0 && seg.Epoch != lease.Epoch {
		err = &vtop.FencedError{Range: p.w.rng, Claimed: seg.Epoch, Applied: lease, Reason: "lease moved"}
	}
	return err
}

// wire gives an error of the store the sentinel that it has on the wire.
func wire(err error) error {
	for from, to := range map[error]error{
		storage.ErrNoSegment: transport.ErrNoSegment, storage.ErrWrongRoot: transport.ErrWrongRoot, storage.ErrPinGone: transport.ErrPinGone,
	} {
		if errors.Is(err, from) {
			err = fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

// FetchRange implements Peers.
func (p *peers) FetchRange(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, off int64, buf []byte) (transport.Fetched, error) {
	p.with(func() {
		p.using[&buf[:1][0]], p.buffers[&buf[:1][0]] = true, true
		p.mostUsed = max(p.mostUsed, len(p.using))
		if off%chunkSize != 0 {
			p.resumed++
		}
	})
	defer p.with(func() { delete(p.using, &buf[:1][0]) })
	out := transport.Fetched{Pressure: transport.PressureUnknown}
	if err := p.refuses(ctx, to, seg, off/chunkSize); err != nil {
		if cut := (*cutError)(nil); errors.As(err, &cut) {
			out.Bytes = cut.after
			_ = p.read(seg, off, buf[:cut.after])
		}
		return out, err
	}
	if err := p.read(seg, off, buf); err != nil {
		return out, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.liars[to] {
		buf[len(buf)/2] ^= 1
	}
	p.fetched[to] += int64(len(buf))
	p.chunks[seg.Base]++
	out.Bytes, out.Size, out.Pressure = len(buf), seg.Size, p.pressure
	return out, nil
}

func (p *peers) read(seg transport.SegmentRef, off int64, buf []byte) error {
	r, err := p.w.source.OpenSealed(seg.Range, seg.Base, seg.Root, storage.PinID(seg.Pin))
	if err != nil {
		return wire(err)
	}
	defer r.Close()
	_, err = r.ReadAt(buf, off)
	return wire(err)
}

// cutError is a connection that breaks after some bytes.
type cutError struct{ after int }

func (e *cutError) Error() string        { return "the connection broke" }
func (e *cutError) Is(target error) bool { return target == transport.ErrCut }

// FetchManifest implements Peers.
func (p *peers) FetchManifest(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, limit int) ([]byte, error) {
	if err := p.refuses(ctx, to, seg, -1); err != nil {
		return nil, err
	}
	out, err := p.w.source.ReadManifest(seg.Range, seg.Base, seg.Root, storage.PinID(seg.Pin))
	if len(out) > limit {
		return nil, fmt.Errorf("%w: manifest of %d bytes", transport.ErrInvalid, len(out))
	}
	return out, wire(err)
}
