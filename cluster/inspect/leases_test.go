package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// An epoch of which no record is left is not in the table any more, but where it started is known.
func TestChanges_ShowEveryStartThatIsKnown(t *testing.T) {
	w := newWorld(t)
	for i, holder := range []vtop.NodeName{"n2", "n3"} {
		w.apply(&fsm.GrantLeases{Items: []fsm.Grant{{Range: lines, Holder: holder, Incarnation: 1, Expected: vtop.Epoch(i + 1), Reason: "test"}}})
		w.apply(&fsm.StartEpochs{Items: []fsm.EpochStart{{Range: lines, Epoch: vtop.Epoch(i + 2), Start: 100}}})
	}
	w.apply(&fsm.GrantLeases{Items: []fsm.Grant{{Range: lines, Holder: "n1", Incarnation: 1, Expected: 3}}})
	if len(w.rng().Epochs) != 2 {
		t.Fatalf("the table is %v: nothing is shown", w.rng().Epochs)
	}
	want := map[int32]int64{1: 0, 2: 100, 3: 100, 4: adminapi.Unknown}
	for _, c := range changesOf(w.rng()) {
		if c.Start != want[c.Epoch] {
			t.Errorf("%+v, want start %d", c, want[c.Epoch])
		}
	}
}

// The same words whether the asked node is the Raft leader or had to ask it.
func TestTransferRefusal_SaysWhyAndNothingElse(t *testing.T) {
	refused := &controller.TransferError{Range: "lines/0", To: "n4", Reason: "it votes nowhere"}
	remote := transport.ErrorOf(transport.CodeOf(transport.ErrInvalid), fmt.Errorf("%w: %w", transport.ErrInvalid, refused).Error())
	for _, err := range []error{refused, fmt.Errorf("transfer lease to node \"n1\": %w", remote)} {
		err = transferRefusal(err, "lines", 0)
		wantRefusal(t, err, adminapi.CodeConflict)
		if err.Error() != "lease of lines/0 can't move to n4: it votes nowhere" {
			t.Errorf("says %q", err)
		}
		if hint := err.(*adminapi.Error).Hint; !strings.Contains(hint, "vtopctl lease show lines/0") {
			t.Errorf("hint %q", hint)
		}
	}
}
