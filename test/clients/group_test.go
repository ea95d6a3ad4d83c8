//go:build cluster

package clients

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	classic     = "classic"
	consumerNew = "consumer" // KIP-848
)

func groupFeatures() []feature {
	return []feature{
		{"group", "two members share four ranges; all records come; after an orderly end all is committed", groupOfTwo(classic), false},
		{"die, resume", "a member dies by kill -9, the other gets its ranges; a new member goes on exactly at what was committed", groupDies(classic), false},
		{"static member", "a member with an instance id dies and comes back within its session: it has the same ranges again", groupStatic, false},
		{"coordinator killed", "kill -9 of the group's coordinator: no error, all records come, no committed offset goes back", groupCoordinator(classic), false},
		{"KIP-848 group", "as group, with the consumer protocol and server-side assignment", groupOfTwo(consumerNew), false},
		{"KIP-848 die, resume", "as die, resume", groupDies(consumerNew), true},
		{"KIP-848 coordinator killed", "as coordinator killed", groupCoordinator(consumerNew), false},
	}
}

// groupRanges is the number of ranges of a group's topic.
const groupRanges = 4

// members is a group at work, and what was written for it.
type members struct {
	x        *cell
	protocol string
	written  int
	all      []*member // also those that ended
}

// member is one program in the group.
type member struct {
	p  *process
	op *operation
}

func (x *cell) newGroup(protocol string) (*members, error) {
	return &members{x: x, protocol: protocol}, x.makeTopic(groupRanges)
}

// join starts a member; instance may be empty.
func (g *members) join(instance string) (*member, error) {
	p, err := g.x.program()
	if err != nil {
		return nil, err
	}
	op, err := p.send(command{Op: "group", Topic: g.x.topic, Group: g.x.topic, Protocol: g.protocol, Instance: instance})
	m := &member{p: p, op: op}
	g.all = append(g.all, m)
	return m, err
}

// feed writes records, as many to each range.
func (g *members) feed(perRange int) error {
	n := perRange * groupRanges
	err := g.x.write(groupRanges, g.written, n, kgo.NoCompression())
	if err == nil {
		g.written += n
	}
	return err
}

// settle feeds the group until one feed was read by all of ms, each range by one of them only and as many by each, as every
// assignor shares them once it is done, and all of it is committed; and gives their ranges. Commits are waited for since kafka-go
// keeps those that come between two generations and sends them with the next one, also for ranges that it has no more: the committed
// offset goes back, at every server, until the next record comes.
func (g *members) settle(ms ...*member) ([][]int32, error) {
	var ranges [][]int32
	return ranges, eventually(2*some, fmt.Sprintf("%d members share the ranges", len(ms)), func() error {
		before := g.written
		if err := g.feed(10); err != nil {
			return err
		}
		if err := g.wait(10*time.Second, ms, before); err != nil {
			return err
		}
		ranges = nil
		total := 0
		for i, m := range ms {
			mine := m.rangesOf(before)
			if len(mine) != groupRanges/len(ms) {
				return fmt.Errorf("member %d has ranges %v", i, mine)
			}
			ranges, total = append(ranges, mine), total+len(mine)
		}
		if total != groupRanges {
			return fmt.Errorf("the members have ranges %v", ranges)
		}
		return eventually(3*time.Second, "commits", g.allCommitted)
	})
}

