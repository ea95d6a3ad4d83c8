package meta

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// rumour is what the voters said last when they were asked who leads.
type rumour struct {
	mu   sync.Mutex
	at   time.Time
	hint *peerpb.LeaderHint
}

// whoLeads names another node that leads, with its address; nil if none is known. Where Raft has heard of no leader, the voters are
// asked, at most twice a second whatever the number of callers: to one whose own port nobody can call, no leader ever speaks. What
// they say may be old; who is named knows better.
func (m *Meta) whoLeads(ctx context.Context) *peerpb.LeaderHint {
	hint := m.leaderHint()
	if hint == nil {
		hint = m.askWhoLeads(ctx)
	}
	if hint == nil || hint.GetServerId() == string(m.db().serverID) {
		return nil
	}
	return hint
}

func (m *Meta) askWhoLeads(ctx context.Context) *peerpb.LeaderHint {
	s := m.server.Load()
	if s == nil || !m.rumour.mu.TryLock() {
		return nil // another caller asks; both try again
	}
	defer m.rumour.mu.Unlock()
	if !m.rumour.at.IsZero() && time.Since(m.rumour.at) < leaderLook {
		return m.rumour.hint
	}
	m.rumour.hint = m.askVoters(ctx, s)
	m.rumour.at = time.Now()
	return m.rumour.hint
}

// askVoters asks all other voters at once, and takes the first answer that names a leader other than this node.
func (m *Meta) askVoters(ctx context.Context, s *server) *peerpb.LeaderHint {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	servers, _ := s.configuration()
	hints := make(chan *peerpb.LeaderHint, len(servers))
	asked := 0
	for _, srv := range servers {
		p, ok := m.lookup(srv.ID)
		if srv.ID == m.db().serverID || srv.Suffrage != raft.Voter || !ok {
			continue
		}
		asked++
		go func() {
			resp, _ := m.ask(ctx, transport.Target{Name: p.Name, Addr: p.Addresses.Peer})
			hints <- resp.GetLeader()
		}()
	}
	var first *peerpb.LeaderHint
	for range asked {
		hint := <-hints
		if first == nil && hint.GetPeerAddr() != "" && hint.GetServerId() != string(m.db().serverID) {
			first = hint
			cancel() // the others' answers are not needed
		}
	}
	return first
}
