package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/topicconfig"
)

// face says which kind of request an error is answered to: clients understand other codes in each.
type face uint8

const (
	faceProduce face = iota
	faceRead         // Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords
	faceAdmin
)

// codeRow is one row of the table: what err is called in each face.
type codeRow struct {
	err                  error
	produce, read, admin *kerr.Error
}

// codeTable is the one place where vtop's errors become Kafka's codes. The first row that matches counts.
//
// What a retry can heal gets only codes that every client retries without harm to its idempotence:
// NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR (look at the metadata first), REQUEST_TIMED_OUT (outcome
// unknown), NOT_ENOUGH_REPLICAS (nothing was written). UNKNOWN_SERVER_ERROR, on which clients raise their producer
// epoch and write twice, is never among them. Consumers of the Java client die of a REQUEST_TIMED_OUT in a Fetch, so
// reads say NOT_LEADER_OR_FOLLOWER instead.
var codeTable = [...]codeRow{
	{topicconfig.ErrInvalid, kerr.InvalidConfig, kerr.InvalidConfig, kerr.InvalidConfig},
	{refusal(fsm.CodeTopicExists), kerr.TopicAlreadyExists, kerr.TopicAlreadyExists, kerr.TopicAlreadyExists},
	{refusal(fsm.CodeLimit), kerr.PolicyViolation, kerr.PolicyViolation, kerr.PolicyViolation},
	{refusal(fsm.CodeLevel), kerr.UnsupportedVersion, kerr.UnsupportedVersion, kerr.UnsupportedVersion},
	{refusal(fsm.CodeInvalid), kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest},
	{refusal(fsm.CodeAboveFloor), kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
	{refusal(fsm.CodeConflict), kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
	{refusal(fsm.CodeStaleConfig), kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
	{refusal(fsm.CodeUnknownNode), kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.InvalidReplicationFactor},
	{refusal(fsm.CodeNodeGone), kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.InvalidReplicationFactor},

	{placement.ErrTooFewNodes, kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.InvalidReplicationFactor},

	{errUnknownTopicID, kerr.UnknownTopicID, kerr.UnknownTopicID, kerr.UnknownTopicID},
	{vtop.ErrUnknownRange, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
	{vtop.ErrEpochFenced, kerr.FencedLeaderEpoch, kerr.FencedLeaderEpoch, kerr.FencedLeaderEpoch},
	{vtop.ErrEpochUnknown, kerr.UnknownLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownLeaderEpoch},
	{vtop.ErrFenced, kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.NotController},
	{vtop.ErrNotLeader, kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.NotController},
	{vtop.ErrNotReady, kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.NotController},
	{vtop.ErrReplicaLost, kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.NotController},
	{vtop.ErrClosed, kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.NotController},
	{vtop.ErrOffsetOutOfRange, kerr.OffsetOutOfRange, kerr.OffsetOutOfRange, kerr.OffsetOutOfRange},
	{vtop.ErrOffsetNotAvailable, kerr.NotLeaderForPartition, kerr.OffsetNotAvailable, kerr.OffsetNotAvailable},
	{vtop.ErrBatchTooLarge, kerr.MessageTooLarge, kerr.MessageTooLarge, kerr.MessageTooLarge},
	{vtop.ErrCorruptBatch, kerr.CorruptMessage, kerr.CorruptMessage, kerr.CorruptMessage},
	{vtop.ErrUnsupportedBatch, kerr.InvalidRecord, kerr.InvalidRecord, kerr.InvalidRecord},
	{vtop.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber, kerr.OutOfOrderSequenceNumber, kerr.OutOfOrderSequenceNumber},
	{vtop.ErrStaleProducerEpoch, kerr.InvalidProducerEpoch, kerr.InvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{vtop.ErrNoSpace, kerr.KafkaStorageError, kerr.KafkaStorageError, kerr.KafkaStorageError},
	{vtop.ErrDamaged, kerr.KafkaStorageError, kerr.KafkaStorageError, kerr.KafkaStorageError},
	{vtop.ErrStorage, kerr.KafkaStorageError, kerr.KafkaStorageError, kerr.KafkaStorageError},
	{vtop.ErrOverloaded, kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
	{vtop.ErrTimeout, kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
	{context.DeadlineExceeded, kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.RequestTimedOut},
}

// refusal is a Refusal that matches every one of its code.
func refusal(code fsm.Code) error { return &fsm.Refusal{Code: code} }

// code finds the Kafka code of err in a face; 0 for nil. An error that is in no row is a bug of ours: it is logged, and
// answered so that the client asks again.
func (s *Server) code(f face, err error) int16 {
	if err == nil {
		return 0
	}
	for i := range codeTable {
		if row := &codeTable[i]; errors.Is(err, row.err) {
			return row.in(f).Code
		}
	}
	s.log.Error("error without a Kafka code", "error", err)
	unknown := codeRow{nil, kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.UnknownServerError}
	return unknown.in(f).Code
}

func (r *codeRow) in(f face) *kerr.Error {
	switch f {
	case faceProduce:
		return r.produce
	case faceRead:
		return r.read
	}
	return r.admin
}

// text is the message that goes with a code; nil for none.
func text(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return &s
}

const maxErrorText = 1024

// answerError is an error with a Kafka code of its own, for what only the protocol knows.
type answerError struct {
	code *kerr.Error
	text string
}

func (e *answerError) Error() string { return e.text }

func refuse(code *kerr.Error, text string) error { return &answerError{code, text} }

// adminCode is code for admin requests, whose own refusals come as answerError.
func (s *Server) adminCode(err error) int16 {
	var own *answerError
	if errors.As(err, &own) {
		return own.code.Code
	}
	return s.code(faceAdmin, err)
}
