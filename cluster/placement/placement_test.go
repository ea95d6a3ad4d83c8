package placement

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
)

func fit(names ...vtop.NodeName) []Node {
	var out []Node
	for _, n := range names {
		out = append(out, Node{Name: n, Incarnation: 7, Fit: true, HasRoom: true})
	}
	return out
}

func rangeOf(i int32, epoch vtop.Epoch, holder vtop.NodeName, voters ...Voter) Range {
	id := vtop.Range{Index: i}
	return Range{ID: id, Lease: vtop.Lease{Range: id, Holder: holder, Epoch: epoch}, Voters: voters}
}

func holderOf(t *testing.T, nodes []Node, r Range) vtop.NodeName {
	t.Helper()
	grants, stuck := Plan(nodes, []Range{r})
	if len(stuck) > 0 {
		return ""
	}
	if g := grants[0]; g.Expected != r.Lease.Epoch || g.Range != r.ID || g.Incarnation != 7 {
		t.Fatalf("grant %+v does not name what it was decided on", g)
	}
	return grants[0].Holder
}

func TestPlan_PrefersTheVoterFurthestAhead(t *testing.T) {
	r := rangeOf(0, 3, "a", Voter{Node: "b", LastEpoch: 3, End: 10}, Voter{Node: "c", LastEpoch: 3, End: 11})
	if h := holderOf(t, fit("b", "c"), r); h != "c" {
		t.Fatalf("chose %s", h)
	}
	// A later epoch is further ahead than any offset of an earlier one.
	r = rangeOf(0, 7, "a", Voter{Node: "b", LastEpoch: 5, End: 100}, Voter{Node: "c", LastEpoch: 7, End: 80})
	if h := holderOf(t, fit("b", "c"), r); h != "c" {
		t.Fatalf("chose %s", h)
	}
}

func TestPlan_NeverChoosesTheUnfitTheLostOrTheStranger(t *testing.T) {
	nodes := fit("b", "c", "d")
	nodes[0].Fit = false
	r := rangeOf(0, 3, "a", Voter{Node: "b", End: 50}, Voter{Node: "c", Lost: true, End: 60}, Voter{Node: "gone", End: 70})
	if h := holderOf(t, nodes, r); h != "" {
		t.Fatalf("chose %s", h)
	}
}

func TestPlan_RoomAndAvoidComeBeforePosition(t *testing.T) {
	nodes := fit("b", "c")
	nodes[1].HasRoom = false
	r := rangeOf(0, 3, "a", Voter{Node: "b", End: 10}, Voter{Node: "c", End: 11})
	if h := holderOf(t, nodes, r); h != "b" {
		t.Fatalf("chose %s, whose disk is full", h)
	}
	r.Avoid = "b"
	if h := holderOf(t, fit("b", "c"), r); h != "c" {
		t.Fatalf("chose %s, which did not start in time", h)
	}
	if h := holderOf(t, fit("b"), r); h != "b" {
		t.Fatalf("the only voter left was avoided: %q", h)
	}
}

func TestPlan_SpreadsTheLeasesOfADeadNode(t *testing.T) {
	var ranges []Range
	for i := range int32(10) {
		ranges = append(ranges, rangeOf(i, 1, "a", Voter{Node: "a", End: 5}, Voter{Node: "b", End: 5}, Voter{Node: "c", End: 5}))
	}
	grants, stuck := Plan(fit("b", "c"), ranges)
	count := map[vtop.NodeName]int{}
	for _, g := range grants {
		count[g.Holder]++
	}
	if len(stuck) != 0 || count["b"] != 5 || count["c"] != 5 {
		t.Fatalf("stuck %v, leases %v", stuck, count)
	}
}

