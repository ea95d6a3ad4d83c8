package meta

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Peers is the calling side of the peer plane as this package uses it; *transport.Client is one. Calls end with
// ctx.
type Peers interface {
	Identify(ctx context.Context, to transport.Target, req *peerpb.IdentifyRequest) (*peerpb.IdentifyResponse, error)
	Pledge(ctx context.Context, to transport.Target, req *peerpb.PledgeRequest) (*peerpb.PledgeResponse, error)
	Join(ctx context.Context, to transport.Target, req *peerpb.JoinRequest) (*peerpb.JoinResponse, error)
	Propose(ctx context.Context, to transport.Target, req *peerpb.ProposeRequest) (*peerpb.ProposeResponse, error)
	ReadIndex(ctx context.Context, to transport.Target, req *peerpb.ReadIndexRequest) (*peerpb.ReadIndexResponse, error)
}

// Config says who the node is and what it was told. Zero durations take their defaults.
type Config struct {
	// Who is shared with the transport; Meta writes into it what it learns.
	Who *Who
	// Boot is random for each start of the process.
	Boot vtop.UUID
	// Cluster is what the data directory says it belongs to; zero if it never belonged to one.
	Cluster vtop.ClusterID
	// HoldsData: the data directory holds replicas or has belonged to a cluster. Such a node founds nothing.
	HoldsData bool
	// ReplicasLost is why the node itself knows that its replicas may have forgotten; empty if it does not.
	ReplicasLost string
	// SetCluster writes the cluster id into the data directory, durably, before the node acts under it. A
	// repeat with the same id is no error. nil does nothing.
	SetCluster func(vtop.ClusterID) error
	// RaiseIncarnation makes the data directory's counter larger than the given one, durably, and returns it. It
	// is asked for after the disk was found to be an old copy. nil refuses.
	RaiseIncarnation func(above vtop.Incarnation) (vtop.Incarnation, error)

	// RaftDir holds raft.db and the snapshots, StateDir the node's pledge and its remembered peers. They are
	// two so that raft.db can be thrown away without forgetting which cluster the node belongs to.
	RaftDir, StateDir string
	// FS holds StateDir; default vfs.OS(). RaftDir is always on the real disk, since bbolt maps its file.
	FS vfs.FS

	// Addresses are where others reach the node. Peer is required. Without Gossip there is no gossip.
	Addresses fsm.Addresses
	// GossipBind is where gossip listens.
	GossipBind string
	// GossipKey is empty or 16, 24 or 32 bytes in base64, the same on all nodes.
	GossipKey string
	// Join are peer addresses of the cluster or of its founders; this node's own may be among them.
	Join []string
	// BootstrapExpect is the number of nodes of a birth; 0 never founds. 1 without Join founds at once.
	BootstrapExpect int
	Rack            string
	Version         string

	// HeartbeatTimeout and ElectionTimeout default to 1 s, LeaderLease to half the heartbeat timeout.
	HeartbeatTimeout, ElectionTimeout, LeaderLease time.Duration
	// HealAfter is how long the owner of a name must be unreachable before a pending claimant takes its place.
	// Default 10 min. A Raft voter's vote goes to a node that has none after this time or 10 s, whichever is less, and at
	// once if a repair replaces the node. It is counted by the Raft leader and starts anew with each leader.
	HealAfter time.Duration
	// ReconcileEvery is the pause between looks at the Raft configuration; default 2 s.
	ReconcileEvery time.Duration
	// GossipProbe is the pause between probes of gossip; default 1 s.
	GossipProbe time.Duration
	// RestoredWait bounds how long a node with Raft state asks its peers, before it starts Raft, whether its disk is
	// an old copy; default 3 s.
	RestoredWait time.Duration

	// SnapshotBytes is how many bytes of entries make a snapshot due, beside their count; default 16 MiB.
	SnapshotBytes uint64
	// TrailingBytes bounds the entries kept behind a snapshot, beside their count; default 16 MiB.
	TrailingBytes uint64
	// TrailingLogs is how many entries stay behind a snapshot; default 10240. SnapshotThreshold, default 8192.
	TrailingLogs, SnapshotThreshold uint64

	Machine *fsm.Machine
	Peers   Peers
	// RaftListener gives Raft connections of peers that the transport has checked; its Addr is not used.
	RaftListener net.Listener
	// DialRaft opens a Raft connection.
	DialRaft func(ctx context.Context, to transport.Target) (net.Conn, error)
	Log      hclog.Logger

	gossipKey []byte
}

