package meta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

const (
	raftMaxPool = 3
	// raftIOTimeout bounds one Raft RPC, and the dialling for it.
	raftIOTimeout    = 5 * time.Second
	commitTimeout    = 10 * time.Millisecond
	maxAppendEntries = 256
	snapshotInterval = 30 * time.Second
	// stopTimeout bounds the wait for Raft's goroutines at the end; with a hung disk they never return.
	stopTimeout = 5 * time.Second
)

// The keys under which Raft keeps its term, and the term in which it last voted.
var (
	currentTermKey  = []byte("CurrentTerm")
	lastVoteTermKey = []byte("LastVoteTerm")
)

// errStopping: the wait was given up.
var errStopping = errors.New("raft does not stop, its disk may hang")

// server is a running Raft server and what belongs to it.
type server struct {
	raft   *raft.Raft
	trans  *raft.NetworkTransport
	layer  *layer
	stores *stores
	events chan raft.Observation
	watch  *raft.Observer
}

func (m *Meta) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = m.db().serverID
	c.HeartbeatTimeout, c.ElectionTimeout = m.cfg.HeartbeatTimeout, m.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = m.cfg.LeaderLease
	c.CommitTimeout = commitTimeout
	c.MaxAppendEntries = maxAppendEntries
	c.BatchApplyCh = true
	c.NoLegacyTelemetry = true
	c.TrailingLogs, c.SnapshotThreshold = m.cfg.TrailingLogs, m.cfg.SnapshotThreshold
	c.SnapshotInterval = snapshotInterval
	c.Logger = m.log.Named("raft")
	// A removed server stays up as one that nobody asks: the node may be waiting to be admitted again.
	c.ShutdownOnRemove = false
	return c
}

// startRaft starts the Raft server. With founders, and if nothing was written yet, it bootstraps with that voter
// set; every founder writes the same first entry, so that any majority of them can go on alone.
func (m *Meta) startRaft(founders []member) (*server, error) {
	cache, err := raft.NewLogCache(logCacheEntries, m.db().log)
	if err != nil {
		return nil, err
	}
	lay := newLayer(m)
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: m, Logger: m.log.Named("raft.net"), Stream: lay,
		MaxPool: raftMaxPool, MaxRPCsInFlight: 1, Timeout: raftIOTimeout,
	})
	s := &server{trans: trans, layer: lay, stores: m.db()}
	conf := m.raftConfig()
	stable := &stableStore{StableStore: m.db().bolt, log: m.log, closed: m.ctx.Done(), fatal: func(err error) {
		m.fail(fmt.Errorf("%s: keep Raft's term: %w", m.db().dir+"/"+raftDBName, err))
	}}
	err = guard(func() (err error) {
		if len(founders) > 0 {
			if err := m.db().bootstrap(founders); err != nil {
				return fmt.Errorf("bootstrap raft: %w", err)
			}
		}
		s.raft, err = raft.NewRaft(conf, m.machine, cache, stable, m.db().snapshots, trans)
		return err
	})
	if err != nil {
		lay.shut()
		_ = trans.Close()
		return nil, damagedDB(m.db().dir+"/"+raftDBName, err)
	}
	s.events = make(chan raft.Observation, 64)
	s.watch = raft.NewObserver(s.events, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState, raft.FailedHeartbeatObservation, raft.ResumedHeartbeatObservation:
			return true
		}
		return false
	})
	s.raft.RegisterObserver(s.watch)
	return s, nil
}

// bootstrap writes the first entry of the log, the configuration with the founders, unless there is a log. It
// does what raft.BootstrapCluster does, except that it can be repeated after a crash in the middle. It is safe on each
// founder: the entry at index 1 of term 1 is the same for all, and none of them gets another.
func (s *stores) bootstrap(founders []member) error {
	last, err := s.bolt.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	snaps, err := s.snapshots.List()
	if err != nil || len(snaps) > 0 {
		return err
	}
	term, err := s.bolt.GetUint64(currentTermKey)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	if term == 0 {
		if err := s.bolt.SetUint64(currentTermKey, 1); err != nil {
			return err
		}
	}
	config := raft.Configuration{Servers: foundingServers(founders)}
	s.hasState.Store(true)
	return s.bolt.StoreLog(&raft.Log{
		Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(config), AppendedAt: time.Unix(0, 0),
	})
}

func foundingServers(founders []member) []raft.Server {
	out := make([]raft.Server, 0, len(founders))
	for _, f := range founders {
		suffrage := raft.Voter
		if len(out) >= maxVoters {
			suffrage = raft.Nonvoter
		}
		out = append(out, raft.Server{Suffrage: suffrage, ID: raft.ServerID(f.ServerID), Address: raft.ServerAddress(f.Peer)})
	}
	return out
}

// stop ends the Raft server. After it no goroutine of Raft runs, unless it returns errStopping.
func (s *server) stop() error {
	s.raft.DeregisterObserver(s.watch)
	done := make(chan error, 1)
	go func() { done <- s.raft.Shutdown().Error() }()
	s.layer.shut()
	_ = s.trans.Close()
	s.trans.CloseStreams()
	select {
	case err := <-done:
		return err
	case <-time.After(stopTimeout):
		return errStopping
	}
}

