package group

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// freshness brings the applied state up to what was committed when it is asked. It is what a read of offsets needs: a coordinator that
// was replaced and has not heard of it would answer older ones than its successor has acknowledged (it may believe in its lease for a
// lease time). One question to the Raft leader serves all that asked before it was put.
type freshness struct {
	// ask returns once everything that was committed when it was called is applied here.
	ask func(context.Context) error

	c    *Coordinator
	wake chan struct{} // has room for one

	mu sync.Mutex
	// next is the question that will be put when the one under way is answered; nil if nobody waits for it.
	next *question
}

// question is one read of the Raft leader's position.
type question struct {
	done chan struct{}
	err  error // once done is closed
}

// Bounds of freshness: questions of one node are freshPause apart; one takes freshTime at most, and is put again after freshRetry.
const (
	freshPause = 10 * time.Millisecond
	freshTime  = 2 * time.Second
	freshRetry = 50 * time.Millisecond
)

func newFreshness(c *Coordinator) *freshness {
	return &freshness{ask: c.cfg.Fresh, c: c, wake: make(chan struct{}, 1)}
}

// wait returns nil when the applied state has everything that was committed before the call, or ErrNotAvailable after CommitTimeout.
func (f *freshness) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.c.cfg.CommitTimeout)
	defer cancel()
	for {
		q := f.join()
		select {
		case <-q.done:
		case <-f.c.ctx.Done():
			return context.Cause(f.c.ctx)
		case <-ctx.Done():
			return fmt.Errorf("%w: no word from the metadata quorum: %w", ErrNotAvailable, context.Cause(ctx))
		}
		if q.err == nil {
			return nil
		}
		t := time.NewTimer(freshRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: %w", ErrNotAvailable, q.err)
		}
	}
}

// join finds the next question to be put.
func (f *freshness) join() *question {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &question{done: make(chan struct{})}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return f.next
}

// run puts questions, one at a time, until the coordinator closes.
func (f *freshness) run() {
	for {
		select {
		case <-f.wake:
		case <-f.c.ctx.Done():
			return
		}
		f.mu.Lock()
		q := f.next
		f.next = nil // who comes from now on needs another
		f.mu.Unlock()
		if q == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(f.c.ctx, freshTime)
		q.err = f.ask(ctx)
		cancel()
		close(q.done)
		if !f.c.proposer.pause(freshPause) {
			return
		}
	}
}

// Reading reads the offsets of groups for one request. It is not safe for concurrent use.
type Reading struct {
	c     *Coordinator
	fresh bool
}

// Read begins a reading.
func (c *Coordinator) Read() *Reading { return &Reading{c: c} }

// Offsets returns an applied state that has every offset of the group that was acknowledged before the reading began, by whatever
// coordinator: for that it asks the metadata quorum, once for a reading. member and epoch are who reads, if it says so: a member of a
// consumer group. Errors: those of a node that does not coordinate the group; ErrNotAvailable without a quorum; ErrUnknownMember,
// ErrStaleMemberEpoch.
func (r *Reading) Offsets(ctx context.Context, id string, member *string, epoch int32) (*fsm.State, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	slot := fsm.GroupSlot(id)
	if _, err := r.c.awaits(ctx, slot); err != nil {
		return nil, err
	}
	if !r.fresh {
		if err := r.c.fresh.wait(ctx); err != nil {
			return nil, err
		}
		r.fresh = true
	}
	if _, err := r.c.serves(slot); err != nil { // by what is known now
		return nil, err
	}
	st := r.c.cfg.Machine.State()
	stored, ok := st.Group(id)
	if member == nil || epoch < 0 || !ok || stored.Kind != fsm.GroupConsumer {
		return st, nil
	}
	return st, r.c.checkFetch(ctx, id, member, epoch)
}

func (c *Coordinator) checkFetch(ctx context.Context, id string, member *string, epoch int32) error {
	g, _, err := c.enter(ctx, id, false)
	if err != nil {
		return err
	}
	defer g.mu.Unlock()
	if g.consumer == nil {
		return nil
	}
	return g.consumer.checkFetch(member, epoch)
}
