package meta

import (
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// absence is what this leader saw when it first missed a node.
type absence struct {
	at time.Time
	// index is that of the state then; stamps are those of the jobs under way that put another node in its place.
	index  uint64
	stamps map[fsm.RepairID]int64
}

func newAbsence(st *fsm.State, name vtop.NodeName, now time.Time) absence {
	a := absence{at: now, index: st.Index(), stamps: map[fsm.RepairID]int64{}}
	for job := range st.Repairs() {
		if job.Active() && replaces(job, name) {
			a.stamps[job.ID] = job.UpdatedAt
		}
	}
	return a
}

func replaces(job *fsm.RepairJob, name vtop.NodeName) bool {
	return job.Replace == name && job.Destination != name
}

// moved reports whether a job has moved since, ended ones included. Its stamps are of other nodes' clocks: they are compared with
// themselves, for being the same or not, and with no clock of this node.
func (a absence) moved(job *fsm.RepairJob) bool {
	if job.Active() && job.Created <= a.index {
		return job.UpdatedAt != a.stamps[job.ID]
	}
	return job.Active() || job.Ended > a.index
}

// replaced reports whether a repair has put another node in the place of one that is away, since it is.
func (a absence) replaced(st *fsm.State, name vtop.NodeName) bool {
	for job := range st.Repairs() {
		if replaces(job, name) && a.moved(job) {
			return true
		}
	}
	return false
}
