package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// ReportFloors tells how far the ranges that a node leads are safe.
//
//	op            12, since level 1
//	proposed by   the holder, about once a second and at every seal and orderly stop, for what moved; and once for
//	              each new epoch and configuration version of a range whose voters are to change
//	precondition  per item: Epoch is the lease's and started, Config the range's configuration version
//	effect        per item: floor and quorum position rise to what is reported; neither ever goes back
//	refused       per item: CodeUnknownRange; CodeStaleEpoch; CodeNotStarted; CodeStaleConfig
//	a repeat      changes nothing and succeeds
type ReportFloors struct {
	Items []FloorReport
}

// FloorReport is one item of ReportFloors.
type FloorReport struct {
	Range  vtop.Range
	Epoch  vtop.Epoch
	Config uint64
	// Floor is the leader's high watermark, at most LogEnd.
	Floor vtop.Offset
	// QuorumPosition is what a majority of the voters of Config has durable under Epoch, recomputed from their
	// acknowledgements: unlike the high watermark it may be lower than before. NoOffset if unknown; at most LogEnd.
	QuorumPosition vtop.Offset
	// LogEnd is shown only.
	LogEnd vtop.Offset
}

// Op implements Command.
func (c *ReportFloors) Op() Op { return OpReportFloors }

// Check implements Command.
func (c *ReportFloors) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, f := range c.Items {
		s.rangeID(f.Range)
		s.epoch(f.Epoch)
		s.must(f.Config > 0, "configuration version is 0")
		s.offset("floor", f.Floor)
		s.must(f.Floor <= f.LogEnd, "floor %d is above the log end %d", f.Floor, f.LogEnd)
		s.must(f.QuorumPosition >= NoOffset && f.QuorumPosition <= f.LogEnd,
			"quorum position %d: want -1 to the log end %d", f.QuorumPosition, f.LogEnd)
	}
	return s.err()
}

func (c *ReportFloors) encode() proto.Message {
	return &fsmpb.ReportFloors{Items: mapSlice(c.Items, func(f FloorReport) *fsmpb.ReportFloors_Item {
		return &fsmpb.ReportFloors_Item{
			Range: putRangeID(f.Range), Epoch: int32(f.Epoch), Config: f.Config,
			Floor: int64(f.Floor), QuorumPosition: int64(f.QuorumPosition), LogEnd: int64(f.LogEnd),
		}
	})}
}

func decodeReportFloors(r *reader, p *fsmpb.ReportFloors) *ReportFloors {
	return &ReportFloors{Items: mapSlice(p.GetItems(), func(f *fsmpb.ReportFloors_Item) FloorReport {
		return FloorReport{
			Range: r.rangeID(f.GetRange()), Epoch: vtop.Epoch(f.GetEpoch()), Config: f.GetConfig(), Floor: vtop.Offset(f.GetFloor()),
			QuorumPosition: vtop.Offset(f.GetQuorumPosition()), LogEnd: vtop.Offset(f.GetLogEnd()),
		}
	})}
}

func (c *ReportFloors) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(f FloorReport) Item {
		return Item{Range: f.Range, Epoch: f.Epoch, Refusal: f.apply(t)}
	})}
}

func (f FloorReport) apply(t *tx) *Refusal {
	old, refusal := t.leading(f.Range, f.Epoch, f.Config)
	if refusal != nil {
		return refusal
	}
	r := old.clone()
	r.Floor = max(r.Floor, f.Floor)
	r.QuorumPosition = max(r.QuorumPosition, f.QuorumPosition)
	r.LogEnd = max(r.LogEnd, f.LogEnd)
	if r.Floor != old.Floor || r.QuorumPosition != old.QuorumPosition || r.LogEnd != old.LogEnd {
		t.putRange(r)
	}
	return nil
}
