package meta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
)

// asideMark in RaftDir has the next start set raft.db aside before anything else.
const asideMark = "set-aside"

// run is the life of the node: find its cluster, start Raft, register, catch up, and then keep house.
func (m *Meta) run() {
	if err := m.live(); err != nil && m.ctx.Err() == nil {
		m.fail(err)
	}
}

func (m *Meta) live() error {
	st, err := m.findCluster()
	if err != nil {
		return err
	}
	id, err := vtop.ParseUUID(st.Cluster)
	if err != nil {
		return err
	}
	if m.cfg.SetCluster != nil {
		if err := m.cfg.SetCluster(id); err != nil {
			return fmt.Errorf("write cluster %s into the data directory: %w", id, err)
		}
	}
	m.cfg.Who.update(func(s *transport.Self) { s.Cluster, s.Generation = id, st.Generation })
	m.clusterKnown.set()
	if m.db().hasState.Load() {
		if err := m.checkRestored(); err != nil {
			return err
		}
	}
	if err := m.start(st); err != nil {
		return err
	}
	return m.register()
}

// start runs Raft, gossip and the loops that look after them.
func (m *Meta) start(st bornState) error {
	var founders []member
	if st.Founder && st.Pledge.has(m.asMember()) {
		founders = st.Pledge.Members
	}
	m.startMu.Lock()
	defer m.startMu.Unlock()
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	s, err := m.startRaft(founders)
	if err != nil {
		return err
	}
	m.server.Store(s)
	m.spawn(func() { m.barrierLoop(s) })
	m.spawn(func() { m.watchLeadership(s) })
	m.spawn(func() { m.reconcileLoop(s) })
	m.spawn(func() { m.hintLoop(s) })
	m.spawn(m.catchUp)
	m.spawn(func() { m.housekeeping(s) })
	return m.startGossip(m.cfg.Who.Self().Cluster)
}

func (m *Meta) startGossip(cluster vtop.ClusterID) error {
	if m.cfg.GossipBind == "" || m.cfg.Addresses.Gossip == "" {
		return nil
	}
	g, err := startGossip(gossipConfig{
		cluster: cluster, self: m.nodeMeta(), bind: m.cfg.GossipBind, adv: m.cfg.Addresses.Gossip,
		key: m.cfg.gossipKey, probeInterval: m.cfg.GossipProbe, log: m.log.Named("gossip"),
	})
	if err != nil {
		return err
	}
	m.gossip.Store(g)
	m.spawn(func() { g.rejoin(m.ctx, m.gossipSeeds) })
	m.spawn(func() { m.hearGossip(g) })
	return nil
}

// gossipSeeds are the gossip addresses of all other nodes that are known.
func (m *Meta) gossipSeeds() map[vtop.NodeName]string {
	out := map[vtop.NodeName]string{}
	for _, p := range m.book.list() {
		if p.Name != m.name() && p.Addresses.Gossip != "" {
			out[p.Name] = p.Addresses.Gossip
		}
	}
	for n := range m.machine.State().Nodes() {
		if n.Name == m.name() || n.State == fsm.NodeGone {
			delete(out, n.Name)
		} else if a, ok := m.NodeAddress(n.Name); ok && a.Gossip != "" {
			out[n.Name] = a.Gossip
		}
	}
	return out
}

func (m *Meta) hearGossip(g *gossip) {
	say := &complain{log: m.log, every: complainEvery}
	for {
		select {
		case <-m.ctx.Done():
			return
		case e := <-g.events:
			if e.conflict {
				if e.alive {
					say.say("another data directory, or a copy of this one, is alive under this node's name",
						"name", string(e.meta.Name), "theirs", e.meta.Storage.String(), "at", e.addr,
						"ours", g.self.Storage.String())
				}
				continue
			}
			if e.alive {
				m.book.learn(peer{
					Name: e.meta.Name, Storage: e.meta.Storage.String(), ServerID: e.meta.ServerID,
					Incarnation: e.meta.Incarnation, Addresses: fsm.Addresses{Peer: e.meta.Peer, Gossip: e.addr},
				})
			}
			m.poke()
		}
	}
}

// checkRestored asks, before Raft runs, whether the disk is an old copy: its counter of starts is not above the
// one that is registered. Such a disk may have forgotten votes and entries, so its raft.db is set aside, and
// the node comes back as a new Raft server whose replicas are lost (I10). It waits a bounded time: when the
// whole cluster starts at once nobody knows more than the node itself.
func (m *Meta) checkRestored() error {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.RestoredWait)
	defer cancel()
	m.setStatus("asks its peers whether its disk is an old copy")
	self := m.cfg.Who.Self()
	for {
		silent := 0
		for _, a := range m.seek(ctx) {
			switch {
			case a.self:
				continue
			case a.resp == nil:
				silent++
				continue
			}
			for _, k := range a.resp.GetKnown() {
				storage, _ := transport.UUIDFrom("known.storage_id", k.GetStorageId())
				if vtop.NodeName(k.GetName()) != self.Name || storage != self.Storage {
					continue
				}
				if k.GetIncarnation() >= uint64(self.Incarnation) {
					return m.isRestored(vtop.Incarnation(k.GetIncarnation()))
				}
			}
			if a.resp.GetCaughtUp() {
				return nil
			}
		}
		if silent == 0 || !sleep(ctx, birthPauseMin) {
			return context.Cause(m.ctx)
		}
	}
}

