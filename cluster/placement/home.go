package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vtop-log/vtop"
)

// Home chooses a site for one more replica of a range that has replicas on the nodes in have: one that has none, in a
// rack that has none if there is such a rack, the emptiest first. leaving is the node whose replica is to go; its rack
// counts as free. If there is no site, why says so, naming what was found.
func Home(sites []Site, racks map[vtop.NodeName]string, have []vtop.NodeName, leaving vtop.NodeName) (home vtop.NodeName, why string) {
	used := map[string]bool{}
	for _, n := range have {
		if n != leaving {
			used[racks[n]] = true
		}
	}
	var free []Site
	for _, s := range sites {
		if !slices.Contains(have, s.Name) {
			free = append(free, s)
		}
	}
	if len(free) == 0 {
		return "", homeless(sites, have, leaving)
	}
	best := slices.MinFunc(free, func(a, b Site) int {
		return cmp.Or(order(used[a.Rack], used[b.Rack]), cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Name, b.Name))
	})
	return best.Name, ""
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func homeless(sites []Site, have []vtop.NodeName, leaving vtop.NodeName) string {
	var taken []string
	for _, s := range sites {
		if s.Name != leaving {
			taken = append(taken, string(s.Name))
		}
	}
	if len(taken) == 0 {
		return "there is no other node that is active and alive"
	}
	return fmt.Sprintf("every other node that is active and alive has a replica of it already (%s)", strings.Join(taken, ", "))
}
