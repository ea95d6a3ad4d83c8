package repair

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
)

// Config is what a Runner is made of. All fields without a default are required.
type Config struct {
	Self        vtop.NodeName
	Incarnation vtop.Incarnation
	Machine     *fsm.Machine
	Store       *storage.Store
	Peers       Peers
	// Propose hands a command to the metadata leader and returns when it is applied on this node, or with an error if
	// that is not known. A refusal is in the outcome, not in the error.
	Propose func(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error)
	// CaughtUp reports whether this process has applied all that was committed when it started. Nothing is done before.
	CaughtUp func() bool
	// Follows tells what the engine knows of a replica that follows on this node.
	Follows func(r vtop.Range) Following
	// Wake has the engine look at a range again: its replica was adopted, or it may make a directory now. It must not
	// block. Optional.
	Wake func(r vtop.Range)
	// Alive says whether this node believes that another runs; a source that does not is not asked. Default: all do.
	Alive func(vtop.NodeName) bool
	// Pressure says how busy this node is with its clients, from 0 (idle) to 100; negative if it cannot tell. It is
	// called ten times a second while something is received. Default: idle.
	Pressure func() int
	// Now is the wall clock, for times that are shown. Default time.Now.
	Now func() time.Time
	Log hclog.Logger

	// Receiving is how many jobs receive segments at once; others wait for their turn. Default 2.
	Receiving int
	// Following is how many jobs may be between adoption and their end before no other one begins. Default 16.
	Following int
	// Chunks bounds the memory of all transfers: buffers of storage/manifest.ChunkSize bytes. Default 16.
	Chunks int
	// PerSource is how many requests one job has under way with one source. Default 3.
	PerSource int
	// OpenSegments is how many segments of one job are half received at once; each costs the memory of its manifest.
	// Default 4.
	OpenSegments int
	// Patience is how long a job may bring nothing, over all its pauses in this process, before it fails with the reason
	// for which it last waited. Once the replica is adopted it does not count while most voters of the range are lost.
	// Default 24 h.
	Patience time.Duration
}

// Following is what the engine knows of a replica on this node.
type Following struct {
	// HighWatermark is what the leader told last; fsm.NoOffset if nothing.
	HighWatermark vtop.Offset
	// Why says why it does not follow; empty if it does.
	Why string
}

func (c Config) withDefaults() (Config, error) {
	if c.Self == "" || c.Incarnation == 0 || c.Machine == nil || c.Store == nil || c.Peers == nil || c.Propose == nil ||
		c.CaughtUp == nil || c.Follows == nil {
		return c, errors.New("repair runner: Self, Incarnation, Machine, Store, Peers, Propose, CaughtUp and Follows must be set")
	}
	if c.Wake == nil {
		c.Wake = func(vtop.Range) {}
	}
	if c.Alive == nil {
		c.Alive = func(vtop.NodeName) bool { return true }
	}
	if c.Pressure == nil {
		c.Pressure = func() int { return 0 }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	for _, n := range []struct {
		field *int
		value int
	}{{&c.Receiving, 2}, {&c.Following, 16}, {&c.Chunks, 16}, {&c.PerSource, 3}, {&c.OpenSegments, 4}} {
		if *n.field < 0 {
			return c, errors.New("repair runner: a bound is negative")
		}
		if *n.field == 0 {
			*n.field = n.value
		}
	}
	if c.Patience == 0 {
		c.Patience = 24 * time.Hour
	}
	return c, nil
}

// Bounds of single calls. Each is made again, so they decide only how long a wait can go unseen.
const (
	sealTimeout    = time.Minute
	pinTimeout     = 30 * time.Second
	learnerTimeout = 20 * time.Second
	reportTimeout  = 10 * time.Second
	releaseTimeout = 5 * time.Second
	proposeTimeout = 10 * time.Second
	chunkTimeout   = time.Minute
)
