package inspect

import (
	"strings"
	"testing"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// I12: a node that nobody hears is down only if it does not answer either: whoever is told to start what runs loses time.
func TestStatus_NodeThatAnswersIsNotDown(t *testing.T) {
	for _, answers := range []bool{false, true} {
		w := newWorld(t)
		w.down["n3"] = true
		p := w.look()
		if answers {
			p.locals["n3"] = &adminapi.Local{Node: "n3"}
		}
		s := &adminapi.Status{Nodes: []adminapi.Node{{Name: "n3", State: "active", PeerAddr: "n3:9640"}}}
		p.judgeNodes(s)
		want, words := "node_down", "start vtopd"
		if answers {
			want, words = "node_unfit", "n3:9640"
		}
		if len(s.Problems) != 1 || s.Problems[0].Kind != want || !strings.Contains(s.Problems[0].Hint, words) || s.Problems[0].Message != "was not heard" {
			t.Errorf("answers %t: %+v, want %s that says %q", answers, s.Problems, want, words)
		}
	}
}
