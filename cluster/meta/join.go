package meta

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	joinTimeout  = 10 * time.Second
	joinPauseMin = 50 * time.Millisecond
	joinPauseMax = 2 * time.Second
	// joinHops is how many hints the node follows before it asks everyone again.
	joinHops = 4
)

// errRestart: the node must be started again; its raft.db will be set aside.
var errRestart = errors.New("start this node again")

// register asks to be let in until this start of the node is registered.
func (m *Meta) register() error {
	pause := newBackoff(joinPauseMin, joinPauseMax)
	say := &complain{log: m.log, every: complainEvery}
	for {
		resp, err := m.joinAnywhere()
		if err != nil {
			m.waitFor(say, "not registered with the cluster yet", "reason", err.Error())
		} else if done, err := m.joinAnswer(resp, say); done || err != nil {
			return err
		}
		if !sleep(m.ctx, pause.pause()) {
			return context.Cause(m.ctx)
		}
	}
}

func (m *Meta) joinAnswer(resp *peerpb.JoinResponse, say *complain) (done bool, err error) {
	self := m.cfg.Who.Self()
	switch resp.GetOutcome() {
	case peerpb.JoinOutcome_JOIN_OUTCOME_ACCEPTED:
		m.machine.Leases().SetIdentity(self.Name, self.Incarnation)
		m.setStatus("joined")
		m.joined.set()
		m.log.Info("registered", "cluster", self.Cluster.String(), "broker", resp.GetBrokerId(), "incarnation", uint64(self.Incarnation))
		return true, nil
	case peerpb.JoinOutcome_JOIN_OUTCOME_RESTORED_COPY:
		return true, m.foundRestored(vtop.Incarnation(resp.GetIncarnation()))
	case peerpb.JoinOutcome_JOIN_OUTCOME_PENDING:
		m.waitFor(say, "pending: waits to take the place of another data directory of this name", "reason", resp.GetMessage())
	case peerpb.JoinOutcome_JOIN_OUTCOME_NAME_TAKEN:
		m.waitFor(say, "refused: the name belongs to a node that is alive", "reason", resp.GetMessage())
	default:
		m.waitFor(say, "not registered with the cluster yet", "reason", resp.GetMessage())
	}
	return false, nil
}

// foundRestored: the leader knows what the peers asked before Raft started did not. Raft runs already, with a log and
// votes that may have been forgotten; it stops here, and the next start sets raft.db aside.
func (m *Meta) foundRestored(registered vtop.Incarnation) error {
	if m.db().hasState.Load() {
		mark := filepath.Join(m.cfg.RaftDir, asideMark)
		if err := vfs.WriteFileAtomic(vfs.OS(), mark, []byte("the disk was restored from an old copy\n")); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: this disk was restored from an old copy (start %d, but start %d was registered); %w: it will join as a new raft server, its replicas are lost",
		vtop.ErrReplicaLost, m.cfg.Who.Self().Incarnation, registered, errRestart)
}

// joinAnywhere brings the request to the Raft leader: the known one, or whomever the others name.
func (m *Meta) joinAnywhere() (*peerpb.JoinResponse, error) {
	ctx, cancel := context.WithTimeout(m.ctx, joinTimeout)
	defer cancel()
	req := m.joinRequest()
	if m.IsLeader() {
		return m.handleJoin(ctx, transport.Caller{Self: m.cfg.Who.Self()}, req)
	}
	var err error
	if hint := m.leaderHint(); hint != nil {
		var resp *peerpb.JoinResponse
		if resp, err = m.joinVia(ctx, transport.Target{Name: vtop.NodeName(hint.GetName()), Addr: hint.GetPeerAddr()}, req); err == nil {
			return resp, nil
		}
	}
	for _, a := range m.seek(ctx) {
		if a.resp == nil || a.self || a.cluster() != m.cfg.Who.Self().Cluster.String() {
			if a.err != nil && err == nil {
				err = a.err
			}
			continue
		}
		resp, e := m.joinVia(ctx, transport.Target{Name: a.name(), Addr: a.addr}, req)
		if e == nil {
			return resp, nil
		}
		err = e
	}
	if err == nil {
		err = errors.New("no node of the cluster answers")
	}
	return nil, err
}

func (m *Meta) joinVia(ctx context.Context, to transport.Target, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	var err error
	for range joinHops {
		if to.Addr == m.cfg.Addresses.Peer {
			if m.IsLeader() {
				return m.handleJoin(ctx, transport.Caller{Self: m.cfg.Who.Self()}, req)
			}
			return nil, m.notLeader()
		}
		var resp *peerpb.JoinResponse
		if resp, err = m.cfg.Peers.Join(ctx, to, req); err == nil {
			return resp, nil
		}
		hint := transport.LeaderOf(err)
		if hint == nil || hint.GetPeerAddr() == to.Addr {
			return nil, err
		}
		to = transport.Target{Name: vtop.NodeName(hint.GetName()), Addr: hint.GetPeerAddr()}
	}
	return nil, err
}

