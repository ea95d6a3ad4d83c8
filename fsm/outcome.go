package fsm

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// Code says why a command, or one item of a batch, was refused. Numbers are only ever appended.
type Code uint32

const (
	// CodeInvalid: the command is malformed; a bug of the proposer. Final.
	CodeInvalid Code = 1
	// CodeLevel: the command needs a higher feature level than the cluster has. Final until the level is raised.
	CodeLevel Code = 2
	// CodeNotBootstrapped: the cluster was not born yet. Retry.
	CodeNotBootstrapped Code = 3
	// CodeOtherCluster: the cluster has another id. Final.
	CodeOtherCluster Code = 4
	// CodeUnknownNode: no node of that name is registered.
	CodeUnknownNode Code = 5
	// CodeUnknownRange: no such topic or range, or it was deleted.
	CodeUnknownRange Code = 6
	// CodeTopicExists: the name is taken by another topic. Final.
	CodeTopicExists Code = 7
	// CodeStaleEpoch: the epoch named is not the applied one. Final for that epoch.
	CodeStaleEpoch Code = 8
	// CodeStaleIncarnation: the incarnation or storage named is not the registered one. Final for that process.
	CodeStaleIncarnation Code = 9
	// CodeStaleConfig: the configuration version named is not the applied one. Look again, then retry.
	CodeStaleConfig Code = 10
	// CodeNotVoter: the node has no voting replica of the range.
	CodeNotVoter Code = 11
	// CodeReplicaLost: the replica may have forgotten (I10).
	CodeReplicaLost Code = 12
	// CodeNotStarted: the lease's epoch does not serve yet. Retry.
	CodeNotStarted Code = 13
	// CodeBelowFloor: it would go back below what is promised (I8).
	CodeBelowFloor Code = 14
	// CodeAboveFloor: it would drop what is not promised yet. Retry when the floor has moved.
	CodeAboveFloor Code = 15
	// CodeGap: the segment does not follow the last catalogued one.
	CodeGap Code = 16
	// CodeNotSettled: the last change of the voters has not settled yet. Retry after a floor report.
	CodeNotSettled Code = 17
	// CodeRemovesLeader: a leader may not remove itself. Move the lease first.
	CodeRemovesLeader Code = 18
	// CodeLostFirst: a lost voter must be removed before a learner is promoted.
	CodeLostFirst Code = 19
	// CodeNoMajority: the voters left that can vote would be no majority.
	CodeNoMajority Code = 20
	// CodeNameTaken: the name is held by another, living process. Final.
	CodeNameTaken Code = 21
	// CodePending: the name belongs to another data directory; the claim was noted and waits to be admitted.
	CodePending Code = 22
	// CodeRestoredCopy: the data directory is a copy of one that has gone on; its replicas were marked lost.
	CodeRestoredCopy Code = 23
	// CodeLimit: a documented limit is reached. Final.
	CodeLimit Code = 24
	// CodeConflict: something else changed first, or the object is not in the state the command wants.
	CodeConflict Code = 25
	// CodeNodeGone: the node was removed from the cluster.
	CodeNodeGone Code = 26
	// CodeUnknownReplica: the range has no replica of that id. Final for that id.
	CodeUnknownReplica Code = 27
	// CodeWhole: the replica is whole: there is nothing to repair. A no-op, not a failure.
	CodeWhole Code = 28
	// CodeNoSource: no other replica of the range can vote: there is nothing to repair from.
	CodeNoSource Code = 29
	// CodeUnknownRepair: no repair job of that id, or it was forgotten. Final for that id.
	CodeUnknownRepair Code = 30
	// CodeRepairEnded: the repair job has ended already. Final for that job.
	CodeRepairEnded Code = 31
	// CodeStaleStep: the repair job has moved to another step, or began anew. Look again.
	CodeStaleStep Code = 32
	// CodeInUse: the node still has what only it can give away: voters or leases. Move them first.
	CodeInUse Code = 33
	// CodeUnknownGroup: no such consumer group, and nothing that would make it.
	CodeUnknownGroup Code = 34
	// CodeOvertaken: a later command of the same coordinator was applied before. Propose it anew, under a new sequence.
	CodeOvertaken Code = 35
)

