package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// view is what a machine sees of the world at an event.
type view struct {
	now   time.Time
	state *fsm.State
}

// group is one group in the memory of its coordinator, under one epoch of the slot's lease.
type group struct {
	// Set once.
	c     *Coordinator
	id    string
	slot  fsm.Slot
	epoch vtop.Epoch

	mu sync.Mutex
	// Under mu.
	// gone is why the group was dropped; nil while it lives.
	gone error
	// One of the two is set.
	classic  *classicGroup
	consumer *consumerGroup
	// waiting are the callers of Join and Sync that have no answer yet.
	waiting    map[ticket]chan answer
	lastTicket ticket
	// queued counts the items of header and members that went to the proposer, applied those that came back. held are answers
	// that rest on items on their way.
	queued, applied uint64
	held            []heldAnswer
	// timer fires at timerAt. muted: it did while the coordinator could not serve.
	timer   *time.Timer
	timerAt time.Time
	muted   bool
	counted int // of the coordinator's bytes
}

// heldAnswer is sent when as many items as after says are applied.
type heldAnswer struct {
	after uint64
	send  func(error)
}

// lookup finds a group under the epoch of the slot's lease, locked, or takes it from the applied state into memory; one that is
// nowhere is made if create, else it is nil.
func (c *Coordinator) lookup(id string, epoch vtop.Epoch, create bool) (*group, view, error) {
	for {
		v := c.view()
		c.mu.Lock()
		g := c.groups[id]
		if g == nil {
			if _, stored := v.state.Group(id); !stored && !create {
				c.mu.Unlock()
				return nil, v, nil
			}
			if len(c.groups) >= fsm.MaxGroups {
				c.mu.Unlock()
				return nil, v, fmt.Errorf("%w: %d groups in memory, at most %d", ErrNotAvailable, fsm.MaxGroups, fsm.MaxGroups)
			}
			g = &group{c: c, id: id, slot: fsm.GroupSlot(id), epoch: epoch, waiting: map[ticket]chan answer{}}
			c.groups[id] = g
			g.mu.Lock() // nobody else has it: this does not wait
			c.mu.Unlock()
			// What is loaded is the state after the group came into the table: nothing of it is on its way to the state machine.
			v = c.view()
			g.loadLocked(v)
			return g, v, nil
		}
		c.mu.Unlock()
		g.mu.Lock()
		switch {
		case g.epoch != epoch: // what is on its way under the old one is refused for ever
			g.dropLocked(fmt.Errorf("%w: the slot was granted anew", ErrNotCoordinator))
		case g.gone == nil:
			return g, v, nil
		case g.queued != g.applied:
			g.mu.Unlock()
			return nil, v, fmt.Errorf("%w: what was told to the state machine before is not settled", ErrLoading)
		}
		g.mu.Unlock()
		c.forget(g)
	}
}

func (c *Coordinator) forget(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups[g.id] == g {
		delete(c.groups, g.id)
	}
}

// enter finds a group to do something with, locked: see lookup. ErrGroupNotFound if there is none and create is not set.
func (c *Coordinator) enter(ctx context.Context, id string, create bool) (*group, view, error) {
	if err := checkID(id); err != nil {
		return nil, view{}, err
	}
	epoch, err := c.awaits(ctx, fsm.GroupSlot(id))
	if err != nil {
		return nil, view{}, err
	}
	g, v, err := c.lookup(id, epoch, create)
	if err == nil && g == nil {
		err = fmt.Errorf("%w: %q", ErrGroupNotFound, id)
	}
	return g, v, err
}

// update runs fn on a group under its lock, queues the item that fn returns, if any, and waits until everything that was
// queued for the group up to now is applied. An error of fn means that fn changed nothing.
func (c *Coordinator) update(ctx context.Context, id string, create bool, fn func(*group, view) (*fsm.GroupItem, error)) error {
	g, v, err := c.enter(ctx, id, create)
	if err != nil {
		return err
	}
	item, err := fn(g, v)
	if err != nil {
		g.mu.Unlock()
		return err
	}
	if item != nil {
		g.queueLocked(item)
	}
	done := make(chan error, 1)
	g.holdLocked(func(err error) { done <- err })
	g.scheduleLocked()
	g.mu.Unlock()
	return c.settled(ctx, done)
}

// settled waits for a change to be applied, as long as a client is kept waiting for the metadata quorum.
func (c *Coordinator) settled(ctx context.Context, done <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CommitTimeout)
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w: the metadata quorum has not taken the change within %s", ErrNotAvailable, vtop.ErrTimeout, c.cfg.CommitTimeout)
}

// loadLocked takes the group from the applied state; one that is not there begins empty.
func (g *group) loadLocked(v view) {
	limits := &g.c.cfg.Limits
	stored, ok := v.state.Group(g.id)
	switch {
	case !ok:
		g.classic = newClassicGroup(g.id, limits, newMemberID)
	case stored.Kind == fsm.GroupConsumer:
		consumer, err := loadConsumerGroup(stored, v.state.Members(g.id), v, limits)
		if err != nil {
			g.c.log.Error("cannot read all members of a group: they have to join again", "group", g.id, "error", err)
		}
		if consumer == nil {
			consumer = newConsumerGroup(g.id, stored.Epoch, limits)
		}
		g.consumer = consumer
	default:
		g.classic = loadClassicGroup(stored, v.state.Members(g.id), v.now, limits, newMemberID)
	}
	g.scheduleLocked()
}

