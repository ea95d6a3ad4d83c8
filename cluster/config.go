package cluster

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage/vfs"
	"github.com/vtop-log/vtop/transport/tlsid"
)

// Config is all that a node needs. Zero times take the defaults beside them.
type Config struct {
	Name    vtop.NodeName
	DataDir string
	Rack    string
	Version string

	// PeerBind and GossipBind are where the node listens; Advertise is what others are told.
	PeerBind, GossipBind string
	Advertise            fsm.Addresses

	Join            []string
	BootstrapExpect int

	// TLS is the node's identity on the peer plane; nil means plaintext.
	TLS       *tlsid.Identity
	GossipKey string

	// LeaseTime (10 s): a holder that no verified Raft leader has answered for this long stops serving. At least
	// three times the worst Raft election, at most the session of consumer groups (group.Limits.CheckLease).
	LeaseTime time.Duration
	// NodeTimeout (3 s): a node silent for this long loses its leases.
	NodeTimeout time.Duration
	// RaftHeartbeat (1 s) is Raft's heartbeat and election timeout.
	RaftHeartbeat time.Duration
	// HealAfter (10 min): a node gone for this long is given up.
	HealAfter time.Duration
	// DiskStallLimit (10 s): a disk that hangs for this long ends the process through OnDiskStall.
	DiskStallLimit time.Duration
	// DiskReserve in bytes; 0 leaves the choice to the store.
	DiskReserve uint64
	// TransferAllow names the nodes that may seal and read sealed segments here; empty means all nodes of the cluster.
	TransferAllow []vtop.NodeName
	// RepairRate in bytes a second limits each repair that the cluster starts by itself; 0 leaves it to a budget that yields
	// to clients.
	RepairRate int64
	// ScrubRate in bytes a second is how fast sealed segments are read again in the background; 0: never.
	ScrubRate int64
	// PinIdle (2 min) is how long a transfer may leave the segments that it was given unread before they are let go.
	PinIdle time.Duration
	// OnDiskStall ends the process.
	OnDiskStall func(stalled time.Duration)
	// OnFault ends the process at a committed command that this build cannot read or understand; the node panics without it.
	OnFault func(*fsm.Fault)

	// DefaultReplicas of a topic that asks for none; fewer where there are fewer nodes.
	DefaultReplicas int16
	DefaultRanges   int32

	// Groups are the limits of consumer groups; zero takes group.DefaultLimits.
	Groups group.Limits
	// OffsetRetention (7 days) is how long the committed offsets of a group without members are kept; less than 0: for ever.
	OffsetRetention time.Duration

	// FS is the file system of the data; nil takes the real one.
	FS  vfs.FS
	Log hclog.Logger
}

const (
	beatInterval      = 200 * time.Millisecond
	diskStallSuspect  = 2 * time.Second
	probeInterval     = time.Second
	logEndTimeout     = 200 * time.Millisecond
	promotionDeadline = 5 * time.Second
	balanceEvery      = 10 * time.Second
	homeAfter         = 30 * time.Second
)

func (c *Config) withDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.LeaseTime, 10*time.Second)
	def(&c.NodeTimeout, 3*time.Second)
	def(&c.RaftHeartbeat, time.Second)
	def(&c.HealAfter, 10*time.Minute)
	def(&c.DiskStallLimit, 10*time.Second)
	if c.DefaultReplicas == 0 {
		c.DefaultReplicas = 3
	}
	if c.DefaultRanges == 0 {
		c.DefaultRanges = 1
	}
	if c.Groups == (group.Limits{}) {
		c.Groups = group.DefaultLimits()
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
}
