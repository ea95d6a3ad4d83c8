package placement

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
)

func good(n vtop.NodeName) Member { return Member{Node: n, Fit: true} }

func TestSafeToStop(t *testing.T) {
	behind := Member{Node: "c", Why: "is 400 behind the floor"}
	silent := Member{Node: "c", Unknown: true, Why: "its leader does not answer"}
	for _, row := range []struct {
		name    string
		voters  []Member
		reasons int
		unknown int
	}{
		{"two of three others are fit", []Member{good("a"), good("b"), good("c")}, 0, 0},
		{"one of three is behind", []Member{good("a"), good("b"), behind}, 1, 0},
		{"one of three is not known", []Member{good("a"), good("b"), silent}, 0, 1},
		{"one of five is behind", []Member{good("a"), good("b"), behind, good("d"), good("e")}, 0, 0},
		{"two of five are behind", []Member{good("a"), good("b"), behind, {Node: "d", Why: "is down"}, good("e")}, 1, 0},
		{"two voters need both", []Member{good("a"), good("b")}, 1, 0},
		{"the only voter", []Member{good("a")}, 1, 0},
		{"it does not vote there", []Member{good("b"), behind}, 0, 0},
		{"it is not fit itself, the others are", []Member{{Node: "a", Why: "lost"}, good("b"), good("c")}, 0, 0},
		{"behind and not known: no knowledge would help", []Member{good("a"), behind, {Node: "d", Why: "is down"}, silent, good("e")}, 1, 0},
	} {
		reasons, unknown := SafeToStop("a", []Quorum{{Subject: "orders/0", Voters: row.voters}})
		if len(reasons) != row.reasons || len(unknown) != row.unknown {
			t.Errorf("%s: reasons %v, unknown %v", row.name, reasons, unknown)
		}
	}
	reasons, _ := SafeToStop("a", []Quorum{{Subject: "orders/0", Voters: []Member{good("a"), good("b"), behind}}})
	if m := reasons[0].Message; !strings.Contains(m, "needs 2 of its 3 voters, and without a it would have 1 (c: is 400 behind the floor)") {
		t.Errorf("reason reads %q", m)
	}
}

// TestSafeToStop_YesMeansAMajority (I1): wherever the answer is yes, every quorum of the node has a majority of fit
// voters left; and learning more never turns a yes into a no.
func TestSafeToStop_YesMeansAMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Quorum
		n := rapid.IntRange(1, 7).Draw(t, "voters")
		fit := 0
		for i := range n {
			m := Member{Node: vtop.NodeName(fmt.Sprint(i))}
			switch rapid.IntRange(0, 2).Draw(t, "state") {
			case 0:
				m.Fit = true
				if i > 0 {
					fit++
				}
			case 1:
				m.Unknown = true
			}
			q.Voters = append(q.Voters, m)
		}
		reasons, unknown := SafeToStop("0", []Quorum{q})
		if safe := len(reasons)+len(unknown) == 0; safe != (2*fit > n) {
			t.Fatalf("safe %t with %d fit others of %d voters", safe, fit, n)
		}
		for i := range q.Voters {
			if q.Voters[i].Unknown {
				q.Voters[i] = Member{Node: q.Voters[i].Node, Fit: true}
			}
		}
		better, _ := SafeToStop("0", []Quorum{q})
		if len(better) > 0 && len(unknown) > 0 {
			t.Fatalf("unknown %v, though no knowledge helps: %v", unknown, better)
		}
	})
}

func TestHome(t *testing.T) {
	racks := map[vtop.NodeName]string{"a": "r1", "b": "r2", "c": "r3", "d": "r1", "e": "r3", "f": "r1"}
	site := func(n vtop.NodeName, replicas int) Site { return Site{Name: n, Rack: racks[n], Replicas: replicas} }
	all := []Site{site("a", 1), site("b", 1), site("c", 1), site("d", 9), site("e", 2), site("f", 3)}
	for _, row := range []struct {
		name    string
		sites   []Site
		have    []vtop.NodeName
		leaving vtop.NodeName
		want    vtop.NodeName
	}{
		{"its own rack is free when it leaves", all, []vtop.NodeName{"a", "b", "c"}, "a", "f"},
		{"another rack before an emptier node", all, []vtop.NodeName{"a", "b", "c"}, "c", "e"},
		{"no free rack: the emptiest", all, []vtop.NodeName{"a", "b", "c"}, "", "e"},
		{"nowhere", all[:3], []vtop.NodeName{"a", "b", "c"}, "a", ""},
		{"nobody else", all[:1], []vtop.NodeName{"a"}, "a", ""},
	} {
		home, why := Home(row.sites, racks, row.have, row.leaving)
		if home != row.want || (home == "") != (why != "") {
			t.Errorf("%s: %q, %q; want %q", row.name, home, why, row.want)
		}
	}
	if _, why := Home(all[:3], racks, []vtop.NodeName{"a", "b", "c"}, "a"); !strings.Contains(why, "(b, c)") {
		t.Errorf("the reason does not name who has it: %q", why)
	}
}
