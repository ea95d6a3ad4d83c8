package transport

import (
	"context"
	"io"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// SegmentHandler is the side of sealed segments: of the repair of other nodes' replicas. Every caller was found
// on the transfer allowlist (Options.AllowTransfer) before a byte of its request was looked at.
type SegmentHandler interface {
	// SealTail returns once all below the answered end is committed, catalogued and durable here. Errors:
	// vtop.ErrFenced, with nothing changed; *NotCommittedError, with the tail closed and nothing catalogued
	// beyond the high watermark; ErrNeverWritten.
	SealTail(ctx context.Context, from Caller, req *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error)
	PinSegments(ctx context.Context, from Caller, req *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error)
	ReleasePin(ctx context.Context, from Caller, req *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error)
	// AddLearner returns once the change is applied here, or refused.
	AddLearner(ctx context.Context, from Caller, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error)
	ReportDamage(ctx context.Context, from Caller, req *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error)
	// OpenSegment opens the bytes of a sealed segment whose root is seg.Root. Errors: ErrNoSegment, ErrWrongRoot,
	// ErrPinGone, vtop.ErrDamaged, vtop.ErrFenced for a replica or epoch that is not the present one.
	OpenSegment(ctx context.Context, from Caller, seg SegmentRef) (*SegmentBytes, error)
	// OpenManifest opens its manifest, encoded.
	OpenManifest(ctx context.Context, from Caller, seg SegmentRef) (*SegmentBytes, error)
}

// SegmentRef names a sealed segment, and under what the caller asks for it.
type SegmentRef struct {
	Range vtop.Range
	Base  vtop.Offset
	// Root is the catalogue's. It is never zero: who asks knows what it wants.
	Root [32]byte
	// Size is the catalogue's, in bytes; 0 if the caller does not know it. It is not sent: an answer of another
	// size is refused.
	Size int64
	// Pin holds the segment open at the node that gave it; 0 if none.
	Pin uint64
	// Replica is the source's replica that is meant, and Epoch the lease under which the caller repairs; 0 for
	// any. Who answers may refuse another one.
	Replica vtop.ReplicaID
	Epoch   vtop.Epoch
}

// SegmentBytes is what a SegmentHandler opened for one request.
type SegmentBytes struct {
	// Bytes is read in order, in steps of SegmentStep bytes that end at multiples of it, so that a reader which
	// verifies chunks of that size reads each once. A read may wait: that is how a source slows a transfer down,
	// for at most a few seconds at a time.
	Bytes io.ReaderAt
	// Size is of the whole, whatever part is asked for.
	Size int64
	// Pressure says how busy the node is with its clients, from 0 (idle) to 100; PressureUnknown if it cannot
	// tell. The caller is told, and may slow down.
	Pressure int
	// Release is called once, when nothing is read any more. It may be nil.
	Release func()
}

const (
	// SegmentStep is the number of bytes in which a segment is read and sent: the size of a manifest's chunk.
	SegmentStep = 1 << 20
	// PressureUnknown: the source does not say how busy it is.
	PressureUnknown = -1
	// MaxSegmentSize is the largest size in bytes of a segment that is believed.
	MaxSegmentSize = 1 << 40
)

// SealTail refuses.
func (r Refuser) SealTail(context.Context, Caller, *peerpb.SealTailRequest) (*peerpb.SealTailResponse, error) {
	return nil, r.refuse("SealTail")
}

// PinSegments refuses.
func (r Refuser) PinSegments(context.Context, Caller, *peerpb.PinSegmentsRequest) (*peerpb.PinSegmentsResponse, error) {
	return nil, r.refuse("PinSegments")
}

// ReleasePin refuses.
func (r Refuser) ReleasePin(context.Context, Caller, *peerpb.ReleasePinRequest) (*peerpb.ReleasePinResponse, error) {
	return nil, r.refuse("ReleasePin")
}

// AddLearner refuses.
func (r Refuser) AddLearner(context.Context, Caller, *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error) {
	return nil, r.refuse("AddLearner")
}

// ReportDamage refuses.
func (r Refuser) ReportDamage(context.Context, Caller, *peerpb.ReportDamageRequest) (*peerpb.ReportDamageResponse, error) {
	return nil, r.refuse("ReportDamage")
}

// OpenSegment refuses.
func (r Refuser) OpenSegment(context.Context, Caller, SegmentRef) (*SegmentBytes, error) {
	return nil, r.refuse("OpenSegment")
}

// OpenManifest refuses.
func (r Refuser) OpenManifest(context.Context, Caller, SegmentRef) (*SegmentBytes, error) {
	return nil, r.refuse("OpenManifest")
}
