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

// proposer tells the state machine what the groups of this process decided, in their order, one command at a time: while one
// is on its way the next gathers. A command whose outcome is not known is proposed again under a new sequence, before
// anything newer, so that no old offset can come after a new one.
type proposer struct {
	c *Coordinator

	mu    sync.Mutex
	queue []*change
	bytes int
	// urgent: a change waits that members wait for. recent and before are the consumers that committed in this second and the
	// one before it.
	urgent         bool
	second         int64
	recent, before map[string]struct{}
	closed         bool

	wake chan struct{} // has room for one

	sequence uint64 // of run
}

// change is one item on its way.
type change struct {
	group *group
	item  fsm.GroupItem
	// whole: it changes header or members, and the next of its kind of the same group rests on it.
	whole bool
	// done is called once, from one goroutine, in the order of the changes of a group; it must not block.
	done func(error)
	size int
}

// maxRecent is how many committing consumers are told apart: more gather no longer.
const maxRecent = int(maxGather / gatherEach)

func newProposer(c *Coordinator) *proposer {
	return &proposer{c: c, wake: make(chan struct{}, 1), recent: map[string]struct{}{}, before: map[string]struct{}{}}
}

// add queues a change. Errors: ErrNotAvailable if too much waits already; the reason why the coordinator closed.
func (p *proposer) add(ch *change) error {
	if err := ch.item.Check(); err != nil { // or it would have the whole command refused
		return err
	}
	ch.size = ch.item.Size()
	if ch.size > fsm.MaxGroupBatch {
		return &fsm.Refusal{Code: fsm.CodeLimit, Message: fmt.Sprintf("group %q: a change of %d bytes, at most %d", ch.item.Group, ch.size, fsm.MaxGroupBatch)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return context.Cause(p.c.ctx)
	case len(p.queue) >= maxQueued || p.bytes+ch.size > maxQueuedBytes:
		return fmt.Errorf("%w: %w: %d changes of %d bytes wait to be committed", ErrNotAvailable, vtop.ErrOverloaded, len(p.queue), p.bytes)
	}
	p.queue = append(p.queue, ch)
	p.bytes += ch.size
	p.urgent = p.urgent || ch.whole
	p.signal()
	return nil
}

// committing notes a consumer that commits, for the time that changes gather.
func (p *proposer) committing(group, member string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := now.Unix(); s != p.second {
		if p.before = p.recent; s != p.second+1 {
			p.before = map[string]struct{}{}
		}
		p.second, p.recent = s, map[string]struct{}{}
	}
	if len(p.recent) < maxRecent {
		p.recent[group+"\x00"+member] = struct{}{}
	}
}

// gatherTime is how long a change waits for others: not at all for a lone consumer, that may commit each record by itself; longer
// the more of them commit, so that a thousand make a few entries a second.
func (p *proposer) gatherTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urgent {
		return 0
	}
	return min(time.Duration(max(len(p.recent), len(p.before))-1)*gatherEach, maxGather)
}

func (p *proposer) run() {
	defer p.end()
	for {
		select {
		case <-p.wake:
		case <-p.c.ctx.Done():
			return
		}
		if !p.gather() {
			return
		}
		if p.commit(p.take()); !p.empty() {
			p.signal()
		}
	}
}

func (p *proposer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *proposer) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) == 0
}

// gather waits for more to propose; false if the coordinator closes meanwhile.
func (p *proposer) gather() bool {
	d := p.gatherTime()
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-p.wake:
			if p.gatherTime() <= 0 {
				return true
			}
		case <-p.c.ctx.Done():
			return false
		}
	}
}

// pause waits; false if the coordinator closes meanwhile.
func (p *proposer) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.c.ctx.Done():
		return false
	}
}

// end refuses what is left and everything that comes.
func (p *proposer) end() {
	p.mu.Lock()
	left := p.queue
	p.queue, p.bytes, p.closed = nil, 0, true
	p.mu.Unlock()
	for _, ch := range left {
		ch.done(context.Cause(p.c.ctx))
	}
}

