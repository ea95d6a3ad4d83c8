package replica

import (
	"errors"
	"time"

	"github.com/vtop-log/vtop"
)

// namesEvery is how many rounds of the duties lie between two looks whether the files of the replicas are still there.
const namesEvery = 3

// runNames looks now and then whether the replicas' files are still those that are open. It has a goroutine of its own: it may
// wait for a disk, and what it finds is to be found within seconds.
func (e *Engine) runNames() {
	if e.cfg.DutyInterval < 0 {
		return
	}
	tick := time.NewTicker(namesEvery * e.cfg.DutyInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.checkNames()
		case <-e.ctx.Done():
			return
		}
	}
}

// checkNames has each log look at its names once. One that finds them gone is lost (I10): the slow step ends
// its part in the range, as a leader and as a follower alike.
func (e *Engine) checkNames() {
	for _, s := range e.allSlots() {
		log := s.opened()
		if log == nil || e.ctx.Err() != nil {
			continue
		}
		switch err := log.CheckNames(); {
		case errors.Is(err, vtop.ErrReplicaLost):
			e.slow.add(s.r)
		case err != nil:
			e.log.Debug("cannot look for the files of a replica", "range", e.name(s.r), "error", err)
		}
	}
}
