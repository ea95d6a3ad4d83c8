package group

import (
	"slices"

	"github.com/vtop-log/vtop"
)

// rangeSet is a set of ranges: sorted, without duplicates, never written again once made. nil is the empty set.
type rangeSet []vtop.Range

// newRangeSet sorts ranges in place and makes a set of them.
func newRangeSet(ranges []vtop.Range) rangeSet {
	slices.SortFunc(ranges, vtop.Range.Compare)
	return slices.Compact(ranges)
}

func (s rangeSet) has(r vtop.Range) bool {
	_, found := slices.BinarySearchFunc(s, r, vtop.Range.Compare)
	return found
}

func (s rangeSet) equal(o rangeSet) bool { return slices.Equal(s, o) }

// minus gives what is in s and not in o.
func (s rangeSet) minus(o rangeSet) rangeSet {
	return s.where(func(r vtop.Range) bool { return !o.has(r) })
}

// and gives what is in both.
func (s rangeSet) and(o rangeSet) rangeSet { return s.where(o.has) }

// or gives what is in either.
func (s rangeSet) or(o rangeSet) rangeSet {
	switch {
	case len(o) == 0:
		return s
	case len(s) == 0:
		return o
	}
	return newRangeSet(slices.Concat(s, o))
}

// where gives the ranges for which keep is true. It is s itself if that is all of them.
func (s rangeSet) where(keep func(vtop.Range) bool) rangeSet {
	for i, r := range s {
		if keep(r) {
			continue
		}
		out := slices.Clone(s[:i])
		for _, r := range s[i+1:] {
			if keep(r) {
				out = append(out, r)
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return s
}
