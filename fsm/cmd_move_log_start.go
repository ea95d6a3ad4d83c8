package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// MoveLogStart gives up the oldest records of a range.
//
//	op            13, since level 1
//	proposed by   the holder: retention, DeleteRecords
//	precondition  Epoch is the lease's and started; Start is at or below the floor
//	effect        the log start rises to Start and never goes back; catalogue entries wholly below go, and so do
//	              epoch table entries whose span ends there
//	refused       CodeUnknownRange; CodeStaleEpoch; CodeNotStarted; CodeAboveFloor (I1)
//	a repeat      changes nothing and succeeds
type MoveLogStart struct {
	Range vtop.Range
	Epoch vtop.Epoch
	Start vtop.Offset
}

// Op implements Command.
func (c *MoveLogStart) Op() Op { return OpMoveLogStart }

// Check implements Command.
func (c *MoveLogStart) Check() error {
	var s shape
	s.rangeID(c.Range)
	s.epoch(c.Epoch)
	s.offset("start", c.Start)
	return s.err()
}

func (c *MoveLogStart) encode() proto.Message {
	return &fsmpb.MoveLogStart{Range: putRangeID(c.Range), Epoch: int32(c.Epoch), Start: int64(c.Start)}
}

func decodeMoveLogStart(r *reader, p *fsmpb.MoveLogStart) *MoveLogStart {
	return &MoveLogStart{Range: r.rangeID(p.GetRange()), Epoch: vtop.Epoch(p.GetEpoch()), Start: vtop.Offset(p.GetStart())}
}

func (c *MoveLogStart) apply(t *tx) Outcome {
	old, refusal := t.leading(c.Range, c.Epoch, 0)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	if c.Start > old.Floor {
		return Outcome{Refusal: refusef(CodeAboveFloor, "log start of %s cannot move to %d: only what lies below the floor %d is known to be committed",
			t.s.RangeName(c.Range), c.Start, old.Floor)}
	}
	if c.Start <= old.LogStart {
		return Outcome{}
	}
	r := old.clone()
	r.LogStart = c.Start
	r.Epochs = r.Epochs.Trim(c.Start)
	t.putRange(r)
	t.dropSegments(c.Range, c.Start)
	return Outcome{}
}
