package replica

import (
	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
)

// createMissing makes the directories of the given ranges that this node is to have and that may be made empty (I10): those of
// ranges that never started an epoch, of learners, and of replica ids given out in this life. A new topic's many ranges cost a few syncs together. What cannot be
// made is tried again, and told of, by the slow step of its range.
func (e *Engine) createMissing(st *fsm.State, ranges []vtop.Range) {
	var missing []storage.NewReplica
	for _, r := range ranges {
		rg, mine, ok := e.mine(st, r)
		if !ok || mine.Role == fsm.Voter && rg.EverStarted() && !e.isNew(mine.ID) || e.store.Get(r) != nil || e.receiving(st, rg, mine) {
			continue
		}
		missing = append(missing, storage.NewReplica{Range: r, ReplicaID: mine.ID})
	}
	if len(missing) < 2 {
		return
	}
	if err := e.store.CreateAll(missing); err != nil {
		e.log.Warn("cannot make directories", "ranges", len(missing), "error", err)
	}
	now := e.machine.State()
	for _, m := range missing {
		if _, mine, ok := e.mine(now, m.Range); !ok || mine.ID != m.ReplicaID {
			e.dirty.add(m.Range) // what took it away was seen to before it was made
		}
	}
}
