package meta

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// handler is the answering side of the metadata calls.
type handler struct{ m *Meta }

// Handler returns the answering side, for transport.Join. It may be called from Open on.
func (m *Meta) Handler() transport.MetaHandler { return handler{m} }

// maxNames bounds the names that one Identify asks for.
const maxNames = 64

// Identify implements transport.MetaHandler.
func (h handler) Identify(_ context.Context, _ transport.Caller, req *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error) {
	m := h.m
	if len(req.GetNames()) > maxNames {
		return nil, fmt.Errorf("%w: identify asks for %d names, at most %d", transport.ErrInvalid, len(req.GetNames()), maxNames)
	}
	if req.GetNode() != nil {
		m.learn(req.GetNode())
	}
	st, state := m.born.get(), m.machine.State()
	resp := &peerpb.IdentifyResponse{
		Node: m.nodeInfo(), Generation: st.Generation, Leader: m.leaderHint(),
		Join: m.cfg.Join, BootstrapExpect: uint32(m.cfg.BootstrapExpect),
		CaughtUp: m.CaughtUp(), AppliedIndex: m.machine.Applied(), Empty: m.empty(st),
	}
	if id, err := vtop.ParseUUID(st.Cluster); err == nil {
		resp.ClusterId = id[:]
	}
	if st.Pledge != nil {
		resp.Pledge = st.Pledge.pb()
	}
	for _, name := range req.GetNames() {
		if node, ok := state.Node(vtop.NodeName(name)); ok {
			resp.Known = append(resp.Known, knownNode(node))
		}
	}
	return resp, nil
}

func (m *Meta) empty(st bornState) bool {
	return st.Cluster == "" && !m.cfg.HoldsData && m.cfg.Cluster.IsZero() && !m.db().hasState.Load()
}

func knownNode(n *fsm.Node) *peerpb.KnownNode {
	return &peerpb.KnownNode{
		Name: string(n.Name), StorageId: transport.UUIDBytes(n.Storage), ServerId: n.RaftID,
		Incarnation: uint64(n.Incarnation), State: n.State.String(), Addresses: addressesTo(n.Addresses),
	}
}

func (b *birth) pb() *peerpb.PledgeState {
	out := &peerpb.PledgeState{Coordinator: string(b.Coordinator)}
	if id, err := vtop.ParseUUID(b.Cluster); err == nil {
		out.ClusterId = id[:]
	}
	for _, f := range b.Members {
		out.Members = append(out.Members, f.pb())
	}
	return out
}

// Pledge implements transport.MetaHandler. A granted pledge is durable when it returns.
func (h handler) Pledge(_ context.Context, from transport.Caller, req *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error) {
	m := h.m
	b, err := birthFrom(req.GetClusterId(), req.GetCoordinator().GetName(), req.GetMembers())
	if err != nil {
		return nil, err
	}
	if b.Coordinator != from.Name {
		return nil, fmt.Errorf("%w: node %q asks for a pledge to node %q", transport.ErrNotAllowed, from.Name, b.Coordinator)
	}
	st := m.born.get()
	refuse := func(reason string) *peerpb.PledgeResponse {
		resp := &peerpb.PledgeResponse{Reason: reason, Node: m.nodeInfo()}
		if st.Pledge != nil {
			resp.Pledge = st.Pledge.pb()
		}
		return resp
	}
	switch {
	case st.Cluster == "" && !m.empty(st):
		return refuse(fmt.Sprintf("node %q holds data of a cluster", m.name())), nil
	case int(req.GetBootstrapExpect()) != m.cfg.BootstrapExpect:
		return refuse(fmt.Sprintf("node %q expects %d nodes, node %q expects %d", m.name(), m.cfg.BootstrapExpect, from.Name, req.GetBootstrapExpect())), nil
	}
	st, err = m.born.pledge(b, m.asMember())
	switch {
	case errors.Is(err, errPledged):
		return refuse(err.Error()), nil
	case err != nil:
		return nil, err
	}
	m.log.Info("pledged", "birth", b.String())
	return &peerpb.PledgeResponse{Granted: true, Pledge: st.Pledge.pb(), Node: m.nodeInfo()}, nil
}

func birthFrom(cluster []byte, coordinator string, members []*peerpb.PledgeMember) (*birth, error) {
	if len(members) > maxMembers {
		return nil, fmt.Errorf("%w: birth with %d members, at most %d", transport.ErrInvalid, len(members), maxMembers)
	}
	id, err := transport.UUIDFrom("cluster_id", cluster)
	if err != nil {
		return nil, err
	}
	b := &birth{Cluster: id.String(), Coordinator: vtop.NodeName(coordinator)}
	for _, p := range members {
		f, err := memberFrom(p)
		if err != nil {
			return nil, err
		}
		b.Members = append(b.Members, f)
	}
	if err := b.validate(); err != nil || id.IsZero() {
		return nil, fmt.Errorf("%w: %v (cluster id %s)", transport.ErrInvalid, err, id)
	}
	return b, nil
}

// Join implements transport.MetaHandler.
func (h handler) Join(ctx context.Context, from transport.Caller, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	return h.m.handleJoin(ctx, from, req)
}

// Propose implements transport.MetaHandler: the command is proposed here or not at all. An error that matches
// ErrNotRaftLeader, vtop.ErrNotReady or vtop.ErrOverloaded says that it surely was not; vtop.ErrTimeout leaves it open.
func (h handler) Propose(ctx context.Context, _ transport.Caller, req *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error) {
	m := h.m
	s := m.server.Load()
	if s == nil || s.raft.State() != raft.Leader {
		return nil, m.notLeader()
	}
	cmd, err := fsm.Decode(req.GetCommand())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrInvalid, err)
	}
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	default:
		return nil, fmt.Errorf("%w: %d proposals in flight at node %q", vtop.ErrOverloaded, maxProposals, m.name())
	}
	out, err := m.proposeHere(ctx, s, cmd, req.GetCommand())
	if err != nil {
		return nil, err
	}
	raw, err := fsm.EncodeResult(out)
	if err != nil {
		return nil, err
	}
	return &peerpb.ProposeResponse{Outcome: raw, Index: out.Index}, nil
}

func (m *Meta) proposeHere(ctx context.Context, s *server, cmd fsm.Command, raw []byte) (fsm.Outcome, error) {
	if err := m.machine.State().CheckProposal(cmd); err != nil {
		var refusal *fsm.Refusal
		switch {
		case !m.IsLeader():
			return fsm.Outcome{}, m.notLeader()
		case errors.As(err, &refusal):
			// Never proposed: a refusal without an index.
			return fsm.Outcome{Refusal: refusal}, nil
		}
		return fsm.Outcome{}, err
	}
	out, err := m.apply(ctx, s, raw)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, raft.ErrNotLeader):
		return out, m.notLeader()
	case errors.Is(err, errNotProposed):
		return out, fmt.Errorf("%w: %w", vtop.ErrNotReady, err)
	}
	return out, fmt.Errorf("%w: %w", vtop.ErrTimeout, err)
}

// ReadIndex implements transport.MetaHandler.
func (h handler) ReadIndex(ctx context.Context, _ transport.Caller, _ *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error) {
	index, err := h.m.leaderReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return &peerpb.ReadIndexResponse{Index: index, Term: h.m.Term(), Leader: h.m.leaderHint()}, nil
}
