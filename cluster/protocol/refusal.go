package protocol

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// Code says why a replica refused. Codes travel between nodes: they are written out and only appended.
type Code uint8

const (
	// NotCaughtUp: this process has not applied up to a barrier of the metadata leader yet. Ask again.
	NotCaughtUp Code = 1
	// Behind: the applied state has not reached the index named. Apply up to it, then decide anew.
	Behind Code = 2
	// Superseded: the applied lease has a higher epoch than the one named. Final for that epoch.
	Superseded Code = 3
	// NotGranted: the applied state, though far enough, does not hold the lease named. Final for that epoch here.
	NotGranted Code = 4
	// Promised: the replica has promised this or a higher epoch to somebody else. The epoch in the refusal is the
	// promise; the next grant must be above it.
	Promised Code = 5
	// WrongReplica: the replica id named is not the one in this node's directory (I10). Final for that id here.
	WrongReplica Code = 6
	// ReplicaLost: the replica may have forgotten what it held and does not vote (I10). Final for that id.
	ReplicaLost Code = 7
	// NotStarted: the epoch named has not begun to serve in the applied state. Ask again.
	NotStarted Code = 8
	// NotReconciled: the log was not compared with the epoch table under this epoch yet. Reconcile, then ask again.
	NotReconciled Code = 9
)

// String gives a short phrase for error texts.
func (c Code) String() string {
	switch c {
	case NotCaughtUp:
		return "metadata is not caught up after the start"
	case Behind:
		return "applied state is behind the index named"
	case Superseded:
		return "a later epoch was granted"
	case NotGranted:
		return "the applied state does not hold that lease"
	case Promised:
		return "that epoch or a later one was promised to another"
	case WrongReplica:
		return "another replica id lives here"
	case ReplicaLost:
		return "the replica may have forgotten what it held"
	case NotStarted:
		return "the epoch has not started"
	case NotReconciled:
		return "the log was not reconciled under this epoch"
	}
	return fmt.Sprintf("refusal code %d", uint8(c))
}

// Refusal is the error of every function here that says no. It is comparable and holds no clock.
type Refusal struct {
	Code Code
	// Asked is the epoch that the other side named.
	Asked vtop.Epoch
	// Epoch is what stands in its way: the applied lease's epoch, or the promise for Promised.
	Epoch vtop.Epoch
	// Detail is more for people: the reason of a loss, the ids found and wanted. May be empty.
	Detail string
}

// Error implements error.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("epoch %d refused: %s (epoch %d here)", r.Asked, r.Code, r.Epoch)
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// Is maps the codes to the sentinels that callers and wire codes know.
func (r *Refusal) Is(target error) bool {
	switch target {
	case vtop.ErrFenced:
		return r.Code == Superseded || r.Code == NotGranted || r.Code == Promised
	case vtop.ErrReplicaLost:
		return r.Code == ReplicaLost || r.Code == WrongReplica
	case vtop.ErrNotReady:
		return r.Retryable()
	}
	return false
}

// Retryable reports whether the same question may be answered differently later.
func (r *Refusal) Retryable() bool {
	switch r.Code {
	case NotCaughtUp, Behind, NotStarted, NotReconciled:
		return true
	}
	return false
}