func (m *Meta) joinRequest() *peerpb.JoinRequest {
	lost := m.ReplicasLost()
	return &peerpb.JoinRequest{
		Node: m.nodeInfo(), ClusterId: transport.UUIDBytes(m.cfg.Who.Self().Cluster),
		ReplicasLost: lost != "", LostReason: lost,
	}
}

// handleJoin is the answering side: the Raft leader registers the node, others name the leader.
func (m *Meta) handleJoin(ctx context.Context, from transport.Caller, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	s := m.server.Load()
	if s == nil || !m.IsLeader() {
		return nil, m.notLeader()
	}
	cmd, err := registration(from, req)
	if err != nil {
		return nil, err
	}
	if own := m.cfg.Who.Self().Cluster; len(req.GetClusterId()) > 0 && string(req.GetClusterId()) != string(own[:]) {
		return nil, fmt.Errorf("%w: node %q wants to join cluster %x, this is cluster %s", transport.ErrWrongCluster, cmd.Name, req.GetClusterId(), own)
	}
	if err := m.judge(ctx, cmd); err != nil {
		return nil, err
	}
	if node, _ := m.machine.State().Node(cmd.Name); cmd.HolderAlive && node.Storage == cmd.Storage {
		return m.refuseClone(cmd, node), nil
	}
	raw, err := fsm.Encode(cmd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrInvalid, err)
	}
	out, err := m.apply(ctx, s, raw)
	if err != nil {
		if errors.Is(err, errNotProposed) {
			return nil, fmt.Errorf("%w: %w", vtop.ErrNotReady, err)
		}
		return nil, fmt.Errorf("%w: %w", vtop.ErrTimeout, err)
	}
	m.learn(req.GetNode())
	m.poke()
	return m.joinResponse(cmd, out), nil
}

func registration(from transport.Caller, req *peerpb.JoinRequest) (*fsm.RegisterNode, error) {
	n := req.GetNode()
	storage, err := transport.UUIDFrom("node.storage_id", n.GetStorageId())
	if err != nil {
		return nil, err
	}
	boot, err := transport.UUIDFrom("node.boot_nonce", n.GetBootNonce())
	if err != nil {
		return nil, err
	}
	if n.GetName() != string(from.Name) {
		return nil, fmt.Errorf("%w: node %q asks to register node %q", transport.ErrNotAllowed, from.Name, n.GetName())
	}
	if owner := serverName(raft.ServerID(n.GetServerId())); string(owner) != n.GetName() {
		return nil, fmt.Errorf("%w: raft server %q does not belong to node %q", transport.ErrInvalid, n.GetServerId(), n.GetName())
	}
	cmd := &fsm.RegisterNode{
		Name: vtop.NodeName(n.GetName()),
		Identity: fsm.Identity{
			Storage: storage, RaftID: n.GetServerId(), Incarnation: vtop.Incarnation(n.GetIncarnation()), BootNonce: boot,
			Addresses: addressesFrom(n.GetAddresses()), Rack: n.GetRack(),
			MaxLevel: fsm.Level(n.GetFeatureLevel()), Version: n.GetVersion(),
		},
		At: time.Now().UnixMilli(),
	}
	if req.GetReplicasLost() {
		cmd.ReplicasLost = req.GetLostReason()
		if cmd.ReplicasLost == "" {
			cmd.ReplicasLost = "the node says that it may have forgotten"
		}
	}
	return cmd, nil
}

// judge finds out what the state machine cannot know: whether another process holds the name, and whether the
// caller, if its counter is behind, is running now, and so is a copy and not a late word of an earlier start.
func (m *Meta) judge(ctx context.Context, cmd *fsm.RegisterNode) error {
	node, known := m.machine.State().Node(cmd.Name)
	if !known || node.Storage == cmd.Storage && node.BootNonce == cmd.BootNonce {
		return nil
	}
	if node.Storage != cmd.Storage {
		cmd.HolderAlive = m.holderAlive(ctx, node)
		return nil
	}
	if node.Addresses.Peer != cmd.Addresses.Peer {
		cmd.HolderAlive = m.answersAs(ctx, node.Name, node.Addresses.Peer, node.Storage, node.BootNonce)
	}
	if cmd.Incarnation > node.Incarnation || cmd.HolderAlive {
		return nil
	}
	if !m.answersAs(ctx, cmd.Name, cmd.Addresses.Peer, cmd.Storage, cmd.BootNonce) {
		return fmt.Errorf("%w: node %q of incarnation %d asks to register, incarnation %d is registered, and it does not answer at %s: a late request, or a wrong address",
			vtop.ErrNotReady, cmd.Name, cmd.Incarnation, node.Incarnation, cmd.Addresses.Peer)
	}
	cmd.Expected = node.Incarnation
	return nil
}

