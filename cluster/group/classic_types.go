package group

import "time"

// Protocol is one way in which a member is willing to share the work, with the member's metadata for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Join asks to be a member of a classic group in its next generation.
type Join struct {
	Group string
	// MemberID is empty for a member that has none yet.
	MemberID string
	// InstanceID is that of a static member (KIP-345), else nil.
	InstanceID           *string
	ClientID, ClientHost string
	// Session is the time without a heartbeat after which the member is gone; Rebalance the time that it needs to join again.
	Session, Rebalance time.Duration
	ProtocolType       string
	// Protocols in the order of preference.
	Protocols []Protocol
	// NeedsID: a new member must join again with the id that it is given (KIP-394).
	NeedsID bool
	// SkipsAssignment: as leader the client understands that there may be nothing to assign (KIP-814).
	SkipsAssignment bool
}

// Joined answers Join. MemberID is set with ErrMemberIDRequired, too.
type Joined struct {
	Err                    error
	Generation             int32
	ProtocolType, Protocol string
	Leader, MemberID       string
	// SkipAssignment: the leader need not assign, the group goes on as it was.
	SkipAssignment bool
	// Members are given to the leader only.
	Members []JoinedMember
}

// JoinedMember is one member as its leader sees it.
type JoinedMember struct {
	MemberID   string
	InstanceID *string
	Metadata   []byte
}

// Sync asks for the assignment of a generation; the leader brings it.
type Sync struct {
	Group string
	Claim
	// ProtocolType and Protocol, if given, must be the generation's.
	ProtocolType, Protocol *string
	// Assignments are the leader's; empty from others.
	Assignments []Assignment
}

// Assignment is what the leader gives to one member.
type Assignment struct {
	MemberID string
	Data     []byte
}

// Synced answers Sync.
type Synced struct {
	Err                    error
	ProtocolType, Protocol string
	Assignment             []byte
}

// Claim is who a member says it is.
type Claim struct {
	MemberID   string
	InstanceID *string
	// Generation is that of a classic group, the member epoch in a consumer group; -1: none.
	Generation int32
}

// Leaver names a member that leaves: by its id, or by its instance id, or both.
type Leaver struct {
	MemberID   string
	InstanceID *string
}

// Left answers one Leaver.
type Left struct {
	Leaver
	Err error
}

// ticket stands for a caller that waits for an answer of a group's machine. 0: nobody.
type ticket uint64

// answer ends the wait of a ticket: with one of the two.
type answer struct {
	to     ticket
	joined *Joined
	synced *Synced
}