// asConsumer gives the machine of the consumer protocol; a classic group without members is taken over.
func (g *group) asConsumer(limits *Limits) (*consumerGroup, error) {
	if g.consumer == nil {
		if n := g.classic.memberCount(); n > 0 {
			return nil, fmt.Errorf("%w: %q has %d members of the classic protocol", ErrNotConsumerGroup, g.id, n)
		}
		g.consumer, g.classic = newConsumerGroup(g.id, g.classic.generation, limits), nil
	}
	return g.consumer, nil
}

// asClassic gives the machine of the classic protocol; a consumer group without members is taken over, and its epoch goes on
// as the generation.
func (g *group) asClassic(v view) (*classicGroup, error) {
	if g.classic == nil {
		if n := g.consumer.memberCount(); n > 0 {
			return nil, fmt.Errorf("%w: group %q has %d members of the consumer protocol", ErrInconsistentProtocol, g.id, n)
		}
		m := newClassicGroup(g.id, &g.c.cfg.Limits, newMemberID)
		stored, ok := v.state.Group(g.id)
		m.generation, m.stored = g.consumer.epoch, ok || g.queued > 0 // what is on its way counts
		if ok {
			m.generation, m.emptySince = max(m.generation, stored.Epoch), stored.EmptySince
		}
		m.assigned = m.generation
		g.classic, g.consumer = m, nil
	}
	return g.classic, nil
}

// queueLocked sends an item of header or members to the proposer. If it cannot go, the group is dropped.
func (g *group) queueLocked(item *fsm.GroupItem) {
	item.Group, item.Epoch = g.id, g.epoch
	if err := g.c.proposer.add(&change{group: g, item: *item, whole: true, done: g.itemDone}); err != nil {
		g.dropLocked(translate(err))
		return
	}
	g.queued++
}

// itemDone hears what became of the oldest item on its way.
func (g *group) itemDone(err error) {
	g.mu.Lock()
	g.applied++
	switch {
	case g.gone != nil:
		if g.queued == g.applied {
			defer g.c.forget(g)
		}
	case err != nil:
		g.dropLocked(err)
	default:
		for len(g.held) > 0 && g.held[0].after <= g.applied {
			g.held[0].send(nil)
			g.held = g.held[1:]
		}
	}
	g.mu.Unlock()
}

// holdLocked has send called when all that was queued is applied, which may be now; send must not block.
func (g *group) holdLocked(send func(error)) {
	switch {
	case g.gone != nil:
		send(g.gone)
	case g.queued == g.applied:
		send(nil)
	default:
		g.held = append(g.held, heldAnswer{g.queued, send})
	}
}

// dropLocked forgets what is in memory: the applied state counts. Everybody who waits is told to ask again.
func (g *group) dropLocked(why error) {
	if g.gone != nil {
		return
	}
	if !errors.Is(why, ErrNotCoordinator) {
		g.c.log.Warn("dropping a group from memory", "group", g.id, "error", why)
	}
	g.gone = why
	if g.timer != nil {
		g.timer.Stop()
	}
	g.c.bytes.Add(-int64(g.counted))
	g.counted = 0
	for _, h := range g.held {
		h.send(why)
	}
	for t, ch := range g.waiting {
		ch <- answer{to: t, joined: &Joined{Err: why, Generation: -1}, synced: &Synced{Err: why}}
	}
	g.held, g.waiting = nil, nil
	if g.queued == g.applied {
		g.c.forget(g)
	}
}

// scheduleLocked sets the timer to what the machine wants.
func (g *group) scheduleLocked() {
	if g.gone != nil {
		return
	}
	var at time.Time
	if g.consumer != nil {
		at = g.consumer.deadline()
	} else {
		at = g.classic.deadline()
		g.c.bytes.Add(int64(g.classic.bytes - g.counted))
		g.counted = g.classic.bytes
	}
	if at.IsZero() || !g.timerAt.IsZero() && !at.Before(g.timerAt) {
		return // at its time the timer looks again
	}
	g.setTimerLocked(at)
}

func (g *group) setTimerLocked(at time.Time) {
	g.timerAt = at
	if g.timer == nil {
		g.timer = time.AfterFunc(time.Until(at), g.onTimer)
		return
	}
	g.timer.Reset(time.Until(at))
}

func (g *group) onTimer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.c.view()
	if g.gone != nil || g.timerAt.IsZero() || v.now.Before(g.timerAt) {
		return
	}
	late := v.now.Sub(g.timerAt) > lateTimer
	g.timerAt = time.Time{}
	if epoch, err := g.c.serves(g.slot); err != nil || epoch != g.epoch {
		g.muted = true
		g.setTimerLocked(v.now.Add(mutedPause))
		return
	}
	if late || g.muted {
		g.muted = false
		g.rearmLocked(v)
		return
	}
	g.tickLocked(v)
}

// rearmLocked: nobody could be heard for a while.
func (g *group) rearmLocked(v view) {
	if g.consumer != nil {
		g.consumer.rearm(v)
	} else {
		g.classic.rearm(v.now)
	}
	g.scheduleLocked()
}

func (g *group) tickLocked(v view) {
	if g.consumer == nil {
		g.performLocked(g.classic.tick(v.now))
		return
	}
	if item := g.consumer.tick(v); item != nil {
		g.queueLocked(item)
	}
	g.scheduleLocked()
}
