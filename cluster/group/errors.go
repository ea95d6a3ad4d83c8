package group

import "errors"

// The refusals of this package. They are wrapped with what was found and expected; package kafka has the table of their
// codes. The first three are healed by asking again, perhaps elsewhere.
var (
	// ErrNotCoordinator: the group's slot is held by another process, or was lost meanwhile. Look for the coordinator.
	ErrNotCoordinator = errors.New("not the coordinator of this group")
	// ErrLoading: this node coordinates the group but cannot answer yet. Ask again here.
	ErrLoading = errors.New("coordinator is loading the group")
	// ErrNotAvailable: nobody coordinates the group now, or the coordinator cannot reach the metadata quorum, or is overloaded.
	ErrNotAvailable = errors.New("group coordinator is not available")

	// ErrInvalidGroup: the group id is empty or too long.
	ErrInvalidGroup = errors.New("invalid group id")
	// ErrInvalidRequest: a field has a value that the protocol does not allow.
	ErrInvalidRequest = errors.New("invalid group request")
	// ErrInvalidSession: the session timeout is outside the bounds of the configuration.
	ErrInvalidSession = errors.New("session timeout out of bounds")
	// ErrUnknownMember: no such member. Join anew, without a member id.
	ErrUnknownMember = errors.New("unknown member")
	// ErrMemberIDRequired: join again with the member id of the answer (KIP-394).
	ErrMemberIDRequired = errors.New("join again with the member id given")
	// ErrIllegalGeneration: the member names another generation than the group's.
	ErrIllegalGeneration = errors.New("illegal generation")
	// ErrRebalance: the members are agreeing anew. Join.
	ErrRebalance = errors.New("rebalance in progress")
	// ErrInconsistentProtocol: the member and the group have no protocol in common.
	ErrInconsistentProtocol = errors.New("inconsistent group protocol")
	// ErrFencedInstance: the instance id belongs to another member now. Final for the member.
	ErrFencedInstance = errors.New("instance id is used by another member")
	// ErrGroupFull: the group has as many members, or they as many bytes, as it may.
	ErrGroupFull = errors.New("group is full")
	// ErrGroupNotFound: there is no such group.
	ErrGroupNotFound = errors.New("group not found")
	// ErrNotConsumerGroup: the group is one of the classic protocol and has members.
	ErrNotConsumerGroup = errors.New("not a consumer group")
	// ErrNotEmpty: the group has members.
	ErrNotEmpty = errors.New("group has members")
	// ErrSubscribed: the members of the group read the topic.
	ErrSubscribed = errors.New("group is subscribed to the topic")
	// ErrMetadataTooLarge: the metadata beside an offset is too long.
	ErrMetadataTooLarge = errors.New("offset metadata too large")

	// ErrFencedMemberEpoch: the member names an epoch that is not its own. It gives up everything and joins anew.
	ErrFencedMemberEpoch = errors.New("member epoch is fenced")
	// ErrStaleMemberEpoch: the member has a newer epoch than the one named.
	ErrStaleMemberEpoch = errors.New("member epoch is stale")
	// ErrUnreleasedInstance: another member with the instance id has not left.
	ErrUnreleasedInstance = errors.New("instance id is still in use")
	// ErrUnsupportedAssignor: the assignor is not known here.
	ErrUnsupportedAssignor = errors.New("unsupported assignor")
	// ErrInvalidRegex: the subscription's regular expression cannot be read.
	ErrInvalidRegex = errors.New("invalid regular expression")
)
