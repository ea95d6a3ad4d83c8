package fsm

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// GrantLeases gives leases of many ranges at once.
//
//	op            9, since level 1
//	proposed by   the placement loop on the Raft leader
//	precondition  per item: Expected is the range's LastEpoch; Incarnation is the holder's registered one; the
//	              holder is not gone and has a voting replica of the range that is not lost
//	effect        per item: epoch = max(last, Minimum-1) + 1, minted here and so unique and rising (I5); the lease is
//	              not started; a lease that was there ends
//	refused       per item: CodeUnknownRange; CodeStaleEpoch; CodeUnknownNode; CodeNodeGone;
//	              CodeStaleIncarnation; CodeNotVoter; CodeReplicaLost; CodeLimit (no epoch left)
//	a repeat      is refused with CodeStaleEpoch
type GrantLeases struct {
	Items []Grant
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Grant is one item of GrantLeases.
type Grant struct {
	Range       vtop.Range
	Holder      vtop.NodeName
	Incarnation vtop.Incarnation
	// Expected is the LastEpoch on which the decision is based.
	Expected vtop.Epoch
	// Minimum is the lowest epoch that will do; 0 asks for none. After a fence was refused because of a promise p,
	// it is p+1.
	Minimum vtop.Epoch
	// Reason is shown to people.
	Reason string
}

// Op implements Command.
func (c *GrantLeases) Op() Op { return OpGrantLeases }

// Check implements Command.
func (c *GrantLeases) Check() error {
	var s shape
	s.items(len(c.Items))
	for _, g := range c.Items {
		s.rangeID(g.Range)
		s.node(g.Holder)
		s.must(g.Incarnation > 0, "incarnation is 0")
		s.must(g.Expected >= 0 && g.Minimum >= 0, "expected epoch %d, minimum %d: want 0 or more", g.Expected, g.Minimum)
		s.text("reason", g.Reason)
	}
	return s.err()
}

func (c *GrantLeases) encode() proto.Message {
	return &fsmpb.GrantLeases{At: c.At, Items: mapSlice(c.Items, func(g Grant) *fsmpb.GrantLeases_Item {
		return &fsmpb.GrantLeases_Item{
			Range: putRangeID(g.Range), Holder: string(g.Holder), Incarnation: uint64(g.Incarnation),
			Expected: int32(g.Expected), Minimum: int32(g.Minimum), Reason: g.Reason,
		}
	})}
}

func decodeGrantLeases(r *reader, p *fsmpb.GrantLeases) *GrantLeases {
	return &GrantLeases{At: p.GetAt(), Items: mapSlice(p.GetItems(), func(g *fsmpb.GrantLeases_Item) Grant {
		return Grant{
			Range: r.rangeID(g.GetRange()), Holder: vtop.NodeName(g.GetHolder()), Incarnation: vtop.Incarnation(g.GetIncarnation()),
			Expected: vtop.Epoch(g.GetExpected()), Minimum: vtop.Epoch(g.GetMinimum()), Reason: g.GetReason(),
		}
	})}
}

func (c *GrantLeases) apply(t *tx) Outcome {
	return Outcome{Items: mapSlice(c.Items, func(g Grant) Item {
		epoch, refusal := g.apply(t, c.At)
		return Item{Range: g.Range, Epoch: epoch, Refusal: refusal}
	})}
}

func (g Grant) apply(t *tx, at int64) (vtop.Epoch, *Refusal) {
	old, refusal := t.rangeOf(g.Range)
	if refusal != nil {
		return vtop.NoEpoch, refusal
	}
	if old.LastEpoch != g.Expected {
		return vtop.NoEpoch, refusef(CodeStaleEpoch, "grant of %s expects last epoch %d: it is %d", t.s.RangeName(g.Range), g.Expected, old.LastEpoch)
	}
	if refusal := g.holderFits(t, old); refusal != nil {
		return vtop.NoEpoch, refusal
	}
	last := max(old.LastEpoch, g.Minimum-1)
	if last == math.MaxInt32 {
		return vtop.NoEpoch, refusef(CodeLimit, "grant of %s: no epoch is left above %d", t.s.RangeName(g.Range), last)
	}
	r := old.clone()
	r.LastEpoch = last + 1
	r.Lease = vtop.Lease{Range: g.Range, Holder: g.Holder, Incarnation: g.Incarnation, Epoch: r.LastEpoch}
	r.Started, r.GrantIndex, r.GrantedAt, r.GrantReason = false, t.index, at, g.Reason
	r.QuorumPosition = NoOffset
	r.note(t, LeaseGranted, g.Reason, at)
	t.putRange(r)
	return r.LastEpoch, nil
}

// holderFits: only a present voter that can vote, in its registered incarnation.
func (g Grant) holderFits(t *tx, r *Range) *Refusal {
	n, refusal := t.node(g.Holder, g.Incarnation)
	if refusal != nil {
		return refusal
	}
	if n.State == NodeGone {
		return refusef(CodeNodeGone, "grant of %s: node %q was removed", t.s.RangeName(g.Range), g.Holder)
	}
	if _, ok := r.VoterOn(g.Holder); ok {
		return nil
	}
	for _, rep := range r.Replicas {
		if rep.Node == g.Holder && rep.Lost != "" {
			return refusef(CodeReplicaLost, "grant of %s: replica %d on %q may have forgotten: %s", t.s.RangeName(g.Range), rep.ID, g.Holder, rep.Lost)
		}
	}
	return refusef(CodeNotVoter, "grant of %s: node %q has no voting replica of it", t.s.RangeName(g.Range), g.Holder)
}
