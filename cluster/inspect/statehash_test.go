package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// copies is a cluster in which each question finds every node further than the one before it did.
type copies struct {
	mu sync.Mutex
	// at is how far the log is, step how many commands are written between two questions.
	at, step int64
	// still are nodes that stay where they are, wrong those with another state, silent those that do not answer, and other
	// those of another version.
	still                map[vtop.NodeName]int64
	wrong, silent, other string
	asked                map[vtop.NodeName]int
}

func (c *copies) ask(_ context.Context, name vtop.NodeName, index uint64) (*adminapi.StateHash, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[name]++
	if strings.Contains(c.silent, string(name)) {
		return nil, errors.New("connection refused")
	}
	c.at += c.step
	h := &adminapi.StateHash{Node: string(name), Index: c.at, Version: "v1"}
	switch still, ok := c.still[name]; {
	case ok:
		h.Index = still
	case int64(index) > c.at && c.step > 0:
		h.Index = int64(index) // it waits for it, beside the others
	}
	h.Hash = fmt.Sprint("state ", h.Index)
	if strings.Contains(c.wrong, string(name)) {
		h.Hash += " and more"
	}
	if strings.Contains(c.other, string(name)) {
		h.Version = "v2"
	}
	return h, nil
}

// M4, I12: nodes are brought to one index and compared there; who can't be is unknown.
func TestStateHashes(t *testing.T) {
	names := []vtop.NodeName{"n3", "n1", "n2"}
	for name, x := range map[string]struct {
		*copies
		want, words string
	}{
		"nothing is written":         {&copies{at: 50}, "same", "same same same"},
		"little is written":          {&copies{at: 50, step: 1}, "same", "same same same"},
		"much is written":            {&copies{at: 50, step: 100}, "same", "same same same"},
		"more than can be caught":    {&copies{at: 50, step: 9000}, "unknown", "same unknown unknown"},
		"one differs":                {&copies{at: 50, step: 100, wrong: "n2"}, "differs", "same differs same"},
		"one is silent":              {&copies{at: 50, step: 100, silent: "n3"}, "unknown", "same same unknown"},
		"one differs, one is silent": {&copies{at: 50, wrong: "n2", silent: "n3"}, "differs", "same differs unknown"},
		"one is behind":              {&copies{at: 50, still: map[vtop.NodeName]int64{"n1": 7}}, "unknown", "unknown same same"},
		"behind it may differ":       {&copies{at: 50, still: map[vtop.NodeName]int64{"n1": 7}, wrong: "n1"}, "unknown", "unknown same same"},
		"nobody answers":             {&copies{silent: "n1 n2 n3"}, "unknown", "unknown unknown unknown"},
		"another version, alike":     {&copies{at: 50, other: "n1"}, "same", "same same same"},
		"another version, unlike":    {&copies{at: 50, other: "n1", wrong: "n1"}, "unknown", "unknown same same"},
	} {
		t.Run(name, func(t *testing.T) {
			x.asked = map[vtop.NodeName]int{}
			got := compareStates(t.Context(), names, x.ask)
			var words []string
			for i, n := range got.Nodes {
				if n.Node != fmt.Sprint("n", i+1) || (n.Reason == "") != (n.Verdict == adminapi.StateSame) {
					t.Errorf("node %d: %+v", i, n)
				}
				words = append(words, n.Verdict)
			}
			if got.Verdict != x.want || strings.Join(words, " ") != x.words {
				t.Errorf("%s (%s), want %s (%s)", got.Verdict, strings.Join(words, " "), x.want, x.words)
			}
			if (got.Index == adminapi.Unknown) != (x.silent == "n1 n2 n3") {
				t.Errorf("compared at %d", got.Index)
			}
			for n, asked := range x.asked {
				if asked > stateRounds || strings.Contains(x.silent, string(n)) && asked > 1 {
					t.Errorf("%s was asked %d times", n, asked)
				}
			}
		})
	}
}
