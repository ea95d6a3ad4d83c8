package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// CancelRepairs ends repairs, at whatever step they are.
//
//	op            21, since level 1
//	proposed by   any node for an operator; the Raft leader for jobs that are not needed any more
//	precondition  per item: the job is active
//	effect        per item: the job is cancelled, with Reason as its cause; a learner made for it goes (the configuration version
//	              rises), a replica that is a voter by now stays
//	refused       per item: CodeUnknownRepair; CodeRepairEnded if it ended otherwise
//	a repeat      changes nothing and succeeds
type CancelRepairs struct {
	IDs []RepairID
	// Reason is shown to people; required.
	Reason string
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *CancelRepairs) Op() Op { return OpCancelRepairs }

// Check implements Command.
func (c *CancelRepairs) Check() error {
	var s shape
	s.items(len(c.IDs))
	for _, id := range c.IDs {
		s.must(id > 0, "repair id is 0")
	}
	s.must(c.Reason != "", "reason is empty")
	s.text("reason", c.Reason)
	return s.err()
}

func (c *CancelRepairs) encode() proto.Message {
	return &fsmpb.CancelRepairs{
		Ids: mapSlice(c.IDs, func(id RepairID) uint64 { return uint64(id) }), Reason: c.Reason, At: c.At,
	}
}

func decodeCancelRepairs(_ *reader, p *fsmpb.CancelRepairs) *CancelRepairs {
	return &CancelRepairs{
		IDs: mapSlice(p.GetIds(), func(id uint64) RepairID { return RepairID(id) }), Reason: p.GetReason(), At: p.GetAt(),
	}
}

func (c *CancelRepairs) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.IDs, func(id RepairID) Item {
		item := Item{Repair: id}
		if job, ok := t.s.Repair(id); ok {
			item.Range = job.Range
			if job.Step == RepairCancelled {
				return item
			}
		}
		job, refusal := t.activeRepair(id)
		if refusal != nil {
			item.Refusal = refusal
			return item
		}
		job = job.clone()
		job.Cause, job.UpdatedAt = c.Reason, c.At
		t.endRepair(job, RepairCancelled)
		return item
	})}
}