var codeNames = [...]string{
	CodeInvalid: "invalid", CodeLevel: "feature level", CodeNotBootstrapped: "not bootstrapped",
	CodeOtherCluster: "other cluster", CodeUnknownNode: "unknown node", CodeUnknownRange: "unknown range",
	CodeTopicExists: "topic exists", CodeStaleEpoch: "stale epoch", CodeStaleIncarnation: "stale incarnation",
	CodeStaleConfig: "stale configuration", CodeNotVoter: "not a voter", CodeReplicaLost: "replica lost",
	CodeNotStarted: "not started", CodeBelowFloor: "below the floor", CodeAboveFloor: "above the floor",
	CodeGap: "gap", CodeNotSettled: "not settled", CodeRemovesLeader: "removes the leader",
	CodeLostFirst: "lost voter first", CodeNoMajority: "no majority", CodeNameTaken: "name taken",
	CodePending: "pending", CodeRestoredCopy: "restored copy", CodeLimit: "limit", CodeConflict: "conflict",
	CodeNodeGone: "node gone", CodeUnknownReplica: "unknown replica",
	CodeWhole: "whole", CodeNoSource: "no source", CodeUnknownRepair: "unknown repair",
	CodeRepairEnded: "repair ended", CodeStaleStep: "stale step", CodeInUse: "in use",
	CodeUnknownGroup: "unknown group", CodeOvertaken: "overtaken",
}

// String names the code.
func (c Code) String() string {
	if c == 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code %d", uint32(c))
	}
	return codeNames[c]
}

// Refusal is the typed reason why a command had no effect. It is an error, travels between nodes, and matches the
// sentinels of package vtop where one fits:
//
//	CodeUnknownRange → vtop.ErrUnknownRange    CodeStaleEpoch, CodeStaleIncarnation → vtop.ErrFenced
//	CodeReplicaLost, CodeRestoredCopy → vtop.ErrReplicaLost
//	CodeNotBootstrapped, CodeNotStarted, CodeNotSettled → vtop.ErrNotReady
type Refusal struct {
	Code Code
	// Message names what was wanted and what was found.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return "refused (" + r.Code.String() + "): " + r.Message }

// Is matches the sentinels listed on the type, and any Refusal of the same code.
func (r *Refusal) Is(target error) bool {
	if other, ok := target.(*Refusal); ok {
		return other.Code == r.Code
	}
	switch r.Code {
	case CodeUnknownRange:
		return target == vtop.ErrUnknownRange
	case CodeStaleEpoch, CodeStaleIncarnation:
		return target == vtop.ErrFenced
	case CodeReplicaLost, CodeRestoredCopy:
		return target == vtop.ErrReplicaLost
	case CodeNotBootstrapped, CodeNotStarted, CodeNotSettled:
		return target == vtop.ErrNotReady
	}
	return false
}

func refusef(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Outcome is the result of applying one command, the same on every node.
type Outcome struct {
	// Index is the Raft index of the command. A node that waited for it (Machine.WaitApplied) sees the effect.
	Index uint64
	// Refusal is why the whole command had no effect; nil if it had one, or had it already. (CodePending and
	// CodeRestoredCopy do leave a mark: see RegisterNode.)
	Refusal *Refusal
	// Items answer the items of a batched command, in its order. A batch is not refused for one of its items.
	Items []Item
	// Registration answers RegisterNode and AdmitPending, refused or not.
	Registration Registration
	// ReplicaID is the id minted by ChangeReplicas for a new learner; ConfigVersion the version it led to.
	ReplicaID     vtop.ReplicaID
	ConfigVersion uint64
	// ProducerIDs answers AllocateProducerIDs.
	ProducerIDs ProducerBlock
}

// Err returns the refusal as an error, nil if there is none. It does not look at Items.
func (o Outcome) Err() error {
	if o.Refusal == nil {
		return nil
	}
	return o.Refusal
}

// Item is the result of one item of a batched command.
type Item struct {
	Range vtop.Range
	// Epoch is the epoch minted by a grant; elsewhere the one that the item named.
	Epoch vtop.Epoch
	// Repair is the job that an item of SubmitRepairs led to, or that one of the other repair commands named. Existing says
	// that an active job was there already, and that it is the one meant.
	Repair   RepairID
	Existing bool
	// Slot is the coordinator slot, Group the consumer group of an item about them.
	Slot    Slot
	Group   string
	Refusal *Refusal
}

// Err returns the refusal as an error, nil if there is none.
func (i Item) Err() error {
	if i.Refusal == nil {
		return nil
	}
	return i.Refusal
}

// Registration says who the metadata holds the owner of a name to be, after the command.
type Registration struct {
	Broker      vtop.BrokerID
	Storage     vtop.StorageID
	Incarnation vtop.Incarnation
}

// ProducerBlock is a block of producer ids [First, First+Count) that nobody else was or will be given.
type ProducerBlock struct {
	First int64
	Count int32
}
