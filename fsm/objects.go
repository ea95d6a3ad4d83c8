package fsm

import "github.com/vtop-log/vtop"

// Everything in this file is immutable once a State that holds it was published: slices and maps included.

// Level is a feature level: the set of commands and fields that every node of the cluster understands.
type Level uint32

const (
	// LevelFirst is the level of the first release.
	LevelFirst Level = 1
	// LevelMax is the highest level that this build understands.
	LevelMax = LevelFirst
)

// NoOffset stands for an offset that is not known.
const NoOffset vtop.Offset = -1

// Cluster is what the cluster knows of itself. The zero value is a cluster that was not born yet.
type Cluster struct {
	ID    vtop.ClusterID
	Level Level
	// Generation counts recoveries from a lost quorum, from 1; it stands in every handshake.
	Generation uint64
	// CreatedAt is shown only: Unix milliseconds by the proposer's clock.
	CreatedAt int64
	// Heal says whether the cluster heals itself.
	Heal Heal
}

// Heal is the operator's word on self-healing. Jobs that exist go on while it is paused; no new ones of OriginHeal are made.
type Heal struct {
	Paused bool
	// Why is shown to people.
	Why string
	// Index is the Raft index of the last change, 0 before the first; At is shown only: Unix milliseconds.
	Index uint64
	At    int64
}

// NodeState is what the operator wants of a node. Whether it is alive is not metadata.
type NodeState uint8

const (
	// NodeActive takes replicas and leases.
	NodeActive NodeState = iota + 1
	// NodeDraining is asked to hand over its leases, then its replicas. It takes no new ones. Restarts do not end it.
	NodeDraining
	// NodeGone was removed. It keeps its broker id and takes no replica and no lease.
	NodeGone
)

// String gives the word that operators see.
func (s NodeState) String() string {
	switch s {
	case NodeActive:
		return "active"
	case NodeDraining:
		return "draining"
	case NodeGone:
		return "gone"
	}
	return "unknown"
}

// Addresses are host:port of each face of a node as others reach it; empty means that it has none.
type Addresses struct {
	Kafka, Peer, Gossip, Admin string
}

// Identity is what one start of one data directory says of itself.
type Identity struct {
	// Storage is made once with the data directory, RaftID once with raft.db.
	Storage vtop.StorageID
	RaftID  string
	// Incarnation counts the starts of the data directory; BootNonce is random per start. On a genuine disk no
	// two starts share an incarnation, so an equal incarnation under another nonce proves a copy.
	Incarnation vtop.Incarnation
	BootNonce   vtop.UUID
	Addresses   Addresses
	Rack        string
	// MaxLevel is the highest feature level that the build understands.
	MaxLevel Level
	// Version is the build's version, shown only.
	Version string
}

// Node is one registered node.
type Node struct {
	Name   vtop.NodeName
	Broker vtop.BrokerID
	Identity
	State NodeState
	// Pending are other data directories that claimed the name while its owner was not alive, oldest first.
	// At most MaxClaims.
	Pending []Claim
	// RegisteredAt is shown only: Unix milliseconds.
	RegisteredAt int64
}

// Claim is another data directory that asks for a known name.
type Claim struct {
	Identity
	// ClaimedAt is shown only: Unix milliseconds.
	ClaimedAt int64
}

// Topic is one life of a topic name.
type Topic struct {
	ID   vtop.TopicID
	Name string
	// Config holds what was set explicitly; defaults are the reader's.
	Config map[string]string
	// ConfigVersion rises with each change of Config, from 1.
	ConfigVersion uint64
	// Ranges is the number of ranges, 1 or more.
	Ranges int32
	// CreatedAt is shown only: Unix milliseconds.
	CreatedAt int64
}

// Role says whether a replica counts for the quorum.
type Role uint8

const (
	// Voter counts for the quorum.
	Voter Role = iota + 1
	// Learner is being repaired and counts for nothing.
	Learner
)

// String gives the word that operators see.
func (r Role) String() string {
	switch r {
	case Voter:
		return "voter"
	case Learner:
		return "learner"
	}
	return "unknown"
}

// Replica is one replica of a range. A node can have two of one range: a lost voter and the learner that will
// take its place; so replicas are told apart by id, never by node.
type Replica struct {
	vtop.Replica
	Role Role
	// Lost says why this replica may have forgotten what it held (I10); empty means that it is not lost. A lost
	// voter still counts in the size of the quorum, but it holds no lease and its acknowledgements count for nothing.
	Lost string
}

