package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// Network is what the engine needs of the peer plane. Both methods find the node's address themselves; they are
// called concurrently, and return when ctx ends.
type Network interface {
	// Dial opens a replication stream to a node.
	Dial(ctx context.Context, to vtop.NodeName) (*transport.Stream, error)
	// Peer answers with what to call on a node; calls fail by themselves if it cannot be reached.
	Peer(to vtop.NodeName) Peer
}

// Peer is one node's answering side for promotion and health. Errors keep their sentinels over the wire.
type Peer interface {
	Fence(ctx context.Context, req *peerpb.FenceRequest) (*peerpb.FenceResponse, error)
	ReadLog(ctx context.Context, req *peerpb.ReadLogRequest) (*peerpb.ReadLogResponse, error)
	LogEnds(ctx context.Context, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error)
}

// Config is what an Engine is made of. All fields without a default are required.
type Config struct {
	Self        vtop.NodeName
	Incarnation vtop.Incarnation
	Machine     *fsm.Machine
	Store       *storage.Store
	Network     Network
	// Propose hands a command to the metadata leader and returns when it is applied on this node, or with an error if
	// that is not known. A refusal is in the outcome, not in the error.
	Propose func(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error)
	// CaughtUp reports whether this process has applied all that was committed when it started. It never turns
	// false again. Call Engine.Wake when it turns true.
	CaughtUp func() bool
	// OnNoSpace is told, at most about once a second, that this node leads ranges it can no longer write for want of
	// space. It must not block. Optional.
	OnNoSpace func(ranges []vtop.Range)
	// Alive says whether this node believes that another runs; it decides only what is worth healing. Default: all do.
	Alive func(vtop.NodeName) bool
	// Adopting says whether a repair job is about to bring this node a replica of the range: no directory is made for it then. It
	// must not block. Default: as the active jobs of the applied state say.
	Adopting func(vtop.Range) bool
	// RepairJobs says that repair jobs are carried out in this cluster: lost replicas of ranges that have sealed segments are left
	// to them, and this node asks for one when a segment of its own is damaged. Without it, replicas are built anew from the
	// leader's log alone.
	RepairJobs bool
	// RepairRate in bytes a second limits the jobs that this node asks for; 0 leaves it to a budget that yields to clients.
	RepairRate int64
	// SealStep is called between the steps of a seal, by the goroutine that seals and outside all locks, so that tests can have
	// the world change there. Optional.
	SealStep func(r vtop.Range, step SealStep)
	Log      hclog.Logger

	// AckTimeout is how long an admitted batch may wait for its majority before it is answered vtop.ErrTimeout.
	// Default 30 s.
	AckTimeout time.Duration
	// FenceTimeout bounds one round of asking for promises. Default 3 s.
	FenceTimeout time.Duration
	// StallTimeout is how long a replica that is behind may make no progress before its connection is built anew.
	// Default 10 s.
	StallTimeout time.Duration
	// DutyInterval is the clock of floors, rolling, sealing and retention. Default 1 s; negative: only when Engine.Duties is
	// called, for tests.
	DutyInterval time.Duration
	// SealTimeout is how long a seal waits for the closed tail to be committed and catalogued before it is answered
	// *transport.NotCommittedError. Default 20 s.
	SealTimeout time.Duration
	// HealInterval is how often a leader looks for replicas to replace. Default 5 s; negative: never.
	HealInterval time.Duration
	// Now is the wall clock, for times that are shown and for retention. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() (Config, error) {
	if c.Self == "" || c.Incarnation == 0 || c.Machine == nil || c.Store == nil || c.Network == nil || c.Propose == nil || c.CaughtUp == nil {
		return c, errors.New("replica engine: Self, Incarnation, Machine, Store, Network, Propose and CaughtUp must be set")
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if c.Alive == nil {
		c.Alive = func(vtop.NodeName) bool { return true }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.AckTimeout, 30 * time.Second}, {&c.FenceTimeout, 3 * time.Second}, {&c.StallTimeout, 10 * time.Second},
		{&c.DutyInterval, time.Second}, {&c.HealInterval, 5 * time.Second}, {&c.SealTimeout, 20 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c, nil
}
