package meta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	leaderLook     = 500 * time.Millisecond
	barrierTimeout = 5 * time.Second
	verifyTimeout  = 3 * time.Second
	// transferTimeout bounds a hand-over; Raft itself gives up after an election timeout.
	transferTimeout = 3 * time.Second
)

// watchLeadership follows Raft's state. The channels are hints that it may have changed, and nothing is counted by
// edges; what counts is the state and the term when looked at.
func (m *Meta) watchLeadership(s *server) {
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	defer m.publish(Leadership{})
	for {
		m.lookAtLeadership(s)
		select {
		case <-m.ctx.Done():
			return
		case <-s.raft.LeaderCh():
		case <-s.events:
		case <-tick.C:
		}
	}
}

func (m *Meta) lookAtLeadership(s *server) {
	leads, term := s.raft.State() == raft.Leader, s.raft.CurrentTerm()
	ready := m.readyTerm.Load()
	if ready != 0 && (!leads || term != ready) {
		m.readyTerm.Store(0)
		m.publish(Leadership{})
		m.log.Info("raft leadership ended", "term", ready)
	}
	if !leads || ready == term {
		return
	}
	ctx, cancel := context.WithTimeout(m.ctx, barrierTimeout)
	defer cancel()
	if err := m.barrier(ctx); err != nil {
		m.log.Warn("new raft leader without a barrier yet", "term", term, "error", err)
		return
	}
	if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != term {
		return
	}
	if m.machine.State().Cluster().ID.IsZero() && !m.bearCluster(ctx, s) {
		return
	}
	m.readyTerm.Store(term)
	m.publish(Leadership{Leading: true, Term: term})
	m.log.Info("leads the metadata", "term", term)
	m.poke()
}

// bearCluster writes the cluster's id into the state machine, as the first thing in it.
func (m *Meta) bearCluster(ctx context.Context, s *server) bool {
	id, _ := m.ClusterID()
	raw, err := fsm.Encode(&fsm.BootstrapCluster{ID: id, Level: fsm.LevelMax, At: time.Now().UnixMilli()})
	if err == nil {
		var out fsm.Outcome
		if out, err = m.apply(ctx, s, raw); err == nil {
			err = out.Err()
		}
	}
	if err != nil {
		m.log.Warn("cluster id not written yet", "error", err)
	}
	return err == nil
}

// publish replaces what nobody has read yet: only the present state is of interest.
func (m *Meta) publish(l Leadership) {
	for {
		select {
		case m.leading <- l:
			return
		default:
		}
		select {
		case <-m.leading:
		default:
		}
	}
}

// Leadership gives the present leadership whenever it changes. It holds at most one value, the newest; two changes
// between two reads are one. It has one reader.
func (m *Meta) Leadership() <-chan Leadership { return m.leading }

// IsLeader reports whether this node is the Raft leader and has applied all that was committed before its term.
func (m *Meta) IsLeader() bool {
	_, ok := m.LeadingTerm()
	return ok
}

// LeadingTerm is the term in which IsLeader is true.
func (m *Meta) LeadingTerm() (uint64, bool) {
	s, ready := m.server.Load(), m.readyTerm.Load()
	if s == nil || ready == 0 || s.raft.State() != raft.Leader || s.raft.CurrentTerm() != ready {
		return 0, false
	}
	return ready, true
}

// Term is the Raft term that this node is in; 0 before Raft runs.
func (m *Meta) Term() uint64 {
	if s := m.server.Load(); s != nil {
		return s.raft.CurrentTerm()
	}
	return 0
}

// LeaderName is the Raft leader that this node knows of.
func (m *Meta) LeaderName() (vtop.NodeName, bool) {
	s := m.server.Load()
	if s == nil {
		return "", false
	}
	_, id := s.raft.LeaderWithID()
	name := serverName(id)
	return name, name != ""
}

// leaderHint names the leader with its address, for a refusal; nil if none is known.
func (m *Meta) leaderHint() *peerpb.LeaderHint {
	s := m.server.Load()
	if s == nil {
		return nil
	}
	_, id := s.raft.LeaderWithID()
	if id == "" {
		return nil
	}
	hint := &peerpb.LeaderHint{Name: string(serverName(id)), ServerId: string(id), PeerAddr: m.cfg.Addresses.Peer}
	if id != m.db().serverID {
		p, ok := m.lookup(id)
		if !ok {
			return nil
		}
		hint.PeerAddr = p.Addresses.Peer
	}
	return hint
}

