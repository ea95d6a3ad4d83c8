package transport

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/peerpb/peerpbconnect"
)

// Client calls other nodes. It is safe for concurrent use and keeps connections open, per node and address;
// large reads (ReadLog, and again segments) have connections of their own, so that they hold up no control call.
// It retries nothing: what may be repeated is the caller's knowledge.
//
// Errors match, by errors.Is, the sentinel that the other node's error matched, and keep its text, which names
// the node. Otherwise: ErrUnreachable if nothing was sent, vtop.ErrTimeout if the outcome is unknown, and
// context.DeadlineExceeded or context.Canceled beside it if the caller's context ended.
type Client struct {
	opt     Options
	conns   *connSet
	control *exchange
	bulk    *exchange
	// segments moves sealed segments.
	segments *exchange
	// silence is how long a source of segments may send nothing before it is given up.
	silence time.Duration
}

// exchange is one pool of connections with the generated client on it.
type exchange struct {
	client *Client
	scheme string
	http   *http.Transport
	peer   peerpbconnect.PeerServiceClient
	repair peerpbconnect.RepairServiceClient
}

// Connections per node, idle and in all.
const (
	controlIdle, controlConns = 16, 256
	bulkIdle, bulkConns       = 2, 16
	segmentIdle, segmentConns = 4, 8
)

// NewClient checks the options. Close it.
func NewClient(opt Options) (*Client, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opt: opt, conns: newConnSet(math.MaxInt, math.MaxInt), silence: silence}
	c.control = c.newExchange(controlIdle, controlConns, MaxMessage)
	c.bulk = c.newExchange(bulkIdle, bulkConns, MaxBulkMessage)
	c.segments = c.newExchange(segmentIdle, segmentConns, 0)
	return c, nil
}

func (c *Client) newExchange(idle, conns, readMax int) *exchange {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	e := &exchange{client: c, http: &http.Transport{
		DialContext:            c.dial,
		DialTLSContext:         c.dial,
		Protocols:              protocols,
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    idle,
		MaxConnsPerHost:        conns,
		IdleConnTimeout:        keepAliveIdle * 2 / 3, // before the other side gives up
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}}
	scheme := "http"
	if c.opt.TLS != nil {
		scheme = "https"
	}
	e.scheme = scheme
	options := connect.WithClientOptions(
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(readMax),
		connect.WithSendMaxBytes(MaxMessage),
	)
	e.peer = peerpbconnect.NewPeerServiceClient(e, scheme+"://peer", options)
	e.repair = peerpbconnect.NewRepairServiceClient(e, scheme+"://peer", options)
	return e
}

// Close cuts every connection; calls that are waiting return.
func (c *Client) Close() error {
	c.conns.close()
	c.control.http.CloseIdleConnections()
	c.bulk.http.CloseIdleConnections()
	c.segments.http.CloseIdleConnections()
	return nil
}

// Name and address of a target stand in the URL's host, hex-encoded: the pool then never uses a connection to
// one node for a call to another that has taken over its address.
const hostSuffix = ":9640"

func hostOf(to Target) string {
	return "n" + hex.EncodeToString([]byte(to.Name)) + ".a" + hex.EncodeToString([]byte(to.Addr)) + hostSuffix
}

func targetOf(host string) (Target, error) {
	name, addr, ok := strings.Cut(strings.TrimSuffix(host, hostSuffix), ".")
	if !ok || !strings.HasPrefix(name, "n") || !strings.HasPrefix(addr, "a") {
		return Target{}, fmt.Errorf("host %q is no target", host)
	}
	n, nerr := hex.DecodeString(name[1:])
	a, aerr := hex.DecodeString(addr[1:])
	return Target{Name: vtop.NodeName(n), Addr: string(a)}, errors.Join(nerr, aerr)
}

// dial opens a connection for the pool. The HTTP transport gives it a context that outlives the call.
func (c *Client) dial(ctx context.Context, _, host string) (net.Conn, error) {
	to, err := targetOf(host)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	d := Dialer{opt: c.opt, conns: c.conns}
	conn, err := d.dial(ctx, to, alpnHTTP)
	if err != nil {
		return nil, err
	}
	c.conns.settle(conn, kindHTTP)
	return conn, nil
}

type targetKey struct{}

// Do implements connect.HTTPClient: it says who calls, and checks who answers.
func (e *exchange) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	to, ok := ctx.Value(targetKey{}).(Target)
	if !ok {
		return nil, errors.New("call without a target")
	}
	self := e.client.opt.Self()
	setHeaders(req.Header, self, to.Name)
	var used atomic.Pointer[conn]
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if c, ok := info.Conn.(*conn); ok {
				used.Store(c)
			}
		},
	}))
	req.URL.Host = hostOf(to)
	req.Host = to.Addr
	resp, err := e.http.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(to, resp.Header, used.Load()); err != nil {
		_ = resp.Body.Close() // it is not to be believed
		return nil, err
	}
	return resp, nil
}

