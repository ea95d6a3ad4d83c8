package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// Site is a node that may take replicas.
type Site struct {
	Name vtop.NodeName
	Rack string
	// Replicas it has now; Preferred is how many ranges prefer it as their holder.
	Replicas, Preferred int
}

// ErrTooFewNodes is what every TooFewNodesError matches. More nodes heal it, or those back that are down.
var ErrTooFewNodes = errors.New("too few nodes")

// TooFewNodesError says that a topic asked for more replicas than there are nodes to take them. It matches ErrTooFewNodes.
type TooFewNodesError struct{ Wanted, Have int }

// Error implements error.
func (e *TooFewNodesError) Error() string {
	return fmt.Sprintf("replication factor %d needs %d live nodes, and there are %d: add nodes or ask for fewer replicas", e.Wanted, e.Wanted, e.Have)
}

// Is implements errors.Is.
func (e *TooFewNodesError) Is(target error) bool { return target == ErrTooFewNodes }

// Assign places ranges with the given number of replicas each on the sites: one replica a node, as many racks
// as there are, the first replica (the preferred holder) spread evenly, the others likewise. The emptiest
// nodes come first. The answer depends on the arguments alone.
func Assign(sites []Site, ranges, replicas int) ([][]vtop.NodeName, error) {
	if replicas < 1 || ranges < 1 {
		return nil, fmt.Errorf("%d ranges with %d replicas: both must be at least 1", ranges, replicas)
	}
	if replicas > len(sites) {
		return nil, &TooFewNodesError{Wanted: replicas, Have: len(sites)}
	}
	ring := rackAlternating(sites)
	out := make([][]vtop.NodeName, ranges)
	for i := range out {
		out[i] = place(ring, i, replicas)
	}
	return out, nil
}

// rackAlternating orders the sites so that neighbours stand in different racks while there are any.
func rackAlternating(sites []Site) []Site {
	byRack := map[string][]Site{}
	for _, s := range sites {
		byRack[s.Rack] = append(byRack[s.Rack], s)
	}
	var racks []string
	for rack, in := range byRack {
		slices.SortFunc(in, func(a, b Site) int {
			return cmp.Or(compareLoad(a, b), cmp.Compare(a.Name, b.Name))
		})
		racks = append(racks, rack)
	}
	slices.SortFunc(racks, func(a, b string) int {
		return cmp.Or(compareLoad(byRack[a][0], byRack[b][0]), cmp.Compare(a, b))
	})
	ring := make([]Site, 0, len(sites))
	for depth := 0; len(ring) < len(sites); depth++ {
		for _, rack := range racks {
			if depth < len(byRack[rack]) {
				ring = append(ring, byRack[rack][depth])
			}
		}
	}
	return ring
}

// compareLoad puts the emptier site first, and of two with as many replicas the one that fewer ranges prefer, so that
// a hundred topics of one range do not all prefer the same node.
func compareLoad(a, b Site) int {
	return cmp.Or(cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Preferred, b.Preferred))
}

// place gives range i its nodes: the first at position i of the ring; the others follow it, shifted a little more
// each time round so that the same pair of nodes does not share all its ranges; a rack already used is taken only
// when no other is left.
func place(ring []Site, i, replicas int) []vtop.NodeName {
	n := len(ring)
	first := ring[i%n]
	chosen := []vtop.NodeName{first.Name}
	racks := map[string]int{first.Rack: 1}
	shift := 0
	if n > 1 {
		shift = (i / n) % (n - 1)
	}
	for limit := 1; len(chosen) < replicas; limit++ {
		for step := 0; step < n-1 && len(chosen) < replicas; step++ {
			s := ring[(i+1+(step+shift)%(n-1))%n]
			if racks[s.Rack] >= limit || slices.Contains(chosen, s.Name) {
				continue
			}
			racks[s.Rack]++
			chosen = append(chosen, s.Name)
		}
	}
	return chosen
}