// rangesOf gives the ranges of the records from id on that the member got.
func (m *member) rangesOf(from int) []int32 {
	set := map[int32]bool{}
	for _, r := range m.op.got() {
		if id, err := valueID(r.value); err == nil && id >= from {
			set[r.r] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// wait waits until ms together got all records from id on that were written.
func (g *members) wait(limit time.Duration, ms []*member, from int) error {
	return eventually(limit, fmt.Sprintf("records %d to %d have come", from, g.written), func() error {
		missing := map[int]bool{}
		for id := from; id < g.written; id++ {
			missing[id] = true
		}
		for _, m := range ms {
			if err := m.op.failed(); err != nil {
				return stopPolling{fmt.Errorf("%w (it told: %s)", err, m.op.warnings())}
			}
			for _, r := range m.op.got() {
				id, err := valueID(r.value)
				if err != nil {
					return stopPolling{err}
				}
				delete(missing, id)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d lack, the first is %d", len(missing), slices.Min(slices.Collect(maps.Keys(missing))))
		}
		return nil
	})
}

// failed is what reached the application so far; an operation that ended by itself is a failure too.
func (o *operation) failed() error {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	if err := o.failedLocked(); err != nil {
		return err
	}
	if o.end != nil && !o.stopped {
		return errors.New("the operation ended by itself")
	}
	return nil
}

// leave ends members in order.
func (g *members) leave(ms ...*member) error {
	for i, m := range ms {
		if err := m.op.finish(some); err != nil {
			return fmt.Errorf("member %d at its end: %w (it told: %s)", i, err, m.op.warnings())
		}
		if err := m.p.quit(); err != nil {
			return err
		}
	}
	return nil
}

// everything checks that every record that was written came to some member.
func (g *members) everything() error { return g.wait(some, g.all, 0) }

// committed gives the committed offset of each range; 0 where there is none.
func (g *members) committed() (map[int32]int64, error) {
	cl, err := g.x.open() // anew: one that knows a coordinator asks no other while that is down
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	offsets, err := kadm.NewClient(cl).FetchOffsets(ctx, g.x.topic)
	if err = errors.Join(err, offsets.Error()); err != nil {
		return nil, fmt.Errorf("committed offsets: %w", err)
	}
	out := map[int32]int64{}
	for r := range int32(groupRanges) {
		if o, ok := offsets.Lookup(g.x.topic, r); ok {
			out[r] = max(o.At, 0)
		}
	}
	return out, nil
}

// allCommitted checks that each committed offset is the end of its range.
func (g *members) allCommitted() error {
	got, err := g.committed()
	if err != nil {
		return err
	}
	ends, err := g.x.ends()
	if err != nil {
		return err
	}
	if !maps.Equal(got, ends) {
		var told []string
		for _, m := range g.all {
			told = append(told, m.op.warnings())
		}
		return fmt.Errorf("committed are %v, the ranges end at %v (the members told: %q)", got, ends, told)
	}
	return nil
}

func groupOfTwo(protocol string) func(x *cell) error {
	return func(x *cell) error {
		g, err := x.newGroup(protocol)
		if err != nil {
			return err
		}
		if err := g.feed(100); err != nil {
			return err
		}
		a, err := g.join("")
		if err != nil {
			return err
		}
		if err := g.wait(some, []*member{a}, 0); err != nil {
			return err
		}
		b, err := g.join("")
		if err != nil {
			return err
		}
		if _, err := g.settle(a, b); err != nil {
			return err
		}
		if err := g.feed(100); err != nil {
			return err
		}
		return errors.Join(g.everything(), g.leave(a, b), g.allCommitted())
	}
}

func groupDies(protocol string) func(x *cell) error {
	return func(x *cell) error {
		g, err := x.newGroup(protocol)
		if err != nil {
			return err
		}
		a, errA := g.join("")
		b, errB := g.join("")
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		if _, err := g.settle(a, b); err != nil {
			return err
		}
		a.p.kill()
		if _, err := g.settle(b); err != nil {
			return fmt.Errorf("after the death of a member: %w", err)
		}
		if err := errors.Join(g.everything(), g.leave(b), g.allCommitted()); err != nil {
			return err
		}
		return g.resumes()
	}
}

// resumes writes while nobody is in the group, and looks that a new member reads just that.
func (g *members) resumes() error {
	from := g.written
	if err := g.feed(50); err != nil {
		return err
	}
	c, err := g.join("")
	if err != nil {
		return err
	}
	if err := g.wait(some, []*member{c}, from); err != nil {
		return fmt.Errorf("a new member: %w", err)
	}
	for _, r := range c.op.got() {
		if id, err := valueID(r.value); err != nil || id < from {
			return fmt.Errorf("the new member got record %d of range %d, which was committed: %w", id, r.r, err)
		}
	}
	return errors.Join(g.leave(c), g.allCommitted())
}

func groupStatic(x *cell) error {
	g, err := x.newGroup(classic)
	if err != nil {
		return err
	}
	a, errA := g.join("a")
	b, errB := g.join("b")
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	before, err := g.settle(a, b)
	if err != nil {
		return err
	}
	a.p.kill()
	again, err := g.join("a")
	if err != nil {
		return err
	}
	after, err := g.settle(again, b)
	if err != nil {
		return fmt.Errorf("after it came back: %w", err)
	}
	if !slices.Equal(before[0], after[0]) || !slices.Equal(before[1], after[1]) {
		return fmt.Errorf("the ranges were %v before, and %v after", before, after)
	}
	return errors.Join(g.everything(), g.leave(again, b), g.allCommitted())
}

func groupCoordinator(protocol string) func(x *cell) error {
	return func(x *cell) error {
		g, err := x.newGroup(protocol)
		if err != nil {
			return err
		}
		a, errA := g.join("")
		b, errB := g.join("")
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		if _, err := g.settle(a, b); err != nil {
			return err
		}
		before, err := g.committed()
		if err != nil {
			return err
		}
		restore, err := x.target.killCoordinator(x.topic)
		if err != nil {
			return err
		}
		_, errA = g.settle(a, b)
		if err := errors.Join(errA, restore()); err != nil {
			return fmt.Errorf("after the coordinator died: %w", err)
		}
		// Commits go to the new coordinator by themselves, before anybody leaves.
		if err := eventually(some, "commits at the new coordinator", g.allCommitted); err != nil {
			return err
		}
		after, err := g.committed()
		if err != nil {
			return err
		}
		for r, offset := range before {
			if after[r] < offset {
				return fmt.Errorf("the committed offset of range %d went from %d to %d", r, offset, after[r])
			}
		}
		return errors.Join(g.everything(), g.leave(a, b), g.allCommitted())
	}
}