// checkAnswer makes sure that the node that answers is the one that was called. Whether the clusters fit is
// the answering side's judgement, since Identify is for those that do not.
func checkAnswer(to Target, header http.Header, c *conn) error {
	hello, err := helloFromHeaders(header)
	if err != nil {
		return err
	}
	var proven vtop.NodeName
	if c != nil {
		proven = c.name
	}
	name := vtop.NodeName(hello.GetName())
	if err := proveName(name, proven, to.Addr); err != nil {
		return err
	}
	if to.Name != "" && name != to.Name {
		return refusef(ErrWrongNode, "%s answers as node %q", to, name)
	}
	return nil
}

// call makes one call and translates its error.
func call[Req, Resp any](ctx context.Context, to Target, what string, req *Req, do func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error)) (*Resp, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, targetKey{}, to), maxCallTime)
	defer cancel()
	resp, err := do(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", what, to, unwire(err))
	}
	return resp.Msg, nil
}

// unwire gives a failed call its identity.
func unwire(err error) error {
	var peer *PeerError
	if errors.As(err, &peer) || errors.Is(err, ErrUnreachable) {
		return plain(err)
	}
	if refused := certificateRefused(plain(err)); refused != nil {
		return refused
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		for _, d := range ce.Details() {
			if v, derr := d.Value(); derr == nil {
				if detail, ok := v.(*peerpb.ErrorDetail); ok {
					return errorOfDetail(detail)
				}
			}
		}
		switch ce.Code() {
		case connect.CodeUnimplemented:
			return fmt.Errorf("%w: %s", ErrUnimplemented, ce.Message())
		case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
			return fmt.Errorf("%w: %s", ErrInvalid, ce.Message())
		case connect.CodeCanceled:
			return fmt.Errorf("%w: %w", vtop.ErrTimeout, context.Canceled)
		case connect.CodeDeadlineExceeded:
			return fmt.Errorf("%w: %w", vtop.ErrTimeout, context.DeadlineExceeded)
		}
	}
	return fmt.Errorf("%w: %w", vtop.ErrTimeout, plain(err))
}

// certificateRefused is the error of a call on whose connection the other side ended the handshake, which this
// side thought was done, before it read the call; nil if err is something else.
func certificateRefused(err error) error {
	var alert tls.AlertError
	if !errors.As(err, &alert) {
		return nil
	}
	return fmt.Errorf("%w: the other side does not take this node's certificate: %w", ErrUnreachable, err)
}

// plain drops connect's wrapping, whose text would say "unavailable" in front of what is known better.
func plain(err error) error {
	var ce *connect.Error
	if errors.As(err, &ce) && ce.Unwrap() != nil {
		return ce.Unwrap()
	}
	return err
}

// Identify asks a node who it is. The target's name may be unknown.
func (c *Client) Identify(ctx context.Context, to Target, req *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error) {
	return call(ctx, to, "identify", req, c.control.peer.Identify)
}

// Pledge asks an empty node for its one pledge.
func (c *Client) Pledge(ctx context.Context, to Target, req *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error) {
	return call(ctx, to, "pledge", req, c.control.peer.Pledge)
}

// Join registers this node with the Raft leader.
func (c *Client) Join(ctx context.Context, to Target, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	return call(ctx, to, "join", req, c.control.peer.Join)
}

// Propose hands a command to the Raft leader.
func (c *Client) Propose(ctx context.Context, to Target, req *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	return call(ctx, to, "propose", req, c.control.peer.Propose)
}

// ReadIndex asks the Raft leader for a commit index of its own term.
func (c *Client) ReadIndex(ctx context.Context, to Target, req *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error) {
	return call(ctx, to, "read index", req, c.control.peer.ReadIndex)
}

// Fence asks for promises. An answer without one result per item is refused with ErrInvalid.
func (c *Client) Fence(ctx context.Context, to Target, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error) {
	resp, err := call(ctx, to, "fence", req, c.control.peer.Fence)
	if err == nil && len(resp.GetResults()) != len(req.GetItems()) {
		return nil, refusef(ErrInvalid, "%s answers %d results to a fence of %d items", to, len(resp.GetResults()), len(req.GetItems()))
	}
	return resp, err
}

// LogEnds asks how far replicas have come. An answer without one result per item is refused with ErrInvalid.
func (c *Client) LogEnds(ctx context.Context, to Target, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	resp, err := call(ctx, to, "log ends", req, c.control.peer.LogEnds)
	if err == nil && len(resp.GetResults()) != len(req.GetItems()) {
		return nil, refusef(ErrInvalid, "%s answers %d results for %d replicas", to, len(resp.GetResults()), len(req.GetItems()))
	}
	return resp, err
}

// ReadLog reads batches, which the caller verifies (I9).
func (c *Client) ReadLog(ctx context.Context, to Target, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error) {
	return call(ctx, to, "read log", req, c.bulk.peer.ReadLog)
}

// Drain asks a node to start or stop moving leases away from a node.
func (c *Client) Drain(ctx context.Context, to Target, req *peerpb.DrainRequest) (*peerpb.DrainResponse, error) {
	return call(ctx, to, "drain", req, c.control.peer.Drain)
}

// TransferLease asks for one lease to move.
func (c *Client) TransferLease(ctx context.Context, to Target, req *peerpb.TransferLeaseRequest) (*peerpb.TransferLeaseResponse, error) {
	return call(ctx, to, "transfer lease", req, c.control.peer.TransferLease)
}