func (m *Meta) notLeader() error { return transport.NotRaftLeader(m.name(), m.leaderHint()) }

// VerifyLeader asks a majority whether this node still is the Raft leader. It waits no longer than ctx and 3 s.
func (m *Meta) VerifyLeader(ctx context.Context) error {
	s := m.server.Load()
	if s == nil {
		return m.notLeader()
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := wait(ctx, func() error { return s.raft.VerifyLeader().Error() }); err != nil {
		return fmt.Errorf("verify raft leadership: %w", err)
	}
	return nil
}

// TransferLeadership hands Raft leadership to another voter that answers and is not behind. It waits no longer than
// ctx and 3 s; when it returns an error, leadership may still move. It asks the target first, because Raft
// refuses every proposal while a hand-over to a server that does not answer is under way.
func (m *Meta) TransferLeadership(ctx context.Context) error {
	s := m.server.Load()
	if s == nil || s.raft.State() != raft.Leader {
		return m.notLeader()
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	target, err := m.heir(ctx, s)
	if err != nil {
		return err
	}
	err = wait(ctx, func() error {
		return s.raft.LeadershipTransferToServer(target.ID, target.Address).Error()
	})
	if err != nil && s.raft.State() == raft.Leader {
		return fmt.Errorf("hand raft leadership to %q: %w", target.ID, err)
	}
	m.log.Info("handed raft leadership over", "to", serverName(target.ID))
	return nil
}

// heir is the other voter that answers and has applied most.
func (m *Meta) heir(ctx context.Context, s *server) (raft.Server, error) {
	servers, _ := s.configuration()
	type found struct {
		server  raft.Server
		applied uint64
	}
	results := make(chan found, len(servers))
	n := 0
	for _, srv := range servers {
		if srv.ID == m.db().serverID || srv.Suffrage != raft.Voter {
			continue
		}
		n++
		go func() {
			probed := m.probe(ctx, srv.ID)
			if !probed.alive {
				srv.ID = ""
			}
			results <- found{srv, probed.applied}
		}()
	}
	var best found
	for range n {
		if f := <-results; f.server.ID != "" && (best.server.ID == "" || f.applied > best.applied) {
			best = f
		}
	}
	if best.server.ID == "" {
		return raft.Server{}, errors.New("no other voter answers that could take raft leadership")
	}
	return best.server, nil
}

// probe asks a Raft server whether it is there and how far it has applied.
func (m *Meta) probe(ctx context.Context, id raft.ServerID) probeResult {
	p, ok := m.lookup(id)
	if !ok {
		return probeResult{}
	}
	resp, err := m.ask(ctx, transport.Target{Name: p.Name, Addr: p.Addresses.Peer})
	if err != nil || resp.GetNode().GetServerId() != string(id) {
		return probeResult{}
	}
	// An id that can't be read is zero, which is nobody's.
	storage, _ := transport.UUIDFrom("storage id", resp.GetNode().GetStorageId())
	return probeResult{alive: true, storage: storage, applied: resp.GetAppliedIndex()}
}

// maxBarriers bounds callers that wait for a barrier.
const maxBarriers = 256

// barrier returns nil once everything that was committed when it was called is applied here, which also proves
// that this node led then. Callers that come while one is under way share the next.
func (m *Meta) barrier(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case m.barriers <- done:
	default:
		return fmt.Errorf("%w: %d callers wait for a barrier", vtop.ErrOverloaded, maxBarriers)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

func (m *Meta) barrierLoop(s *server) {
	for {
		var waiting []chan error
		select {
		case <-m.ctx.Done():
			return
		case first := <-m.barriers:
			waiting = append(waiting, first)
		}
		for more := true; more; {
			select {
			case next := <-m.barriers:
				waiting = append(waiting, next)
			default:
				more = false
			}
		}
		ctx, cancel := context.WithTimeout(m.ctx, barrierTimeout)
		err := wait(ctx, func() error { return s.raft.Barrier(barrierTimeout).Error() })
		cancel()
		for _, done := range waiting {
			done <- err
		}
	}
}
