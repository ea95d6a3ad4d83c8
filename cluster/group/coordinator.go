package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Coordinator serves the groups of the slots that its process holds. All methods are safe for concurrent use. What they
// answer is durable in the state machine.
type Coordinator struct {
	// Set once.
	cfg      Config
	log      hclog.Logger
	proposer *proposer
	fresh    *freshness
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
	wake     chan struct{} // has room for one: slots or topics have moved

	topicsMoved atomic.Bool
	bytes       atomic.Int64 // of members, all groups
	counts      counters

	mu     sync.Mutex
	groups map[string]*group
	// moved is closed and replaced when slots have moved.
	moved chan struct{}

	// Of the loop: the epochs under which it has loaded the slots; vtop.NoEpoch for those not held.
	held [fsm.GroupSlots]vtop.Epoch
}

// New makes the coordinator of a registered process and starts its goroutines. Close ends them.
func New(cfg Config) (*Coordinator, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Coordinator{cfg: cfg, log: cfg.Log.Named("group"), wake: make(chan struct{}, 1), groups: map[string]*group{}, moved: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	for slot := range c.held {
		c.held[slot] = vtop.NoEpoch
	}
	c.proposer = newProposer(c)
	c.fresh = newFreshness(c)
	cfg.Machine.Observe(c.observe)
	c.signal()
	c.wg.Add(3)
	go func() { defer c.wg.Done(); c.fresh.run() }()
	go func() { defer c.wg.Done(); c.run() }()
	go func() { defer c.wg.Done(); c.proposer.run() }()
	return c, nil
}

// Close answers whoever waits with ErrNotCoordinator, and waits for the goroutines. After it nothing is proposed any more.
func (c *Coordinator) Close() {
	c.cancel(fmt.Errorf("%w: %w", ErrNotCoordinator, vtop.ErrClosed))
	c.wg.Wait()
	for _, g := range c.inMemory(func(*group) bool { return true }) {
		g.mu.Lock()
		g.dropLocked(context.Cause(c.ctx))
		g.mu.Unlock()
	}
}

// observe runs on the apply goroutine: it only notes what there is to look at.
func (c *Coordinator) observe(change fsm.Change) {
	if change.Topics || change.Restored {
		c.topicsMoved.Store(true)
	}
	if len(change.Coordinators) > 0 || change.Restored || change.Nodes {
		c.mu.Lock()
		close(c.moved)
		c.moved = make(chan struct{})
		c.mu.Unlock()
	} else if !change.Topics {
		return
	}
	c.signal()
}

func (c *Coordinator) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run loads and drops groups as slots come and go, has consumer groups look at topics, and lets old offsets go.
func (c *Coordinator) run() {
	sweep := time.NewTicker(c.cfg.Sweep)
	defer sweep.Stop()
	for {
		select {
		case <-c.wake:
			c.reconcile()
			if c.topicsMoved.Swap(false) {
				c.lookAtTopics()
			}
		case <-sweep.C:
			c.sweep(time.Now())
		case <-c.ctx.Done():
			return
		}
	}
}

// reconcile compares the slots loaded with the applied state: another epoch of this same process is another lease.
func (c *Coordinator) reconcile() {
	st := c.cfg.Machine.State()
	for slot := range fsm.Slot(fsm.GroupSlots) {
		l := st.Coordinator(slot)
		mine, old := l.HeldBy(c.cfg.Self, c.cfg.Incarnation), c.held[slot]
		if old != vtop.NoEpoch && (!mine || l.Epoch != old) {
			c.held[slot] = vtop.NoEpoch
			c.dropSlot(slot, old)
		}
		if mine && l.Epoch != old {
			c.held[slot] = l.Epoch
			c.loadSlot(st, slot, l.Epoch)
		}
	}
}

// dropSlot: whoever waits in the groups of a lost slot is sent to the next coordinator.
func (c *Coordinator) dropSlot(slot fsm.Slot, epoch vtop.Epoch) {
	groups := c.inMemory(func(g *group) bool { return g.slot == slot && g.epoch == epoch })
	for _, g := range groups {
		g.mu.Lock()
		g.dropLocked(fmt.Errorf("%w: slot %d was lost", ErrNotCoordinator, slot))
		g.mu.Unlock()
	}
	c.log.Debug("coordinator slot lost", "slot", slot, "epoch", epoch, "groups", len(groups))
}

// loadSlot brings the groups with members into memory, so that the sessions of those run that never come.
func (c *Coordinator) loadSlot(st *fsm.State, slot fsm.Slot, epoch vtop.Epoch) {
	loaded := 0
	for stored := range st.GroupsOf(slot) {
		if stored.Members == 0 {
			continue
		}
		g, _, err := c.lookup(stored.ID, epoch, false)
		if err != nil {
			c.log.Warn("cannot load a group", "group", stored.ID, "error", err)
			continue
		}
		if g != nil {
			g.mu.Unlock()
			loaded++
		}
	}
	c.log.Debug("coordinator slot taken", "slot", slot, "epoch", epoch, "groups", loaded)
}

// lookAtTopics has the consumer groups see topics that came, went or grew.
func (c *Coordinator) lookAtTopics() {
	for _, g := range c.inMemory(func(*group) bool { return true }) {
		g.mu.Lock()
		if g.gone == nil && g.consumer != nil {
			g.tickLocked(c.view())
		}
		g.mu.Unlock()
	}
}

func (c *Coordinator) inMemory(fits func(*group) bool) (out []*group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		if fits(g) {
			out = append(out, g)
		}
	}
	return out
}

