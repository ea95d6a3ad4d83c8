package meta

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/vtop-log/vtop"
)

const (
	// gossipQueue bounds the events that wait for the loop; more are dropped and counted, the next push/pull
	// tells them again.
	gossipQueue = 256
	// gossipRejoinMin and gossipRejoinMax are the pauses between attempts to reach nodes that gossip does not
	// see. It never stops trying: after a long partition nobody else calls anybody.
	gossipRejoinMin = time.Second
	gossipRejoinMax = 30 * time.Second
	gossipLeave     = 500 * time.Millisecond
)

// gossip runs memberlist for this node. Its label is the cluster id, so that two clusters never melt together.
// The member name is unique for each start of each data directory: memberlist keeps a node that changed its
// address out for as long as it remembers the name, and tells nobody when two nodes share one; both are
// answered by looking at the node names inside the meta instead.
type gossip struct {
	list *memberlist.Memberlist
	log  hclog.Logger
	self nodeMeta
	meta []byte

	events  chan gossipEvent
	dropped atomic.Uint64

	mu sync.Mutex
	// alive is what memberlist has told, by its names. Its own list can't be read: it gives out nodes that it goes on writing to.
	alive map[string]nodeMeta
}

type gossipEvent struct {
	meta  nodeMeta
	addr  string
	alive bool
	// conflict is set if meta claims this node's own name with another data directory.
	conflict bool
}

type gossipConfig struct {
	cluster       vtop.ClusterID
	self          nodeMeta
	bind, adv     string
	key           []byte
	probeInterval time.Duration
	log           hclog.Logger
	// transport, if set, is used instead of sockets.
	transport memberlist.Transport
}

func startGossip(cfg gossipConfig) (*gossip, error) {
	raw, err := cfg.self.encode()
	if err != nil {
		return nil, err
	}
	g := &gossip{log: cfg.log, self: cfg.self, meta: raw, events: make(chan gossipEvent, gossipQueue), alive: map[string]nodeMeta{}}
	mc := memberlist.DefaultLANConfig()
	mc.Name = fmt.Sprintf("%s/%s/%d", cfg.self.Name, cfg.self.Storage.String()[:8], cfg.self.Incarnation)
	mc.Label = cfg.cluster.String()
	mc.SecretKey = cfg.key
	mc.Delegate, mc.Events, mc.Conflict, mc.Alive = g, g, g, g
	mc.Transport = cfg.transport
	mc.Logger = cfg.log.StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
	mc.LogOutput = nil
	if cfg.probeInterval > 0 {
		mc.ProbeInterval, mc.ProbeTimeout = cfg.probeInterval, cfg.probeInterval/2
	}
	if err := setGossipAddress(mc, cfg.bind, cfg.adv); err != nil {
		return nil, err
	}
	if g.list, err = memberlist.Create(mc); err != nil {
		return nil, fmt.Errorf("gossip on %s: %w", cfg.bind, err)
	}
	return g, nil
}

func setGossipAddress(mc *memberlist.Config, bind, adv string) error {
	host, port, err := splitHostPort(bind)
	if err != nil {
		return fmt.Errorf("gossip address: %w", err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ip, err := resolveIP(host)
	if err != nil {
		return fmt.Errorf("gossip address: %w", err)
	}
	mc.BindAddr, mc.BindPort = ip, port
	if adv == "" {
		mc.AdvertisePort = port
		return nil
	}
	if host, port, err = splitHostPort(adv); err != nil {
		return fmt.Errorf("advertised gossip address: %w", err)
	}
	if ip, err = resolveIP(host); err != nil {
		return fmt.Errorf("advertised gossip address: %w", err)
	}
	mc.AdvertiseAddr, mc.AdvertisePort = ip, port
	return nil
}

func splitHostPort(addr string) (string, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: port: %w", addr, err)
	}
	return host, int(port), nil
}

func resolveIP(host string) (string, error) {
	if net.ParseIP(host) != nil {
		return host, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return "", err
	}
	return ips[0], nil
}

// offer notes who is alive, and hands an event to the loop without ever waiting: memberlist holds its lock here.
func (g *gossip) offer(n *memberlist.Node, alive bool) {
	m, err := decodeNodeMeta(n.Meta)
	if err != nil {
		return
	}
	g.mu.Lock()
	if alive {
		g.alive[n.Name] = m
	} else {
		delete(g.alive, n.Name)
	}
	g.mu.Unlock()
	conflict := m.Name == g.self.Name && m.Storage != g.self.Storage
	if m.Name == g.self.Name && !conflict {
		return
	}
	select {
	case g.events <- gossipEvent{meta: m, addr: n.Address(), alive: alive, conflict: conflict}:
	default:
		g.dropped.Add(1)
	}
}

// NodeMeta implements memberlist.Delegate.
func (g *gossip) NodeMeta(int) []byte { return g.meta }

// NotifyMsg implements memberlist.Delegate; vtop sends no messages of its own over gossip.
func (g *gossip) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (g *gossip) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (g *gossip) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (g *gossip) MergeRemoteState([]byte, bool) {}

// NotifyJoin implements memberlist.EventDelegate.
func (g *gossip) NotifyJoin(n *memberlist.Node) { g.offer(n, true) }

// NotifyLeave implements memberlist.EventDelegate.
func (g *gossip) NotifyLeave(n *memberlist.Node) { g.offer(n, false) }

// NotifyUpdate implements memberlist.EventDelegate.
func (g *gossip) NotifyUpdate(n *memberlist.Node) { g.offer(n, true) }

// NotifyConflict implements memberlist.ConflictDelegate: two processes with one data directory and one
// incarnation, that is, a data directory that was copied while it was used.
func (g *gossip) NotifyConflict(existing, other *memberlist.Node) {
	m, err := decodeNodeMeta(other.Meta)
	if err != nil {
		return
	}
	select {
	case g.events <- gossipEvent{meta: m, addr: other.Address() + " and " + existing.Address(), alive: true, conflict: true}:
	default:
		g.dropped.Add(1)
	}
}

// NotifyAlive implements memberlist.AliveDelegate: what does not say who it is is no peer.
func (g *gossip) NotifyAlive(n *memberlist.Node) error {
	_, err := decodeNodeMeta(n.Meta)
	return err
}

// members returns what gossip holds for alive, this node included.
func (g *gossip) members() []nodeMeta {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.alive))
}

// rejoin calls the seeds that gossip does not see, for as long as ctx lives.
func (g *gossip) rejoin(ctx context.Context, seeds func() map[vtop.NodeName]string) {
	pause := gossipRejoinMin
	for {
		missing := seeds()
		for _, m := range g.members() {
			delete(missing, m.Name)
		}
		if len(missing) == 0 {
			pause = gossipRejoinMax
		} else {
			addrs := make([]string, 0, len(missing))
			for _, a := range missing {
				addrs = append(addrs, a)
			}
			if n, err := g.list.Join(addrs); n > 0 {
				pause = gossipRejoinMin
			} else if err != nil {
				g.log.Debug("nodes not reached by gossip", "addresses", addrs, "error", err)
				pause = min(pause*2, gossipRejoinMax)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
	}
}

// close says goodbye and stops. It waits at most a second.
func (g *gossip) close() {
	if err := g.list.Leave(gossipLeave); err != nil {
		g.log.Debug("leave gossip", "error", err)
	}
	if err := g.list.Shutdown(); err != nil {
		g.log.Debug("stop gossip", "error", err)
	}
}
