package transport

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Errors raised by the peer plane itself. They cross the wire as the vtop sentinels do.
var (
	// ErrWrongCluster: the two sides belong to different clusters. Final until a configuration changes.
	ErrWrongCluster = errors.New("wrong cluster")
	// ErrWrongGeneration: the metadata was recovered on one side only. Final until the node is readmitted.
	ErrWrongGeneration = errors.New("wrong cluster generation")
	// ErrWrongNode: another node answers at that address. Look the address up again, then retry.
	ErrWrongNode = errors.New("wrong node")
	// ErrNotRaftLeader: the node cannot propose. Retry at the leader; see LeaderOf.
	ErrNotRaftLeader = errors.New("not the raft leader")
	// ErrInvalid: a message has a field that makes no sense. Final for that message.
	ErrInvalid = errors.New("invalid message")
	// ErrUnimplemented: the node does not serve this call (yet). Retry elsewhere or later.
	ErrUnimplemented = errors.New("not implemented")
	// ErrNotAllowed: the caller may not do this. Final.
	ErrNotAllowed = errors.New("not allowed")
	// ErrUnreachable: no connection came about, so nothing was sent. Retry is always right; connection
	// refused, seen with errors.Is(err, syscall.ECONNREFUSED), says that no process listens there.
	ErrUnreachable = errors.New("unreachable")
	// ErrFrameTooLarge: a length is above its cap. The connection is closed.
	ErrFrameTooLarge = errors.New("frame too large")
	// ErrCut: a connection broke without an end frame.
	ErrCut = errors.New("connection was cut")
	// ErrNotCommitted: a tail was closed, but a majority does not have all of it yet; see NotCommittedError. Retry.
	ErrNotCommitted = errors.New("closed tail not committed yet")
	// ErrNeverWritten: the range has no record at all, so there is nothing to repair from. Final until one is
	// produced.
	ErrNeverWritten = errors.New("range was never written")
	// ErrPinGone: the pin was released, expired, or died with its node. Pin again, then retry.
	ErrPinGone = errors.New("pin is gone")
	// ErrNoSegment: the node has no sealed segment at that base that it would serve: it never had it, retention
	// took it, or it is a hole. Retry elsewhere.
	ErrNoSegment = errors.New("no such sealed segment")
	// ErrWrongRoot: the node's segment at that base has another root than was asked for. Retry elsewhere.
	ErrWrongRoot = errors.New("segment has another root")
)

// codeRow ties a wire code to the error it stands for. retry says whether the same call, made again later
// or elsewhere, can succeed; it is part of the code's meaning.
type codeRow struct {
	code  peerpb.Code
	err   error
	http  connect.Code
	retry bool
}

