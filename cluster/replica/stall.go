package replica

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// RefuseWaiting answers every batch that waits for its acknowledgement with vtop.ErrNotLeader: for a node whose disk
// hangs, which can acknowledge nothing and is about to lose its leases. The batches stay in the log and their fate is
// unknown; the retry of an idempotent producer is deduplicated. Clients so find the next leader without waiting out
// their own timeouts.
func (e *Engine) RefuseWaiting(why string) {
	for _, s := range e.allSlots() {
		ld := s.leading.Load()
		if ld == nil {
			continue
		}
		ld.mu.Lock()
		waiting := ld.one.all(ld.all.all(nil))
		ld.mu.Unlock()
		for _, w := range waiting {
			w.done(vtop.AppendResult{Base: w.base, LogStart: -1, Err: fmt.Errorf("%w: range %s offset %d: %s", vtop.ErrNotLeader, ld.r, w.base, why)})
		}
	}
}
