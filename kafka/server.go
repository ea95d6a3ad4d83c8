package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/vtop-log/vtop"
)

// errStopped is the cause of a connection's end when the server closes.
var errStopped = fmt.Errorf("kafka server: %w", vtop.ErrClosed)

// Server answers Kafka clients from a Node. Serve may be called for several listeners; Close ends them all and
// waits for every goroutine.
type Server struct {
	// Set once.
	cfg     Config
	node    Node
	log     hclog.Logger
	metrics *Metrics
	apis    []api
	flexMin map[int16]int16 // the first flexible version of each API

	pool      bufferPool
	calls     sync.Pool // of *produceCall
	requests  *budget
	responses *budget
	work      *budget // for the elements of requests that have many
	leaders   leaderTable
	quotas    clientQuotas

	ctx      context.Context
	cancel   context.CancelCauseFunc
	draining chan struct{} // closed when no new requests are read
	wg       sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	perIP     map[string]int
	refused   time.Time // when a refused connection was last logged
	handshake time.Time // when a failed handshake was last logged
}

// New makes a server. metrics may be nil.
func New(cfg Config, node Node, metrics *Metrics, log hclog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if metrics == nil {
		metrics = newMetrics()
	}
	s := &Server{
		cfg: cfg, node: node, log: log.Named("kafka"), metrics: metrics, apis: apiTable(), flexMin: map[int16]int16{},
		quotas:   clientQuotas{limit: cfg.MaxConnections, byID: map[string]*clientQuota{}},
		requests: newBudget(cfg.RequestBytes), responses: newBudget(cfg.ResponseBytes), work: newBudget(cfg.RequestBytes),
		draining: make(chan struct{}), listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{}, perIP: map[string]int{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	for i := range s.apis {
		s.flexMin[s.apis[i].key] = s.apis[i].flexibleMin()
	}
	metrics.watch(s)
	return s, nil
}

// Serve accepts connections from l until l fails or the server closes; then it returns vtop.ErrClosed. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errStopped
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	for {
		nc, err := l.Accept()
		if err == nil {
			s.admit(nc)
			continue
		}
		if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return errStopped
		}
		// Too many open files, say: it passes, and the listener must live to see it.
		s.log.Warn("accept failed, trying again", "error", err, "pause", acceptPause)
		select {
		case <-time.After(acceptPause):
		case <-s.draining:
			return errStopped
		}
	}
}

const acceptPause = 100 * time.Millisecond

// admit starts a connection, or closes it at once where a cap is reached (I13).
func (s *Server) admit(nc net.Conn) {
	ip, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		ip = nc.RemoteAddr().String()
	}
	s.mu.Lock()
	full := len(s.conns) >= s.cfg.MaxConnections || s.cfg.MaxConnectionsPerIP > 0 && s.perIP[ip] >= s.cfg.MaxConnectionsPerIP
	if s.closed || full {
		loud := full && time.Since(s.refused) > 10*time.Second
		if loud {
			s.refused = time.Now()
		}
		open := len(s.conns)
		s.mu.Unlock()
		s.metrics.refusedConns.Inc()
		if loud {
			s.log.Warn("too many connections, refusing new ones", "open", open, "cap", s.cfg.MaxConnections, "cap-per-ip", s.cfg.MaxConnectionsPerIP, "remote", ip)
		}
		nc.Close()
		return
	}
	if s.cfg.TLS != nil {
		nc = tls.Server(nc, s.cfg.TLS.listener)
	}
	c := newConn(s, nc, ip)
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	s.wg.Add(1)
	s.mu.Unlock()
	s.metrics.conns.Inc()
	go func() {
		defer s.wg.Done()
		c.serve()
		s.forget(c)
	}()
}

// logHandshake tells of a failed handshake, now and then: a port scanner must not fill the log.
func (s *Server) logHandshake(remote net.Addr, err error) {
	s.mu.Lock()
	loud := time.Since(s.handshake) > 10*time.Second
	if loud {
		s.handshake = time.Now()
	}
	s.mu.Unlock()
	if loud {
		s.log.Info("a client's TLS handshake failed; others may have since the last such line", "remote", remote, "error", err)
	}
}

func (s *Server) forget(c *conn) {
	s.metrics.conns.Dec()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] <= 0 {
		delete(s.perIP, c.ip)
	}
}

// Close stops accepting and reading, answers what was read until ctx ends, then closes every connection and waits
// for all goroutines. After it returns no method of the Node is called any more, save through done callbacks that
// the Node still holds. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		close(s.draining)
		for l := range s.listeners {
			l.Close()
		}
		for c := range s.conns {
			c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes the reader; it sees draining
		}
	}
	s.mu.Unlock()
	quiet := make(chan struct{})
	go func() { s.wg.Wait(); close(quiet) }()
	select {
	case <-quiet:
	case <-ctx.Done():
		s.cancel(errStopped)
		s.mu.Lock()
		for c := range s.conns {
			c.nc.Close()
		}
		s.mu.Unlock()
		<-quiet
	}
	s.cancel(errStopped)
	return nil
}

// isDraining reports whether Close has begun.
func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}
