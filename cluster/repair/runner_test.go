package repair

import (
	"testing"

	"github.com/vtop-log/vtop/fsm"
)

// A replica is made on a spare node from nothing, and takes the place of a living one.
func TestRunner_SpareNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "d")
		w.segments(3, 2_500_000)
		w.write(300_000)
		w.start()
		id := w.submit(sealTail, func(q *fsm.RepairRequest) { q.Replace = "c" })
		w.awaitStep(id, fsm.RepairCatchingUp)
		w.write(100_000) // what is written meanwhile comes over the leader's log
		job := w.finish(id)
		w.whole(job)
		if job.RecordsSealed != 2 || job.Segments != 4 || job.BytesDone != job.BytesTotal || job.BytesTotal < 7_800_000 {
			t.Errorf("the job says %+v", job)
		}
		if _, there := w.state().On("c"); there {
			t.Error("the replica that was to be replaced is still there")
		}
		if len(w.source.Pins()) != 0 {
			t.Errorf("pins are left: %+v", w.source.Pins())
		}
		if len(w.peers.fetched) < 2 {
			t.Errorf("fetched from %v only", w.peers.fetched)
		}
	})
}
