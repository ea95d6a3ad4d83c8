package sim

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/repair"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// peers is the peer plane of a process: streams are those of package transport over simulated connections, calls are made
// without HTTP.
type peers struct{ p *process }

var _ replica.Network = peers{}
var _ repair.Peers = peers{}

// Dial implements replica.Network.
func (w peers) Dial(ctx context.Context, to vtop.NodeName) (*transport.Stream, error) {
	return w.p.dialer.DialStream(ctx, transport.Target{Name: to, Addr: string(to)}, transport.Replication)
}

// Peer implements replica.Network.
func (w peers) Peer(to vtop.NodeName) replica.Peer { return peer{w.p, to} }

type peer struct {
	p  *process
	to vtop.NodeName
}

func (p *process) replicas() (*replica.Engine, error) {
	if e := p.engine.Load(); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%w: node %q has not joined yet", vtop.ErrNotReady, p.host.name)
}

// on calls one method of the engine of another node.
func on[Q, A any](method func(*replica.Engine, context.Context, transport.Caller, Q) (A, error)) func(context.Context, *process, transport.Caller, Q) (A, error) {
	return func(ctx context.Context, q *process, from transport.Caller, req Q) (A, error) {
		e, err := q.replicas()
		if err != nil {
			var none A
			return none, err
		}
		return method(e, ctx, from, req)
	}
}

// Fence implements replica.Peer.
func (r peer) Fence(ctx context.Context, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	return call(ctx, r.p, r.to, req, func(ctx context.Context, q *process, from transport.Caller, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
		resp, err := on((*replica.Engine).Fence)(ctx, q, from, req)
		if err == nil && !q.dead.Load() {
			q.host.life.oracle.promised(q, req, resp)
		}
		return resp, err
	})
}

// ReadLog implements replica.Peer.
func (r peer) ReadLog(ctx context.Context, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	return call(ctx, r.p, r.to, req, on((*replica.Engine).ReadLog))
}

// LogEnds implements replica.Peer.
func (r peer) LogEnds(ctx context.Context, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	return call(ctx, r.p, r.to, req, on((*replica.Engine).LogEnds))
}

// SealTail implements repair.Peers.
func (w peers) SealTail(ctx context.Context, to vtop.NodeName, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	return call(ctx, w.p, to, req, on((*replica.Engine).SealTail))
}

// PinSegments implements repair.Peers.
func (w peers) PinSegments(ctx context.Context, to vtop.NodeName, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error) {
	return call(ctx, w.p, to, req, on((*replica.Engine).PinSegments))
}

// ReleasePin implements repair.Peers.
func (w peers) ReleasePin(ctx context.Context, to vtop.NodeName, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error) {
	return call(ctx, w.p, to, req, on((*replica.Engine).ReleasePin))
}

// AddLearner implements repair.Peers.
func (w peers) AddLearner(ctx context.Context, to vtop.NodeName, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error) {
	return call(ctx, w.p, to, req, on((*replica.Engine).AddLearner))
}

// ReportDamage implements repair.Peers.
func (w peers) ReportDamage(ctx context.Context, to vtop.NodeName, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error) {
	return call(ctx, w.p, to, req, on((*replica.Engine).ReportDamage))
}

// FetchRange implements repair.Peers. Now and then a byte comes over wrong: what is not verified shows.
func (w peers) FetchRange(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, off int64, buf []byte) (transport.Fetched, error) {
	none := transport.Fetched{Pressure: transport.PressureUnknown}
	got, err := exchange(ctx, w.p, to, func(ctx context.Context, q *process) ([]byte, error) {
		return w.open(ctx, q, seg, off, len(buf), (*replica.Engine).OpenSegment)
	})
	if err != nil {
		return none, err
	}
	if len(got) > 0 && w.p.host.life.net.chance(string(to), w.p.name(), 0.1) {
		got[len(got)/2] ^= 0x40
	}
	return transport.Fetched{Bytes: copy(buf, got), Size: seg.Size, Pressure: 0}, nil
}

// FetchManifest implements repair.Peers.
func (w peers) FetchManifest(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, limit int) ([]byte, error) {
	return exchange(ctx, w.p, to, func(ctx context.Context, q *process) ([]byte, error) {
		return w.open(ctx, q, seg, 0, limit, (*replica.Engine).OpenManifest)
	})
}

type opener func(*replica.Engine, context.Context, transport.Caller, transport.SegmentRef) (*transport.SegmentBytes, error)

// open reads at most n bytes of what another process opens.
func (w peers) open(ctx context.Context, q *process, seg transport.SegmentRef, off int64, n int, open opener) ([]byte, error) {
	e, err := q.replicas()
	if err != nil {
		return nil, err
	}
	s, err := open(e, ctx, transport.Caller{Self: w.p.self(), Addr: w.p.name()}, seg)
	if err != nil {
		return nil, err
	}
	if s.Release != nil {
		defer s.Release()
	}
	out := make([]byte, min(int64(n), max(0, s.Size-off)))
	if _, err := s.Bytes.ReadAt(out, off); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out, nil
}

// logEnds is what the controller asks before it grants.
func (p *process) logEnds(ctx context.Context, node vtop.NodeName, asks []controller.Ask) ([]controller.LogEnd, error) {
	req := &peerpb.LogEndsRequest{}
	for _, a := range asks {
		req.Items = append(req.Items, &peerpb.LogEndsItem{Range: transport.RangeTo(a.Range), ReplicaId: uint64(a.Replica)})
	}
	resp, err := peer{p, node}.LogEnds(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(resp.GetResults()) != len(asks) {
		return nil, errors.New("log ends: answers do not match the questions")
	}
	var out []controller.LogEnd
	for i, r := range resp.GetResults() {
		if r.GetCode() != peerpb.Code_CODE_UNSPECIFIED {
			continue
		}
		out = append(out, controller.LogEnd{
			Range: asks[i].Range, End: vtop.Offset(r.GetDurableEnd()), LastEpoch: vtop.Epoch(r.GetLastEpoch()),
			Promised: vtop.Epoch(r.GetPromised()), Damaged: r.GetState() == replica.StateDamaged,
		})
	}
	return out, nil
}
