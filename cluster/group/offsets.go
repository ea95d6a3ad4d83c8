package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Commit asks to remember up to where a group has read.
type Commit struct {
	Group string
	// Claim: generation -1 and no ids from a consumer that assigns by itself.
	Claim
	Offsets []CommitOffset
}

// CommitOffset is the next offset that the group will read of one range.
type CommitOffset struct {
	Range  vtop.Range
	Offset vtop.Offset
	// LeaderEpoch of the last record read; vtop.NoEpoch if not known.
	LeaderEpoch vtop.Epoch
	// Metadata is the client's, at most fsm.MaxOffsetMetadata bytes.
	Metadata string
}

// Commit remembers offsets. It returns when the state machine has them: then no coordinator will ever answer older ones. The first
// result has one error for each offset, in their order; the second is about all of them.
func (c *Coordinator) Commit(ctx context.Context, r Commit) ([]error, error) {
	g, v, err := c.enter(ctx, r.Group, r.Generation < 0)
	if isNotFound(err) {
		return nil, fmt.Errorf("%w: %w", ErrIllegalGeneration, err)
	}
	if err != nil {
		return nil, err
	}
	errs, items, err := g.commitItemsLocked(v, &r)
	if err != nil || len(items) == 0 {
		g.mu.Unlock()
		return errs, err
	}
	c.proposer.committing(r.Group, r.MemberID, v.now)
	done := make(chan error, len(items))
	for i, item := range items {
		ch := &change{group: g, item: *item, whole: item.Header != nil, done: func(err error) { done <- err }}
		if ch.whole {
			g.queued++ // itemDone counts it off
			ch.done = func(err error) { g.itemDone(err); done <- err }
		}
		if err = c.proposer.add(ch); err != nil {
			if ch.whole {
				g.queued--
				g.dropLocked(translate(err))
			}
			items = items[:i]
			break
		}
	}
	g.scheduleLocked()
	g.mu.Unlock()
	for range items {
		err = errors.Join(err, c.settled(ctx, done))
	}
	if err != nil {
		return nil, translate(err)
	}
	c.counts.commits.Add(1)
	return errs, nil
}

// commitItemsLocked checks a commit and makes the items of it.
func (g *group) commitItemsLocked(v view, r *Commit) (errs []error, items []*fsm.GroupItem, err error) {
	if g.consumer == nil {
		if err := g.classic.checkCommit(v.now, r.Claim); err != nil {
			return nil, nil, err
		}
	}
	errs = make([]error, len(r.Offsets))
	at := make(map[vtop.Range]int, len(r.Offsets))
	for i := range r.Offsets {
		if errs[i] = g.checkOffset(r, &r.Offsets[i]); errs[i] == nil {
			at[r.Offsets[i].Range] = i // of a range named twice, the last counts
		}
	}
	var item *fsm.GroupItem
	for i := range r.Offsets {
		o := &r.Offsets[i]
		if last, ok := at[o.Range]; !ok || last != i {
			continue
		}
		if item == nil || len(item.PutOffsets) == maxItemOffsets {
			item = &fsm.GroupItem{Group: g.id, Epoch: g.epoch}
			items = append(items, item)
		}
		item.PutOffsets = append(item.PutOffsets, fsm.GroupOffset{
			Range: o.Range, Offset: o.Offset, LeaderEpoch: max(o.LeaderEpoch, vtop.NoEpoch), Metadata: o.Metadata, CommittedAt: v.now.UnixMilli(),
		})
	}
	if len(items) > 0 && g.classic != nil && !g.classic.stored {
		// The first commit of a consumer that assigns by itself makes the group.
		g.classic.stored = true
		g.classic.emptySince = v.now.UnixMilli()
		items[0].Header = g.classic.header()
	}
	return errs, items, nil
}

func (g *group) checkOffset(r *Commit, o *CommitOffset) error {
	switch {
	case len(o.Metadata) > fsm.MaxOffsetMetadata:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrMetadataTooLarge, len(o.Metadata), fsm.MaxOffsetMetadata)
	case o.Offset < 0:
		return fmt.Errorf("%w: offset %d: want 0 or more", ErrInvalidRequest, o.Offset)
	case g.consumer == nil || r.Generation < 0 && g.consumer.memberCount() == 0:
		return nil
	}
	return g.consumer.checkCommitOf(r.MemberID, r.InstanceID, r.Generation, o.Range)
}

// Delete takes a group without members, with its offsets.
func (c *Coordinator) Delete(ctx context.Context, id string) error {
	return c.update(ctx, id, false, func(g *group, v view) (*fsm.GroupItem, error) {
		if n := g.memberCount(); n > 0 {
			return nil, fmt.Errorf("%w: %q has %d", ErrNotEmpty, id, n)
		}
		if _, ok := v.state.Group(id); !ok && g.queued == g.applied {
			return nil, fmt.Errorf("%w: %q", ErrGroupNotFound, id)
		}
		return g.deleteLocked(), nil
	})
}

