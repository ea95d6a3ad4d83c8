package kafka

import (
	"context"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Operations are what tools ask of a node beyond topics and records: who leads, where replicas are and go, who may move
// how much. Each change returns after it was applied on this node, or with an fsm refusal, or with ErrTimeout (unknown
// outcome), ErrNotReady, ErrOverloaded.
type Operations interface {
	// TransferLease moves the lease of a range to a voter and returns the new epoch; the new holder starts by itself. A
	// *controller.TransferError, or its text from another node, says why it can't.
	TransferLease(ctx context.Context, r vtop.Range, to vtop.NodeName) (vtop.Epoch, error)
	// SubmitRepairs puts repair jobs into the metadata; one item for each request, with its job or its refusal.
	SubmitRepairs(ctx context.Context, requests []fsm.RepairRequest) ([]fsm.Item, error)
	// CancelRepairs ends jobs; each item says whether it did.
	CancelRepairs(ctx context.Context, ids []fsm.RepairID, reason string) ([]fsm.Item, error)
	// SetPreferred names the nodes wanted for ranges, each of which has a replica there or has one on its way; one item for
	// each wish.
	SetPreferred(ctx context.Context, wishes []fsm.Preference) ([]fsm.Item, error)

	// Quorum describes the Raft group as this node sees it.
	Quorum() Quorum
	// LogDir describes this node's data directory and the replicas in it.
	LogDir() LogDir
	// Producers lists the idempotent producers of a range that this node leads, at most limit of them, the last to write
	// first. Leader checks as in Fetch.
	Producers(r vtop.Range, limit int) ([]Producer, error)

	// ClientQuota is what the metadata says of a client id, in bytes a second; 0 where it says nothing. It is asked for every
	// Produce and Fetch and must not block.
	ClientQuota(client string) (produce, fetch int64)
	// AlterClientQuotas changes quotas; one item for each change.
	AlterClientQuotas(ctx context.Context, changes []fsm.QuotaChange) ([]fsm.Item, error)
}

// Quorum is the Raft group of the metadata.
type Quorum struct {
	// Leader is empty if none is known.
	Leader vtop.NodeName
	Term   uint64
	// Commit is the last index that this node has applied.
	Commit uint64
	// Members are all nodes of the cluster, voters first, each by name.
	Members []QuorumMember
}

// QuorumMember is one node's place in the metadata.
type QuorumMember struct {
	Name  vtop.NodeName
	Voter bool
	// Applied is the index that it said it had applied; Known is false if this node has not heard of it.
	Applied uint64
	Known   bool
	// Silent is the time since it was last heard of; 0 for this node itself.
	Silent time.Duration
}

// LogDir is a node's data directory.
type LogDir struct {
	Path string
	// Total and Free are the bytes of its file system; -1 where that can't be learned.
	Total, Free int64
	// Err says that the disk does not answer or fails; nil if it is well.
	Err      error
	Replicas []LogDirReplica
}

// LogDirReplica is one replica on a node's disk that the metadata counts on.
type LogDirReplica struct {
	Range vtop.Range
	// Bytes of its records in all segments.
	Bytes int64
	// Lag is how many records of what is committed it lacks, as far as this node knows.
	Lag int64
	// Learner: it is being brought up and does not count yet.
	Learner bool
}

// Producer is one idempotent producer of a range.
type Producer struct {
	ID           int64
	Epoch        int16
	LastSequence int32
	// Timestamp of its last batch, in milliseconds since 1970; -1 if not known.
	Timestamp int64
}
