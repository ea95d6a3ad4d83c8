package meta

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
)

// servers "a1 b1 -c1": raft servers, name then life, a minus before those without a vote.
func parseServers(text string) (out []raft.Server) {
	for _, f := range strings.Fields(text) {
		suffrage := raft.Voter
		if strings.HasPrefix(f, "-") {
			suffrage, f = raft.Nonvoter, f[1:]
		}
		out = append(out, raft.Server{Suffrage: suffrage, ID: raft.ServerID(f[:1] + "/" + f[1:]), Address: raft.ServerAddress(f[:1] + ":1")})
	}
	return out
}

// nodes "a1 b1! c2+ d1x e1>": registered nodes, alive and steady unless '!' dead, '?' alive but not steady, 'x' gone,
// '+' dead for longer than the patience, 'r' dead and replaced by a repair, 'R' alive and replaced, '>' at another address.
func parseNodes(text string) (out []nodeView) {
	for _, f := range strings.Fields(text) {
		n := nodeView{name: vtop.NodeName(f[:1]), server: raft.ServerID(f[:1] + "/" + f[1:2]), addr: f[:1] + ":1", alive: true, steady: true}
		for _, mark := range f[2:] {
			switch mark {
			case '!':
				n.alive, n.steady = false, false
			case '?':
				n.steady = false
			case 'x':
				n.gone = true
			case '+':
				n.alive, n.steady, n.away = false, false, time.Hour
			case 'r':
				n.alive, n.steady, n.replaced = false, false, true
			case 'R':
				n.replaced = true
			case '>':
				n.addr = f[:1] + ":2"
			}
		}
		out = append(out, n)
	}
	return out
}

func TestView_Decide(t *testing.T) {
	for _, c := range []struct{ what, servers, nodes, want string }{
		{"nothing to do", "a1 b1 c1", "a1 b1 c1", "none "},
		{"a registered node comes in without a vote", "a1 b1 c1", "a1 b1 c1 d1", "add as non-voter d/1"},
		{"a dead one waits outside", "a1 b1 c1", "a1 b1 c1 d1!", "none "},
		{"four nodes have three votes", "a1 b1 c1 -d1", "a1 b1 c1 d1", "none "},
		{"five nodes have five", "a1 b1 c1 -d1 -e1", "a1 b1 c1 d1 e1", "make a voter d/1"},
		{"on the way from three to five", "a1 b1 c1 d1 -e1", "a1 b1 c1 d1 e1", "make a voter e/1"},
		{"six nodes have five", "a1 b1 c1 d1 e1 -f1", "a1 b1 c1 d1 e1 f1", "none "},
		{"one alone stays so with two", "a1 -b1", "a1 b1", "none "},
		{"one alone becomes three", "a1 -b1 -c1", "a1 b1 c1", "make a voter b/1"},
		{"not before it keeps up", "a1 -b1 -c1", "a1 b1? c1", "none "},
		{"a new raft server replaces the old", "a1 b1 c1", "a1 b1 c2", "remove c/1"},
		{"and comes in", "a1 b1", "a1 b1 c2", "add as non-voter c/2"},
		{"and gets the vote", "a1 b1 -c2", "a1 b1 c2", "make a voter c/2"},
		{"not if the others are no majority, but the new comes in", "a1 b1 c1", "a1 b1! c2", "add as non-voter c/2"},
		{"and there it waits", "a1 b1 c1 -c2", "a1 b1! c2", "none "},
		{"a non-voter is replaced in any case", "a1 b1 c1 -d1", "a1 b1! c1! d2", "remove d/1"},
		{"a removed node goes", "a1 b1 c1 -d1", "a1 b1 c1x d1", "remove c/1"},
		{"and its vote goes to another", "a1 b1 -d1", "a1 b1 c1x d1", "make a voter d/1"},
		{"the leader never removes itself", "a1 b1 c1", "a1x b1 c1", "none "},
		{"a founder that is not there yet stays", "a1 b1 c1", "a1 b1", "none "},
		{"a voter long away with none to replace it", "a1 b1 c1", "a1 b1 c1+", "none "},
		{"a voter long away gives its vote", "a1 b1 c1 -d1", "a1 b1 c1+ d1", "take the vote c/1"},
		{"at once if a repair replaces it", "a1 b1 c1 -d1", "a1 b1 c1r d1", "take the vote c/1"},
		{"not while it lives", "a1 b1 c1 -d1", "a1 b1 c1R d1", "none "},
		{"and not below a majority of the living", "a1 b1 c1 -d1", "a1 b1! c1r d1", "none "},
		{"not for a short absence", "a1 b1 c1 -d1", "a1 b1 c1! d1", "none "},
		{"not below a majority of the living (H6)", "a1 b1 c1 d1 e1 -f1", "a1 b1+ c1+ d1+ e1 f1", "none "},
		{"two away of five, one after the other", "a1 b1 c1 d1 e1 -f1", "a1 b1+ c1+ d1 e1 f1", "take the vote b/1"},
		{"addresses are looked up, not changed", "a1 b1 c1 -d1", "a1 b1> c1 d1>", "none "},
	} {
		v := view{self: "a/1", servers: parseServers(c.servers), nodes: parseNodes(c.nodes), patience: time.Minute}
		got := v.decide()
		if s := got.kind.String() + " " + string(got.server); s != c.want {
			t.Errorf("%s: servers %q, nodes %q: %q, want %q", c.what, c.servers, c.nodes, s, c.want)
		}
	}
}

