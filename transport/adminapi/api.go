package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Handler is what a node answers. Methods are called concurrently; errors should be made with Errorf, others
// are shown as "internal". topic is a name, n the index of a range.
type Handler interface {
	Status(ctx context.Context) (*Status, error)
	Nodes(ctx context.Context) ([]Node, error)
	Topics(ctx context.Context) ([]Topic, error)
	Topic(ctx context.Context, name string) (*TopicDetail, error)
	CreateTopic(ctx context.Context, req CreateTopic) (*TopicDetail, error)
	DeleteTopic(ctx context.Context, name string) error
	// Leases returns all ranges, or those of one topic if topic is not empty.
	Leases(ctx context.Context, topic string) ([]Lease, error)
	Lease(ctx context.Context, topic string, n int32) (*LeaseDetail, error)
	// TransferLease returns once the new holder serves, or says why not.
	TransferLease(ctx context.Context, topic string, n int32, to string) (*LeaseDetail, error)
	// Segments asks the named node, or the holder if node is empty.
	Segments(ctx context.Context, topic string, n int32, node string) ([]Segment, error)
}

// Code is the fixed word of a refusal.
type Code string

// Codes of refusals, with the HTTP status each is sent with.
const (
	CodeInvalid     Code = "invalid"
	CodeNotFound    Code = "not_found"
	CodeExists      Code = "exists"
	CodeConflict    Code = "conflict"
	CodeNotReady    Code = "not_ready"
	CodeUnavailable Code = "unavailable"
	// CodeUnreachable is the client's own: no node answered, or not as a node would.
	CodeUnreachable Code = "unreachable"
	// CodeCertificate is the client's own, too: one end does not take the other's certificate.
	CodeCertificate Code = "certificate"
	CodeTimeout     Code = "timeout"
	CodeNotAllowed  Code = "not_allowed"
	// CodeFenced: the lease moved, or the epoch is not the lease's.
	CodeFenced Code = "fenced"
	// CodeNotCommitted: a tail was closed but a majority does not have all of it yet.
	CodeNotCommitted Code = "not_committed"
	// CodeNeverWritten: the range has no record, so there is nothing to repair from.
	CodeNeverWritten Code = "never_written"
	// CodeNoSource: no whole replica is left, or reachable, to repair from.
	CodeNoSource Code = "no_source"
	CodeInternal Code = "internal"
)

var statusOf = map[Code]int{
	CodeInvalid:     http.StatusBadRequest,
	CodeNotFound:    http.StatusNotFound,
	CodeExists:      http.StatusConflict,
	CodeConflict:    http.StatusConflict,
	CodeNotReady:    http.StatusServiceUnavailable,
	CodeUnavailable: http.StatusServiceUnavailable,
	CodeUnreachable: http.StatusBadGateway,
	CodeCertificate: http.StatusForbidden,
	CodeTimeout:     http.StatusGatewayTimeout,
	CodeNotAllowed:  http.StatusForbidden,

	CodeFenced:       http.StatusConflict,
	CodeNotCommitted: http.StatusServiceUnavailable,
	CodeNeverWritten: http.StatusConflict,
	CodeNoSource:     http.StatusConflict,

	CodeInternal: http.StatusInternalServerError,
}

// Error is the body of every answer that is not a success. Message says what was expected and what was
// found, Hint what to do.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithHint returns a copy that says what to do.
func (e *Error) WithHint(format string, args ...any) *Error {
	out := *e
	out.Hint = fmt.Sprintf(format, args...)
	return &out
}

// asError gives the wire form of any error.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(CodeTimeout, "%v", err).WithHint("the outcome is unknown; look at the state, then try again")
	}
	return Errorf(CodeInternal, "%v", err)
}