func (g *group) memberCount() int {
	if g.consumer != nil {
		return g.consumer.memberCount()
	}
	return g.classic.memberCount()
}

// deleteLocked begins the group anew, and gives the item that takes what the state machine has of it.
func (g *group) deleteLocked() *fsm.GroupItem {
	g.classic, g.consumer = newClassicGroup(g.id, &g.c.cfg.Limits, newMemberID), nil
	return &fsm.GroupItem{Delete: true}
}

// DeleteOffsets forgets the offsets of a group for ranges of topics that its members do not read; topic names the topic of
// each range. One error for each range.
func (c *Coordinator) DeleteOffsets(ctx context.Context, id string, ranges []vtop.Range, topic func(vtop.Range) string) ([]error, error) {
	errs := make([]error, len(ranges))
	err := c.update(ctx, id, false, func(g *group, v view) (*fsm.GroupItem, error) {
		if g.classic != nil && g.memberCount() > 0 && g.classic.protocolType != consumerProtocol {
			return nil, fmt.Errorf("%w: %q is one of type %q", ErrNotEmpty, id, g.classic.protocolType)
		}
		if _, ok := v.state.Group(id); !ok {
			return nil, fmt.Errorf("%w: %q", ErrGroupNotFound, id)
		}
		item := &fsm.GroupItem{}
		seen := map[vtop.Range]bool{}
		for i, r := range ranges {
			switch name := topic(r); {
			case g.subscribes(name):
				errs[i] = fmt.Errorf("%w: group %q, topic %q", ErrSubscribed, id, name)
			case !seen[r]:
				seen[r] = true
				item.DropOffsets = append(item.DropOffsets, r)
			}
		}
		if len(item.DropOffsets) == 0 {
			return nil, nil
		}
		return item, nil
	})
	return errs, err
}

func (g *group) subscribes(topic string) bool {
	if g.consumer != nil {
		return g.consumer.subscribes(topic)
	}
	return g.classic.subscribes(topic)
}

// sweep lets go of the offsets that nobody wants any more, and of groups without any (KIP-211): those of a group without members,
// counted from when its last member left, or, for consumers that assign by themselves, from each commit. A group with
// members keeps all of its offsets.
func (c *Coordinator) sweep(now time.Time) {
	st := c.cfg.Machine.State()
	for slot := range fsm.Slot(fsm.GroupSlots) {
		if _, err := c.serves(slot); err != nil {
			continue
		}
		for stored := range st.GroupsOf(slot) {
			if stored.Members == 0 {
				c.sweepGroup(stored.ID, now)
			}
			if c.ctx.Err() != nil {
				return
			}
		}
	}
	for _, g := range c.inMemory(func(*group) bool { return true }) {
		g.evict()
	}
}

// sweepGroup looks at one group. It does not wait for the proposer: what is refused is looked at again by the next sweep.
func (c *Coordinator) sweepGroup(id string, now time.Time) {
	epoch, err := c.serves(fsm.GroupSlot(id))
	if err != nil {
		return
	}
	g, v, err := c.lookup(id, epoch, false)
	if err != nil || g == nil {
		return
	}
	defer g.mu.Unlock()
	stored, ok := v.state.Group(id)
	if !ok || g.memberCount() > 0 || g.queued != g.applied || g.classic != nil && !g.classic.idle() {
		return
	}
	var old []vtop.Range
	for o := range v.state.Offsets(id) {
		if c.expired(stored, o, now) {
			old = append(old, o.Range)
		}
	}
	if len(old) > 0 {
		c.counts.expired.Add(uint64(len(old)))
		c.log.Info("offsets of a group without members expired", "group", id, "ranges", len(old), "of", stored.Offsets)
	}
	switch {
	case len(old) == stored.Offsets:
		g.queueLocked(g.deleteLocked())
	case len(old) > 0:
		g.queueLocked(&fsm.GroupItem{DropOffsets: old[:min(len(old), 10*maxItemOffsets)]})
	}
}

func (c *Coordinator) expired(g *fsm.Group, o *fsm.GroupOffset, now time.Time) bool {
	since := o.CommittedAt
	if g.ProtocolType != "" || g.Kind == fsm.GroupConsumer {
		since = max(since, g.EmptySince)
	}
	return c.cfg.Retention >= 0 && now.UnixMilli()-since >= c.cfg.Retention.Milliseconds()
}

// evict forgets a group that the state machine has all of.
func (g *group) evict() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone == nil && g.queued == g.applied && len(g.waiting) == 0 && g.memberCount() == 0 && (g.classic == nil || g.classic.idle()) {
		g.gone = fmt.Errorf("%w: the group was not in use", ErrNotCoordinator)
		if g.timer != nil {
			g.timer.Stop()
		}
		g.c.bytes.Add(-int64(g.counted))
		g.counted = 0
		g.c.forget(g)
	}
}

func isNotFound(err error) bool { return errors.Is(err, ErrGroupNotFound) }
