package meta

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// cable is what Raft of one box hangs on: while it is cut no connection is made, and those there were are broken; while it
// is deaf nobody else makes one to the box.
type cable struct {
	cut, deaf atomic.Bool
	tries     atomic.Int64 // to make a connection
	said      atomic.Int64 // what was written to connections that it made
	mu        sync.Mutex
	conns     []net.Conn
}

// speaker is a connection of which the cable counts what its maker says.
type speaker struct {
	net.Conn
	said *atomic.Int64
}

func (s speaker) Write(b []byte) (int, error) {
	s.said.Add(1)
	return s.Conn.Write(b)
}

func (c *cable) sever() {
	c.cut.Store(true)
	c.breakAll()
}

func (c *cable) deafen() {
	c.deaf.Store(true)
	c.breakAll()
}

func (c *cable) heal() {
	c.cut.Store(false)
	c.deaf.Store(false)
}

func (c *cable) breakAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// newCabledWorld makes three boxes whose Raft connections can be cut.
func newCabledWorld(t *testing.T, tune func(*Config)) (*world, map[vtop.NodeName]*cable) {
	w := newWorld(t, 3, "a", "b", "c")
	cables := map[vtop.NodeName]*cable{"a": {}, "b": {}, "c": {}}
	w.tune = func(cfg *Config) {
		cfg.HeartbeatTimeout = max(1500*time.Millisecond, 3*w.pace) // a busy machine must not elect by accident
		if tune != nil {
			tune(cfg)
		}
		own, dial := cables[cfg.Who.Self().Name], cfg.DialRaft
		cfg.DialRaft = func(ctx context.Context, to transport.Target) (net.Conn, error) {
			own.tries.Add(1)
			ends := []*cable{own}
			if other := cables[to.Name]; other != nil {
				ends = append(ends, other)
			}
			for _, end := range ends {
				if end.cut.Load() || end != own && end.deaf.Load() {
					return nil, fmt.Errorf("%w: cut", transport.ErrUnreachable)
				}
			}
			conn, err := dial(ctx, to)
			if err != nil {
				return nil, err
			}
			for _, end := range ends {
				end.mu.Lock()
				end.conns = append(end.conns, conn)
				end.mu.Unlock()
			}
			return speaker{conn, &own.said}, nil
		}
	}
	return w, cables
}

// A voter that is cut off campaigns all the time and all for nothing: its term does not rise (M6), so that it comes back as one of
// them. When it is back, the end of an old connection is no evidence of the leader's death, and costs no election.
func TestMeta_CutOffVoterDoesNotRaiseTheTerm(t *testing.T) {
	w, cables := newCabledWorld(t, nil)
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	leader, victim := w.leader(), w.box("a")
	if victim == leader {
		victim = w.box("b")
	}
	term, line := leader.meta.Term(), cables[victim.name]
	line.sever()
	state := func() string { return victim.meta.Stats()["state"] }
	w.until("the victim to stand for election", func() bool { return state() == "Candidate" })
	asked := line.tries.Load()
	w.until("several rounds of it", func() bool { return line.tries.Load() > asked+4 })
	if now := victim.meta.Term(); now != term {
		t.Errorf("M6: its term went from %d to %d without anybody's vote", term, now)
	}
	line.heal()
	w.until("it is one of them again", func() bool { return state() != "Candidate" })
	if _, err := w.createTopic(victim, "after"); err != nil {
		t.Fatal(err)
	}
	if now := w.leader().meta.Term(); now != term {
		t.Errorf("M6: term %d before the cut, %d after it", term, now)
	}
}

// The leader lives, and a majority with it; only its connection to one voter breaks and does not come back for a while. That voter
// has evidence of a death, would get everybody's vote, and must not stand before it has asked (M6). It does not, it waits for
// as long as any follower does that hears nothing, and then asks for votes that nobody gives.
func TestMeta_BrokenConnectionIsNoDeath(t *testing.T) {
	w, cables := newCabledWorld(t, nil)
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	for range 3 {
		leader, victim := w.leader(), w.box("a")
		if victim == leader {
			victim = w.box("b")
		}
		term := leader.meta.Term()
		state := func() string { return victim.meta.Stats()["state"] }
		cables[victim.name].deafen()
		w.until("the victim to miss its leader", func() bool { return state() != "Follower" })
		cables[victim.name].heal()
		if _, err := w.createTopic(leader, fmt.Sprint("t", randomUUID())); err != nil {
			t.Fatal(err)
		}
		w.until("it is one of them again, or leads", func() bool { return state() != "Candidate" })
		if now := w.leader(); now != leader || now.meta.Term() != term {
			t.Fatalf("M6: a broken connection cost an election: %s led in term %d, %s leads in %d", leader.name, term, now.name, now.meta.Term())
		}
	}
}

// A voter whose Raft port nobody can call, while it can call all others (M9): leadership may move to it, which is as good as any;
// no term ever has two leaders, and proposals of every node are taken. Its own it learns of when it can be called again.
func TestMeta_DeafVoterMakesNoSecondLeader(t *testing.T) {
	for name, behind := range map[string]bool{"it may win an election": false, "it lacks an entry and wins none": true} {
		t.Run(name, func(t *testing.T) { deafVoter(t, behind) })
	}
}

func deafVoter(t *testing.T, behind bool) {
	w, cables := newCabledWorld(t, nil)
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	victim := w.box("a")
	if victim == w.leader() {
		victim = w.box("b")
	}
	led := map[uint64]vtop.NodeName{}
	oneLeader := func() {
		for _, b := range w.boxes {
			if term, ok := b.meta.LeadingTerm(); ok {
				if other, ok := led[term]; ok && other != b.name {
					t.Fatalf("M9: %s and %s lead in term %d", other, b.name, term)
				}
				led[term] = b.name
			}
		}
	}
	oneLeader()
	cables[victim.name].deafen()
	topics := 3
	if behind {
		topics++
		if _, err := w.createTopic(w.leader(), "unheard"); err != nil {
			t.Fatal(err)
		}
	}
	w.until("the victim to miss its leader, or to lead", func() bool {
		oneLeader()
		return victim.meta.IsLeader() || victim.meta.Stats()["state"] == "Candidate"
	})
	asked := cables[victim.name].said.Load() // a candidate says nothing but that it wants votes
	w.until("the victim to lead, or to have asked in vain for a while", func() bool {
		oneLeader()
		return victim.meta.IsLeader() || cables[victim.name].said.Load() > asked+8
	})
	proposed := make(chan error, 1)
	go func() {
		_, err := w.createTopic(victim, "by-"+string(victim.name))
		proposed <- err
	}()
	for _, b := range w.boxes {
		if b == victim {
			continue
		}
		if _, err := w.createTopic(b, "by-"+string(b.name)); err != nil {
			t.Errorf("%s while %s is deaf: %v", b.name, victim.name, err)
		}
		oneLeader()
	}
	all := func(of func(*box) bool) func() bool {
		return func() bool {
			oneLeader()
			for _, b := range w.boxes {
				if of(b) && b.fsm.State().TopicCount() != topics {
					return false
				}
			}
			return true
		}
	}
	w.until("the others to have what the deaf one proposed", all(func(b *box) bool { return b != victim }))
	cables[victim.name].heal()
	w.until("all have all", all(func(*box) bool { return true }))
	if err := <-proposed; err != nil {
		t.Errorf("the deaf one proposed, and can be called again: %v", err)
	}
}