func (c *Coordinator) view() view { return view{now: time.Now(), state: c.cfg.Machine.State()} }

// serves says whether this process may answer for a slot now, and under which epoch of its lease.
func (c *Coordinator) serves(slot fsm.Slot) (vtop.Epoch, error) {
	if err := context.Cause(c.ctx); err != nil {
		return vtop.NoEpoch, err
	}
	l := c.cfg.Machine.State().Coordinator(slot)
	switch {
	case !l.HeldBy(c.cfg.Self, c.cfg.Incarnation):
		return vtop.NoEpoch, fmt.Errorf("%w: slot %d is held by %q", ErrNotCoordinator, slot, l.Holder)
	case !c.cfg.CaughtUp():
		return vtop.NoEpoch, fmt.Errorf("%w: the node is catching up with the metadata", ErrLoading)
	case c.cfg.Clock() >= c.cfg.Machine.Leases().Deadline():
		return vtop.NoEpoch, fmt.Errorf("%w: the metadata quorum has not answered for a lease time", ErrNotAvailable)
	}
	return l.Epoch, nil
}

// awaits is serves, but gives the grant of a slot without a living holder time to arrive: a client may have been sent here by
// a node that has applied it already. ErrLoading where none did: it may yet come here.
func (c *Coordinator) awaits(ctx context.Context, slot fsm.Slot) (epoch vtop.Epoch, err error) {
	vacant := false
	werr := c.await(ctx, func() bool {
		epoch, err = c.serves(slot)
		vacant = errors.Is(err, ErrNotCoordinator) && c.ctx.Err() == nil && c.cfg.CaughtUp() && c.holder(slot) == ""
		return !vacant
	})
	switch {
	case werr != nil:
		return vtop.NoEpoch, werr
	case vacant:
		return vtop.NoEpoch, fmt.Errorf("%w: slot %d has no living holder yet", ErrLoading, slot)
	}
	return epoch, err
}

// await waits until done says so, GrantWait is over, or ctx ends; only the last is an error. It looks whenever slots or nodes move.
func (c *Coordinator) await(ctx context.Context, done func() bool) error {
	var timer *time.Timer
	for {
		c.mu.Lock()
		moved := c.moved
		c.mu.Unlock()
		if done() {
			return nil
		}
		if timer == nil {
			timer = time.NewTimer(c.cfg.GrantWait)
			defer timer.Stop()
		}
		select {
		case <-moved:
		case <-timer.C:
			return nil
		case <-c.ctx.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// holder is the living process that holds a slot; empty if there is none, as far as is known here.
func (c *Coordinator) holder(slot fsm.Slot) vtop.NodeName {
	if !c.cfg.CaughtUp() {
		return "" // what is applied may be of before the restart, when this node held it
	}
	st := c.cfg.Machine.State()
	l := st.Coordinator(slot)
	if l.Holder == c.cfg.Self {
		if l.Incarnation == c.cfg.Incarnation {
			return c.cfg.Self
		}
		return ""
	}
	n, ok := st.Node(l.Holder)
	if !ok || !l.HeldBy(n.Name, n.Incarnation) || !c.cfg.Alive(n.Name) {
		return ""
	}
	return n.Name
}

// Holder names the node that coordinates a group, by this node's applied state. It waits up to GrantWait for one that lives.
// Every id has one, the empty one too: it is the coordinator that refuses it. Errors: ErrNotAvailable, the cause of ctx.
func (c *Coordinator) Holder(ctx context.Context, id string) (name vtop.NodeName, err error) {
	slot := fsm.GroupSlot(id)
	if err := c.await(ctx, func() bool { name = c.holder(slot); return name != "" }); err != nil {
		return "", err
	}
	if name == "" {
		return "", fmt.Errorf("%w: slot %d has no living holder", ErrNotAvailable, slot)
	}
	return name, nil
}

func checkID(id string) error {
	if id == "" || len(id) > fsm.MaxGroupName {
		return fmt.Errorf("%w: %d bytes: want 1 to %d", ErrInvalidGroup, len(id), fsm.MaxGroupName)
	}
	return nil
}

// newMemberID makes a member id that no other member ever had.
func newMemberID(prefix string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	h := hex.EncodeToString(b[:])
	return prefix + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
