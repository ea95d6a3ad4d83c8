package meta

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

const (
	changeTimeout = 5 * time.Second
	// steadyLooks is how many looks in a row a node must be there and caught up before it gets a vote.
	steadyLooks = 2
	// voteAway is how long a voter may be away before its vote goes to a node that has none, if that is sooner than
	// Config.HealAfter. Longer than a restart takes; a vote that moves costs two entries, and one that stays with the
	// dead costs the metadata the next fault. Nothing is copied, and who comes back gets a vote again when one is free.
	voteAway = 10 * time.Second
)

// view is what the leader sees when it decides on one change of the Raft configuration.
type view struct {
	self    raft.ServerID
	servers []raft.Server
	nodes   []nodeView
	// patience is how long a voter may be away before its vote goes to another.
	patience time.Duration
}

// nodeView is one registered node.
type nodeView struct {
	name   vtop.NodeName
	server raft.ServerID
	addr   string
	gone   bool
	// alive: its process answers and has this server id now.
	alive bool
	// steady: it was there, caught up, at several looks in a row.
	steady bool
	// away is for how long it has not answered.
	away time.Duration
	// replaced: a repair put another node in its place since it is away, so that nobody waits for it.
	replaced bool
}

type changeKind uint8

const (
	noChange changeKind = iota
	removeServer
	addNonvoter
	addVoter
	demoteVoter
)

func (k changeKind) String() string {
	return [...]string{"none", "remove", "add as non-voter", "make a voter", "take the vote"}[k]
}

// change is one change of the Raft configuration, and why.
type change struct {
	kind   changeKind
	server raft.ServerID
	addr   string
	reason string
}

// decide returns the next change, at most one. The order of the rules is the order of need: what is not
// a member any more goes, what is missing comes, and only then votes move.
//
// The address of a member is never changed in the configuration: addresses are looked up by server id (ServerAddr),
// and Raft's replication reads that field while a change writes it.
func (v view) decide() change {
	for _, rule := range []func() change{v.stale, v.missing, v.longGone, v.promotion} {
		if c := rule(); c.kind != noChange {
			return c
		}
	}
	return change{}
}

func (v view) node(id raft.ServerID) (nodeView, bool) {
	i := slices.IndexFunc(v.nodes, func(n nodeView) bool { return n.server == id })
	if i < 0 {
		return nodeView{}, false
	}
	return v.nodes[i], true
}

func (v view) byName(name vtop.NodeName) (nodeView, bool) {
	i := slices.IndexFunc(v.nodes, func(n nodeView) bool { return n.name == name })
	if i < 0 {
		return nodeView{}, false
	}
	return v.nodes[i], true
}

func (v view) voters() (out []raft.Server) {
	for _, s := range v.servers {
		if s.Suffrage == raft.Voter {
			out = append(out, s)
		}
	}
	return out
}

func (v view) alive(id raft.ServerID) bool {
	n, ok := v.node(id)
	return id == v.self || ok && n.alive
}

// mayLose reports whether the vote of s may be taken away: the voters that are left and alive must be a majority
// both of the voters left and of the voters now.
func (v view) mayLose(s raft.Server) bool {
	if s.ID == v.self {
		return false
	}
	if s.Suffrage != raft.Voter {
		return true
	}
	voters, live := v.voters(), 0
	for _, o := range voters {
		if o.ID != s.ID && v.alive(o.ID) {
			live++
		}
	}
	return live >= (len(voters)-1)/2+1 && live >= len(voters)/2+1
}

// stale finds servers whose node was removed, or is registered under a newer server id because it lost its
// raft.db. A server whose node never registered is a founder that is still on its way, and stays.
func (v view) stale() change {
	for _, s := range v.servers {
		owner, known := v.byName(serverName(s.ID))
		if !known || owner.server == s.ID && !owner.gone || !v.mayLose(s) {
			continue
		}
		reason := "the node was removed"
		if !owner.gone {
			reason = fmt.Sprintf("the node came back as raft server %q", owner.server)
		}
		return change{removeServer, s.ID, "", reason}
	}
	return change{}
}