// holderAlive asks where the owner of a name was registered, and where it was last heard.
func (m *Meta) holderAlive(ctx context.Context, node *fsm.Node) bool {
	if m.answersAs(ctx, node.Name, node.Addresses.Peer, node.Storage, vtop.UUID{}) {
		return true
	}
	p, ok := m.book.byServer(node.RaftID)
	return ok && p.Addresses.Peer != node.Addresses.Peer &&
		m.answersAs(ctx, node.Name, p.Addresses.Peer, node.Storage, vtop.UUID{})
}

// answersAs reports whether the process at addr is of the data directory, and of the start unless boot is zero.
func (m *Meta) answersAs(ctx context.Context, name vtop.NodeName, addr string, storage vtop.StorageID, boot vtop.UUID) bool {
	if addr == m.cfg.Addresses.Peer {
		self := m.cfg.Who.Self()
		return self.Name == name && self.Storage == storage && (boot.IsZero() || boot == m.cfg.Boot)
	}
	resp, err := m.ask(ctx, transport.Target{Addr: addr})
	if err != nil {
		return false
	}
	n := resp.GetNode()
	return n.GetName() == string(name) && string(n.GetStorageId()) == string(storage[:]) &&
		(boot.IsZero() || string(n.GetBootNonce()) == string(boot[:]))
}

// refuseClone answers a running copy of a data directory whose original runs too. Whatever their counters say, the
// one that is registered goes on.
func (m *Meta) refuseClone(cmd *fsm.RegisterNode, node *fsm.Node) *peerpb.JoinResponse {
	resp := &peerpb.JoinResponse{
		Outcome: peerpb.JoinOutcome_JOIN_OUTCOME_NAME_TAKEN,
		Message: fmt.Sprintf("node name %q is held by a living process with the same data directory %s, incarnation %d at %s; this one, incarnation %d at %s, runs on a copy of it: empty its data directory and give it another name",
			cmd.Name, node.Storage, node.Incarnation, node.Addresses.Peer, cmd.Incarnation, cmd.Addresses.Peer),
		Leader: m.leaderHint(),
	}
	m.log.Warn("a copy of a node's data directory is running", "reason", resp.GetMessage())
	return resp
}

func (m *Meta) joinResponse(cmd *fsm.RegisterNode, out fsm.Outcome) *peerpb.JoinResponse {
	cluster := m.machine.State().Cluster()
	resp := &peerpb.JoinResponse{
		Outcome: peerpb.JoinOutcome_JOIN_OUTCOME_ACCEPTED, ClusterId: transport.UUIDBytes(cluster.ID),
		Generation: cluster.Generation, BrokerId: int32(out.Registration.Broker),
		Incarnation: uint64(out.Registration.Incarnation), Index: out.Index,
		FeatureLevel: uint32(cluster.Level), Leader: m.leaderHint(),
	}
	if out.Refusal == nil {
		return resp
	}
	resp.Message = out.Refusal.Message
	switch out.Refusal.Code {
	case fsm.CodeNameTaken:
		resp.Outcome = peerpb.JoinOutcome_JOIN_OUTCOME_NAME_TAKEN
		if node, ok := m.machine.State().Node(cmd.Name); ok {
			resp.Message += fmt.Sprintf("; name %q is held by storage %s at %s, asked for by storage %s at %s",
				cmd.Name, node.Storage, node.Addresses.Peer, cmd.Storage, cmd.Addresses.Peer)
		}
		m.log.Warn("a second node asks for a name that is taken", "name", cmd.Name, "reason", resp.Message)
	case fsm.CodePending:
		resp.Outcome = peerpb.JoinOutcome_JOIN_OUTCOME_PENDING
		resp.Message += fmt.Sprintf("; it takes the place once its owner has been gone for %s, or by 'vtopctl node replace'", m.cfg.HealAfter)
	case fsm.CodeRestoredCopy:
		resp.Outcome = peerpb.JoinOutcome_JOIN_OUTCOME_RESTORED_COPY
	default:
		resp.Outcome = peerpb.JoinOutcome_JOIN_OUTCOME_UNSPECIFIED
	}
	return resp
}
