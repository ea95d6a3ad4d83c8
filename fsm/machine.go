package fsm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
)

// Machine is one node's state machine: it applies what Raft committed, publishes the State, and keeps the
// LeaseView. It implements raft.FSM and raft.BatchingFSM (fsm.go, snapshot.go).
type Machine struct {
	log     hclog.Logger
	onFault func(*Fault)
	leases  *LeaseView
	state   atomic.Pointer[State]
	// moments are asked for by StateAt.
	moments moments

	mu        sync.Mutex
	observers []func(Change)
	// moved is closed and replaced when the state has moved.
	moved chan struct{}
}

// Options configure a Machine.
type Options struct {
	// Clock is monotonic, for the lease deadline; nil takes the time since New (which does not count the time that the
	// machine sleeps).
	Clock func() time.Duration
	// OnFault ends the process. It is called on the apply goroutine; the machine panics if it is nil or returns.
	OnFault func(*Fault)
	// Log may be nil.
	Log hclog.Logger
}

// Change says what the State just published differs in from the one before.
type Change struct {
	// Index is the State's.
	Index uint64
	// Ranges lists those that changed, in order: created and deleted ones included, whatever of them changed, their
	// catalogue too. The slice is shared: do not write to it.
	Ranges []vtop.Range
	// Topics says that topics, Nodes that nodes or the cluster (whether healing is paused, too), Repairs that repair jobs changed.
	Topics, Nodes, Repairs bool
	// Coordinators lists the slots whose lease changed, Groups the groups whose header, members or offsets did: deleted ones and those
	// that lost offsets with a topic included. Both are in order and shared: do not write to them.
	Coordinators []Slot
	Groups       []string
	// Restored says that the State came from a snapshot: look at everything. Ranges lists only those whose lease changed.
	Restored bool
}

// New returns a machine at the state before the first entry.
func New(opt Options) *Machine {
	if opt.Clock == nil {
		start := time.Now()
		opt.Clock = func() time.Duration { return time.Since(start) }
	}
	if opt.Log == nil {
		opt.Log = hclog.NewNullLogger()
	}
	m := &Machine{log: opt.Log.Named("fsm"), onFault: opt.OnFault, leases: NewLeaseView(opt.Clock), moved: make(chan struct{})}
	m.state.Store(NewState())
	m.moments.lowest.Store(noMoment)
	return m
}

// State returns the state last published. It never waits.
func (m *Machine) State() *State { return m.state.Load() }

// Leases returns the lease view.
func (m *Machine) Leases() *LeaseView { return m.leases }

// Applied is the index of the last command applied: State().Index(). Raft's own entries (barriers, no-ops,
// configurations) never reach a state machine and do not count. So a node that wants to know whether it has caught up asks
// the Raft leader for the leader's Applied after a barrier, never for an index of Raft.
func (m *Machine) Applied() uint64 { return m.State().Index() }

// WaitApplied returns nil once the command at index is applied and published, or the cause of ctx. index is that of a
// command (Outcome.Index) or another node's Applied: with the index of a Raft-internal entry it may wait for ever.
func (m *Machine) WaitApplied(ctx context.Context, index uint64) error {
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		if m.Applied() >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Observe has fn called on the apply goroutine after each publication, in order. fn copies what it needs, enqueues it
// without waiting, and returns: the state machine waits for it. There is no way to take an observer back.
func (m *Machine) Observe(fn func(Change)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observers = append(m.observers, fn)
}

// ApplyCommands applies commands as if Raft had committed them one by one from index on. It is the road of the tests
// of other packages, and the same that Raft's entries take. One goroutine at a time calls it.
func (m *Machine) ApplyCommands(index uint64, cmds ...Command) []Outcome {
	t := begin(m.State())
	outs := make([]Outcome, len(cmds))
	for i, cmd := range cmds {
		t.s = m.moments.before(index+uint64(i), t.s)
		outs[i] = t.run(index+uint64(i), cmd)
	}
	m.publish(t.s, t.change())
	return outs
}

// publish moves the cells of the changed ranges, then the state. In this order a lease that the published state
// does not hold any more is never held in the view.
func (m *Machine) publish(s *State, c Change) {
	for _, id := range c.Ranges {
		r, ok := s.Range(id)
		if !ok {
			r = nil
		}
		m.leases.set(id, r)
	}
	m.state.Store(s)
	m.moments.published(s)
	m.mu.Lock()
	close(m.moved)
	m.moved = make(chan struct{})
	observers := m.observers
	m.mu.Unlock()
	for _, fn := range observers {
		fn(c)
	}
}

// Replace publishes a state that did not come from the one before by applying commands: a snapshot. It acts on the
// difference of the two: a cell moves if its lease is not the same, and the same holder under a higher epoch is
// another lease. As with ApplyCommands, one goroutine at a time calls it.
func (m *Machine) Replace(s *State) {
	m.publish(s, Change{Index: s.index, Ranges: leaseDifference(m.State(), s), Topics: true, Nodes: true, Repairs: true, Restored: true})
}

// leaseDifference lists the ranges that are in only one of two states, or whose lease differs.
func leaseDifference(from, to *State) []vtop.Range {
	var out []vtop.Range
	for r := range from.Ranges() {
		if now, ok := to.Range(r.ID); !ok || now.Lease != r.Lease || now.Started != r.Started {
			out = append(out, r.ID)
		}
	}
	for r := range to.Ranges() {
		if _, ok := from.Range(r.ID); !ok {
			out = append(out, r.ID)
		}
	}
	return out
}