// CanVote reports whether the replica may answer fences, acknowledge and lead.
func (r Replica) CanVote() bool { return r.Role == Voter && r.Lost == "" }

// LeaseEvent says what happened to a lease.
type LeaseEvent uint8

const (
	// LeaseGranted: a new epoch was minted.
	LeaseGranted LeaseEvent = iota + 1
	// LeaseStarted: the holder began to serve.
	LeaseStarted
	// LeaseReleased: the holder gave it back.
	LeaseReleased
	// LeaseRevoked: it ended because the holder's replica was marked lost.
	LeaseRevoked
)

// String gives the word that operators see.
func (e LeaseEvent) String() string {
	switch e {
	case LeaseGranted:
		return "granted"
	case LeaseStarted:
		return "started"
	case LeaseReleased:
		return "released"
	case LeaseRevoked:
		return "revoked"
	}
	return "unknown"
}

// LeaseChange is one line of a range's history; the last MaxLeaseChanges are kept, oldest first.
type LeaseChange struct {
	Event       LeaseEvent
	Epoch       vtop.Epoch
	Holder      vtop.NodeName
	Incarnation vtop.Incarnation
	Reason      string
	// Index is the Raft index of the change; At is shown only: Unix milliseconds.
	Index uint64
	At    int64
}

// Loss is one replica that was marked lost; the last MaxLosses are kept, oldest first.
type Loss struct {
	Replica vtop.Replica
	Reason  string
	Index   uint64
	At      int64
}

// LostOffsets is one recovery from a lost majority (RecoverRange): records of [From, To) that existed, or are not known
// not to have existed, and that the range does not have any more. The last MaxLostOffsets are kept, oldest first.
type LostOffsets struct {
	// From is the log end of the replica that was kept; To ≥ From, and at least the floor of then. From = To: nothing
	// is known to be lost.
	From, To vtop.Offset
	// Epoch is the last epoch under which a lost record can have been written.
	Epoch vtop.Epoch
	// Kept is the replica that was kept.
	Kept vtop.Replica
	// Floor is what was promised until then: [From, Floor) was acknowledged.
	Floor  vtop.Offset
	Reason string
	// Index is the Raft index of the recovery; At is shown only: Unix milliseconds.
	Index uint64
	At    int64
}

// Range is everything the metadata knows of one range.
type Range struct {
	ID vtop.Range
	// Replicas stand in order of their ids.
	Replicas []Replica
	// Preferred are the nodes in the order in which the lease prefers them.
	Preferred []vtop.NodeName
	// ConfigVersion rises with each change of the replicas, their roles or their loss, from 1.
	ConfigVersion uint64

	// Lease is the present lease; zero if there is none.
	Lease vtop.Lease
	// Started says that the lease's epoch serves: its StartEpoch was applied.
	Started bool
	// GrantIndex is the Raft index of the grant of the present lease; a fence names it. 0 without a lease.
	GrantIndex uint64
	// GrantedAt (Unix milliseconds) and GrantReason are shown only.
	GrantedAt   int64
	GrantReason string
	// LastEpoch is the last epoch ever minted here; for a range never granted, the number above which it starts.
	LastEpoch vtop.Epoch

	// Epochs is the epoch table. It never holds an entry that the log start has made needless.
	Epochs vtop.EpochTable
	// Floor: everything below is promised for ever (I1). It never goes back, but by RecoverRange.
	Floor vtop.Offset
	// LogStart ≤ Floor. It never goes back.
	LogStart vtop.Offset
	// SettleMark is what QuorumPosition must reach before the voters change again: the leader's log end when it
	// proposed the last change, or the start of the present epoch.
	SettleMark vtop.Offset
	// QuorumPosition is what a report under the present epoch and configuration said that a majority of the
	// present voters has durable; NoOffset until there was one.
	QuorumPosition vtop.Offset
	// LogEnd is the leader's log end as last reported; shown only.
	LogEnd vtop.Offset
	// CatalogueEnd is the end of the last segment ever catalogued; 0 if none was. It goes back only by RecoverRange.
	CatalogueEnd vtop.Offset

	Changes []LeaseChange
	Losses  []Loss
	// LostOffsets are the recoveries from a lost majority.
	LostOffsets []LostOffsets
}

// Voters returns the voting replicas, lost ones included, in order of their ids.
func (r *Range) Voters() []Replica { return r.withRole(Voter) }

