// Package adminapi is the admin port's JSON: the types, a Handler that a node implements with NewServer in
// front of it, and the Client that vtopctl uses. Field names are part of vtop's interface and stay.
//
// Offsets and counts are -1 where the answering node could not learn them: unknown is never shown as 0 (I12).
package adminapi

import "time"

// Unknown stands for an offset, lag or count that was not learned.
const Unknown = -1

// Status is the state of the cluster as the answering node sees it.
type Status struct {
	// ClusterID is empty on a node that is in no cluster yet.
	ClusterID    string `json:"cluster_id"`
	Generation   uint64 `json:"generation"`
	FeatureLevel uint32 `json:"feature_level"`
	Version      string `json:"version"`
	// Node is who answers.
	Node string `json:"node"`
	// Ready: caught up with the metadata; if not, Reason says why.
	Ready        bool   `json:"ready"`
	Reason       string `json:"reason,omitempty"`
	RaftLeader   string `json:"raft_leader"`
	RaftTerm     uint64 `json:"raft_term"`
	AppliedIndex uint64 `json:"applied_index"`
	// Health is "ok", "degraded" (something is in Problems) or "unavailable" (some range takes no writes).
	Health   string    `json:"health"`
	Problems []Problem `json:"problems"`
	Counts   Counts    `json:"counts"`
	// Nodes are all nodes; PendingNodes claim a name that another storage holds.
	Nodes        []Node        `json:"nodes"`
	PendingNodes []PendingNode `json:"pending_nodes"`
	// LostReplicas may have forgotten what they held and vote no more (I10).
	LostReplicas []LostReplica `json:"lost_replicas"`
	// StalledDisks are nodes whose data disk does not finish writes.
	StalledDisks []StalledDisk `json:"stalled_disks"`
}

