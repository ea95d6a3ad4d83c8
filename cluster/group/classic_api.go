package group

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
)

// Join makes the caller a member of a classic group in its next generation. It waits for the other members, as long as they
// may take; when ctx ends the caller is gone, and does not hold the others up. Joined.Err is one of this package's, or
// the cause of ctx.
func (c *Coordinator) Join(ctx context.Context, r Join) Joined {
	refused := func(err error) Joined { return Joined{Err: err, Generation: -1, MemberID: r.MemberID} }
	if n := c.bytes.Load(); n > maxMemory {
		return refused(fmt.Errorf("%w: members take %d bytes here, at most %d", ErrNotAvailable, n, maxMemory))
	}
	g, v, err := c.enter(ctx, r.Group, true)
	if err != nil {
		return refused(err)
	}
	machine, err := g.asClassic(v)
	if err != nil {
		g.mu.Unlock()
		return refused(err)
	}
	t, ch := g.parkLocked()
	g.performLocked(machine.join(v.now, t, &r))
	g.mu.Unlock()
	a, err := g.await(ctx, t, ch)
	if err != nil {
		return refused(err)
	}
	if a.joined.MemberID == "" {
		a.joined.MemberID = r.MemberID
	}
	return *a.joined
}

// Sync gives a member its assignment of the present generation. It waits for the leader's Sync. Errors as Join.
func (c *Coordinator) Sync(ctx context.Context, r Sync) Synced {
	g, v, err := c.enterClassic(ctx, r.Group)
	if err != nil {
		return Synced{Err: err}
	}
	session := g.classic.sessionOf(r.Claim)
	t, ch := g.parkLocked()
	g.performLocked(g.classic.sync(v.now, t, &r))
	g.mu.Unlock()
	a, err := g.await(ctx, t, ch)
	if err == nil && a.synced.Err == nil {
		err = c.mayVouch(session)
	}
	if err != nil {
		return Synced{Err: err}
	}
	return *a.synced
}

// Heartbeat keeps a member of a classic group alive. ErrRebalance: it should join.
func (c *Coordinator) Heartbeat(ctx context.Context, id string, claim Claim) error {
	g, v, err := c.enterClassic(ctx, id)
	if err != nil {
		return err
	}
	defer g.mu.Unlock()
	err = g.classic.heartbeat(v.now, claim)
	g.scheduleLocked()
	if err == nil {
		err = c.mayVouch(g.classic.sessionOf(claim))
	}
	return err
}

// mayVouch says whether a member with this session may be told that all is well. Who holds the slot by now, if another does, got it after
// the quorum's last word to this process, and so takes no member out earlier than a session after that.
func (c *Coordinator) mayVouch(session time.Duration) error {
	lastWord := c.cfg.Machine.Leases().Deadline() - c.cfg.LeaseTime
	if silence := c.cfg.Clock() - lastWord; silence >= session {
		return fmt.Errorf("%w: the metadata quorum has not answered for %s, the member's session is %s", ErrNotAvailable, silence, session)
	}
	return nil
}

// Leave takes members out of a group; the answers are in the order of the leavers.
func (c *Coordinator) Leave(ctx context.Context, id string, leavers []Leaver) ([]Left, error) {
	g, v, err := c.enter(ctx, id, false)
	if err != nil {
		return nil, memberless(err)
	}
	var out []Left
	if g.consumer != nil {
		out = g.leaveConsumerLocked(v, leavers)
	} else {
		var eff effects
		out, eff = g.classic.leave(v.now, leavers)
		g.performLocked(eff)
	}
	done := make(chan error, 1)
	g.holdLocked(func(err error) { done <- err })
	g.scheduleLocked()
	g.mu.Unlock()
	return out, c.settled(ctx, done)
}

func (g *group) leaveConsumerLocked(v view, leavers []Leaver) []Left {
	out := make([]Left, len(leavers))
	for i, l := range leavers {
		item, err := g.consumer.leave(v, l.MemberID, l.InstanceID)
		out[i] = Left{Leaver: l, Err: err}
		if item != nil {
			g.queueLocked(item)
		}
	}
	return out
}

// enterClassic is enter for what only members of a classic group ask.
func (c *Coordinator) enterClassic(ctx context.Context, id string) (*group, view, error) {
	g, v, err := c.enter(ctx, id, false)
	if err != nil {
		return nil, v, memberless(err)
	}
	if g.classic == nil {
		g.mu.Unlock()
		return nil, v, fmt.Errorf("%w: group %q is one of the consumer protocol", ErrUnknownMember, id)
	}
	return g, v, nil
}

// memberless: a group that is not there has no such member.
func memberless(err error) error {
	if isNotFound(err) {
		return fmt.Errorf("%w: %w", ErrUnknownMember, err)
	}
	return err
}

// parkLocked makes a place for a caller that waits.
func (g *group) parkLocked() (ticket, <-chan answer) {
	g.lastTicket++
	ch := make(chan answer, 1)
	g.waiting[g.lastTicket] = ch
	return g.lastTicket, ch
}

// performLocked does what an event led to: the item goes out, and the answers when it is applied.
func (g *group) performLocked(eff effects) {
	if eff.made {
		g.c.counts.generations.Add(1)
	}
	if eff.item != nil {
		g.queueLocked(eff.item)
	}
	if len(eff.answers) > 0 && g.gone == nil {
		g.holdLocked(func(err error) {
			for _, a := range eff.answers {
				if ch, ok := g.waiting[a.to]; ok && err == nil {
					delete(g.waiting, a.to)
					ch <- a
				}
			}
		})
	}
	g.scheduleLocked()
}

// await waits for the answer of a ticket. If ctx ends first, the group is told that nobody waits any more.
func (g *group) await(ctx context.Context, t ticket, ch <-chan answer) (answer, error) {
	select {
	case a := <-ch:
		return a, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone == nil {
		delete(g.waiting, t)
		if g.classic != nil {
			g.performLocked(g.classic.abandon(g.c.view().now, t))
		}
	}
	select {
	case a := <-ch: // it came meanwhile
		return a, nil
	default:
		return answer{}, fmt.Errorf("%w: the caller is gone: %w", vtop.ErrClosed, context.Cause(ctx))
	}
}
