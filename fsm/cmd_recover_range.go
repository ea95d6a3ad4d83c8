package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// RecoverRange makes one replica the whole of a range whose majority is lost for good. It gives up what is promised: nothing
// but an operator who accepts the loss may want it.
//
//	op            24, since level 1
//	proposed by   any node for an operator, once the lease time has passed since the holder was last heard, and once From was
//	              measured: the end of the kept log after reconciliation with the epoch table
//	precondition  Config is the range's configuration version, Epoch its LastEpoch; Keep is a replica that is not lost, a
//	              learner only if it is known to be whole from the log start to From; From is at or above the log start; the
//	              loss [From, To) covers all that is promised above From
//	effect        Keep is the only voter and the only replica; every other is noted as lost. The lease ends, so that a new grant is
//	              needed, whose epoch is above all before. The floor falls to From if it was above; here alone. Catalogue entries
//	              that end above From go, and the catalogue goes on where the first of them began. [From, To) is noted in
//	              LostOffsets. The configuration version rises. Repairs whose replica went fail
//	refused       CodeUnknownRange; CodeStaleConfig; CodeStaleEpoch; CodeUnknownReplica; CodeReplicaLost; CodeBelowFloor (From is below
//	              the log start: nothing of the range is there); CodeConflict (the floor is above To: somebody writes, measure again)
//	a repeat      is refused with CodeStaleConfig
//
// The epoch table stays as it is, entries that start above From included. No record of theirs is left on a replica of the
// range, and the next StartEpochs, at the kept log's real end, makes those that start at or above it vanish. To drop them here
// would let a kept replica that has more than was measured be cut where nothing was proved (I8). What is left on the disks of
// the others carries replica ids that the range does not know: it is never fenced, never counted, and no source but for
// segments whose root the catalogue still has.
type RecoverRange struct {
	Range vtop.Range
	// Keep is the replica that stays.
	Keep   vtop.ReplicaID
	Config uint64
	Epoch  vtop.Epoch
	// From is the kept replica's log end. [From, To) is what is lost; To is the highest log end or floor known of anybody.
	From, To vtop.Offset
	// Reason is shown to people; required.
	Reason string
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *RecoverRange) Op() Op { return OpRecoverRange }

// Check implements Command.
func (c *RecoverRange) Check() error {
	var s shape
	s.rangeID(c.Range)
	s.must(c.Keep > 0, "replica id is 0")
	s.must(c.Config > 0, "configuration version is 0")
	s.must(c.Epoch >= vtop.NoEpoch, "epoch %d is negative", c.Epoch)
	s.offset("end of the kept log", c.From)
	s.must(c.To >= c.From, "loss [%d, %d) ends before it begins", c.From, c.To)
	s.must(c.Reason != "", "reason is empty")
	s.text("reason", c.Reason)
	return s.err()
}

func (c *RecoverRange) encode() proto.Message {
	return &fsmpb.RecoverRange{
		Range: putRangeID(c.Range), Keep: uint64(c.Keep), Config: c.Config, Epoch: int32(c.Epoch),
		From: int64(c.From), To: int64(c.To), Reason: c.Reason, At: c.At,
	}
}

func decodeRecoverRange(r *reader, p *fsmpb.RecoverRange) *RecoverRange {
	return &RecoverRange{
		Range: r.rangeID(p.GetRange()), Keep: vtop.ReplicaID(p.GetKeep()), Config: p.GetConfig(), Epoch: vtop.Epoch(p.GetEpoch()),
		From: vtop.Offset(p.GetFrom()), To: vtop.Offset(p.GetTo()), Reason: p.GetReason(), At: p.GetAt(),
	}
}

func (c *RecoverRange) apply(t *tx) Outcome {
	old, refusal := t.rangeOf(c.Range)
	if refusal == nil {
		refusal = c.fits(t, old)
	}
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	r := old.clone()
	c.keepOne(t, r)
	if r.Lease.Holder != "" {
		r.endLease(t, LeaseRevoked, "recovered from a lost majority: "+c.Reason, c.At)
	}
	r.LostOffsets = appendCapped(r.LostOffsets, LostOffsets{
		From: c.From, To: c.To, Epoch: old.LastEpoch, Kept: r.Replicas[0].Replica, Floor: old.Floor, Reason: c.Reason, Index: t.index, At: c.At,
	}, MaxLostOffsets)
	r.Floor = min(old.Floor, c.From)
	r.LogEnd = c.From
	r.SettleMark = c.From // the next epoch's start takes its place before a voter may change
	r.ConfigVersion++
	r.CatalogueEnd = min(old.CatalogueEnd, t.cutCatalogue(r.ID, c.From))
	t.putRange(r)
	return Outcome{ConfigVersion: r.ConfigVersion}
}

func (c *RecoverRange) fits(t *tx, r *Range) *Refusal {
	name := t.s.RangeName(r.ID)
	if c.Config != r.ConfigVersion {
		return refusef(CodeStaleConfig, "%s is at configuration version %d, not %d", name, r.ConfigVersion, c.Config)
	}
	if c.Epoch != r.LastEpoch {
		return refusef(CodeStaleEpoch, "recovery of %s expects last epoch %d: it is %d", name, c.Epoch, r.LastEpoch)
	}
	rep, ok := r.Replica(c.Keep)
	switch {
	case !ok:
		return refusef(CodeUnknownReplica, "recover: %s has no replica %d", name, c.Keep)
	case rep.Lost != "":
		return refusef(CodeReplicaLost, "recover: replica %d of %s on %q may have forgotten: %s", rep.ID, name, rep.Node, rep.Lost)
	case c.From < r.LogStart:
		return refusef(CodeBelowFloor, "recover: replica %d of %s on %q ends at %d, below the log start %d: nothing of the range is there",
			rep.ID, name, rep.Node, c.From, r.LogStart)
	case c.To < r.Floor:
		return refusef(CodeConflict, "recover: the loss [%d, %d) of %s was measured before the floor came to %d: somebody writes; measure again",
			c.From, c.To, name, r.Floor)
	}
	return nil
}

// keepOne makes the kept replica the only one of a range that is being made; the others are noted as lost, once.
func (c *RecoverRange) keepOne(t *tx, r *Range) {
	kept, _ := r.Replica(c.Keep)
	for _, rep := range r.Replicas {
		if rep.ID != c.Keep && rep.Lost == "" {
			reason := fmt.Sprintf("recovered from replica %d on %q: %s", kept.ID, kept.Node, c.Reason)
			r.Losses = appendCapped(r.Losses, Loss{Replica: rep.Replica, Reason: reason, Index: t.index, At: c.At}, MaxLosses)
		}
	}
	kept.Role = Voter
	r.Replicas = []Replica{kept}
	r.prefer(kept.Node, t.holdsPlace(r, false))
}

// cutCatalogue forgets the catalogue entries of a range that end above end, and returns where the first of them began; beyond
// any offset if there was none.
func (t *tx) cutCatalogue(id vtop.Range, end vtop.Offset) vtop.Offset {
	first := vtop.Offset(1<<63 - 1)
	var gone []*Segment
	for seg := range t.s.Catalogue(id) {
		if seg.End > end {
			first = min(first, seg.Base)
			gone = append(gone, seg)
		}
	}
	for _, seg := range gone {
		t.s.segments.Delete(seg)
	}
	return first
}
