package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// RegisterSegment catalogues a sealed segment.
//
//	op            14, since level 1
//	proposed by   the holder, once its high watermark covers End
//	precondition  Epoch is the lease's and started; Config is the range's configuration version; the segment follows
//	              the last one ever catalogued: Base ≥ CatalogueEnd, and a gap only where it is wholly below the log start
//	              (a replica that was reset to the log start has nothing below it)
//	effect        the entry is for ever (I9); the floor rises to End. A segment wholly below the log start
//	              is not kept, but moves CatalogueEnd
//	refused       CodeUnknownRange; CodeStaleEpoch; CodeNotStarted; CodeStaleConfig; CodeGap
//	a repeat      (same base, end, size and root as the last) changes nothing and succeeds
type RegisterSegment struct {
	Range     vtop.Range
	Epoch     vtop.Epoch
	Config    uint64
	Base, End vtop.Offset
	Bytes     int64
	Root      [32]byte
	// SealedAt: Unix milliseconds by the proposer's clock.
	SealedAt int64
}

// Op implements Command.
func (c *RegisterSegment) Op() Op { return OpRegisterSegment }

// Check implements Command.
func (c *RegisterSegment) Check() error {
	var s shape
	s.rangeID(c.Range)
	s.epoch(c.Epoch)
	s.must(c.Config > 0, "configuration version is 0")
	s.offset("base", c.Base)
	s.must(c.End > c.Base, "segment [%d, %d) is empty", c.Base, c.End)
	s.must(c.Bytes > 0, "segment of %d bytes", c.Bytes)
	s.must(c.Root != [32]byte{}, "root is zero")
	return s.err()
}

func (c *RegisterSegment) encode() proto.Message {
	return &fsmpb.RegisterSegment{
		Range: putRangeID(c.Range), Epoch: int32(c.Epoch), Config: c.Config,
		Base: int64(c.Base), End: int64(c.End), Bytes: c.Bytes, Root: c.Root[:], SealedAt: c.SealedAt,
	}
}

func decodeRegisterSegment(r *reader, p *fsmpb.RegisterSegment) *RegisterSegment {
	return &RegisterSegment{
		Range: r.rangeID(p.GetRange()), Epoch: vtop.Epoch(p.GetEpoch()), Config: p.GetConfig(),
		Base: vtop.Offset(p.GetBase()), End: vtop.Offset(p.GetEnd()), Bytes: p.GetBytes(), Root: r.root(p.GetRoot()), SealedAt: p.GetSealedAt(),
	}
}

func (c *RegisterSegment) apply(t *tx) Outcome {
	old, refusal := t.leading(c.Range, c.Epoch, c.Config)
	if refusal != nil {
		return Outcome{Refusal: refusal}
	}
	last, ok := t.s.LastSegment(c.Range)
	if ok && last.Base == c.Base && last.End == c.End && last.Bytes == c.Bytes && last.Root == c.Root {
		return Outcome{}
	}
	if c.Base < old.CatalogueEnd || c.Base > max(old.CatalogueEnd, old.LogStart) {
		return Outcome{Refusal: refusef(CodeGap, "segment [%d, %d) of %s does not follow the catalogue, which ends at %d (log start %d)",
			c.Base, c.End, t.s.RangeName(c.Range), old.CatalogueEnd, old.LogStart)}
	}
	r := old.clone()
	r.CatalogueEnd = c.End
	r.Floor = max(r.Floor, c.End)
	r.LogEnd = max(r.LogEnd, c.End)
	t.putRange(r)
	if c.End > r.LogStart {
		t.s.segments.Set(&Segment{
			Range: c.Range, Base: c.Base, End: c.End, Bytes: c.Bytes, Root: c.Root, Epoch: c.Epoch, SealedAt: c.SealedAt,
		})
	}
	return Outcome{}
}