// missing finds registered nodes that are no member.
func (v view) missing() change {
	for _, n := range v.nodes {
		if n.gone || n.server == "" || !n.alive {
			continue
		}
		if !slices.ContainsFunc(v.servers, func(s raft.Server) bool { return s.ID == n.server }) {
			return change{addNonvoter, n.server, n.addr, "the node registered"}
		}
	}
	return change{}
}

// longGone takes the vote of a node that has been away for long, if another can have it.
func (v view) longGone() change {
	if len(v.ready()) == 0 {
		return change{}
	}
	for _, s := range v.voters() {
		n, ok := v.node(s.ID)
		if !ok || n.alive || !v.mayLose(s) {
			continue
		}
		switch {
		case n.away >= v.patience:
			return change{demoteVoter, s.ID, "", fmt.Sprintf("the node has not answered for %s and another can vote", n.away.Round(time.Second))}
		case n.replaced:
			return change{demoteVoter, s.ID, "", "the node does not answer, a repair replaces it, and another can vote"}
		}
	}
	return change{}
}

// ready are the non-voters that could vote, in order of their names.
func (v view) ready() (out []raft.Server) {
	for _, s := range v.servers {
		if n, ok := v.node(s.ID); ok && s.Suffrage != raft.Voter && n.alive && n.steady && !n.gone {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// promotion gives a vote to a node that has caught up, towards an odd number of at most five.
func (v view) promotion() change {
	ready, voters := v.ready(), len(v.voters())
	target := min(voters+len(ready), maxVoters)
	if target%2 == 0 {
		target--
	}
	if voters >= target || len(ready) == 0 {
		return change{}
	}
	return change{addVoter, ready[0].ID, string(ready[0].Address), fmt.Sprintf("the node has caught up, and there are %d voters of %d", voters, target)}
}

// watcher is what the leader remembers between looks. It belongs to reconcileLoop, and starts anew with each term.
type watcher struct {
	term   uint64
	looks  map[raft.ServerID]int
	since  map[vtop.NodeName]absence
	health map[raft.ServerID]probeResult
	// applied is what this node had applied at the last look: a node that has reached it now keeps up.
	applied uint64
}

type probeResult struct {
	// alive: the Raft server answers, with the data directory storage. One that lost its data and kept its raft.db is a
	// live server, and no owner of its name.
	alive   bool
	storage vtop.StorageID
	applied uint64
}

// reconcileLoop keeps the Raft configuration in line with the registered nodes while this node leads.
func (m *Meta) reconcileLoop(s *server) {
	tick := time.NewTicker(m.cfg.ReconcileEvery)
	defer tick.Stop()
	var w watcher
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		case <-m.nudge:
		}
		term, ok := m.LeadingTerm()
		if !ok {
			w = watcher{}
			continue
		}
		if w.term != term {
			w = watcher{term: term, looks: map[raft.ServerID]int{}, since: map[vtop.NodeName]absence{}}
		}
		for m.reconcile(s, &w) {
			if m.ctx.Err() != nil {
				return
			}
		}
	}
}

// reconcile makes at most one change and reports whether it did.
func (m *Meta) reconcile(s *server, w *watcher) bool {
	m.look(w)
	servers, index := s.configuration()
	v := m.view(w, servers)
	m.admitPending(w)
	c := v.decide()
	if c.kind == noChange || !m.IsLeader() {
		return false
	}
	ctx, cancel := context.WithTimeout(m.ctx, changeTimeout)
	defer cancel()
	err := wait(ctx, func() error { return c.apply(s.raft, index).Error() })
	if err != nil {
		m.log.Warn("raft configuration not changed", "change", c.kind.String(), "server", string(c.server), "error", err)
		return false
	}
	m.log.Info("raft configuration changed", "change", c.kind.String(), "server", string(c.server), "address", c.addr, "reason", c.reason)
	return true
}

// apply proposes the change, upon the configuration at index and no other.
func (c change) apply(r *raft.Raft, index uint64) raft.Future {
	switch c.kind {
	case removeServer:
		return r.RemoveServer(c.server, index, changeTimeout)
	case addNonvoter:
		return r.AddNonvoter(c.server, raft.ServerAddress(c.addr), index, changeTimeout)
	case addVoter:
		return r.AddVoter(c.server, raft.ServerAddress(c.addr), index, changeTimeout)
	default:
		return r.DemoteVoter(c.server, index, changeTimeout)
	}
}

// look asks every registered node whether it is there.
func (m *Meta) look(w *watcher) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	w.health = map[raft.ServerID]probeResult{}
	for n := range m.machine.State().Nodes() {
		id := raft.ServerID(n.RaftID)
		if id == m.db().serverID {
			mu.Lock()
			w.health[id] = probeResult{true, m.cfg.Who.Self().Storage, m.machine.Applied()}
			mu.Unlock()
			continue
		}
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			result := m.probe(m.ctx, id)
			mu.Lock()
			w.health[id] = result
			mu.Unlock()
			<-slots
		}()
	}
	wg.Wait()
	before := w.applied
	w.applied = m.machine.Applied()
	for id, h := range w.health {
		if h.alive && before > 0 && h.applied >= before {
			w.looks[id]++
		} else {
			delete(w.looks, id)
		}
	}
}

