package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// ReleaseLeases gives leases back.
//
//	op            11, since level 1
//	proposed by   the holder: orderly stop, hand-over, failed disk
//	precondition  per item: Epoch is the lease's
//	effect        per item: no lease; LastEpoch stays
//	refused       per item: CodeUnknownRange; CodeStaleEpoch
//	a repeat      changes nothing and succeeds until the next grant
type ReleaseLeases struct {
	Items []Release
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Release is one item of ReleaseLeases.
type Release struct {
	Range vtop.Range
	Epoch vtop.Epoch
	// Reason is shown to people.
	Reason string
}

// Op implements Command.
func (c *ReleaseLeases) Op() Op { return OpReleaseLeases }

// Check implements Command.
func (c *ReleaseLeases) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, e := range c.Items {
		s.rangeID(e.Range)
		s.epoch(e.Epoch)
		s.text("reason", e.Reason)
	}
	return s.err()
}

func (c *ReleaseLeases) encode() proto.Message {
	return &fsmpb.ReleaseLeases{At: c.At, Items: mapSlice(c.Items, func(e Release) *fsmpb.ReleaseLeases_Item {
		return &fsmpb.ReleaseLeases_Item{Range: putRangeID(e.Range), Epoch: int32(e.Epoch), Reason: e.Reason}
	})}
}

func decodeReleaseLeases(r *reader, p *fsmpb.ReleaseLeases) *ReleaseLeases {
	return &ReleaseLeases{At: p.GetAt(), Items: mapSlice(p.GetItems(), func(e *fsmpb.ReleaseLeases_Item) Release {
		return Release{Range: r.rangeID(e.GetRange()), Epoch: vtop.Epoch(e.GetEpoch()), Reason: e.GetReason()}
	})}
}

func (c *ReleaseLeases) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(e Release) Item {
		return Item{Range: e.Range, Epoch: e.Epoch, Refusal: e.apply(t, c.At)}
	})}
}

func (e Release) apply(t *tx, at int64) *Refusal {
	old, refusal := t.rangeOf(e.Range)
	if refusal != nil {
		return refusal
	}
	if old.Lease.Holder == "" && old.LastEpoch == e.Epoch {
		return nil
	}
	if _, refusal := t.leased(e.Range, e.Epoch); refusal != nil {
		return refusal
	}
	r := old.clone()
	r.endLease(t, LeaseReleased, e.Reason, at)
	t.putRange(r)
	return nil
}