const (
	defaultHeartbeat     = time.Second
	defaultHealAfter     = 10 * time.Minute
	defaultReconcile     = 2 * time.Second
	defaultRestoredWait  = 3 * time.Second
	defaultSnapshotBytes = 16 << 20
	defaultTrailingLogs  = 10240
	defaultThreshold     = 8192
	minTrailingLogs      = 256
	defaultPeerPort      = "9640"
)

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// complete fills in defaults and compares the fields with each other.
func (c *Config) complete() error {
	setDefault(&c.HeartbeatTimeout, defaultHeartbeat)
	setDefault(&c.ElectionTimeout, c.HeartbeatTimeout)
	setDefault(&c.LeaderLease, c.HeartbeatTimeout/2)
	setDefault(&c.HealAfter, defaultHealAfter)
	setDefault(&c.ReconcileEvery, defaultReconcile)
	setDefault(&c.RestoredWait, defaultRestoredWait)
	setDefault(&c.SnapshotBytes, uint64(defaultSnapshotBytes))
	setDefault(&c.TrailingBytes, uint64(defaultSnapshotBytes))
	setDefault(&c.TrailingLogs, uint64(defaultTrailingLogs))
	setDefault(&c.SnapshotThreshold, uint64(defaultThreshold))
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	switch {
	case c.Who == nil || c.Machine == nil || c.Peers == nil || c.RaftListener == nil || c.DialRaft == nil:
		return errors.New("meta: Who, Machine, Peers, RaftListener and DialRaft must be set")
	case c.RaftDir == "" || c.StateDir == "":
		return errors.New("meta: RaftDir and StateDir must be set")
	case c.BootstrapExpect < 0 || c.BootstrapExpect > maxMembers:
		return fmt.Errorf("bootstrap-expect %d: want 0 to %d", c.BootstrapExpect, maxMembers)
	case c.BootstrapExpect > 1 && len(c.Join) == 0:
		return fmt.Errorf("bootstrap-expect %d without join: name the peer addresses of the founders", c.BootstrapExpect)
	}
	if _, _, err := splitHostPort(c.Addresses.Peer); err != nil {
		return fmt.Errorf("peer address: %w", err)
	}
	if err := c.completeJoin(); err != nil {
		return err
	}
	return c.completeKey()
}

func (c *Config) completeJoin() error {
	seen := map[string]bool{}
	var join []string
	for _, a := range c.Join {
		if a = strings.TrimSpace(a); a == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(strings.Trim(a, "[]"), defaultPeerPort)
		}
		if _, _, err := splitHostPort(a); err != nil {
			return fmt.Errorf("join: %w", err)
		}
		if !seen[a] {
			join, seen[a] = append(join, a), true
		}
	}
	if len(join) > maxMembers {
		return fmt.Errorf("join: %d addresses, at most %d", len(join), maxMembers)
	}
	c.Join = join
	return nil
}

func (c *Config) completeKey() error {
	if c.GossipKey == "" {
		return nil
	}
	key, err := base64.StdEncoding.DecodeString(c.GossipKey)
	if err != nil {
		return fmt.Errorf("gossip key: want base64: %w", err)
	}
	switch len(key) {
	case 16, 24, 32:
		c.gossipKey = key
		return nil
	}
	return fmt.Errorf("gossip key: %d bytes, want 16, 24 or 32 in base64", len(key))
}