// AbleVoters counts the voters that can vote.
func (r *Range) AbleVoters() (able int) {
	for _, rep := range r.Replicas {
		if rep.CanVote() {
			able++
		}
	}
	return able
}

// Learners returns the learners in order of their ids.
func (r *Range) Learners() []Replica { return r.withRole(Learner) }

func (r *Range) withRole(role Role) []Replica {
	out := make([]Replica, 0, len(r.Replicas))
	for _, rep := range r.Replicas {
		if rep.Role == role {
			out = append(out, rep)
		}
	}
	return out
}

// Replica finds a replica by its id.
func (r *Range) Replica(id vtop.ReplicaID) (Replica, bool) {
	for _, rep := range r.Replicas {
		if rep.ID == id {
			return rep, true
		}
	}
	return Replica{}, false
}

// VoterOn returns the voter of the node that can vote; a node has at most one.
func (r *Range) VoterOn(node vtop.NodeName) (Replica, bool) {
	for _, rep := range r.Replicas {
		if rep.Node == node && rep.CanVote() {
			return rep, true
		}
	}
	return Replica{}, false
}

// On returns the replica that the node is to keep: the one that is not lost; a node has at most one.
func (r *Range) On(node vtop.NodeName) (Replica, bool) {
	for _, rep := range r.Replicas {
		if rep.Node == node && rep.Lost == "" {
			return rep, true
		}
	}
	return Replica{}, false
}

// Settled reports whether the voters may change: a report under the present epoch and configuration said that
// a majority of the voters has everything below the settle mark durable.
func (r *Range) Settled() bool {
	return r.QuorumPosition != NoOffset && r.QuorumPosition >= r.SettleMark
}

// EverStarted reports whether an epoch ever began to serve here. An empty directory is right for a replica only
// of a range for which this is false, or under a new replica id.
func (r *Range) EverStarted() bool { return len(r.Epochs) > 0 }

func (r *Range) clone() *Range {
	c := *r
	return &c
}

// Segment is one entry of the catalogue of sealed segments: immutable, the same bytes on every replica (I9).
type Segment struct {
	Range vtop.Range
	// Base and End are its first offset and the one after its last.
	Base, End vtop.Offset
	// Bytes is the length of its file.
	Bytes int64
	// Root is the BLAKE3 root of its manifest.
	Root [32]byte
	// Epoch is the one under which it was registered.
	Epoch vtop.Epoch
	// SealedAt is shown, and measured by retention; Unix milliseconds.
	SealedAt int64
}

// Tombstone is what is left of a deleted topic: proof that its directories may be deleted.
type Tombstone struct {
	Topic vtop.TopicID
	Name  string
	// Index is the Raft index of the deletion; DeletedAt is shown only: Unix milliseconds.
	Index     uint64
	DeletedAt int64
}

// Limits (I13). Beyond them a command is refused with CodeLimit; histories drop their oldest line.
const (
	MaxNodes          = 1000
	MaxClaims         = 4
	MaxTopics         = 50_000
	MaxRanges         = 200_000
	MaxRangesPerTopic = 10_000
	MaxReplicas       = 16
	MaxConfigKeys     = 128
	MaxLeaseChanges   = 16
	MaxLosses         = 16
	MaxLostOffsets    = 64
	// MaxTombstones: beyond it the oldest is forgotten. The directories of a forgotten one are set aside, not deleted.
	MaxTombstones = 65_536
	// MaxEpochs bounds the epoch table of one range: leaders that wrote something of which something is left.
	MaxEpochs = 500_000
	// MaxActiveRepairs bounds the repair jobs that have not ended: beyond it submissions are refused until some have.
	MaxActiveRepairs = 10_000
	// MaxEndedRepairs is how many jobs that have ended are kept; beyond it the one that ended first is forgotten.
	MaxEndedRepairs = 1000
	// MaxRepairAttempts is how often one job begins anew before it fails.
	MaxRepairAttempts = 100
	// MaxRepairSources bounds each list of sources of one job.
	MaxRepairSources = 16
	// MaxItems is the most items that one batched command carries.
	MaxItems = 20_000
	// MaxName, MaxText and MaxValue are the lengths in bytes of names and addresses, reasons, and configuration values.
	MaxName  = 255
	MaxText  = 1024
	MaxValue = 32 << 10
	// MaxProducerBlock is the largest block of producer ids.
	MaxProducerBlock = 1_000_000
)