// From any state the changes come to an end, never take a vote from a living majority, and never from the leader.
func TestView_DecideConverges(t *testing.T) {
	marks := []string{"1", "1!", "1?", "1x", "1+", "1r", "2", "1>"}
	roles := []string{"", "1", "-1"}
	names := "bcde"
	total := 1
	for range names {
		total *= len(marks) * len(roles)
	}
	for code := 0; code < total; code += 7 {
		servers, nodes, rest := "a1", "a1", code
		for _, n := range names {
			role, mark := roles[rest%len(roles)], marks[rest/len(roles)%len(marks)]
			rest /= len(roles) * len(marks)
			if role != "" {
				servers += " " + strings.Replace(role, "1", string(n)+"1", 1)
			}
			nodes += " " + string(n) + mark
		}
		v := view{self: "a/1", servers: parseServers(servers), nodes: parseNodes(nodes), patience: time.Minute}
		steps := 0
		for c := v.decide(); c.kind != noChange; c = v.decide() {
			if steps++; steps > 40 {
				t.Fatalf("servers %q, nodes %q: no end, last %s %s", servers, nodes, c.kind, c.server)
			}
			before := liveVoters(v)
			quorumBefore := before >= len(v.voters())/2+1
			v.servers = applyChange(v.servers, c)
			if _, ok := serverOf(v.servers, "a/1"); !ok {
				t.Fatalf("servers %q, nodes %q: the leader is removed", servers, nodes)
			}
			if quorumBefore && liveVoters(v) < len(v.voters())/2+1 {
				t.Fatalf("servers %q, nodes %q: %s %s leaves %d of %d voters alive", servers, nodes, c.kind, c.server, liveVoters(v), len(v.voters()))
			}
		}
		if len(v.voters()) > maxVoters {
			t.Fatalf("servers %q, nodes %q: %d voters", servers, nodes, len(v.voters()))
		}
	}
}

func liveVoters(v view) (n int) {
	for _, s := range v.voters() {
		if v.alive(s.ID) {
			n++
		}
	}
	return n
}

func serverOf(servers []raft.Server, id raft.ServerID) (int, bool) {
	for i, s := range servers {
		if s.ID == id {
			return i, true
		}
	}
	return 0, false
}

// applyChange is what Raft does with a change.
func applyChange(servers []raft.Server, c change) []raft.Server {
	out := append([]raft.Server(nil), servers...)
	i, known := serverOf(out, c.server)
	switch c.kind {
	case removeServer:
		return append(out[:i], out[i+1:]...)
	case demoteVoter:
		out[i].Suffrage = raft.Nonvoter
		return out
	}
	suffrage := raft.Nonvoter
	if c.kind == addVoter {
		suffrage = raft.Voter
	}
	if !known {
		return append(out, raft.Server{Suffrage: suffrage, ID: c.server, Address: raft.ServerAddress(c.addr)})
	}
	out[i].Address = raft.ServerAddress(c.addr)
	if c.kind == addVoter {
		out[i].Suffrage = raft.Voter
	}
	return out
}
