package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// StartEpochs says that a new holder is ready to lead.
//
//	op            10, since level 1
//	proposed by   the holder, after fence and reconciliation
//	precondition  per item: Epoch is the lease's, and the holder's incarnation is still the registered one;
//	              Start is at or above the floor
//	effect        per item: the epoch table takes (Epoch, Start), and every older entry that starts at or above Start
//	              vanishes; the lease is started; Start is the new settle mark and no quorum position is known
//	refused       per item: CodeUnknownRange; CodeStaleEpoch; CodeStaleIncarnation; CodeBelowFloor (I8);
//	              CodeConflict: started already, at another offset; CodeLimit
//	a repeat      changes nothing and succeeds
type StartEpochs struct {
	Items []EpochStart
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// EpochStart is one item of StartEpochs.
type EpochStart struct {
	Range vtop.Range
	Epoch vtop.Epoch
	// Start is the holder's log end: the first offset that it will give out.
	Start vtop.Offset
}

// Op implements Command.
func (c *StartEpochs) Op() Op { return OpStartEpochs }

// Check implements Command.
func (c *StartEpochs) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, e := range c.Items {
		s.rangeID(e.Range)
		s.epoch(e.Epoch)
		s.offset("start", e.Start)
	}
	return s.err()
}

func (c *StartEpochs) encode() proto.Message {
	return &fsmpb.StartEpochs{At: c.At, Items: mapSlice(c.Items, func(e EpochStart) *fsmpb.StartEpochs_Item {
		return &fsmpb.StartEpochs_Item{Range: putRangeID(e.Range), Epoch: int32(e.Epoch), Start: int64(e.Start)}
	})}
}

func decodeStartEpochs(r *reader, p *fsmpb.StartEpochs) *StartEpochs {
	return &StartEpochs{At: p.GetAt(), Items: mapSlice(p.GetItems(), func(e *fsmpb.StartEpochs_Item) EpochStart {
		return EpochStart{Range: r.rangeID(e.GetRange()), Epoch: vtop.Epoch(e.GetEpoch()), Start: vtop.Offset(e.GetStart())}
	})}
}

func (c *StartEpochs) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(e EpochStart) Item {
		return Item{Range: e.Range, Epoch: e.Epoch, Refusal: e.apply(t, c.At)}
	})}
}

func (e EpochStart) apply(t *tx, at int64) *Refusal {
	old, refusal := t.leased(e.Range, e.Epoch)
	if refusal != nil {
		return refusal
	}
	if _, refusal := t.node(old.Lease.Holder, old.Lease.Incarnation); refusal != nil {
		return refusal
	}
	if old.Started {
		if last, _ := old.Epochs.Last(); last == (vtop.EpochStart{Epoch: e.Epoch, Start: e.Start}) {
			return nil
		}
		return refusef(CodeConflict, "epoch %d of %s starts at %d: it has started already, at another offset", e.Epoch, t.s.RangeName(e.Range), e.Start)
	}
	if e.Start < old.Floor {
		return refusef(CodeBelowFloor, "epoch %d of %s would start at %d, but everything below %d is promised (I8)", e.Epoch, t.s.RangeName(e.Range), e.Start, old.Floor)
	}
	table, err := old.Epochs.With(e.Epoch, e.Start)
	if err != nil {
		return refusef(CodeConflict, "%s: %v", t.s.RangeName(e.Range), err)
	}
	if table = table.Trim(old.LogStart); len(table) > MaxEpochs {
		return refusef(CodeLimit, "epoch table of %s would have %d entries, at most %d", t.s.RangeName(e.Range), len(table), MaxEpochs)
	}
	r := old.clone()
	r.Epochs = table
	r.Started = true
	r.SettleMark = e.Start // no quorum position is known since the grant
	r.LogEnd = e.Start
	r.note(t, LeaseStarted, fmt.Sprintf(startedFrom, e.Start), at)
	t.putRange(r)
	return nil
}

// startedFrom is the reason of a LeaseStarted.
const startedFrom = "from offset %d"

// Start is where the epoch of a LeaseStarted began; ok is false for other changes. The epoch table forgets it once nothing of
// that epoch is left.
func (c *LeaseChange) Start() (start vtop.Offset, ok bool) {
	if c.Event != LeaseStarted {
		return 0, false
	}
	_, err := fmt.Sscanf(c.Reason, startedFrom, &start)
	return start, err == nil
}