func TestPlan_FreshRangeGoesToItsPreferredNodeHoweverManyLeasesItHas(t *testing.T) {
	nodes := fit("a", "b")
	nodes[0].Leases = 9
	r := rangeOf(0, 0, "", Voter{Node: "a", End: UnknownEnd}, Voter{Node: "b", End: UnknownEnd})
	r.Fresh = true
	if h := holderOf(t, nodes, r); h != "a" {
		t.Fatalf("chose %s", h)
	}
	r.Fresh = false
	if h := holderOf(t, nodes, r); h != "b" {
		t.Fatalf("chose %s of two that are as far", h)
	}
}

func TestAssign_TopicsOfOneRangeDoNotAllPreferTheSameNode(t *testing.T) {
	sites := []Site{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for range 9 {
		placed, err := Assign(sites, 1, 3)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sites {
			sites[i].Replicas++
			if sites[i].Name == placed[0][0] {
				sites[i].Preferred++
			}
		}
	}
	for _, s := range sites {
		if s.Preferred != 3 {
			t.Fatalf("%+v", sites)
		}
	}
}

func TestBalance_BringsHomeOnlyWhatIsCaughtUp(t *testing.T) {
	home := rangeOf(0, 4, "b", Voter{Node: "a", LastEpoch: 4, End: 9}, Voter{Node: "b", LastEpoch: 4, End: 9})
	behind := rangeOf(1, 4, "b", Voter{Node: "a", LastEpoch: 4, End: 8}, Voter{Node: "b", LastEpoch: 4, End: 9})
	unknown := rangeOf(2, 4, "b", Voter{Node: "a", End: UnknownEnd}, Voter{Node: "b", LastEpoch: 4, End: 9})
	already := rangeOf(3, 4, "a", Voter{Node: "a", LastEpoch: 4, End: 9}, Voter{Node: "b", LastEpoch: 4, End: 9})
	moves := Balance(fit("a", "b"), []Range{behind, unknown, already, home, home}, 1)
	if len(moves) != 1 || moves[0].Holder != "a" || moves[0].Range != home.ID || moves[0].Expected != 4 {
		t.Fatalf("moves %+v", moves)
	}
}

func TestAssign_RefusesMoreReplicasThanNodes(t *testing.T) {
	_, err := Assign([]Site{{Name: "a"}, {Name: "b"}}, 1, 3)
	var few *TooFewNodesError
	if !errors.As(err, &few) || few.Have != 2 || few.Wanted != 3 {
		t.Fatalf("got %v", err)
	}
}

func TestAssign_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "nodes")
		rackCount := rapid.IntRange(1, 4).Draw(t, "racks")
		var sites []Site
		racks := map[string]bool{}
		for i := range n {
			s := Site{Name: vtop.NodeName(fmt.Sprintf("n%d", i)), Rack: fmt.Sprintf("r%d", i%rackCount), Replicas: rapid.IntRange(0, 9).Draw(t, "have")}
			racks[s.Rack] = true
			sites = append(sites, s)
		}
		replicas := rapid.IntRange(1, n).Draw(t, "replicas")
		ranges := rapid.IntRange(1, 40).Draw(t, "ranges")
		placed, err := Assign(sites, ranges, replicas)
		if err != nil {
			t.Fatal(err)
		}
		rackOf := map[vtop.NodeName]string{}
		for _, s := range sites {
			rackOf[s.Name] = s.Rack
		}
		firsts := map[vtop.NodeName]int{}
		for _, nodes := range placed {
			seen, used := map[vtop.NodeName]bool{}, map[string]bool{}
			for _, name := range nodes {
				if seen[name] {
					t.Fatalf("%s twice in %v", name, nodes)
				}
				seen[name], used[rackOf[name]] = true, true
			}
			if len(nodes) != replicas || len(used) < min(replicas, len(racks)) {
				t.Fatalf("%v: %d racks used of %d, %d replicas wanted", nodes, len(used), len(racks), replicas)
			}
			firsts[nodes[0]]++
		}
		for _, s := range sites {
			if firsts[s.Name] < ranges/n || firsts[s.Name] > (ranges+n-1)/n {
				t.Fatalf("first replicas uneven: %v", firsts)
			}
		}
	})
}