// configuration returns the members of Raft and the index at which they were set; it does not wait.
func (s *server) configuration() ([]raft.Server, uint64) {
	f := s.raft.GetConfiguration()
	if f.Error() != nil {
		return nil, 0
	}
	return f.Configuration().Servers, f.Index()
}

// wait waits for a future no longer than ctx: one that belongs to a leader with a hung disk never returns. The
// goroutine left behind ends when Raft does.
func wait(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// layer is the raft.StreamLayer over the transport. Addresses that it dials carry the node's name before an
// '@', so that the other end can refuse a call that was meant for another.
type layer struct {
	m *Meta

	mu     sync.Mutex
	conns  map[*layerConn]struct{}
	closed chan struct{}
	once   sync.Once
}

func newLayer(m *Meta) *layer {
	return &layer{m: m, conns: map[*layerConn]struct{}{}, closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *layer) Accept() (net.Conn, error) {
	for {
		conn, err := l.m.cfg.RaftListener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.track(conn, true, callerOf(conn)); c != nil {
			return c, nil
		}
	}
}

// callerOf is who opened an accepted connection, as the transport has checked it; empty if it does not tell.
func callerOf(conn net.Conn) vtop.NodeName {
	if c, ok := conn.(interface{ Peer() transport.Caller }); ok {
		return c.Peer().Name
	}
	return ""
}

// Close implements net.Listener.
func (l *layer) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.m.cfg.RaftListener.Close()
}

// Addr implements net.Listener with the advertised address.
func (l *layer) Addr() net.Addr { return textAddr(l.m.cfg.Addresses.Peer) }

// Dial implements raft.StreamLayer.
func (l *layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	name, addr := splitTarget(string(address))
	ctx, cancel := context.WithTimeout(l.m.ctx, timeout)
	defer cancel()
	conn, err := l.m.cfg.DialRaft(ctx, transport.Target{Name: name, Addr: addr})
	if err != nil {
		return nil, err
	}
	if c := l.track(conn, false, ""); c != nil {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *layer) track(conn net.Conn, accepted bool, from vtop.NodeName) *layerConn {
	c := &layerConn{Conn: conn, layer: l, accepted: accepted, from: from}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		_ = conn.Close()
		return nil
	default:
	}
	l.conns[c] = struct{}{}
	return c
}

// shut closes the layer and all its connections; Raft's transport leaves accepted ones open.
func (l *layer) shut() {
	_ = l.Close()
	l.mu.Lock()
	conns := make([]*layerConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// layerConn notices when a connection that the Raft leader had opened to this node ends: the leader keeps one for its
// heartbeats at all times, so if none is left its process is gone. Where the transport does not tell who opened
// a connection, any end is taken for a hint; the leader's next heartbeat refutes it.
type layerConn struct {
	net.Conn
	layer    *layer
	accepted bool
	from     vtop.NodeName
	once     sync.Once
}

// Close implements net.Conn.
func (c *layerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.ended)
	return err
}

func (c *layerConn) ended() {
	l := c.layer
	l.mu.Lock()
	delete(l.conns, c)
	last := c.accepted
	for o := range l.conns {
		if c.from != "" && o.accepted && o.from == c.from {
			last = false
		}
	}
	l.mu.Unlock()
	select {
	case <-l.closed:
		return
	default:
	}
	if leader, ok := l.m.LeaderName(); last && ok && (c.from == "" || c.from == leader) {
		l.m.HintLeaderDead(leader)
	}
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func joinTarget(name vtop.NodeName, addr string) string {
	if name == "" {
		return addr
	}
	return string(name) + "@" + addr
}

func splitTarget(s string) (vtop.NodeName, string) {
	name, addr, ok := cutLast(s, '@')
	if !ok {
		return "", s
	}
	return vtop.NodeName(name), addr
}

// ServerAddr implements raft.ServerAddressProvider: members are ids, addresses are looked up. Whoever spoke last in
// the highest incarnation is believed; the answering side checks that it is the one that was meant.
func (m *Meta) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if id == m.db().serverID {
		return raft.ServerAddress(m.cfg.Addresses.Peer), nil
	}
	if p, ok := m.lookup(id); ok {
		return raft.ServerAddress(joinTarget(p.Name, p.Addresses.Peer)), nil
	}
	return "", fmt.Errorf("no address known for raft server %q", id)
}

// lookup finds where a Raft server is, by the state machine and by what was heard.
func (m *Meta) lookup(id raft.ServerID) (peer, bool) {
	heard, ok := m.book.byServer(string(id))
	node, known := m.machine.State().Node(serverName(id))
	if known && node.RaftID == string(id) && (!ok || node.Incarnation > heard.Incarnation) {
		return peer{
			Name: node.Name, Storage: node.Storage.String(), ServerID: node.RaftID,
			Incarnation: node.Incarnation, Addresses: node.Addresses,
		}, true
	}
	return heard, ok
}

var _ raft.StreamLayer = (*layer)(nil)
var _ raft.ServerAddressProvider = (*Meta)(nil)
