package inspect

import (
	"context"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage"
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

// A repair of all that a node lacks names a replica that cannot be used, rather than to pass it over as whole (I12).
func TestSubmitRepairs_AllNamesWhatAils(t *testing.T) {
	w := newWorld(t)
	problem("n3", kindFailed)(w)
	got, err := w.look().submitRepairs(context.Background(), adminapi.RepairRequest{Destination: "n3", All: true})
	must(t, err)
	if len(got) != 1 || got[0].Outcome != adminapi.OutcomeRefused || !strings.Contains(got[0].Cause, "what is wrong") {
		t.Errorf("got %+v", got)
	}
}

// Each state in which a replica is not served, or not all of it, is a problem that its node tells of.
func TestProblemOf_EveryStateThatIsNotServed(t *testing.T) {
	for state, kind := range map[storage.State]string{
		storage.StateHealthy: "", storage.StateQuarantined: kindQuarantined, storage.StateHoles: kindDamaged, storage.StateFailed: kindFailed,
	} {
		got, ok := problemOf("lines/0", storage.ReplicaInfo{State: state, Reason: "why"})
		if ok != (kind != "") || got.Kind != kind || ok && (got.Subject != "lines/0" || got.Message != "why" || got.Hint == "") {
			t.Errorf("%v: %+v, %t", state, got, ok)
		}
	}
}
