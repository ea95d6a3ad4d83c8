package protocol

import (
	"slices"

	"github.com/vtop-log/vtop"
)

// NoOffset says that no majority has acknowledged anything yet. It is below every offset.
const NoOffset vtop.Offset = -1

// Set is a set of replica ids: sorted, without repeats, never edited in place. The empty set has no majority.
type Set []vtop.ReplicaID

// NewSet returns the set of the ids given, in any order. Repeats count once.
func NewSet(ids ...vtop.ReplicaID) Set {
	s := slices.Clone(ids)
	slices.Sort(s)
	return slices.Compact(s)
}

// Has reports whether id is a member.
func (s Set) Has(id vtop.ReplicaID) bool {
	_, ok := slices.BinarySearch(s, id)
	return ok
}

// With returns the set with id added.
func (s Set) With(id vtop.ReplicaID) Set {
	return NewSet(append(slices.Clone(s), id)...)
}

// Without returns the set with id removed.
func (s Set) Without(id vtop.ReplicaID) Set {
	out := make(Set, 0, len(s))
	for _, have := range s {
		if have != id {
			out = append(out, have)
		}
	}
	return out
}

// Equal reports whether both sets have the same members.
func (s Set) Equal(o Set) bool { return slices.Equal(s, o) }

// Majority returns how many members make a quorum: more than half. It is 1 for the empty set, which never has it.
func (s Set) Majority() int { return len(s)/2 + 1 }

// Committed returns the offset below which a majority of the set has acknowledged all, NoOffset if no majority
// has acknowledged anything. Marks of replicas outside the set count for nothing (I10).
func (s Set) Committed(marks Marks) vtop.Offset {
	n, need := len(s), s.Majority()
	if n < need {
		return NoOffset
	}
	var buf [8]vtop.Offset
	ends := buf[:0]
	for _, id := range s {
		ends = append(ends, marks.Of(id))
	}
	slices.Sort(ends)
	return ends[n-need]
}

// Mark says that a replica has acknowledged all below End in the epoch at hand.
type Mark struct {
	Replica vtop.ReplicaID
	End     vtop.Offset
}

// Marks holds at most one mark for each replica, sorted by replica id. The zero value is empty.
type Marks []Mark

// Of returns the replica's mark, NoOffset if it has acknowledged nothing in this epoch.
func (m Marks) Of(id vtop.ReplicaID) vtop.Offset {
	if i, ok := m.find(id); ok {
		return m[i].End
	}
	return NoOffset
}

// raise records that the replica has acknowledged all below end. A mark never goes back: in one epoch a replica's
// durable end only grows, and a lower one is an old message. It reports whether the mark moved.
func (m *Marks) raise(id vtop.ReplicaID, end vtop.Offset) bool {
	i, ok := m.find(id)
	if !ok {
		*m = slices.Insert(*m, i, Mark{id, end})
		return true
	}
	if (*m)[i].End >= end {
		return false
	}
	(*m)[i].End = end
	return true
}

func (m Marks) find(id vtop.ReplicaID) (int, bool) {
	return slices.BinarySearchFunc(m, id, func(a Mark, id vtop.ReplicaID) int {
		switch {
		case a.Replica < id:
			return -1
		case a.Replica > id:
			return 1
		}
		return 0
	})
}

// Voters is who counts for the quorum of a range: one set, or two while a change of voters is in flight. Then
// both must agree, because nobody can tell yet under which of them the next leader will be chosen.
type Voters struct {
	// Present is the set of the applied state.
	Present Set
	// Next is the set that a proposed change would make; nil when none is in flight.
	Next Set
}

// Joint reports whether a change is in flight.
func (v Voters) Joint() bool { return v.Next != nil }

// Has reports whether the replica counts in either set.
func (v Voters) Has(id vtop.ReplicaID) bool { return v.Present.Has(id) || v.Next.Has(id) }

// Committed returns the offset below which a majority of each set has acknowledged all.
func (v Voters) Committed(marks Marks) vtop.Offset {
	end := v.Present.Committed(marks)
	if v.Joint() {
		end = min(end, v.Next.Committed(marks))
	}
	return end
}
