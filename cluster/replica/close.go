package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Close ends the engine: it admits nothing more, waits for what was admitted while ctx lasts, reports the last floors, gives
// its leases back, and ends all streams. When it returns, no goroutine of the engine runs, no append, acknowledgement,
// promise, cut or proposal of it can happen any more, and every Append has been answered. The machine, the metadata and the
// store outlive it: it uses all three to the end. Closing twice is fine.
func (e *Engine) Close(ctx context.Context) error {
	e.admitting.Store(false)
	e.drain(ctx)
	err := e.ReportFloors(ctx)
	if releaseErr := e.ReleaseAll(ctx, "orderly stop"); err == nil {
		err = releaseErr
	}
	cause := fmt.Errorf("%w: node %q is stopping", vtop.ErrClosed, e.self)
	e.cancel(cause)
	e.dirty.close()
	e.slow.close()
	e.wgMu.Lock()
	e.closed = true
	e.wgMu.Unlock()
	e.wg.Wait()
	for _, s := range e.allSlots() {
		s.stopLeading(cause)
		if log := s.opened(); log != nil {
			log.OnDurable(nil)
		}
	}
	return err
}

// drain waits until nothing that was admitted waits for its acknowledgement.
func (e *Engine) drain(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for e.waiting() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-e.ctx.Done():
			return
		}
	}
}

func (e *Engine) waiting() (n int) {
	for _, s := range e.allSlots() {
		if ld := s.leading.Load(); ld != nil {
			ld.mu.Lock()
			n += ld.all.len() + ld.one.len()
			ld.mu.Unlock()
		}
	}
	return n
}

// ReleaseAll gives back every lease that the applied state holds for this process, in few commands.
func (e *Engine) ReleaseAll(ctx context.Context, reason string) error {
	var items []fsm.Release
	for rg := range e.machine.State().LeasesOf(e.self) {
		if rg.Lease.HeldBy(e.self, e.cfg.Incarnation) {
			items = append(items, fsm.Release{Range: rg.ID, Epoch: rg.Lease.Epoch, Reason: reason})
		}
	}
	var last error
	for part := range chunks(items, fsm.MaxItems) {
		out, err := e.cfg.Propose(ctx, &fsm.ReleaseLeases{Items: part, At: e.cfg.Now().UnixMilli()})
		if err == nil {
			err = out.Err()
		}
		if err != nil {
			last = fmt.Errorf("release %d leases: %w", len(part), err)
		}
	}
	return last
}
