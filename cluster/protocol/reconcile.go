package protocol

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// Action is what Reconcile asks for.
type Action uint8

const (
	// Keep: the whole log is real.
	Keep Action = iota + 1
	// Cut: the records from Decision.At on are divergent; remove them.
	Cut
	// Quarantine: the log contradicts the metadata. Nothing is cut, the replica does not vote, people are told.
	Quarantine
)

// Decision is the answer of Reconcile.
type Decision struct {
	Action Action
	// At is the first offset to cut, or the first that contradicts.
	At vtop.Offset
	// Why is a phrase for logs and people; empty for Keep.
	Why string
}

// Reconcile compares a log, given as its runs and end, with the epoch table of a caught-up view (I8). known is the
// offset below which this replica knows that its *own* records are committed: the smaller of its log end and of a high
// watermark that a leader told it after it had reconciled under that leader's epoch; 0 if it knows nothing.
//
// A cut below known is an incident and quarantined. The committed floor will not do in its place. A replica that
// was away with a tail that nobody acknowledged comes back when the others have long committed other records at those
// offsets: the divergence lies below the floor, is proven by the table, and must be cut. What guards the floor is
// that the state machine refuses a StartEpoch below it, so that no table can prove a committed record divergent.
//
// A run of an epoch above the last one in the table is quarantined, never cut: in an unbroken history a record of
// epoch e exists only after StartEpoch{e} was applied by whoever wrote it, so such a record proves that the
// metadata went back. Comparing with the *lease's* epoch would not do: after metadata was lost, the next grants
// pass the lost epochs, and records acknowledged under those would look like superseded ones.
func Reconcile(view View, known vtop.Offset, runs []vtop.EpochRun, end vtop.Offset) Decision {
	last, _ := view.Table.Last()
	for _, run := range runs {
		if run.Epoch > last.Epoch && run.Start < end {
			return Decision{Quarantine, run.Start, fmt.Sprintf("records of epoch %d, but the last epoch started is %d", run.Epoch, last.Epoch)}
		}
	}
	cut, ok := view.Table.Cut(runs, end)
	switch {
	case !ok:
		return Decision{Action: Keep}
	case cut < known:
		return Decision{Quarantine, cut, fmt.Sprintf("divergence at %d, but all below %d was committed here", cut, known)}
	}
	return Decision{Cut, cut, fmt.Sprintf("offsets %d to %d are beyond the span of their epoch", cut, end)}
}
