package meta

import (
	"context"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

const (
	// askTimeout bounds one question to one peer.
	askTimeout = 1500 * time.Millisecond
	// askAtOnce bounds questions in flight, maxTargets the peers that one round asks.
	askAtOnce  = 16
	maxTargets = 128
)

// answer is what one address said when asked who it is.
type answer struct {
	addr string
	// join: the address is one of Config.Join.
	join bool
	// self: the address leads to this node.
	self bool
	resp *peerpb.IdentifyResponse
	err  error
}

func (a answer) name() vtop.NodeName { return vtop.NodeName(a.resp.GetNode().GetName()) }

func (a answer) cluster() string {
	u, err := transport.UUIDFrom("cluster_id", a.resp.GetClusterId())
	if err != nil || u.IsZero() {
		return ""
	}
	return u.String()
}

func (a answer) storage() string {
	u, _ := transport.UUIDFrom("storage_id", a.resp.GetNode().GetStorageId())
	return u.String()
}

func (a answer) member() member {
	n := a.resp.GetNode()
	return member{Name: a.name(), Storage: a.storage(), ServerID: n.GetServerId(), Peer: n.GetAddresses().GetPeer()}
}

// targets are the addresses to ask: those of --join, those of the pledge, and those remembered.
func (m *Meta) targets() []answer {
	var out []answer
	seen := map[string]bool{}
	add := func(addr string, join bool) {
		if addr == "" || seen[addr] || len(out) >= maxTargets {
			return
		}
		seen[addr] = true
		out = append(out, answer{addr: addr, join: join, self: addr == m.cfg.Addresses.Peer})
	}
	for _, a := range m.cfg.Join {
		add(a, true)
	}
	seen[m.cfg.Addresses.Peer] = true
	if p := m.born.get().Pledge; p != nil {
		for _, f := range p.Members {
			add(f.Peer, false)
		}
	}
	for n := range m.machine.State().Nodes() {
		add(n.Addresses.Peer, false)
	}
	for _, p := range m.book.list() {
		add(p.Addresses.Peer, false)
	}
	return out
}

// seek asks all targets at once who they are, learns from the answers, and tells them where this node is.
func (m *Meta) seek(ctx context.Context) []answer {
	out := m.targets()
	slots := make(chan struct{}, askAtOnce)
	var wg sync.WaitGroup
	for i := range out {
		if out[i].self {
			continue
		}
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			out[i].resp, out[i].err = m.ask(ctx, transport.Target{Addr: out[i].addr})
			<-slots
		}()
	}
	wg.Wait()
	m.markSelf(out)
	return out
}

// markSelf finds the answers that this process gave to itself.
func (m *Meta) markSelf(out []answer) {
	self := m.cfg.Who.Self()
	for i := range out {
		a := &out[i]
		if a.resp != nil && a.name() == self.Name && a.storage() == self.Storage.String() &&
			string(a.resp.GetNode().GetBootNonce()) == string(m.cfg.Boot[:]) {
			a.self, a.resp = true, nil
		}
	}
}

// ask puts one Identify to one target, bounded, and learns from the answer.
func (m *Meta) ask(ctx context.Context, to transport.Target) (*peerpb.IdentifyResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := m.cfg.Peers.Identify(ctx, to, &peerpb.IdentifyRequest{
		Node: m.nodeInfo(), Names: []string{string(m.name())},
	})
	if err != nil {
		return nil, err
	}
	m.learn(resp.GetNode())
	return resp, nil
}

// learn remembers where a peer says that it is. Its own node it does not remember.
func (m *Meta) learn(n *peerpb.NodeInfo) {
	storage, err := transport.UUIDFrom("storage_id", n.GetStorageId())
	self := m.cfg.Who.Self()
	if err != nil || n.GetServerId() == self.ServerID {
		return
	}
	p := peer{
		Name: vtop.NodeName(n.GetName()), Storage: storage.String(), ServerID: n.GetServerId(),
		Incarnation: vtop.Incarnation(n.GetIncarnation()), Addresses: addressesFrom(n.GetAddresses()),
	}
	if m.book.learn(p) {
		m.poke()
	}
}

// poke has the leader's loop look at once.
func (m *Meta) poke() {
	select {
	case m.nudge <- struct{}{}:
	default:
	}
}

func (m *Meta) nodeInfo() *peerpb.NodeInfo {
	self := m.cfg.Who.Self()
	return &peerpb.NodeInfo{
		Name: string(self.Name), StorageId: transport.UUIDBytes(self.Storage), ServerId: self.ServerID,
		Incarnation: uint64(self.Incarnation), BootNonce: transport.UUIDBytes(m.cfg.Boot),
		Addresses: addressesTo(m.cfg.Addresses), Rack: m.cfg.Rack,
		FeatureLevel: uint32(fsm.LevelMax), Version: m.cfg.Version,
	}
}

func addressesTo(a fsm.Addresses) *peerpb.Addresses {
	return &peerpb.Addresses{Kafka: a.Kafka, Peer: a.Peer, Gossip: a.Gossip, Admin: a.Admin}
}

func addressesFrom(a *peerpb.Addresses) fsm.Addresses {
	return fsm.Addresses{Kafka: a.GetKafka(), Peer: a.GetPeer(), Gossip: a.GetGossip(), Admin: a.GetAdmin()}
}