// take fills a batch from the front of the queue. Of one group it takes at most one change of header or members, and nothing
// behind the second: if one is refused, what rests on it must not be there yet.
func (p *proposer) take() []*change {
	p.mu.Lock()
	defer p.mu.Unlock()
	var batch []*change
	size := 0
	whole, blocked := map[*group]bool{}, map[*group]bool{}
	rest := p.queue[:0:0]
	for i, ch := range p.queue {
		if len(batch) >= maxBatch || size+ch.size > fsm.MaxGroupBatch {
			rest = append(rest, p.queue[i:]...)
			break
		}
		if blocked[ch.group] || ch.whole && whole[ch.group] {
			blocked[ch.group] = true
			rest = append(rest, ch)
			continue
		}
		whole[ch.group] = whole[ch.group] || ch.whole
		batch = append(batch, ch)
		size += ch.size
	}
	p.queue = rest
	p.bytes -= size
	p.urgent = false
	for _, ch := range rest {
		p.urgent = p.urgent || ch.whole
	}
	return batch
}

// commit has a batch applied, or refused for good, and says so.
func (p *proposer) commit(batch []*change) {
	for first := true; ; first = false {
		if batch = p.prune(batch, first); len(batch) == 0 {
			return
		}
		if !first && !p.pause(proposePause) {
			for _, ch := range batch {
				ch.done(context.Cause(p.c.ctx))
			}
			return
		}
		batch = p.propose(batch)
	}
}

// prune takes out what cannot be applied any more, because the slot has moved on, and what rests on a group in memory that was
// dropped; but once it was proposed, it has to be known whether it took effect.
func (p *proposer) prune(batch []*change, first bool) []*change {
	st := p.c.cfg.Machine.State()
	out := batch[:0:0]
	for _, ch := range batch {
		l := st.CoordinatorOf(ch.item.Group)
		switch {
		case !l.HeldBy(p.c.cfg.Self, p.c.cfg.Incarnation) || l.Epoch != ch.item.Epoch:
			ch.done(fmt.Errorf("%w: slot %d is held by %q under epoch %d", ErrNotCoordinator, l.Slot, l.Holder, l.Epoch))
		case first && ch.whole && ch.group.dropped():
			ch.done(fmt.Errorf("%w: the group was dropped", ErrNotAvailable))
		default:
			out = append(out, ch)
		}
	}
	return out
}

func (g *group) dropped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone != nil
}

// propose makes one attempt and returns what has to be tried again.
func (p *proposer) propose(batch []*change) (again []*change) {
	p.sequence++
	cmd := &fsm.UpdateGroups{Node: p.c.cfg.Self, Incarnation: p.c.cfg.Incarnation, Sequence: p.sequence, At: time.Now().UnixMilli()}
	for _, ch := range batch {
		cmd.Items = append(cmd.Items, ch.item)
	}
	ctx, cancel := context.WithTimeout(p.c.ctx, proposeTime)
	defer cancel()
	out, err := p.c.cfg.Propose(ctx, cmd)
	p.c.counts.entries.Add(1)
	var refusal *fsm.Refusal
	switch {
	case errors.As(err, &refusal):
	case err != nil:
		p.c.log.Debug("changes of groups are not committed yet, trying again", "changes", len(batch), "error", err)
		return batch
	default:
		refusal = out.Refusal
	}
	if refusal == nil && len(out.Items) != len(batch) {
		refusal = &fsm.Refusal{Code: fsm.CodeInvalid, Message: fmt.Sprintf("%d answers to %d items", len(out.Items), len(batch))}
	}
	for i, ch := range batch {
		r := refusal
		if r == nil {
			r = out.Items[i].Refusal
		}
		switch {
		case r == nil:
			p.c.counts.changes.Add(1)
			ch.done(nil)
		case r.Code == fsm.CodeOvertaken: // an earlier attempt was applied, or will never be
			again = append(again, ch)
		default:
			ch.done(translate(r))
		}
	}
	return again
}

// translate gives a refusal of the state machine the name that clients are told.
func translate(err error) error {
	var r *fsm.Refusal
	if !errors.As(err, &r) {
		return err
	}
	switch r.Code {
	case fsm.CodeStaleEpoch, fsm.CodeStaleIncarnation, fsm.CodeUnknownNode, fsm.CodeNodeGone:
		return fmt.Errorf("%w: %w", ErrNotCoordinator, err)
	case fsm.CodeLimit:
		return fmt.Errorf("%w: %w", ErrGroupFull, err)
	}
	return fmt.Errorf("%w: %w", ErrNotAvailable, err)
}
