package kafka

import (
	"context"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/cluster/group"
	"github.com/vtop-log/vtop/fsm"
)

// Node is what the client face needs of the node it stands on. cluster implements it; the tests have one in
// memory. All methods are safe for concurrent use. Errors are vtop's sentinels, wrapped; errors.go turns them
// into Kafka's codes, so which sentinel a method returns is part of its contract.
type Node interface {
	// State is the newest applied metadata: immutable, never nil, read without locks.
	State() *fsm.State
	// Self is this node's name.
	Self() vtop.NodeName
	// Ready is nil once this node has caught up with the metadata; until then vtop.ErrNotReady.
	Ready() error
	// Alive says whether this node believes that name runs. It decides what Metadata shows, nothing else.
	Alive(name vtop.NodeName) bool
	// Controller names the Raft leader; false if none is known.
	Controller() (vtop.NodeName, bool)
	// Groups coordinates consumer groups; vtop.ErrNotReady until the node has joined its cluster.
	Groups() (*group.Coordinator, error)

	Data
	Admin
	Operations
}

// Data are the verbs of the hot path.
type Data interface {
	// Append admits one checked batch to a range that this node leads. It never waits for a disk or a peer.
	// b is copied before Append returns, so its bytes may be reused. done is called exactly once, perhaps
	// before Append returns, never while a lock of the caller could be held, and must not block:
	//   acks  0: with the admission (durability unknown);
	//   acks  1: when fsynced here;
	//   acks -1: when fsynced on a majority of the voters under the epoch of the admission (I1).
	// clientEpoch is the leader epoch that the client named, or -1. ctx bounds only what happens before admission.
	// Errors: ErrNotLeader, ErrNotReady (promotion), ErrEpochFenced, ErrEpochUnknown, ErrUnknownRange,
	// ErrOutOfOrderSequence, ErrStaleProducerEpoch, ErrOverloaded, ErrNoSpace, ErrStorage, ErrTimeout (unknown outcome).
	// Batches of one caller goroutine are admitted in the order of the calls.
	Append(ctx context.Context, r vtop.Range, clientEpoch vtop.Epoch, b batch.Batch, acks int16, done func(vtop.AppendResult))

	// Fetch reads whole batches below the high watermark and appends them verbatim to dst; at most
	// spec.MaxBytes of them, but at least one if there is one and spec.AtLeastOne. Nothing to read yet is no error.
	// Where dst has room the bytes are read straight into it.
	// Errors: ErrNotLeader, ErrNotReady, ErrEpochFenced, ErrEpochUnknown, ErrUnknownRange, ErrOffsetOutOfRange
	// (with HighWatermark and LogStart filled in), ErrDamaged, ErrStorage.
	Fetch(r vtop.Range, spec vtop.FetchSpec, dst []byte) (vtop.FetchResult, error)

	// Watch sends on wake, never blocking, whenever the visible end, the log start or the lease of one of the
	// ranges changes, until stop is called. The ranges need not have a replica here. wake must have room for one. A change between a Fetch and the Watch
	// after it is not reported: watch first, then look again.
	Watch(ranges []vtop.Range, wake chan<- struct{}) (stop func())

	// WaitLeading waits while this node holds the lease of r but is still in promotion. nil: it leads.
	// ErrNotLeader at once if the lease is elsewhere; ErrNotReady if ctx ended first.
	WaitLeading(ctx context.Context, r vtop.Range) error

	// EndOffset is the high watermark and the epoch of the leader that tells it; ErrOffsetNotAvailable until a new
	// leader's watermark has reached its epoch's start (I7). Leader checks as in Fetch.
	EndOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error)
	// StartOffset is the log start and the epoch that owns it. Leader checks as in Fetch.
	StartOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error)
	// OffsetForTime finds the first record below the high watermark whose timestamp, in milliseconds since 1970, is
	// at least ts; found is false if there is none. vtop.MaxTimestamp asks for the record with the greatest one.
	OffsetForTime(r vtop.Range, clientEpoch vtop.Epoch, ts int64) (at vtop.TimeOffset, found bool, err error)
	// EpochEnd answers OffsetForLeaderEpoch: the largest epoch at or below epoch that has a span, and where it
	// ends (the next epoch's start, or the log end of the leader for its own). Epoch -1 and End -1 if there is none.
	EpochEnd(r vtop.Range, clientEpoch, epoch vtop.Epoch) (vtop.EpochOffset, error)
}

// Admin are the verbs that change metadata. Each returns after the change was applied on this node, or with an
// fsm refusal, or with ErrTimeout (unknown outcome), ErrNotReady, ErrOverloaded.
type Admin interface {
	// CreateTopic places the replicas and creates the topic with all its ranges in one entry.
	CreateTopic(ctx context.Context, spec TopicSpec) (vtop.TopicID, error)
	// DeleteTopic deletes one life of a topic.
	DeleteTopic(ctx context.Context, id vtop.TopicID) error
	// CreateRanges raises the number of ranges of a topic from `from` to `to`; refused if it has not `from` now.
	CreateRanges(ctx context.Context, id vtop.TopicID, from, to int32) error
	// AlterTopicConfig sets and unsets keys in one step; values were validated by topicconfig.
	AlterTopicConfig(ctx context.Context, id vtop.TopicID, set map[string]string, unset []string) error
	// DeleteRecords moves the log start to before (the high watermark if -1) and returns it, once applied.
	// Errors as Fetch; ErrOffsetOutOfRange above the high watermark.
	DeleteRecords(ctx context.Context, r vtop.Range, before vtop.Offset) (vtop.Offset, error)
	// ProducerID gives out an id that no producer of this cluster ever had.
	ProducerID(ctx context.Context) (int64, error)
}

// TopicSpec is a topic to be created. Everything in it has been validated, save that the name is free.
type TopicSpec struct {
	Name     string
	Ranges   int32
	Replicas int16
	// Config holds only what was given explicitly.
	Config map[string]string
}