// isRestored sets raft.db aside and raises the incarnation above the registered one.
func (m *Meta) isRestored(registered vtop.Incarnation) error {
	if err := m.raise(registered); err != nil {
		return err
	}
	dir := m.cfg.RaftDir
	if err := m.db().close(); err != nil {
		return err
	}
	aside, err := setAside(dir, time.Now())
	if err != nil {
		return err
	}
	st, err := openStores(dir, m.name(), m.log)
	if err != nil {
		return err
	}
	m.stores.Store(st)
	m.cfg.Who.update(func(s *transport.Self) { s.ServerID = string(st.serverID) })
	m.log.Warn("raft.db set aside", "to", aside, "new_server_id", string(st.serverID))
	return nil
}

// raise makes this start's incarnation larger than the registered one, and all replicas lost.
func (m *Meta) raise(registered vtop.Incarnation) error {
	own := m.cfg.Who.Self().Incarnation
	reason := fmt.Sprintf("disk restored from an old copy: start %d, but start %d was registered", own, registered)
	m.log.Error(reason)
	if m.cfg.RaiseIncarnation == nil {
		return fmt.Errorf("%w: %s: empty the data directory to join as a new one", vtop.ErrReplicaLost, reason)
	}
	inc, err := m.cfg.RaiseIncarnation(registered)
	if err != nil {
		return fmt.Errorf("raise the incarnation above %d: %w", registered, err)
	}
	m.setReplicasLost(reason)
	m.cfg.Who.update(func(s *transport.Self) { s.Incarnation = inc })
	return nil
}

// honourAsideMark does at start what a running Raft server could not do to itself.
func honourAsideMark(dir string) error {
	mark := filepath.Join(dir, asideMark)
	if _, err := os.Stat(mark); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if _, err := setAside(dir, time.Now()); err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return err
	}
	return vfs.OS().SyncDir(dir)
}

// catchUp sets caughtUp once this node applied what the Raft leader had applied after a barrier in its own term.
func (m *Meta) catchUp() {
	pause := newBackoff(20*time.Millisecond, time.Second)
	for {
		ctx, cancel := context.WithTimeout(m.ctx, 3*time.Second)
		index, err := m.ReadIndex(ctx)
		cancel()
		if err == nil {
			if err = m.machine.WaitApplied(m.ctx, index); err == nil {
				m.caughtUp.set()
				return
			}
		}
		if !sleep(m.ctx, pause.pause()) {
			return
		}
	}
}

// CaughtUp reports whether the node has applied what the Raft leader had applied after a barrier in its own term.
// Until then it leads nothing and answers no fence. Once true it stays true in this process.
func (m *Meta) CaughtUp() bool { return m.caughtUp.isSet() }

// WaitCaughtUp returns nil once CaughtUp is true, or the cause of ctx.
func (m *Meta) WaitCaughtUp(ctx context.Context) error { return m.caughtUp.wait(ctx, m.ctx) }

const (
	houseEvery = time.Second
	// lostLeader is how long there is no leader before the node goes round asking where its peers are.
	lostLeader = 2 * time.Second
)

// housekeeping remembers peers, bounds Raft's log in bytes, and looks for peers while there is no leader: when
// all addresses changed at once, nobody else would.
func (m *Meta) housekeeping(s *server) {
	var marked uint64
	led := time.Now()
	for sleep(m.ctx, houseEvery) {
		if err := m.book.save(); err != nil {
			m.log.Warn("peers not remembered", "error", err)
		}
		m.boundTrailing()
		if stored := m.db().log.bytes.Load(); stored-marked >= m.cfg.SnapshotBytes {
			if m.snapshot(s) {
				marked = stored
			}
		}
		if _, ok := m.LeaderName(); ok {
			led = time.Now()
		} else if time.Since(led) > lostLeader {
			m.seek(m.ctx)
		}
	}
}

func (m *Meta) snapshot(s *server) bool {
	ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
	defer cancel()
	err := wait(ctx, func() error { return s.raft.Snapshot().Error() })
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		m.log.Warn("snapshot that the log's size asked for was not taken", "error", err)
		return false
	}
	return true
}

// boundTrailing keeps fewer entries behind a snapshot when entries are large.
func (m *Meta) boundTrailing() {
	entries, bytes := m.db().log.entries.Load(), m.db().log.bytes.Load()
	if entries == 0 {
		return
	}
	fit := m.cfg.TrailingBytes / max(bytes/entries, 1)
	want := min(m.cfg.TrailingLogs, max(fit, minTrailingLogs))
	s := m.server.Load()
	if s == nil {
		return
	}
	if now := s.raft.ReloadableConfig().TrailingLogs; want > now-now/4 && want < now+now/4 {
		return
	}
	if err := m.reload(s, func(c *raft.ReloadableConfig) { c.TrailingLogs = want }); err != nil {
		m.log.Warn("trailing entries not bounded", "error", err)
	}
}

// reload changes Raft's reloadable configuration; ReloadConfig replaces all of it.
func (m *Meta) reload(s *server, fn func(*raft.ReloadableConfig)) error {
	m.reloadMu.Lock()
	defer m.reloadMu.Unlock()
	c := s.raft.ReloadableConfig()
	fn(&c)
	return s.raft.ReloadConfig(c)
}
