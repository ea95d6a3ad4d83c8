package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
	"github.com/vtop-log/vtop/transport/peerpb/peerpbconnect"
)

// clusterless are the calls that work before there is a cluster.
var clusterless = map[string]bool{
	peerpbconnect.PeerServiceIdentifyProcedure: true,
	peerpbconnect.PeerServicePledgeProcedure:   true,
	peerpbconnect.PeerServiceJoinProcedure:     true,
}

// repairPrefix begins the calls for which the transfer allowlist is asked.
const repairPrefix = "/" + peerpbconnect.RepairServiceName + "/"

// maxHeader bounds the headers of a request in bytes.
const maxHeader = 8 << 10

type (
	connKey   struct{}
	callerKey struct{}
)

// rpcConn is a connection in the HTTP server's hands.
type rpcConn struct {
	net.Conn
	under *conn
	once  sync.Once
	ended func()
}

func (c *rpcConn) end() { c.once.Do(c.ended) }

func (m *Mux) newHTTPServer() *http.Server {
	calls := http.NewServeMux()
	calls.Handle(peerpbconnect.NewPeerServiceHandler(service{m},
		connect.WithRequestGate(m.gate),
		connect.WithReadMaxBytes(MaxControl),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if spec.Procedure != peerpbconnect.PeerServiceProposeProcedure {
				return nil
			}
			return []connect.HandlerOption{connect.WithReadMaxBytes(MaxMessage)}
		}),
		connect.WithSendMaxBytes(MaxBulkMessage),
		connect.WithCompression("gzip", nil, nil),
	))
	calls.Handle(peerpbconnect.NewRepairServiceHandler(repairService{m},
		connect.WithRequestGate(m.gate),
		connect.WithReadMaxBytes(MaxControl),
		connect.WithSendMaxBytes(MaxBulkMessage),
		connect.WithCompression("gzip", nil, nil),
	))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           m.route(m.bound(calls)),
		Protocols:         protocols,
		ReadHeaderTimeout: HandshakeTimeout,
		WriteTimeout:      maxCallTime + bodyTimeout,
		IdleTimeout:       keepAliveIdle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          m.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		BaseContext:       func(net.Listener) context.Context { return m.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if rc, ok := c.(*rpcConn); ok {
				return context.WithValue(ctx, connKey{}, rc.under)
			}
			return ctx
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if rc, ok := c.(*rpcConn); ok && state == http.StateClosed {
				rc.end()
			}
		},
	}
}

func (m *Mux) serveHTTP() {
	defer m.wg.Done()
	if err := m.http.Serve(m.rpc); err != nil && !errors.Is(err, http.ErrServerClosed) && m.ctx.Err() == nil {
		m.log.Error("peer calls are no longer served", "error", err)
	}
}

// route takes segment requests out before anything looks at them, redirects of unclean paths included.
func (m *Mux) route(calls http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, segmentPrefix) {
			m.serveSegments(w, r)
			return
		}
		calls.ServeHTTP(w, r)
	})
}

// bound puts the limits around every request: how many at once, how slowly the body may come, how long in all.
func (m *Mux) bound(next http.Handler) http.Handler {
	errs := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		self := m.opt.Self()
		setHeaders(w.Header(), self, "")
		if m.calls.Add(1) > maxCalls {
			m.calls.Add(-1)
			_ = errs.Write(w, r, m.wireError(refusef(vtop.ErrOverloaded, "node %q is answering %d calls", self.Name, maxCalls)))
			return
		}
		defer m.calls.Add(-1)
		ctx, cancel := context.WithTimeout(r.Context(), maxCallTime)
		defer cancel()
		r = r.WithContext(ctx)
		if r.Body != http.NoBody {
			// Cleared at the body's end: the server goes on reading, to see the caller hang up.
			ctl := http.NewResponseController(w)
			_ = ctl.SetReadDeadline(time.Now().Add(bodyTimeout)) // a dead connection says so when it is read
			r.Body = &timedBody{ReadCloser: r.Body, end: func() { _ = ctl.SetReadDeadline(time.Time{}) }}
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody calls end when the body has been read.
type timedBody struct {
	io.ReadCloser
	end func()
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.end()
	}
	return n, err
}

// gate judges the caller before any of its message is read.
func (m *Mux) gate(ctx context.Context, spec connect.Spec, _ connect.Peer, header http.Header) (context.Context, error) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return ctx, m.wireError(errors.New("call on a connection that is not the peer port's"))
	}
	from, err := m.judge(c, spec.Procedure, header)
	if err != nil {
		m.refusals.report(m.log.With("call", spec.Procedure, "node", from.Name), "call refused", c.RemoteAddr(), err)
		return ctx, m.wireError(err)
	}
	return context.WithValue(ctx, callerKey{}, from), nil
}

func (m *Mux) judge(c *conn, procedure string, header http.Header) (Caller, error) {
	hello, err := helloFromHeaders(header)
	if err != nil {
		return Caller{}, err
	}
	from, err := callerOf(hello, c.RemoteAddr().String(), c.name)
	if err != nil {
		return from, err
	}
	if hello.GetProtocol() != protocolVersion {
		return from, refusef(ErrInvalid, "node %q speaks version %d of the peer protocol, this node version %d: upgrade the older one",
			from.Name, hello.GetProtocol(), protocolVersion)
	}
	if err := m.opt.admit(from, vtop.NodeName(hello.GetTo()), !clusterless[procedure]); err != nil {
		return from, err
	}
	if procedure == segmentPrefix || strings.HasPrefix(procedure, repairPrefix) {
		return from, m.opt.allowTransfer(from)
	}
	return from, nil
}

