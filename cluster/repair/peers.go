package repair

import (
	"context"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Peers is what the runner asks of other nodes. All methods are called concurrently, return when ctx ends, find the
// node's address themselves, and give errors that match the sentinels of transport and vtop. What FetchRange and
// FetchManifest return is believed only once it is verified.
type Peers interface {
	SealTail(ctx context.Context, to vtop.NodeName, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error)
	PinSegments(ctx context.Context, to vtop.NodeName, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error)
	ReleasePin(ctx context.Context, to vtop.NodeName, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error)
	AddLearner(ctx context.Context, to vtop.NodeName, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error)
	ReportDamage(ctx context.Context, to vtop.NodeName, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error)
	FetchRange(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, off int64, buf []byte) (transport.Fetched, error)
	FetchManifest(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, limit int) ([]byte, error)
}

// ClientPeers is Peers over a transport.Client.
type ClientPeers struct {
	Client *transport.Client
	// Target finds where a node is to be reached.
	Target func(vtop.NodeName) (transport.Target, error)
}

var _ Peers = ClientPeers{}

// at calls one method of the client on a node.
func at[Q, A any](p ClientPeers, ctx context.Context, to vtop.NodeName, req Q, call func(context.Context, transport.Target, Q) (A, error)) (out A, err error) {
	target, err := p.Target(to)
	if err != nil {
		return out, err
	}
	return call(ctx, target, req)
}

// SealTail implements Peers.
func (p ClientPeers) SealTail(ctx context.Context, to vtop.NodeName, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	return at(p, ctx, to, req, p.Client.SealTail)
}

// PinSegments implements Peers.
func (p ClientPeers) PinSegments(ctx context.Context, to vtop.NodeName, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error) {
	return at(p, ctx, to, req, p.Client.PinSegments)
}

// ReleasePin implements Peers.
func (p ClientPeers) ReleasePin(ctx context.Context, to vtop.NodeName, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error) {
	return at(p, ctx, to, req, p.Client.ReleasePin)
}

// AddLearner implements Peers.
func (p ClientPeers) AddLearner(ctx context.Context, to vtop.NodeName, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error) {
	return at(p, ctx, to, req, p.Client.AddLearner)
}

// ReportDamage implements Peers.
func (p ClientPeers) ReportDamage(ctx context.Context, to vtop.NodeName, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error) {
	return at(p, ctx, to, req, p.Client.ReportDamage)
}

// FetchRange implements Peers.
func (p ClientPeers) FetchRange(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, off int64, buf []byte) (transport.Fetched, error) {
	target, err := p.Target(to)
	if err != nil {
		return transport.Fetched{Pressure: transport.PressureUnknown}, err
	}
	return p.Client.FetchRange(ctx, target, seg, off, buf)
}

// FetchManifest implements Peers.
func (p ClientPeers) FetchManifest(ctx context.Context, to vtop.NodeName, seg transport.SegmentRef, limit int) ([]byte, error) {
	target, err := p.Target(to)
	if err != nil {
		return nil, err
	}
	return p.Client.FetchManifest(ctx, target, seg, limit)
}