// codes is the one table between errors and wire codes. The first row whose error matches wins.
var codes = []codeRow{
	{peerpb.Code_CODE_FENCED, vtop.ErrFenced, connect.CodeAborted, true},
	{peerpb.Code_CODE_NOT_LEADER, vtop.ErrNotLeader, connect.CodeFailedPrecondition, true},
	{peerpb.Code_CODE_NOT_READY, vtop.ErrNotReady, connect.CodeUnavailable, true},
	{peerpb.Code_CODE_EPOCH_FENCED, vtop.ErrEpochFenced, connect.CodeAborted, true},
	{peerpb.Code_CODE_EPOCH_UNKNOWN, vtop.ErrEpochUnknown, connect.CodeAborted, true},
	{peerpb.Code_CODE_OFFSET_OUT_OF_RANGE, vtop.ErrOffsetOutOfRange, connect.CodeOutOfRange, false},
	{peerpb.Code_CODE_OFFSET_NOT_AVAILABLE, vtop.ErrOffsetNotAvailable, connect.CodeUnavailable, true},
	{peerpb.Code_CODE_UNKNOWN_RANGE, vtop.ErrUnknownRange, connect.CodeNotFound, true},
	{peerpb.Code_CODE_CORRUPT_BATCH, vtop.ErrCorruptBatch, connect.CodeInvalidArgument, false},
	{peerpb.Code_CODE_BATCH_TOO_LARGE, vtop.ErrBatchTooLarge, connect.CodeInvalidArgument, false},
	{peerpb.Code_CODE_UNSUPPORTED_BATCH, vtop.ErrUnsupportedBatch, connect.CodeInvalidArgument, false},
	{peerpb.Code_CODE_OUT_OF_ORDER_SEQUENCE, vtop.ErrOutOfOrderSequence, connect.CodeInvalidArgument, false},
	{peerpb.Code_CODE_STALE_PRODUCER_EPOCH, vtop.ErrStaleProducerEpoch, connect.CodeInvalidArgument, false},
	{peerpb.Code_CODE_NO_SPACE, vtop.ErrNoSpace, connect.CodeResourceExhausted, true},
	{peerpb.Code_CODE_STORAGE, vtop.ErrStorage, connect.CodeInternal, true},
	{peerpb.Code_CODE_DAMAGED, vtop.ErrDamaged, connect.CodeDataLoss, false},
	{peerpb.Code_CODE_REPLICA_LOST, vtop.ErrReplicaLost, connect.CodeFailedPrecondition, false},
	{peerpb.Code_CODE_OVERLOADED, vtop.ErrOverloaded, connect.CodeResourceExhausted, true},
	{peerpb.Code_CODE_TIMEOUT, vtop.ErrTimeout, connect.CodeDeadlineExceeded, true},
	{peerpb.Code_CODE_CLOSED, vtop.ErrClosed, connect.CodeUnavailable, true},
	{peerpb.Code_CODE_WRONG_CLUSTER, ErrWrongCluster, connect.CodePermissionDenied, false},
	{peerpb.Code_CODE_WRONG_GENERATION, ErrWrongGeneration, connect.CodePermissionDenied, false},
	{peerpb.Code_CODE_WRONG_NODE, ErrWrongNode, connect.CodePermissionDenied, true},
	{peerpb.Code_CODE_NOT_RAFT_LEADER, ErrNotRaftLeader, connect.CodeFailedPrecondition, true},
	{peerpb.Code_CODE_INVALID, ErrInvalid, connect.CodeInvalidArgument, false},
	{peerpb.Code_CODE_UNIMPLEMENTED, ErrUnimplemented, connect.CodeUnimplemented, true},
	{peerpb.Code_CODE_NOT_ALLOWED, ErrNotAllowed, connect.CodePermissionDenied, false},
	{peerpb.Code_CODE_NOT_COMMITTED, ErrNotCommitted, connect.CodeUnavailable, true},
	{peerpb.Code_CODE_NEVER_WRITTEN, ErrNeverWritten, connect.CodeFailedPrecondition, false},
	{peerpb.Code_CODE_PIN_GONE, ErrPinGone, connect.CodeNotFound, true},
	{peerpb.Code_CODE_NO_SEGMENT, ErrNoSegment, connect.CodeNotFound, true},
	{peerpb.Code_CODE_WRONG_ROOT, ErrWrongRoot, connect.CodeFailedPrecondition, true},
	{peerpb.Code_CODE_TIMEOUT, context.DeadlineExceeded, connect.CodeDeadlineExceeded, true},
	{peerpb.Code_CODE_CANCELED, context.Canceled, connect.CodeCanceled, true},
}

// CodeOf returns the wire code of err: CODE_UNSPECIFIED for nil, CODE_INTERNAL for an error that the table
// does not know.
func CodeOf(err error) peerpb.Code {
	if err == nil {
		return peerpb.Code_CODE_UNSPECIFIED
	}
	return rowOf(err).code
}

// ErrorOf returns an error with the given text that matches, by errors.Is, the sentinel of code; nil for
// CODE_UNSPECIFIED. A code of a newer version gives an error that matches nothing.
func ErrorOf(code peerpb.Code, message string) error {
	if code == peerpb.Code_CODE_UNSPECIFIED {
		return nil
	}
	return &PeerError{Code: code, Message: message}
}

// Retryable reports whether the same call can succeed later or elsewhere. An error that is in no table,
// such as a broken connection, is retryable; the caller must make sure that a repeat is harmless.
func Retryable(err error) bool {
	if row := rowOf(err); row.err != nil {
		return row.retry
	}
	var peer *PeerError
	return !errors.As(err, &peer)
}

// PeerError is what another node answered. Its text is the text of the error there.
type PeerError struct {
	Code    peerpb.Code
	Message string
	// Node is who answered; empty if unknown.
	Node vtop.NodeName
	// Leader is set with CODE_NOT_RAFT_LEADER where the answering node knows the leader.
	Leader *peerpb.LeaderHint
	// NotCommitted is set with CODE_NOT_COMMITTED.
	NotCommitted *NotCommittedError
}

