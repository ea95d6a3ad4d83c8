package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
)

// Meta is one node's place in the metadata quorum. All methods may be called by many goroutines.
type Meta struct {
	// Set once by Open.
	cfg     Config
	log     hclog.Logger
	machine *fsm.Machine
	born    *bornStore
	book    *book
	ctx     context.Context
	cancel  context.CancelCauseFunc
	group   sync.WaitGroup
	slots   chan struct{}
	nudge   chan struct{}
	fatal   chan error
	leading chan Leadership
	hints   chan vtop.NodeName
	// barriers are callers that wait for one.
	barriers chan chan error

	// Closed once.
	clusterKnown, joined, caughtUp *latch

	// Written by the run loop.
	stores atomic.Pointer[stores]
	server atomic.Pointer[server]
	gossip atomic.Pointer[gossip]
	// readyTerm is the term of this node's own leadership in which its barrier was applied; 0 if it does not lead.
	readyTerm atomic.Uint64
	status    atomic.Pointer[string]
	// transferring is since when Raft has refused proposals for a hand-over, in Unix nanoseconds; 0 if it does not.
	transferring atomic.Int64
	closeOnce    sync.Once

	// startMu is held while Raft and gossip are started, so that Close finds all that it has to stop.
	startMu sync.Mutex

	// rumour is who leads by the word of others.
	rumour rumour

	// reloadMu serialises changes of Raft's reloadable configuration.
	reloadMu sync.Mutex

	// mu guards what the run loop learned about this node's own registration.
	mu           sync.Mutex
	replicasLost string
}

// Leadership says whether this node is the Raft leader, and in which term. When Leading is true, everything that
// was committed before is applied here.
type Leadership struct {
	Leading bool
	Term    uint64
}

// maxProposals bounds proposals in flight from this node; more are refused with vtop.ErrOverloaded.
const maxProposals = 1024

// Open opens raft.db and what the node knows of its cluster, and starts the loop that does the rest. It waits
// for no other node. Errors: ErrBadRaftDB, ErrRaftDBLocked, or one that names a field of the configuration.
func Open(ctx context.Context, cfg Config) (*Meta, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m := &Meta{
		cfg: cfg, log: cfg.Log.Named("meta"), machine: cfg.Machine,
		slots: make(chan struct{}, maxProposals), nudge: make(chan struct{}, 1), fatal: make(chan error, 1),
		leading: make(chan Leadership, 1), hints: make(chan vtop.NodeName, 8), barriers: make(chan chan error, maxBarriers),
		clusterKnown: newLatch(), joined: newLatch(), caughtUp: newLatch(),
		replicasLost: cfg.ReplicasLost,
	}
	m.setStatus("starting")
	if err := m.openState(); err != nil {
		return nil, err
	}
	if n := len(m.cfg.Join); m.cfg.BootstrapExpect > 1 && n <= m.cfg.BootstrapExpect/2 {
		m.log.Warn("join names fewer than a majority of the expected founders: if all the nodes it names lose their disks while the others are away, a second cluster can be born",
			"join", n, "bootstrap_expect", m.cfg.BootstrapExpect)
	}
	m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	m.spawn(m.run)
	return m, nil
}

func (m *Meta) openState() (err error) {
	self := m.cfg.Who.Self()
	if err := honourAsideMark(m.cfg.RaftDir); err != nil {
		return err
	}
	st, err := openStores(m.cfg.RaftDir, self.Name, m.log)
	if err != nil {
		return err
	}
	m.stores.Store(st)
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if m.born, err = openBorn(m.cfg.FS, m.cfg.StateDir); err != nil {
		return err
	}
	if m.book, err = openBook(m.cfg.FS, m.cfg.StateDir); err != nil {
		m.log.Warn("remembered peers are not readable", "error", err)
		err = nil
	}
	if _, err = m.nodeMeta().encode(); err != nil {
		return err
	}
	m.cfg.Who.update(func(s *transport.Self) { s.ServerID = string(m.db().serverID) })
	return m.checkCluster()
}

// checkCluster compares what the data directory and the state directory say.
func (m *Meta) checkCluster() error {
	known := m.born.get().Cluster
	switch {
	case m.cfg.Cluster.IsZero():
	case known == "":
		if _, err := m.born.join(m.cfg.Cluster.String(), 1, nil, m.asMember()); err != nil {
			return err
		}
	case known != m.cfg.Cluster.String():
		return fmt.Errorf("data directory belongs to cluster %s, its metadata in %s to cluster %s: they were mixed up, put back the right one",
			m.cfg.Cluster, m.cfg.StateDir, known)
	}
	if m.db().hasState.Load() && m.born.get().Cluster == "" {
		return fmt.Errorf("%s holds Raft state, but nothing says of which cluster: restore %s/%s, or remove %s",
			m.cfg.RaftDir, m.cfg.StateDir, bornFile, m.cfg.RaftDir)
	}
	return nil
}

// spawn runs fn on a goroutine that Close waits for.
func (m *Meta) spawn(fn func()) {
	m.group.Add(1)
	go func() {
		defer m.group.Done()
		fn()
	}()
}

// Close hands Raft leadership to another voter, leaves gossip and stops. It waits no longer than ctx for the
// transfer and a few seconds for the rest. After it this node answers no call with anything but ErrClosed, and
// raft.db is closed, unless its disk hangs, which the error says.
func (m *Meta) Close(ctx context.Context) (err error) {
	m.closeOnce.Do(func() { err = m.close(ctx) })
	return err
}

