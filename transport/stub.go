package transport

import (
	"context"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/transport/peerpb"
)

func defaultDialer() NetDialer { return &net.Dialer{KeepAlive: 15 * time.Second} }

type Mux struct{}

func Listen(addr string, opt Options) (*Mux, error) { return nil, ErrUnimplemented }

func (m *Mux) Addr() net.Addr       { return nil }
func (m *Mux) SetHandler(h Handler) {}
func (m *Mux) HandleStream(p Purpose, serve func(ctx context.Context, s *Stream)) {
}
func (m *Mux) Raft() *RaftLayer { return nil }
func (m *Mux) Close() error     { return nil }

type RaftLayer struct{ net.Listener }

func (l *RaftLayer) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	return nil, ErrUnimplemented
}
func (l *RaftLayer) DialTarget(ctx context.Context, to Target) (net.Conn, error) {
	return nil, ErrUnimplemented
}

type Dialer struct{}

func NewDialer(opt Options) (*Dialer, error) { return nil, ErrUnimplemented }
func (d *Dialer) DialStream(ctx context.Context, to Target, p Purpose) (*Stream, error) {
	return nil, ErrUnimplemented
}
func (d *Dialer) Close() error { return nil }

type Frame struct {
	Type FrameType
	Body []byte
}

func (f Frame) Release() {}

type Stream struct{}

func (s *Stream) Peer() Caller                                 { return Caller{} }
func (s *Stream) Purpose() Purpose                             { return 0 }
func (s *Stream) SendAppend(a Append, batches []byte) error    { return ErrUnimplemented }
func (s *Stream) SendAcks(acks []Ack) error                    { return ErrUnimplemented }
func (s *Stream) SendMarks(marks []Mark) error                 { return ErrUnimplemented }
func (s *Stream) SendRewind(r Rewind) error                    { return ErrUnimplemented }
func (s *Stream) SendControl(m proto.Message) error            { return ErrUnimplemented }
func (s *Stream) Send(t FrameType, head, payload []byte) error { return ErrUnimplemented }
func (s *Stream) Flush() error                                 { return ErrUnimplemented }
func (s *Stream) Recv() (Frame, error)                         { return Frame{}, ErrUnimplemented }
func (s *Stream) SetIdleTimeout(d time.Duration)               {}
func (s *Stream) End(reason error) error                       { return ErrUnimplemented }
func (s *Stream) Close() error                                 { return nil }

type Client struct{}

func NewClient(opt Options) (*Client, error) { return nil, ErrUnimplemented }
func (c *Client) Close() error               { return nil }
func (c *Client) Identify(ctx context.Context, to Target, req *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) Pledge(ctx context.Context, to Target, req *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) Join(ctx context.Context, to Target, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) Propose(ctx context.Context, to Target, req *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) ReadIndex(ctx context.Context, to Target, req *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) Fence(ctx context.Context, to Target, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) LogEnds(ctx context.Context, to Target, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) ReadLog(ctx context.Context, to Target, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) Drain(ctx context.Context, to Target, req *peerpb.DrainRequest) (*peerpb.DrainResponse, error) {
	return nil, ErrUnimplemented
}
func (c *Client) TransferLease(ctx context.Context, to Target, req *peerpb.TransferLeaseRequest) (*peerpb.TransferLeaseResponse, error) {
	return nil, ErrUnimplemented
}
