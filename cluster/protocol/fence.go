package protocol

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// View is what one node's applied state says of one range, as far as the protocol asks.
type View struct {
	// CaughtUp: this process has applied a commit index that the metadata leader gave after a barrier in its own
	// term. Until then the view may be older than what an earlier life of this node acted on.
	CaughtUp bool
	// Index is the last Raft index applied.
	Index uint64
	// Lease is the range's lease; zero if it was never granted.
	Lease vtop.Lease
	// Started: the lease's epoch stands in the table.
	Started bool
	// Table is the range's epoch table.
	Table vtop.EpochTable
	// Floor is the committed floor.
	Floor vtop.Offset
}

// Promise is the highest epoch that a replica promised (I6). Only the epoch is on disk. To whom it was given is
// remembered in memory, so that a question asked twice is answered twice; after a restart it is empty, and the
// same epoch is then refused: the candidate takes another majority, or the next grant.
type Promise struct {
	Epoch       vtop.Epoch
	Holder      vtop.NodeName
	Incarnation vtop.Incarnation
}

// Local is what the node's own directory says of its replica of one range.
type Local struct {
	// Replica is the id in the replica's directory; 0 if there is none.
	Replica vtop.ReplicaID
	// Lost says why the replica may have forgotten what it held (I10): by the directory's own evidence or by the
	// applied state. Empty means it may vote.
	Lost string
	// Promise is the durable promise.
	Promise Promise
	// Reconciled says under which state of the lease this process last compared the whole log with the epoch table;
	// zero after a start, and after anything that changes the log behind the protocol's back.
	Reconciled Compared
}

// Compared names a state of the epoch table: that of the lease of Epoch, with its own entry (Started) or without.
// The two differ. A voter that reconciled for the fence may have been left out of the majority, and hold records
// above the start that the majority led to: it must compare again when the epoch starts.
type Compared struct {
	Epoch   vtop.Epoch
	Started bool
}

// Compared returns the state of the table that the view holds.
func (v View) Compared() Compared { return Compared{v.Lease.Epoch, v.Started} }

// Ask is a candidate's question to one voter: promise my epoch, tell me your durable end.
type Ask struct {
	// Lease is the candidate's lease.
	Lease vtop.Lease
	// Grant is the Raft index of the grant.
	Grant uint64
	// Replica is the voter that the candidate means (I10).
	Replica vtop.ReplicaID
}

// Fence decides whether a voter may promise the asked epoch. A nil error means: fsync the promise, then answer
// with the durable end. Before, the caller applies up to ask.Grant, reconciles under the epoch and flushes; Behind
// and NotReconciled say which of them is missing. The error is a *Refusal.
func Fence(ask Ask, view View, local Local) error {
	refuse := func(c Code, e vtop.Epoch, detail string) error {
		return &Refusal{Code: c, Asked: ask.Lease.Epoch, Epoch: e, Detail: detail}
	}
	epoch, lease := ask.Lease.Epoch, view.Lease
	switch {
	case local.Replica != ask.Replica:
		return refuse(WrongReplica, lease.Epoch, fmt.Sprintf("asked for replica %d, found %d", ask.Replica, local.Replica))
	case local.Lost != "":
		return refuse(ReplicaLost, lease.Epoch, local.Lost)
	case !view.CaughtUp:
		return refuse(NotCaughtUp, lease.Epoch, "")
	case local.Promise.Epoch > epoch:
		return refuse(Promised, local.Promise.Epoch, "")
	case local.Promise.Epoch == epoch && !local.Promise.to(ask.Lease):
		return refuse(Promised, local.Promise.Epoch, "promised to another holder, or before a restart")
	case view.Index < ask.Grant:
		return refuse(Behind, lease.Epoch, fmt.Sprintf("applied %d, grant at %d", view.Index, ask.Grant))
	case lease.Epoch > epoch:
		return refuse(Superseded, lease.Epoch, "")
	case lease != ask.Lease:
		return refuse(NotGranted, lease.Epoch, fmt.Sprintf("lease of %q incarnation %d", lease.Holder, lease.Incarnation))
	case local.Reconciled != view.Compared():
		return refuse(NotReconciled, local.Reconciled.Epoch, "")
	}
	return nil
}

// To returns the promise of a lease's epoch to its holder.
func To(lease vtop.Lease) Promise {
	return Promise{Epoch: lease.Epoch, Holder: lease.Holder, Incarnation: lease.Incarnation}
}

func (p Promise) to(lease vtop.Lease) bool {
	return p.Holder != "" && lease.HeldBy(p.Holder, p.Incarnation)
}