// Problem is one thing an operator should know.
type Problem struct {
	// Kind is a fixed word: node_down, node_unfit, node_pending, replica_lost, disk_stalled, disk_full, range_unavailable,
	// quarantined, certificate_expiring, replica_damaged, repair_stuck, heal_paused, …
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Counts are totals over the cluster.
type Counts struct {
	Nodes             int `json:"nodes"`
	NodesAlive        int `json:"nodes_alive"`
	Topics            int `json:"topics"`
	Ranges            int `json:"ranges"`
	RangesServing     int `json:"ranges_serving"`
	RangesPromoting   int `json:"ranges_promoting"`
	RangesUnavailable int `json:"ranges_unavailable"`
}

// Node is one line of the node list.
type Node struct {
	Name string `json:"name"`
	// ID is the broker id that Kafka clients see.
	ID int32 `json:"id"`
	// State is active, draining or gone.
	State       string `json:"state"`
	Alive       bool   `json:"alive"`
	Incarnation uint64 `json:"incarnation"`
	KafkaAddr   string `json:"kafka_addr"`
	PeerAddr    string `json:"peer_addr"`
	GossipAddr  string `json:"gossip_addr"`
	AdminAddr   string `json:"admin_addr"`
	// RaftRole is leader, voter, nonvoter or none.
	RaftRole string `json:"raft_role"`
	Leases   int    `json:"leases"`
	Replicas int    `json:"replicas"`
	// CoordinatorSlots of consumer groups are held by it, of 64 in the cluster.
	CoordinatorSlots int    `json:"coordinator_slots"`
	Rack             string `json:"rack,omitempty"`
	StorageID        string `json:"storage_id"`
	Version          string `json:"version,omitempty"`
	// LastSeenMS is how long ago the answering node, or the Raft leader, heard from it; -1 if never.
	LastSeenMS int64 `json:"last_seen_ms"`
	// DiskState is ok, stalled, full, failed or unknown.
	DiskState string `json:"disk_state"`
	FreeBytes int64  `json:"free_bytes"`
	// AllowsDrills: it was started with --allow-drills, and answered so; ReturnsBy says who starts it again when it ends.
	AllowsDrills bool   `json:"allows_drills"`
	ReturnsBy    string `json:"returns_by,omitempty"`
}

// PendingNode claims a name that the metadata binds to another storage.
type PendingNode struct {
	Name            string `json:"name"`
	StorageID       string `json:"storage_id"`
	HolderStorageID string `json:"holder_storage_id"`
	PeerAddr        string `json:"peer_addr"`
	Reason          string `json:"reason"`
	Hint            string `json:"hint"`
}

// LostReplica is a replica that does not vote.
type LostReplica struct {
	Topic     string `json:"topic"`
	Range     int32  `json:"range"`
	Node      string `json:"node"`
	ReplicaID uint64 `json:"replica_id"`
	Reason    string `json:"reason"`
}

// StalledDisk is a data disk that does not finish writes.
type StalledDisk struct {
	Node      string `json:"node"`
	StalledMS int64  `json:"stalled_ms"`
	Reason    string `json:"reason"`
}

// Topic is one topic.
type Topic struct {
	Name     string            `json:"name"`
	ID       string            `json:"id"`
	Ranges   int               `json:"ranges"`
	Replicas int               `json:"replicas"`
	Config   map[string]string `json:"config"`
}

// TopicDetail is a topic with its ranges.
type TopicDetail struct {
	Topic
	Leases []Lease `json:"leases"`
}

// CreateTopic is the body of POST /v1/topics. Ranges and Replicas 0 mean the cluster's defaults.
type CreateTopic struct {
	Name     string            `json:"name"`
	Ranges   int               `json:"ranges"`
	Replicas int               `json:"replicas"`
	Config   map[string]string `json:"config,omitempty"`
}

// Lease is one line of the lease list: one range.
type Lease struct {
	Topic string `json:"topic"`
	Range int32  `json:"range"`
	// Holder is empty while nobody holds the lease.
	Holder string `json:"holder"`
	Epoch  int32  `json:"epoch"`
	// State is serving, promoting, unavailable or none.
	State         string `json:"state"`
	Reason        string `json:"reason,omitempty"`
	Floor         int64  `json:"floor"`
	HighWatermark int64  `json:"high_watermark"`
	LogEnd        int64  `json:"log_end"`
	LogStart      int64  `json:"log_start"`
	// Replicas are voters first, in preferred order, then learners.
	Replicas []Replica `json:"replicas"`
}

// Replica is one node's copy of a range.
type Replica struct {
	Node string `json:"node"`
	// Role is voter or learner.
	Role string `json:"role"`
	// State is leading, following, catching-up, receiving (a repair is bringing its segments), damaged (a sealed
	// segment is a hole), lost, offline or unknown.
	State      string `json:"state"`
	LogEnd     int64  `json:"log_end"`
	Lag        int64  `json:"lag"`
	ReplicaID  uint64 `json:"replica_id"`
	DurableEnd int64  `json:"durable_end"`
	Reason     string `json:"reason,omitempty"`
}

// LeaseDetail is what `vtopctl lease show` prints.
type LeaseDetail struct {
	Lease
	TopicID     string `json:"topic_id"`
	Incarnation uint64 `json:"incarnation"`
	// Since is when the lease was granted, by the granting node's clock; Why says for what reason.
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	// TimeLeftMS is by the holder's own clock; -1 if the holder could not be asked.
	TimeLeftMS    int64         `json:"time_left_ms"`
	ConfigVersion uint64        `json:"config_version"`
	Epochs        []EpochStart  `json:"epochs"`
	Changes       []LeaseChange `json:"changes"`
	// Losses are the recoveries from a lost majority, oldest first.
	Losses []Loss `json:"losses,omitempty"`
}

// Loss is one recovery of a range from one replica: the offsets from From up to, not with, To are gone.
type Loss struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Floor is what was promised until then.
	Floor int64 `json:"floor"`
	// Epoch is the last under which a lost record can have been written.
	Epoch int32 `json:"epoch"`
	// Kept is the node whose replica was kept.
	Kept   string    `json:"kept"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// EpochStart is one entry of the epoch table.
type EpochStart struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// LeaseChange is one of the last changes of a lease, newest first.
type LeaseChange struct {
	Epoch  int32     `json:"epoch"`
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
	Why    string    `json:"why"`
	// Start is the offset at which the epoch began to serve; -1 if it never did.
	Start int64 `json:"start"`
}

// Transfer is the body of POST /v1/leases/{topic}/{n}/transfer.
type Transfer struct {
	To string `json:"to"`
}

// Segment is one line of the segment list of one replica.
type Segment struct {
	Node      string `json:"node"`
	Base      int64  `json:"base"`
	End       int64  `json:"end"`
	SizeBytes int64  `json:"size_bytes"`
	// State is tail, closed, sealed or damaged.
	State string `json:"state"`
	// Root is the BLAKE3 root in hexadecimal; empty before sealing.
	Root string `json:"root,omitempty"`
	// Catalogued: the metadata names it.
	Catalogued bool      `json:"catalogued"`
	SealEpoch  int32     `json:"seal_epoch,omitempty"`
	SealedAt   time.Time `json:"sealed_at,omitzero"`
	File       string    `json:"file,omitempty"`
	Reason     string    `json:"reason,omitempty"`
}
