package group

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// Config is what a Coordinator stands on. Zero times take the defaults beside them.
type Config struct {
	// Self and Incarnation are this process: it serves the slots that the applied state grants to exactly that (I5).
	Self        vtop.NodeName
	Incarnation vtop.Incarnation
	// Machine gives the applied state and the lease deadline; Clock is the clock of that deadline.
	Machine *fsm.Machine
	Clock   func() time.Duration
	// LeaseTime (10 s) is how long after the quorum's last word to this process that deadline is.
	LeaseTime time.Duration
	// Propose has a command committed and returns once it is applied here, as meta.Meta's. vtop.ErrTimeout: outcome unknown.
	Propose func(context.Context, fsm.Command) (fsm.Outcome, error)
	// Fresh returns once everything that was committed when it was called is applied here: it asks the Raft leader. nil stands for a
	// Machine that always has everything.
	Fresh func(context.Context) error
	// CaughtUp says whether this process has applied what was committed when it started. Alive whether a node is believed to run.
	CaughtUp func() bool
	Alive    func(vtop.NodeName) bool

	Limits Limits
	// Retention (7 days) is how long the offsets of a group are kept that has no members; 0 takes the default, less than 0 is for ever.
	Retention time.Duration
	// Sweep (5 min) is how often offsets are looked at for that.
	Sweep time.Duration
	// GrantWait (1 s) is how long a request waits for the grant of a slot that has just lost its holder.
	GrantWait time.Duration
	// CommitTimeout (5 s) is how long a change may wait for the metadata quorum before the client is told to ask again.
	CommitTimeout time.Duration

	Log hclog.Logger
}

// Bounds of what a coordinator holds (I13).
const (
	// maxMemory bounds the bytes of subscriptions and assignments of all groups in memory here.
	maxMemory = 256 << 20
	// maxGather is the longest time that changes wait for others, gatherEach what each consumer that commits adds to it.
	maxGather  = 50 * time.Millisecond
	gatherEach = time.Millisecond
	// maxQueued and maxQueuedBytes bound the changes that wait to be proposed.
	maxQueued      = 50_000
	maxQueuedBytes = 64 << 20
	// maxBatch is how many changes one command takes; fsm.MaxGroupBatch bounds its bytes.
	maxBatch = 5000
	// maxItemOffsets is how many offsets one item takes: longer commits are split.
	maxItemOffsets = 2000
	// proposeTime bounds one attempt to propose; proposePause is between attempts.
	proposeTime  = 5 * time.Second
	proposePause = 50 * time.Millisecond
	// lateTimer is the delay from which on a timer proves that this process stood still, and its members could not be heard.
	lateTimer = time.Second
	// mutedPause is how often a group looks whether its coordinator can serve again.
	mutedPause = 500 * time.Millisecond
)

func (c *Config) complete() error {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.LeaseTime, 10*time.Second)
	def(&c.Retention, 7*24*time.Hour)
	def(&c.Sweep, 5*time.Minute)
	def(&c.GrantWait, time.Second)
	def(&c.CommitTimeout, 5*time.Second)
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if c.Fresh == nil {
		c.Fresh = func(context.Context) error { return nil }
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	switch {
	case c.Self == "" || c.Incarnation == 0:
		return fmt.Errorf("group: node %q in incarnation %d: want a registered process", c.Self, c.Incarnation)
	case c.Machine == nil || c.Clock == nil || c.Propose == nil || c.CaughtUp == nil || c.Alive == nil:
		return fmt.Errorf("group: Machine, Clock, Propose, CaughtUp and Alive are all needed")
	case c.Sweep < 0 || c.GrantWait < 0 || c.CommitTimeout < 0:
		return fmt.Errorf("group: Sweep %s, GrantWait %s, CommitTimeout %s: want more than 0", c.Sweep, c.GrantWait, c.CommitTimeout)
	}
	if err := c.Limits.Validate(); err != nil {
		return err
	}
	return c.Limits.CheckLease(c.LeaseTime)
}