func (m *Meta) close(ctx context.Context) error {
	if m.IsLeader() && m.otherVoters() > 0 {
		if err := m.TransferLeadership(ctx); err != nil {
			m.log.Warn("leadership was not handed over", "error", err)
		}
	}
	m.cancel(vtop.ErrClosed)
	m.startMu.Lock() // what is being started is there then, and nothing else will be
	g, s := m.gossip.Load(), m.server.Load()
	m.startMu.Unlock()
	if g != nil {
		g.close()
	}
	var err error
	if s != nil {
		err = s.stop()
	} else {
		_ = m.cfg.RaftListener.Close()
	}
	m.group.Wait()
	if e := m.book.save(); e != nil {
		m.log.Warn("peers were not remembered", "error", e)
	}
	if errors.Is(err, errStopping) {
		return err
	}
	return errors.Join(err, m.db().close())
}

// Fatal gives the error with which the loop ended, if it ever does: the node belongs to another cluster, or Raft
// did not start. The process should log it and exit.
func (m *Meta) Fatal() <-chan error { return m.fatal }

func (m *Meta) fail(err error) {
	m.setStatus(err.Error())
	m.log.Error("cannot go on", "error", err)
	select {
	case m.fatal <- err:
	default:
	}
}

func (m *Meta) setStatus(s string) { m.status.Store(&s) }

// Status says in a few words what the node waits for, or "joined".
func (m *Meta) Status() string { return *m.status.Load() }

// ClusterID is the cluster that this node belongs to; ok is false before one was born or found.
func (m *Meta) ClusterID() (vtop.ClusterID, bool) {
	id, err := vtop.ParseUUID(m.born.get().Cluster)
	return id, err == nil
}

// WaitJoined returns nil once this start of the node is registered with its cluster, or the cause of ctx.
func (m *Meta) WaitJoined(ctx context.Context) error { return m.joined.wait(ctx, m.ctx) }

// Joined reports whether this start of the node is registered.
func (m *Meta) Joined() bool { return m.joined.isSet() }

// ReplicasLost is why this node's replicas may have forgotten; empty if nothing says so. It can be set while the
// node joins: see Config.RaiseIncarnation.
func (m *Meta) ReplicasLost() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replicasLost
}

func (m *Meta) setReplicasLost(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.replicasLost == "" {
		m.replicasLost = reason
	}
}

// LogStall is for how long the present write of Raft's log has been taking; 0 if none is under way. A disk
// watchdog looks at it: Raft itself goes on leading with a disk that hangs.
func (m *Meta) LogStall() time.Duration { return m.db().log.stall() }

// Stats are Raft's own figures and this package's, as text; for people and metrics.
func (m *Meta) Stats() map[string]string {
	out := map[string]string{"status": m.Status(), "server_id": string(m.db().serverID)}
	if s := m.server.Load(); s != nil {
		for k, v := range s.raft.Stats() {
			out[k] = v
		}
	}
	st := m.db().log
	out["log_bytes_stored"] = fmt.Sprint(st.bytes.Load())
	out["log_writes"] = fmt.Sprint(st.writes.Load())
	out["log_write_failures"] = fmt.Sprint(st.failed.Load())
	out["log_last_write"] = time.Duration(st.last.Load()).String()
	out["log_stall"] = st.stall().String()
	if g := m.gossip.Load(); g != nil {
		out["gossip_members"] = fmt.Sprint(g.list.NumMembers())
		out["gossip_events_dropped"] = fmt.Sprint(g.dropped.Load())
	}
	return out
}

// RaftServer is one member of the Raft configuration.
type RaftServer struct {
	Name     vtop.NodeName
	ServerID string
	Voter    bool
	// Address is where the server is looked for now.
	Address string
}

// RaftServers lists the members of the latest Raft configuration; nil before Raft runs.
func (m *Meta) RaftServers() []RaftServer {
	s := m.server.Load()
	if s == nil {
		return nil
	}
	servers, _ := s.configuration()
	out := make([]RaftServer, 0, len(servers))
	for _, srv := range servers {
		r := RaftServer{Name: serverName(srv.ID), ServerID: string(srv.ID), Voter: srv.Suffrage == raft.Voter, Address: string(srv.Address)}
		if p, ok := m.lookup(srv.ID); ok {
			r.Address = p.Addresses.Peer
		}
		out = append(out, r)
	}
	return out
}

func (m *Meta) otherVoters() int {
	n := 0
	for _, s := range m.RaftServers() {
		if s.Voter && s.ServerID != string(m.db().serverID) {
			n++
		}
	}
	return n
}

// NodeAddress is where a node is to be found: what it last said of itself, else what the state machine holds.
func (m *Meta) NodeAddress(name vtop.NodeName) (fsm.Addresses, bool) {
	if name == m.name() {
		return m.cfg.Addresses, true
	}
	node, ok := m.machine.State().Node(name)
	if !ok {
		p, heard := m.book.byName(name)
		return p.Addresses, heard
	}
	if p, heard := m.book.byServer(node.RaftID); heard && p.Incarnation > node.Incarnation {
		return mergeAddresses(p.Addresses, node.Addresses), true
	}
	return node.Addresses, true
}

// db are the open stores; they are replaced only before Raft starts.
func (m *Meta) db() *stores { return m.stores.Load() }

func (m *Meta) name() vtop.NodeName { return m.cfg.Who.Self().Name }

func (m *Meta) nodeMeta() nodeMeta {
	self := m.cfg.Who.Self()
	return nodeMeta{
		Name: self.Name, Storage: self.Storage, Incarnation: self.Incarnation,
		ServerID: string(m.db().serverID), Peer: m.cfg.Addresses.Peer,
	}
}
