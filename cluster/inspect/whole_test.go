package inspect

import (
	"context"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/adminapi"
)

func problem(node vtop.NodeName, kind string) func(*world) {
	return func(w *world) {
		w.problems[node] = []adminapi.Problem{{Kind: kind, Subject: "lines/0", Message: "what is wrong"}}
	}
}

// I12: a replica that votes, and that its own node says cannot be used, is not whole.
func TestSubmitRepairs_SaysWhatAilsAVoter(t *testing.T) {
	for _, kind := range []string{kindFailed, kindQuarantined} {
		w := newWorld(t)
		problem("n2", kind)(w)
		_, err := w.look().submitRepairs(context.Background(), repairOf("n2"))
		if wantRefusal(t, err, adminapi.CodeConflict); !strings.Contains(err.Error(), "what is wrong") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, role := range []string{"idle", "failed", "lost"} {
		p := newWorld(t).look()
		p.ranges["n2"][lines].Role, p.ranges["n2"][lines].Reason = role, "no space left"
		_, err := p.submitRepairs(context.Background(), repairOf("n2"))
		if wantRefusal(t, err, adminapi.CodeConflict); !strings.Contains(err.Error(), role+": no space left") {
			t.Errorf("%s: %v", role, err)
		}
	}
}
