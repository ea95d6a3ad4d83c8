package controller

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/fsm"
)

// Quorum is the node's place in the Raft group.
type Quorum interface {
	// IsLeader: this node is Raft leader and has passed its barrier.
	IsLeader() bool
	Term() uint64
	// VerifyLeader returns nil if a majority of voters confirmed the leadership after it was called.
	VerifyLeader(ctx context.Context) error
	Propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error)
}

// LogEnd is how far one replica has come.
type LogEnd struct {
	Range     vtop.Range
	End       vtop.Offset
	LastEpoch vtop.Epoch
	// Promised is the epoch that the replica's promise stands at.
	Promised vtop.Epoch
	// Damaged: a sealed segment of the replica is not served; who is whole leads rather.
	Damaged bool
}

// Ask is one replica that is to be asked for its log end.
type Ask struct {
	Range   vtop.Range
	Replica vtop.ReplicaID
}

// Config is what a controller works with.
type Config struct {
	Self     vtop.NodeName
	Machine  *fsm.Machine
	Quorum   Quorum
	Tracker  *liveness.Tracker
	Receiver *liveness.Receiver
	// SelfHealth is what this node says of itself, since nobody sends beats to itself.
	SelfHealth func() liveness.Health
	// LogEnds asks the replicas of one node, itself included; an answer leaves out those it does not know.
	LogEnds func(ctx context.Context, node vtop.NodeName, ask []Ask) ([]LogEnd, error)
	// Extend is called with the time of a question that the quorum answered: the leader's own beat.
	Extend func(asked time.Duration)
	// Interval of the beats; LogEndTimeout bounds the wait for positions.
	Interval, LogEndTimeout time.Duration
	// PromotionDeadline is the time a holder has to start its epoch; it doubles with each holder that did not.
	PromotionDeadline time.Duration
	// BalanceEvery lies between two looks at leases that are away from home; HomeAfter is how long a node must have
	// been fit before leases return to it.
	BalanceEvery, HomeAfter time.Duration
	// HealAfter is how long a node is silent before its replicas are rebuilt elsewhere; 0: nothing heals by itself. HealEvery lies
	// between two looks for what is to be healed or drained (1 s), MaxHeals is how many such jobs are under way at once (8).
	HealAfter, HealEvery time.Duration
	MaxHeals             int
	// RepairRate in bytes a second limits each of those jobs; 0 leaves it to a budget that yields to clients.
	RepairRate int64
	// Clock is that of the leader's own beat, and goes on while this process does not run. Others are judged by the Tracker's.
	Clock func() time.Duration
	Log   hclog.Logger
}

// Controller runs on every node and works on the Raft leader.
type Controller struct {
	cfg    Config
	wake   chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Owned by the placing goroutine.
	attempts map[vtop.Range]attempt
	fitSince map[vtop.NodeName]time.Duration
	balanced time.Duration
	// slotsBalanced is when slots with groups were last evened out, homeless what nobody could take.
	slotsBalanced time.Duration
	homeless      homeless
	healed        time.Duration
	again         map[want]again

	mu      sync.Mutex
	stuck   map[vtop.Range]string
	healing Healing
}

// attempt is a lease that has not started yet.
type attempt struct {
	epoch    vtop.Epoch
	since    time.Duration
	deadline time.Duration // how long it has
	failed   vtop.NodeName // the holder before it that did not start
}

// Start starts the controller. Close ends it.
func Start(cfg Config) *Controller {
	if cfg.HealEvery == 0 {
		cfg.HealEvery = time.Second
	}
	if cfg.MaxHeals == 0 {
		cfg.MaxHeals = 8
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Controller{
		cfg: cfg, wake: make(chan struct{}, 1), cancel: cancel,
		attempts: map[vtop.Range]attempt{}, fitSince: map[vtop.NodeName]time.Duration{}, stuck: map[vtop.Range]string{},
		again: map[want]again{},
	}
	cfg.Machine.Observe(func(ch fsm.Change) {
		if groupsAlone(ch) {
			return // consumers commit all the time, and no lease follows from it
		}
		c.Wake()
	})
	c.wg.Add(2)
	go c.acknowledge(ctx)
	go c.place(ctx)
	return c
}

// Close ends the controller and waits for it. A proposal under way may still be applied.
func (c *Controller) Close() {
	c.cancel()
	c.wg.Wait()
}

// Wake has the controller look at once: something may have changed. It never blocks.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Stuck says why ranges have no holder, as far as this node, being Raft leader, found.
func (c *Controller) Stuck() map[vtop.Range]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[vtop.Range]string, len(c.stuck))
	for r, why := range c.stuck {
		out[r] = why
	}
	return out
}

// groupsAlone reports whether consumer groups changed and nothing else.
func groupsAlone(ch fsm.Change) bool {
	return len(ch.Groups) > 0 && len(ch.Ranges)+len(ch.Coordinators) == 0 && !ch.Topics && !ch.Nodes && !ch.Repairs && !ch.Restored
}

// acknowledge answers beats while this node leads: it notes which beats have arrived, then verifies its leadership,
// then acknowledges those. So an acknowledgement proves that the quorum stood by this leader after the beat was sent.
func (c *Controller) acknowledge(ctx context.Context) {
	defer c.wg.Done()
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	_, known := c.cfg.Tracker.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, slept := c.cfg.Tracker.Now(); slept != known {
			c.cfg.Log.Warn("was not running for a while; every node has its whole silence limit again", "for", slept-known)
			known = slept
		}
		c.cfg.Tracker.Applied(c.cfg.Machine.Applied())
		c.cfg.Tracker.Beat(c.cfg.Self, 0, c.cfg.SelfHealth())
		if !c.cfg.Quorum.IsLeader() {
			continue
		}
		for n := range c.cfg.Machine.State().Nodes() {
			if n.Name != c.cfg.Self && n.State != fsm.NodeGone {
				c.cfg.Receiver.Look(ctx, n.Name, n.Incarnation)
			}
		}
		pending, term := c.cfg.Receiver.Pending(), c.cfg.Quorum.Term()
		asked := c.cfg.Clock()
		verify, cancel := context.WithTimeout(ctx, time.Second)
		err := c.cfg.Quorum.VerifyLeader(verify)
		cancel()
		if err != nil {
			c.cfg.Log.Debug("leadership not verified", "error", err)
			continue
		}
		c.cfg.Extend(asked)
		c.cfg.Receiver.Acknowledge(pending, term, c.cfg.Self)
	}
}

// place looks whenever something may have changed, and at every interval since silence changes nothing by itself.
func (c *Controller) place(ctx context.Context) {
	defer c.wg.Done()
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.wake:
		}
		if c.cfg.Quorum.IsLeader() {
			c.round(ctx)
			c.heal(ctx)
		} else {
			c.forget()
		}
	}
}

// now is the time by which others are judged: it stands still while this process does not run. A sick observer condemns
// nobody.
func (c *Controller) now() time.Duration {
	now, _ := c.cfg.Tracker.Now()
	return now
}

// forget drops what only a leader may believe.
func (c *Controller) forget() {
	clear(c.attempts)
	clear(c.fitSince)
	clear(c.again)
	c.homeless = homeless{}
	c.mu.Lock()
	c.healing = Healing{}
	clear(c.stuck)
	c.mu.Unlock()
}
