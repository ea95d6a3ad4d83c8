package meta

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// hintFor is how long evidence of the leader's death counts, hintGap the least time between two rounds of evidence
	// in one term.
	hintFor = 3 * time.Second
	hintGap = 5 * time.Second
	// hintPulse is how often the follower looks.
	hintPulse = 10 * time.Millisecond
	// hintStagger keeps followers apart: two that stand for election at once split the vote, and that costs an
	// election timeout. A vote takes three writes to the disk.
	hintStagger = 150 * time.Millisecond
	// hintRefuted: contact this long after the evidence says that the leader lives.
	hintRefuted = 250 * time.Millisecond
	// hintSilence is the silence, in tenths of the heartbeat timeout, that must come with the evidence. A living
	// leader sends a heartbeat at least every two tenths.
	hintSilence = 3
)

// HintLeaderDead says that there is evidence (a refused or reset connection, not mere silence) that the process
// of the named node is gone. If it is the Raft leader and has been silent for three tenths of the heartbeat timeout,
// this follower stands for election instead of waiting for one to two heartbeat timeouts, provided that a
// majority answers it and the leader, asked over another connection, does not. Being wrong costs an election. It returns
// at once.
func (m *Meta) HintLeaderDead(name vtop.NodeName) {
	select {
	case m.hints <- name:
	default:
	}
}

func (m *Meta) hintLoop(s *server) {
	var last uint64
	var at time.Time
	for {
		select {
		case <-m.ctx.Done():
			return
		case name := <-m.hints:
			_, id := s.raft.LeaderWithID()
			term := s.raft.CurrentTerm()
			if id == "" || serverName(id) != name || id == m.db().serverID || term == last && time.Since(at) < hintGap {
				continue
			}
			if m.hurry(s, id) {
				last, at = term, time.Now()
			}
		}
	}
}

// hurry watches the silence of a leader against which there is evidence, and reports whether it stood for election.
//
// Two ways lead to an election. The short one is the message by which a leader hands over leadership, sent by this
// server to itself: it stands at once, without a pre-vote, and is voted for even by those who still believe in the
// old leader. If its log is shorter than another's it loses, but the other then knows the new term, and stands
// in its turn. A server that has voted waits for the outcome. The long one, in case this node cannot reach its own advertised address, is to shorten Raft's timeouts to the
// leader lease, the least that Raft allows. (A follower looks at once when a timeout gets shorter, but then
// waits for one to two of the new ones; so the timeout goes up and down by a millisecond to make it look.)
func (m *Meta) hurry(s *server, leader raft.ServerID) (stood bool) {
	start := time.Now()
	leads, forget := m.askLeader(leader)
	defer forget()
	if !m.canWin(s, leader) {
		return false
	}
	m.log.Info("the raft leader's process may be gone; watching closely", "leader", serverName(leader))
	set := func(heartbeat, election time.Duration) {
		err := m.reload(s, func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = heartbeat, election })
		if err != nil {
			m.log.Warn("raft timeouts not changed", "error", err)
		}
	}
	defer func() { set(m.cfg.HeartbeatTimeout, m.cfg.ElectionTimeout) }()
	short := m.cfg.LeaderLease
	term, voted := s.raft.CurrentTerm(), time.Time{}
	turn := time.Duration(m.rank(s, leader)) * hintStagger
	var gone time.Time // since when it is known not to lead
	for time.Since(start) < hintFor && sleep(m.ctx, hintPulse) {
		select {
		case lives := <-leads:
			if lives {
				m.log.Info("a connection of the raft leader broke, and it leads", "leader", serverName(leader))
				return stood
			}
			gone = time.Now()
		default:
		}
		if _, now := s.raft.LeaderWithID(); now != "" && now != leader {
			return stood
		}
		if s.raft.State() == raft.Leader || s.raft.LastContact().After(start.Add(hintRefuted)) {
			return stood
		}
		if now := s.raft.CurrentTerm(); now > term && m.db().votedIn(now) {
			term, voted = now, time.Now()
		}
		if gone.IsZero() {
			continue
		}
		// Each in his turn, also if all have waited for the same answer: two that stand at once split the vote.
		if !stood && s.raft.State() == raft.Follower && time.Since(voted) >= m.cfg.LeaderLease &&
			time.Since(s.raft.LastContact()) >= m.hintSilent()+turn && time.Since(gone) >= turn {
			stood = true
			m.stand(s)
		}
		set(short+time.Millisecond, short+time.Millisecond)
		set(short, short+time.Millisecond)
	}
	return stood
}

// hintSilent is the silence that must come with the evidence.
func (m *Meta) hintSilent() time.Duration { return m.cfg.HeartbeatTimeout * hintSilence / 10 }

// askLeader asks the server over a connection of this node's own whether it leads, and has a majority and a disk that answers. A process
// that is gone refuses at once, and one that is being started leads nothing; who doesn't answer for as long as there must be
// silence anyway is taken for gone. forget ends the question and waits for its end.
func (m *Meta) askLeader(id raft.ServerID) (leads <-chan bool, forget func()) {
	ctx, cancel := context.WithTimeout(m.ctx, m.hintSilent())
	answer, done := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(done)
		p, ok := m.lookup(id)
		if !ok {
			answer <- false
			return
		}
		_, err := m.cfg.Peers.ReadIndex(ctx, transport.Target{Name: p.Name, Addr: p.Addresses.Peer}, &peerpb.ReadIndexRequest{})
		answer <- err == nil
	}()
	return answer, func() { cancel(); <-done }
}

// votedIn reports whether Raft has given its vote in the term.
func (s *stores) votedIn(term uint64) bool {
	t, err := s.bolt.GetUint64(lastVoteTermKey)
	return err == nil && t == term
}

// stand makes this server stand for election now.
func (m *Meta) stand(s *server) {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.LeaderLease)
	defer cancel()
	err := wait(ctx, func() error {
		req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
		return s.trans.TimeoutNow(m.db().serverID, raft.ServerAddress(m.cfg.Addresses.Peer), req, &raft.TimeoutNowResponse{})
	})
	if err != nil {
		m.log.Debug("not standing for election at once", "error", err)
	}
}

// canWin reports whether this server has a vote, and a majority of the voters answers: one that cannot win
// must not raise the term.
func (m *Meta) canWin(s *server, leader raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.LeaderLease)
	defer cancel()
	servers, _ := s.configuration()
	var wg sync.WaitGroup
	var mu sync.Mutex
	voters, answers, own := 0, 0, false
	for _, o := range servers {
		if o.Suffrage != raft.Voter {
			continue
		}
		voters++
		switch o.ID {
		case leader:
		case m.db().serverID:
			own = true
			mu.Lock()
			answers++
			mu.Unlock()
		default:
			wg.Add(1)
			go func() {
				defer wg.Done()
				if m.probe(ctx, o.ID).alive {
					mu.Lock()
					answers++
					mu.Unlock()
				}
			}()
		}
	}
	wg.Wait()
	return own && answers >= voters/2+1
}

// rank is this server's place among the voters that are left without the leader.
func (m *Meta) rank(s *server, leader raft.ServerID) int {
	servers, _ := s.configuration()
	n := 0
	for _, o := range servers {
		if o.Suffrage == raft.Voter && o.ID != leader && o.ID < m.db().serverID {
			n++
		}
	}
	return n
}
