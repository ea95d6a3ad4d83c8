package group

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// world is a cluster's metadata in memory, and coordinators over it. Everything passes through fsm.Machine as in a real one; what
// fails is decided by the hooks.
type world struct {
	t       *testing.T
	machine *fsm.Machine
	topic   vtop.TopicID
	limits  Limits

	mu    sync.Mutex
	index uint64
	// before sees each proposal of a coordinator; an error is returned instead of applying it.
	before func(fsm.Command) error
	// after sees the outcome; an error is returned though the command was applied.
	after     func(*fsm.UpdateGroups, fsm.Outcome) error
	entries   int
	asleep    bool          // the lease deadline has passed
	clock     time.Duration // of that deadline, while it has not
	late      []fsm.Command // on their way, to be applied by deliver
	retention time.Duration
}

// newWorld makes nodes n1 … and a topic with 8 ranges. Slots are granted by grant.
func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := &world{t: t, machine: fsm.New(fsm.Options{}), limits: DefaultLimits(), topic: vtop.TopicID{1}}
	w.limits.InitialDelay = 0
	w.must(&fsm.BootstrapCluster{ID: vtop.UUID{9}, Level: fsm.LevelFirst})
	var names []vtop.NodeName
	for i := range nodes {
		name := vtop.NodeName(fmt.Sprint("n", i+1))
		names = append(names, name)
		w.must(&fsm.RegisterNode{Name: name, Identity: fsm.Identity{Storage: vtop.UUID{2, byte(i)}, RaftID: string(name), Incarnation: 1, BootNonce: vtop.UUID{3, byte(i)},
			MaxLevel: fsm.LevelMax, Addresses: fsm.Addresses{Kafka: "h:1", Peer: "h:2", Gossip: "h:3", Admin: "h:4"}}})
	}
	create := &fsm.CreateTopic{ID: w.topic, Name: "t"}
	for range 8 {
		create.Ranges = append(create.Ranges, names[:1])
	}
	w.must(create)
	w.machine.Leases().SetDeadline(math.MaxInt64)
	return w
}

func (w *world) must(cmd fsm.Command) {
	w.t.Helper()
	if out := w.apply(cmd); out.Err() != nil {
		w.t.Fatalf("%s: %v", cmd.Op(), out.Err())
	}
}

func (w *world) apply(cmd fsm.Command) fsm.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applyLocked(cmd)
}

func (w *world) applyLocked(cmd fsm.Command) fsm.Outcome {
	if err := cmd.Check(); err != nil {
		w.t.Errorf("%s: %v", cmd.Op(), err)
	}
	w.index++
	return w.machine.ApplyCommands(w.index, cmd)[0]
}

func (w *world) propose(ctx context.Context, cmd fsm.Command) (fsm.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries++
	if w.before != nil {
		if err := w.before(cmd); err != nil {
			return fsm.Outcome{}, err
		}
	}
	out := w.applyLocked(cmd)
	if w.after != nil {
		if err := w.after(cmd.(*fsm.UpdateGroups), out); err != nil {
			return fsm.Outcome{}, err
		}
	}
	return out, nil
}

// set changes the hooks.
func (w *world) set(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// deliver applies what was on its way.
func (w *world) deliver() (outs []fsm.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cmd := range w.late {
		outs = append(outs, w.applyLocked(cmd))
	}
	w.late = nil
	return outs
}

// start makes the coordinator of a node.
func (w *world) start(name vtop.NodeName) *Coordinator {
	w.t.Helper()
	c, err := New(Config{
		Self: name, Incarnation: 1, Machine: w.machine, Propose: w.propose, Limits: w.limits, Retention: w.retention,
		Clock: func() time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.asleep {
				return math.MaxInt64
			}
			return w.clock
		},
		CaughtUp: func() bool { return true }, Alive: func(vtop.NodeName) bool { return true },
		Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: testLog{w.t}}),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

// grant gives the slot of a group to a node.
func (w *world) grant(id string, to vtop.NodeName) {
	w.t.Helper()
	slot := fsm.GroupSlot(id)
	w.must(&fsm.GrantCoordinators{Items: []fsm.CoordinatorGrant{{Slot: slot, Holder: to, Incarnation: 1, Expected: w.machine.State().Coordinator(slot).Epoch}}})
}

func (w *world) offset(id string, index int32) vtop.Offset {
	if o, ok := w.machine.State().Offset(id, vtop.Range{Topic: w.topic, Index: index}); ok {
		return o.Offset
	}
	return -1
}

// commitOf is one offset of the first range, by nobody in particular.
func (w *world) commitOf(id string, at vtop.Offset) Commit {
	return Commit{Group: id, Claim: Claim{Generation: -1}, Offsets: []CommitOffset{{Range: vtop.Range{Topic: w.topic}, Offset: at}}}
}

func (w *world) commit(c *Coordinator, r Commit) error {
	errs, err := c.Commit(w.t.Context(), r)
	return errors.Join(err, errors.Join(errs...))
}

func joinRequest(group, member string) Join {
	return Join{Group: group, MemberID: member, ClientID: "c", Session: 10 * time.Second, Rebalance: 20 * time.Second, ProtocolType: "consumer",
		Protocols: []Protocol{{Name: "range", Metadata: []byte("m")}}}
}

// member makes a group of one, stable.
func (w *world) member(c *Coordinator, id string) Claim {
	w.t.Helper()
	return w.memberOf(c, joinRequest(id, ""))
}

func (w *world) memberOf(c *Coordinator, r Join) Claim {
	w.t.Helper()
	j := c.Join(w.t.Context(), r)
	if j.Err != nil {
		w.t.Fatalf("join: %v", j.Err)
	}
	claim := Claim{MemberID: j.MemberID, Generation: j.Generation}
	s := c.Sync(w.t.Context(), Sync{Group: r.Group, Claim: claim, Assignments: []Assignment{{j.MemberID, []byte("all")}}})
	if s.Err != nil || string(s.Assignment) != "all" {
		w.t.Fatalf("sync: %+v", s)
	}
	return claim
}