func (m *Meta) view(w *watcher, servers []raft.Server) view {
	v := view{self: m.db().serverID, servers: servers, patience: min(m.cfg.HealAfter, voteAway)}
	now, st := time.Now(), m.machine.State()
	for n := range st.Nodes() {
		id := raft.ServerID(n.RaftID)
		nv := nodeView{
			name: n.Name, server: id, addr: n.Addresses.Peer, gone: n.State == fsm.NodeGone,
			alive: w.health[id].alive, steady: w.looks[id] >= steadyLooks,
		}
		if nv.alive && w.health[id].storage == n.Storage {
			delete(w.since, n.Name)
		} else if _, missed := w.since[n.Name]; !missed {
			w.since[n.Name] = newAbsence(st, n.Name, now)
		}
		if !nv.alive {
			nv.away = now.Sub(w.since[n.Name].at)
			nv.replaced = w.since[n.Name].replaced(st, n.Name)
		}
		v.nodes = append(v.nodes, nv)
	}
	return v
}

// admitPending lets a claimant take a name whose owner has been away for HealAfter, by this leader's clock.
func (m *Meta) admitPending(w *watcher) {
	for n := range m.machine.State().Nodes() {
		since := w.since[n.Name].at
		if len(n.Pending) == 0 || since.IsZero() || time.Since(since) < m.cfg.HealAfter {
			continue
		}
		for _, claim := range n.Pending {
			if !m.answersAs(m.ctx, n.Name, claim.Addresses.Peer, claim.Storage, vtop.UUID{}) {
				continue
			}
			away := time.Since(since).Round(time.Second)
			ctx, cancel := context.WithTimeout(m.ctx, changeTimeout)
			out, err := m.Propose(ctx, &fsm.AdmitPending{
				Name: n.Name, Storage: claim.Storage, At: time.Now().UnixMilli(),
				Reason: fmt.Sprintf("the owner has not answered for %s", away),
			})
			cancel()
			if err == nil {
				err = out.Err()
			}
			if err != nil {
				m.log.Warn("pending node not admitted", "node", n.Name, "storage", claim.Storage.String(), "error", err)
				continue
			}
			m.log.Info("pending node admitted", "node", n.Name, "storage", claim.Storage.String(), "owner_away", away)
			delete(w.since, n.Name)
			break
		}
	}
}
