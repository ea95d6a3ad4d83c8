package fsm

import (
	"hash/fnv"

	"github.com/vtop-log/vtop"
)

// The objects of consumer groups. As everything of a State they are immutable once it was published: slices included.

// GroupSlots is the number of coordinator slots. It never changes: every node and client derives the slot of a group
// from it.
const GroupSlots = 64

// Slot is one coordinator slot, from 0 to GroupSlots-1. The groups of one slot have one coordinator.
type Slot int32

// GroupSlot returns the slot of a group: the 32-bit FNV-1a hash of its id modulo GroupSlots.
func GroupSlot(group string) Slot {
	h := fnv.New32a()
	_, _ = h.Write([]byte(group)) // a hash takes every write
	return Slot(h.Sum32() % GroupSlots)
}

// Limits of groups (I13). Beyond them an item of UpdateGroups is refused with CodeLimit.
const (
	MaxGroups       = 50_000
	MaxGroupMembers = 5000
	// MaxGroupName is the longest group id, member id, instance id, client id, host, rack and protocol name in bytes.
	MaxGroupName = 1024
	// MaxMemberBytes bounds each of subscription, assignment and target of a member, and the data of a group.
	MaxMemberBytes = 1 << 20
	// MaxGroupBytes bounds what a group's header and members take together, so that one command can carry all of it.
	MaxGroupBytes = 4 << 20
	// MaxGroupOffsets is how many ranges one group has offsets of: as many as there can be.
	MaxGroupOffsets   = MaxRanges
	MaxOffsetMetadata = 4096
	// MaxGroupState bounds what all groups with their members and offsets take in memory.
	MaxGroupState = 512 << 20
	// MaxGroupBatch is the sum of GroupItem.Size to which a proposer fills one command.
	MaxGroupBatch = 4 << 20
	// What an object takes beside its variable parts, for the sums that these limits bound.
	groupCost, memberCost, offsetCost = 256, 256, 160
)

// Coordinator is the right to coordinate the groups of one slot: a fenced lease as that of a range. There is no promotion:
// every node has all groups in its state, and a holder serves as soon as it has applied its grant, while its lease
// deadline has not passed, and only in the incarnation that it was granted to (I5).
type Coordinator struct {
	Slot Slot
	// Holder is empty if nobody holds the slot.
	Holder      vtop.NodeName
	Incarnation vtop.Incarnation
	// Epoch is the present lease's; without a holder, the last one minted. vtop.NoEpoch before the first grant.
	Epoch vtop.Epoch
	// Sequence is that of the last UpdateGroups that changed a group of the slot under this epoch; 0 before the first.
	Sequence uint64
	// GrantIndex is the Raft index of the present grant, 0 without a holder. GrantedAt (Unix milliseconds) and GrantReason are
	// shown only.
	GrantIndex  uint64
	GrantedAt   int64
	GrantReason string
}

// HeldBy reports whether the slot is held by this very process.
func (c *Coordinator) HeldBy(node vtop.NodeName, incarnation vtop.Incarnation) bool {
	return c.Holder != "" && c.Holder == node && c.Incarnation == incarnation
}

// GroupKind says by which protocol the members of a group agree.
type GroupKind uint8

const (
	// GroupClassic: the members' leader assigns (JoinGroup, SyncGroup).
	GroupClassic GroupKind = iota + 1
	// GroupConsumer: the coordinator assigns (KIP-848).
	GroupConsumer
)

// String gives the word that operators see.
func (k GroupKind) String() string {
	switch k {
	case GroupClassic:
		return "classic"
	case GroupConsumer:
		return "consumer"
	}
	return "unknown"
}

// GroupHeader is what a coordinator keeps of a group as a whole.
type GroupHeader struct {
	Kind GroupKind
	// Epoch is the generation of a classic group, the group epoch of a consumer group. It never goes back while the group exists.
	Epoch int32
	// AssignmentEpoch is the group epoch for which the targets of the members were made.
	AssignmentEpoch int32
	// ProtocolType and Protocol are what the members of a classic group agreed on; for a consumer group Protocol names the assignor.
	ProtocolType, Protocol string
	// Leader is the member id of the leader of a classic group.
	Leader string
	// EmptySince is when the last member left, in Unix milliseconds by the coordinator's clock; 0 while there are members. The
	// expiry of offsets measures it.
	EmptySince int64
	// Data is whatever else the coordinator keeps; the state machine does not read it.
	Data []byte
}

// Group is one consumer group. Its members and offsets stand beside it: State.Members, State.Offsets.
type Group struct {
	ID   string
	Slot Slot
	GroupHeader
	// Members and Offsets count them.
	Members, Offsets int
	// Bytes is what header and members take, at most MaxGroupBytes.
	Bytes int64
	// CreatedAt and UpdatedAt (of header or members) are shown only: Unix milliseconds. Index is the Raft index of that update.
	CreatedAt, UpdatedAt int64
	Index                uint64
}

// GroupMember is one member of a group, as last persisted.
type GroupMember struct {
	ID string
	// InstanceID is that of a static member (KIP-345); empty for others.
	InstanceID                 string
	ClientID, ClientHost, Rack string
	// Timeouts in milliseconds.
	RebalanceTimeoutMS, SessionTimeoutMS int32
	// Epoch and PreviousEpoch are the member epochs of a consumer group.
	Epoch, PreviousEpoch int32
	// State, Subscription, Assignment (the present one) and Target (the one it is on the way to) are the coordinator's; the state
	// machine does not read them.
	State                            uint8
	Subscription, Assignment, Target []byte
}

// GroupOffset is the committed offset of one range.
type GroupOffset struct {
	Range vtop.Range
	// Offset is the next one that the group will read.
	Offset vtop.Offset
	// LeaderEpoch is the epoch of the last record read, vtop.NoEpoch if the client gave none.
	LeaderEpoch vtop.Epoch
	// Metadata is the client's, at most MaxOffsetMetadata bytes.
	Metadata string
	// CommittedAt is in Unix milliseconds by the coordinator's clock; the expiry of offsets measures it.
	CommittedAt int64
}

func (h *GroupHeader) bytes(id string) int64 {
	return groupCost + int64(len(id)+len(h.ProtocolType)+len(h.Protocol)+len(h.Leader)+len(h.Data))
}

func (m *GroupMember) bytes() int64 {
	return memberCost + int64(len(m.ID)+len(m.InstanceID)+len(m.ClientID)+len(m.ClientHost)+len(m.Rack)+
		len(m.Subscription)+len(m.Assignment)+len(m.Target))
}

func (o *GroupOffset) bytes() int64 { return offsetCost + int64(len(o.Metadata)) }
