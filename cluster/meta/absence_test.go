package meta

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Whether a repair replaces a node since it is away is judged by what this leader sees, whatever the clocks of those say that stamp jobs.
func TestView_ReplacedWhateverTheClocksSay(t *testing.T) {
	for name, skew := range map[string]time.Duration{"behind": -24 * time.Hour, "ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, "a")
			w.startAll("a")
			w.joined("a")
			m := w.box("a").meta
			must := func(cmd fsm.Command) fsm.Outcome {
				t.Helper()
				out, err := m.Propose(t.Context(), cmd)
				if err == nil {
					err = out.Err()
				}
				for _, item := range out.Items {
					if err == nil {
						err = item.Err()
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			for i, n := range []vtop.NodeName{"b", "c"} {
				must(&fsm.RegisterNode{Name: n, Identity: fsm.Identity{
					Storage: vtop.UUID{byte(i + 1)}, RaftID: string(n) + "/1", Incarnation: 1, BootNonce: vtop.UUID{9}, Addresses: fsm.Addresses{Peer: "127.0.0.1:1"}, MaxLevel: fsm.LevelMax,
				}})
			}
			topic := randomUUID()
			must(&fsm.CreateTopic{ID: topic, Name: "t", Ranges: [][]vtop.NodeName{{"b"}}})
			at := time.Now().Add(skew).UnixMilli()
			submit := func() fsm.RepairID {
				return must(&fsm.SubmitRepairs{At: at, Items: []fsm.RepairRequest{{Range: vtop.Range{Topic: topic}, Destination: "c", Replace: "b", Origin: fsm.OriginHeal, Reason: "test"}}}).Items[0].Repair
			}
			tell := func(id fsm.RepairID, step fsm.RepairStep) {
				at++
				must(&fsm.UpdateRepairs{Node: "c", Incarnation: 1, At: at, Items: []fsm.RepairUpdate{{ID: id, StepVersion: 1, Step: step, Progress: fsm.NewRepairProgress()}}})
			}
			var seen watcher
			want := func(what string, want bool) {
				t.Helper()
				seen.health = map[raft.ServerID]probeResult{}
				if b, _ := m.view(&seen, nil).byName("b"); b.alive || b.replaced != want {
					t.Fatalf("%s: %+v, want replaced %t", what, b, want)
				}
			}
			away := func() { seen = watcher{looks: map[raft.ServerID]int{}, since: map[vtop.NodeName]absence{}} }
			cancel := func(id fsm.RepairID) { must(&fsm.CancelRepairs{IDs: []fsm.RepairID{id}, Reason: "test", At: at}) }

			cancel(submit())
			away()
			want("a job had ended when it went away", false)
			id := submit()
			want("a job came since", true)
			away()
			want("it was there already", false)
			want("and has not moved", false)
			tell(id, fsm.RepairQueued)
			want("it moves", true)
			away()
			want("it was there already", false)
			cancel(id)
			want("it ended since", true)
		})
	}
}
