package placement

import (
	"slices"

	"github.com/vtop-log/vtop"
)

// Node is what is known of one node when a decision is made.
type Node struct {
	Name        vtop.NodeName
	Incarnation vtop.Incarnation
	// Fit: active, alive by the verdict, and heard of under its registered incarnation.
	Fit bool
	// HasRoom: Fit, and its disk takes writes.
	HasRoom bool
	// Leases it holds now, by the applied state.
	Leases int
}

// UnknownEnd is the log end of a voter that was not asked or did not answer.
const UnknownEnd vtop.Offset = -1

// Voter is one voter of a range.
type Voter struct {
	Node vtop.NodeName
	// Lost: it may have forgotten (I10) and cannot lead.
	Lost bool
	// LastEpoch and End are its position, End UnknownEnd if not known. A later epoch is further ahead than any
	// offset of an earlier one.
	LastEpoch vtop.Epoch
	End       vtop.Offset
	// Damaged: it votes, and serves nothing of a sealed segment. It leads only where no other can.
	Damaged bool
}

// Range is one range that may need a holder. Voters stand in the order of preference.
type Range struct {
	ID     vtop.Range
	Lease  vtop.Lease
	Voters []Voter
	// Fresh: it never served, so that no voter is ahead of another.
	Fresh bool
	// Avoid is a holder that had its promotion deadline and did not start; it comes last.
	Avoid vtop.NodeName
}

// Grant is one decision: this node is to hold the range, decided when its last epoch was Expected.
type Grant struct {
	Range       vtop.Range
	Holder      vtop.NodeName
	Incarnation vtop.Incarnation
	Expected    vtop.Epoch
}

// Plan chooses a holder for each of the ranges, which the caller found to need one. A range none of whose voters
// can lead gets no grant and is returned in stuck. One with room is preferred, then one that serves all its segments,
// then the one furthest ahead, since it has nothing to fetch; then the one with the fewest leases, counting those this
// very plan gives; then the order of preference. A fresh range goes by the order of preference alone: Assign has spread
// it, and anywhere else the lease would only have to come home later.
func Plan(nodes []Node, ranges []Range) (grants []Grant, stuck []vtop.Range) {
	byName := make(map[vtop.NodeName]*Node, len(nodes))
	for i := range nodes {
		n := nodes[i]
		byName[n.Name] = &n
	}
	for _, r := range ranges {
		best := choose(byName, r)
		if best == nil {
			stuck = append(stuck, r.ID)
			continue
		}
		best.Leases++
		grants = append(grants, Grant{Range: r.ID, Holder: best.Name, Incarnation: best.Incarnation, Expected: r.Lease.Epoch})
	}
	return grants, stuck
}

func choose(nodes map[vtop.NodeName]*Node, r Range) *Node {
	var best *Node
	var bestVoter Voter
	for _, v := range r.Voters {
		n := nodes[v.Node]
		if n == nil || !n.Fit || v.Lost {
			continue
		}
		if best == nil || better(n, v, best, bestVoter, r) {
			best, bestVoter = n, v
		}
	}
	return best
}

// better reports whether n should hold the range rather than b. Ties keep the order of preference.
func better(n *Node, v Voter, b *Node, bv Voter, r Range) bool {
	if (v.Node == r.Avoid) != (bv.Node == r.Avoid) {
		return bv.Node == r.Avoid
	}
	if n.HasRoom != b.HasRoom {
		return n.HasRoom
	}
	if v.Damaged != bv.Damaged {
		return bv.Damaged
	}
	if v.LastEpoch != bv.LastEpoch {
		return v.LastEpoch > bv.LastEpoch
	}
	if v.End != bv.End {
		return v.End > bv.End
	}
	return !r.Fresh && n.Leases < b.Leases
}

// Balance proposes up to limit moves that bring leases home: to the first voter in the order of preference that
// is fit, if it isn't the holder and is as far as the holder. Ranges whose positions are not known stay. The
// order of preference was spread evenly when the replicas were placed, so home is also balance.
func Balance(nodes []Node, ranges []Range, limit int) []Grant {
	byName := make(map[vtop.NodeName]Node, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
	}
	var moves []Grant
	for _, r := range ranges {
		if len(moves) >= limit {
			break
		}
		home := slices.IndexFunc(r.Voters, func(v Voter) bool { return byName[v.Node].HasRoom && !v.Lost })
		holder := slices.IndexFunc(r.Voters, func(v Voter) bool { return v.Node == r.Lease.Holder })
		if home < 0 || holder < 0 || home >= holder {
			continue
		}
		h, now := r.Voters[home], r.Voters[holder]
		if h.Damaged || h.End == UnknownEnd || now.End == UnknownEnd || h.End < now.End || h.LastEpoch < now.LastEpoch {
			continue
		}
		moves = append(moves, Grant{Range: r.ID, Holder: h.Node, Incarnation: byName[h.Node].Incarnation, Expected: r.Lease.Epoch})
	}
	return moves
}