// wireError packs an error for the caller.
func (m *Mux) wireError(err error) error {
	detail := detailOf(m.opt.Self().Name, err)
	out := connect.NewError(rowOf(err).http, errors.New(detail.Message))
	if d, derr := connect.NewErrorDetail(detail); derr == nil {
		out.AddDetail(d)
	}
	return out
}

// answer calls one method of the handler.
func answer[Req, Resp any](ctx context.Context, m *Mux, req *connect.Request[Req], call func(context.Context, Caller, *Req) (*Resp, error)) (*connect.Response[Resp], error) {
	from, ok := ctx.Value(callerKey{}).(Caller)
	if !ok {
		return nil, m.wireError(errors.New("call that passed no gate"))
	}
	resp, err := call(ctx, from, req.Msg)
	if err != nil {
		return nil, m.wireError(err)
	}
	return connect.NewResponse(resp), nil
}

// service is the handler as connect wants it.
type service struct{ m *Mux }

var _ peerpbconnect.PeerServiceHandler = service{}

func (s service) h() Handler { return *s.m.handler.Load() }

func (s service) Identify(ctx context.Context, req *connect.Request[peerpb.IdentifyRequest]) (*connect.Response[peerpb.IdentifyResponse], error) {
	return answer(ctx, s.m, req, s.h().Identify)
}

func (s service) Pledge(ctx context.Context, req *connect.Request[peerpb.PledgeRequest]) (*connect.Response[peerpb.PledgeResponse], error) {
	return answer(ctx, s.m, req, s.h().Pledge)
}

func (s service) Join(ctx context.Context, req *connect.Request[peerpb.JoinRequest]) (*connect.Response[peerpb.JoinResponse], error) {
	return answer(ctx, s.m, req, s.h().Join)
}

func (s service) Propose(ctx context.Context, req *connect.Request[peerpb.ProposeRequest]) (*connect.Response[peerpb.ProposeResponse], error) {
	return answer(ctx, s.m, req, s.h().Propose)
}

func (s service) ReadIndex(ctx context.Context, req *connect.Request[peerpb.ReadIndexRequest]) (*connect.Response[peerpb.ReadIndexResponse], error) {
	return answer(ctx, s.m, req, s.h().ReadIndex)
}

func (s service) Fence(ctx context.Context, req *connect.Request[peerpb.FenceRequest]) (*connect.Response[peerpb.FenceResponse], error) {
	return answer(ctx, s.m, req, s.h().Fence)
}

func (s service) LogEnds(ctx context.Context, req *connect.Request[peerpb.LogEndsRequest]) (*connect.Response[peerpb.LogEndsResponse], error) {
	return answer(ctx, s.m, req, s.h().LogEnds)
}

func (s service) ReadLog(ctx context.Context, req *connect.Request[peerpb.ReadLogRequest]) (*connect.Response[peerpb.ReadLogResponse], error) {
	return answer(ctx, s.m, req, s.h().ReadLog)
}

func (s service) Drain(ctx context.Context, req *connect.Request[peerpb.DrainRequest]) (*connect.Response[peerpb.DrainResponse], error) {
	return answer(ctx, s.m, req, s.h().Drain)
}

func (s service) TransferLease(ctx context.Context, req *connect.Request[peerpb.TransferLeaseRequest]) (*connect.Response[peerpb.TransferLeaseResponse], error) {
	return answer(ctx, s.m, req, s.h().TransferLease)
}

// repairService is its side of sealed segments.
type repairService struct{ m *Mux }

var _ peerpbconnect.RepairServiceHandler = repairService{}

func (s repairService) h() SegmentHandler { return *s.m.handler.Load() }

func (s repairService) SealTail(ctx context.Context, req *connect.Request[peerpb.SealTailRequest]) (*connect.Response[peerpb.SealTailResponse], error) {
	return answer(ctx, s.m, req, s.h().SealTail)
}

func (s repairService) PinSegments(ctx context.Context, req *connect.Request[peerpb.PinSegmentsRequest]) (*connect.Response[peerpb.PinSegmentsResponse], error) {
	return answer(ctx, s.m, req, s.h().PinSegments)
}

func (s repairService) ReleasePin(ctx context.Context, req *connect.Request[peerpb.ReleasePinRequest]) (*connect.Response[peerpb.ReleasePinResponse], error) {
	return answer(ctx, s.m, req, s.h().ReleasePin)
}

func (s repairService) AddLearner(ctx context.Context, req *connect.Request[peerpb.AddLearnerRequest]) (*connect.Response[peerpb.AddLearnerResponse], error) {
	return answer(ctx, s.m, req, s.h().AddLearner)
}

func (s repairService) ReportDamage(ctx context.Context, req *connect.Request[peerpb.ReportDamageRequest]) (*connect.Response[peerpb.ReportDamageResponse], error) {
	return answer(ctx, s.m, req, s.h().ReportDamage)
}
