package transport

import (
	"context"

	"github.com/vtop-log/vtop/transport/peerpb"
)

// Handler answers the calls of other nodes. Methods are called concurrently. The context ends with the
// caller's deadline, its connection, or the Mux. The caller has been checked: its cluster, generation and
// target fit, and its name is proven under TLS. Whether its incarnation and storage are current is the
// handler's business. Errors travel by the table in errors.go; their text is kept.
type Handler interface {
	MetaHandler
	ReplicaHandler
	ControlHandler
	SegmentHandler
}

// MetaHandler is the side of the metadata group. Identify, Pledge and Join are called also by nodes that have
// no cluster yet, and on nodes that have none.
type MetaHandler interface {
	Identify(ctx context.Context, from Caller, req *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error)
	// Pledge returns only when a granted pledge is durable.
	Pledge(ctx context.Context, from Caller, req *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error)
	Join(ctx context.Context, from Caller, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error)
	Propose(ctx context.Context, from Caller, req *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error)
	ReadIndex(ctx context.Context, from Caller, req *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error)
}

// ReplicaHandler is the side of the replicas.
type ReplicaHandler interface {
	// Fence returns only when every promise in the answer is durable (I6). Refusals of single ranges are in
	// the results; an error means that nothing was promised, or that it is unknown.
	Fence(ctx context.Context, from Caller, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error)
	LogEnds(ctx context.Context, from Caller, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error)
	ReadLog(ctx context.Context, from Caller, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error)
}

// ControlHandler is the side of what operators ask, passed on by the node they asked.
type ControlHandler interface {
	Drain(ctx context.Context, from Caller, req *peerpb.DrainRequest) (*peerpb.DrainResponse, error)
	TransferLease(ctx context.Context, from Caller, req *peerpb.TransferLeaseRequest) (*peerpb.TransferLeaseResponse, error)
}

// Handlers joins four sides to a Handler.
type Handlers struct {
	MetaHandler
	ReplicaHandler
	ControlHandler
	SegmentHandler
}

// Join returns a Handler in which a missing side refuses everything. So does the side of the segments, until
// WithSegments gives one.
func Join(meta MetaHandler, replica ReplicaHandler, control ControlHandler) Handlers {
	h := Handlers{meta, replica, control, Refuser{}}
	if h.MetaHandler == nil {
		h.MetaHandler = Refuser{}
	}
	if h.ReplicaHandler == nil {
		h.ReplicaHandler = Refuser{}
	}
	if h.ControlHandler == nil {
		h.ControlHandler = Refuser{}
	}
	return h
}

// WithSegments returns a copy that answers for sealed segments with s.
func (h Handlers) WithSegments(s SegmentHandler) Handlers {
	h.SegmentHandler = s
	return h
}

// Refuser is a Handler that refuses everything with ErrUnimplemented, or with Err if that is set. It is to
// be embedded, so that a new call is refused until somebody answers it.
type Refuser struct{ Err error }

var _ Handler = Refuser{}

func (r Refuser) refuse(call string) error {
	if r.Err != nil {
		return r.Err
	}
	return refusef(ErrUnimplemented, "%s is not served by this node now", call)
}

// Identify refuses.
func (r Refuser) Identify(context.Context, Caller, *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error) {
	return nil, r.refuse("Identify")
}

// Pledge refuses.
func (r Refuser) Pledge(context.Context, Caller, *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error) {
	return nil, r.refuse("Pledge")
}

// Join refuses.
func (r Refuser) Join(context.Context, Caller, *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	return nil, r.refuse("Join")
}

// Propose refuses.
func (r Refuser) Propose(context.Context, Caller, *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	return nil, r.refuse("Propose")
}

// ReadIndex refuses.
func (r Refuser) ReadIndex(context.Context, Caller, *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error) {
	return nil, r.refuse("ReadIndex")
}

// Fence refuses.
func (r Refuser) Fence(context.Context, Caller, *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	return nil, r.refuse("Fence")
}

// LogEnds refuses.
func (r Refuser) LogEnds(context.Context, Caller, *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	return nil, r.refuse("LogEnds")
}

// ReadLog refuses.
func (r Refuser) ReadLog(context.Context, Caller, *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	return nil, r.refuse("ReadLog")
}

// Drain refuses.
func (r Refuser) Drain(context.Context, Caller, *peerpb.DrainRequest) (*peerpb.DrainResponse, error) {
	return nil, r.refuse("Drain")
}

// TransferLease refuses.
func (r Refuser) TransferLease(context.Context, Caller, *peerpb.TransferLeaseRequest) (*peerpb.TransferLeaseResponse, error) {
	return nil, r.refuse("TransferLease")
}
