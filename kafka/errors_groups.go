package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/group"
)

// groupTable is the one place where the refusals of consumer groups become Kafka's codes. The first row that matches counts.
//
// What a move of the coordinator leads to gets only codes on which every client looks for the coordinator again, or asks
// again, by itself: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
var groupTable = [...]struct {
	err  error
	code *kerr.Error
}{
	{group.ErrNotCoordinator, kerr.NotCoordinator},
	{group.ErrLoading, kerr.CoordinatorLoadInProgress},
	{group.ErrNotAvailable, kerr.CoordinatorNotAvailable},

	{group.ErrInvalidGroup, kerr.InvalidGroupID},
	{group.ErrInvalidRequest, kerr.InvalidRequest},
	{group.ErrInvalidSession, kerr.InvalidSessionTimeout},
	{group.ErrMemberIDRequired, kerr.MemberIDRequired},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrRebalance, kerr.RebalanceInProgress},
	{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{group.ErrFencedInstance, kerr.FencedInstanceID},
	{group.ErrGroupFull, kerr.GroupMaxSizeReached},
	{group.ErrGroupNotFound, kerr.GroupIDNotFound},
	{group.ErrNotConsumerGroup, kerr.GroupIDNotFound},
	{group.ErrNotEmpty, kerr.NonEmptyGroup},
	{group.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{group.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{group.ErrFencedMemberEpoch, kerr.FencedMemberEpoch},
	{group.ErrStaleMemberEpoch, kerr.StaleMemberEpoch},
	{group.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
	{group.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
	{group.ErrInvalidRegex, kerr.InvalidRegularExpression},

	{vtop.ErrUnknownRange, kerr.UnknownTopicOrPartition},
	{vtop.ErrNotReady, kerr.NotCoordinator}, // a process that has just begun holds no slot: look elsewhere
	{vtop.ErrOverloaded, kerr.CoordinatorNotAvailable},
	{vtop.ErrTimeout, kerr.CoordinatorNotAvailable},
	{vtop.ErrClosed, kerr.NotCoordinator},
	{context.DeadlineExceeded, kerr.CoordinatorNotAvailable},
	{context.Canceled, kerr.NotCoordinator},
}

// groupError finds the Kafka error of a refusal; nil for nil.
func (s *Server) groupError(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	var own *answerError
	if errors.As(err, &own) {
		return own.code
	}
	for i := range groupTable {
		if row := &groupTable[i]; errors.Is(err, row.err) {
			return row.code
		}
	}
	s.log.Error("error without a Kafka code", "error", err)
	return kerr.CoordinatorNotAvailable
}

// groupCode is the code of one part of an answer, which it notes; 0 for nil.
func (c *call) groupCode(err error) int16 {
	e := c.server.groupError(err)
	c.frame.note(e != nil)
	if e == nil {
		return 0
	}
	c.server.metrics.failed(c.frame.api.key, e.Code)
	return e.Code
}

// clientHost is the client's address as Kafka shows it.
func (c *call) clientHost() string { return "/" + c.frame.conn.ip }
