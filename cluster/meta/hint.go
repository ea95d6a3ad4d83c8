package meta

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
)

const (
	// hintFor is how long evidence of the leader's death counts.
	hintFor = 3 * time.Second
	// hintPulse is how often the follower is made to look again.
	hintPulse = 10 * time.Millisecond
	// hintRefuted: contact this long after the evidence says that the leader lives.
	hintRefuted = 250 * time.Millisecond
)

// HintLeaderDead says that there is evidence (a refused or reset connection, not mere silence) that the process
// of the named node is gone. If it is the Raft leader, this follower stands for election as soon as it has not
// heard the leader for LeaderLease, instead of after one to two heartbeat timeouts. Being wrong costs nothing while
// the leader's heartbeats arrive. It returns at once.
func (m *Meta) HintLeaderDead(name vtop.NodeName) {
	select {
	case m.hints <- name:
	default:
	}
}

func (m *Meta) hintLoop(s *server) {
	for {
		select {
		case <-m.ctx.Done():
			return
		case name := <-m.hints:
			if _, id := s.raft.LeaderWithID(); id != "" && serverName(id) == name && name != m.name() {
				m.hurry(s, id)
			}
		}
	}
}

// hurry shortens the heartbeat timeout to the shortest that Raft allows, the leader lease. That alone would not do: on
// a change to a shorter timeout a follower looks at once whether the leader is silent for that long, and if not
// yet, it waits for one to two times as long again. So the timeout goes up and down by a millisecond, and each
// time down makes the follower look; it stands for election within a pulse of the lease.
func (m *Meta) hurry(s *server, leader raft.ServerID) {
	start := time.Now()
	m.log.Info("the raft leader's process seems to be gone; watching closely", "leader", serverName(leader))
	short := m.cfg.LeaderLease
	set := func(heartbeat, election time.Duration) {
		err := m.reload(s, func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = heartbeat, election })
		if err != nil {
			m.log.Warn("raft timeouts not changed", "error", err)
		}
	}
	defer func() { set(m.cfg.HeartbeatTimeout, m.cfg.ElectionTimeout) }()
	for time.Since(start) < hintFor {
		set(short+time.Millisecond, short+time.Millisecond)
		set(short, short+time.Millisecond)
		if !sleep(m.ctx, hintPulse) {
			return
		}
		if _, now := s.raft.LeaderWithID(); now != "" && now != leader {
			return
		}
		if s.raft.State() == raft.Leader || s.raft.LastContact().After(start.Add(hintRefuted)) {
			return
		}
	}
}