// NotCommittedError says how far a closed tail has come. It matches ErrNotCommitted, and errors.As finds it on
// the calling side too.
type NotCommittedError struct {
	// ClosedEnd is where the tail was closed, HighWatermark what a majority is known to have.
	ClosedEnd, HighWatermark vtop.Offset
}

// Error implements error.
func (e *NotCommittedError) Error() string {
	return fmt.Sprintf("%s: closed at %d, high watermark %d: nothing is lost, ask again when a majority of the voters is reachable",
		ErrNotCommitted, e.ClosedEnd, e.HighWatermark)
}

// Is makes errors.Is(err, ErrNotCommitted) true.
func (e *NotCommittedError) Is(target error) bool { return target == ErrNotCommitted }

// Error implements error.
func (e *PeerError) Error() string {
	if e.Node == "" {
		return e.Message
	}
	return fmt.Sprintf("node %q: %s", e.Node, e.Message)
}

// Unwrap gives the sentinel of the code, or an error with more to say that matches it.
func (e *PeerError) Unwrap() error {
	if e.NotCommitted != nil && e.Code == peerpb.Code_CODE_NOT_COMMITTED {
		return e.NotCommitted
	}
	for _, row := range codes {
		if row.code == e.Code {
			return row.err
		}
	}
	return nil
}

// NotRaftLeader is the refusal of a node that cannot propose. leader may be nil.
func NotRaftLeader(self vtop.NodeName, leader *peerpb.LeaderHint) error {
	text := fmt.Sprintf("not the raft leader: node %q knows of no leader", self)
	if leader.GetName() != "" {
		text = fmt.Sprintf("not the raft leader: node %q says it is node %q at %s", self, leader.GetName(), leader.GetPeerAddr())
	}
	return &PeerError{Code: peerpb.Code_CODE_NOT_RAFT_LEADER, Message: text, Leader: leader}
}

// LeaderOf returns the leader that a refusal with ErrNotRaftLeader names; nil if it names none.
func LeaderOf(err error) *peerpb.LeaderHint {
	var peer *PeerError
	if errors.As(err, &peer) && peer.Leader.GetName() != "" {
		return peer.Leader
	}
	return nil
}

// rowOf finds the row of err, or one for internal errors, whose err is nil.
func rowOf(err error) codeRow {
	var peer *PeerError
	if errors.As(err, &peer) {
		for _, row := range codes {
			if row.code == peer.Code {
				return row
			}
		}
		return codeRow{peer.Code, nil, connect.CodeUnknown, false}
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return row
		}
	}
	return codeRow{peerpb.Code_CODE_INTERNAL, nil, connect.CodeInternal, false}
}

// refusef is an error whose text is exactly the given one and which matches sentinel.
func refusef(sentinel error, format string, args ...any) error {
	return &PeerError{Code: CodeOf(sentinel), Message: fmt.Sprintf("%s: %s", sentinel, fmt.Sprintf(format, args...))}
}

// detailOf packs err for the wire.
func detailOf(self vtop.NodeName, err error) *peerpb.ErrorDetail {
	d := &peerpb.ErrorDetail{Code: CodeOf(err), Message: err.Error(), Node: string(self)}
	var peer *PeerError
	if errors.As(err, &peer) {
		d.Leader = peer.Leader
	}
	var open *NotCommittedError
	if errors.As(err, &open) {
		d.NotCommitted = &peerpb.NotCommitted{ClosedEnd: int64(open.ClosedEnd), HighWatermark: int64(open.HighWatermark)}
	}
	return d
}

// errorOfDetail is the reverse of detailOf; nil for a nil detail.
func errorOfDetail(d *peerpb.ErrorDetail) error {
	if d == nil {
		return nil
	}
	err := &PeerError{Code: d.GetCode(), Message: d.GetMessage(), Node: vtop.NodeName(d.GetNode()), Leader: d.GetLeader()}
	if open := d.GetNotCommitted(); open != nil {
		err.NotCommitted = &NotCommittedError{vtop.Offset(open.GetClosedEnd()), vtop.Offset(open.GetHighWatermark())}
	}
	return err
}
