//go:build cluster

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// errBusy: every node that the fault could strike is struck by another one.
var errBusy = errors.New("no node is free to be struck")

// blow is one fault as it is struck in one round.
type blow struct {
	w      *world
	rng    *rand.Rand
	name   string
	struck time.Time
	healed time.Time
	did    string // what was struck, for the log
	// rests is the range whose producer the fault itself has rest meanwhile: its silence is none of the cluster's.
	rests *int32
}

// strike notes the moment and the victim.
func (b *blow) strike(format string, args ...any) {
	b.did, b.struck = fmt.Sprintf(format, args...), time.Now()
}

// hold lets time pass between least and most, as the seed says.
func (b *blow) hold(least, most time.Duration) {
	time.Sleep(least + time.Duration(b.rng.Int64N(int64(most-least)+1)))
}

func (b *blow) heads() bool { return b.rng.IntN(2) == 0 }

// role is what a victim is when it is chosen.
type role int

const (
	anyNode role = iota
	holder
	follower
	raftLeader
	coordinator
)

func (r role) String() string {
	return [...]string{"a node", "the holder", "a follower", "the Raft leader", "the coordinator"}[r]
}

// claim chooses a node of the given role that nobody strikes, and keeps it until release. Which range a holder or a follower
// is chosen by is the seed's choice.
func (b *blow) claim(as role) (n *harness.Node, release func(), err error) {
	return b.claimOf(as, b.rng.Int32N(exactRanges))
}

// claimOf is claim for the holder or a follower of one range.
func (b *blow) claimOf(as role, index int32) (n *harness.Node, release func(), err error) {
	err = harness.Within(calm, func() error {
		found, err := b.find(as, index)
		if err != nil {
			return err
		}
		if !b.w.claims[found.Index].TryLock() {
			return errBusy
		}
		if !found.Runs() {
			b.w.claims[found.Index].Unlock()
			return fmt.Errorf("%s is down", found.Name)
		}
		n = found
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s to strike: %w", as, err)
	}
	return n, b.w.claims[n.Index].Unlock, nil
}

func (b *blow) find(as role, index int32) (*harness.Node, error) {
	switch as {
	case anyNode:
		return b.w.c.Nodes[b.rng.IntN(nodes)], nil
	case raftLeader:
		lines, err := b.w.c.NodeLines()
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			if l.RaftRole == "leader" {
				return b.w.c.Node(l.Name), nil
			}
		}
		return nil, errors.New("no Raft leader")
	case coordinator:
		return b.findCoordinator()
	}
	l, err := b.w.lease(exact, index)
	if err != nil {
		return nil, err
	}
	if as == holder {
		return b.w.c.Node(l.Holder), nil
	}
	for _, r := range l.Replicas {
		if r.Node != l.Holder && r.Role == "voter" {
			return b.w.c.Node(r.Node), nil
		}
	}
	return nil, fmt.Errorf("no follower in %+v", l)
}

func (b *blow) findCoordinator() (*harness.Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r := b.w.adm.FindGroupCoordinators(ctx, "classic")["classic"]
	if r.Err != nil {
		return nil, r.Err
	}
	for _, n := range b.w.c.Nodes {
		if n.Kafka == fmt.Sprintf("%s:%d", r.Host, r.Port) {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s:%d is no node", r.Host, r.Port)
}

// claimAll keeps every node.
func (b *blow) claimAll() (release func()) {
	for i := range b.w.claims {
		b.w.claims[i].Lock()
	}
	return func() {
		for i := range b.w.claims {
			b.w.claims[i].Unlock()
		}
	}
}

// lease gives the lease of a range that is served.
func (w *world) lease(topic string, index int32) (harness.Lease, error) {
	leases, err := w.c.Leases(topic)
	if err != nil {
		return harness.Lease{}, err
	}
	i := slices.IndexFunc(leases, func(l harness.Lease) bool { return l.Range == index })
	if i < 0 || leases[i].Holder == "" || leases[i].State != "serving" {
		return harness.Lease{}, fmt.Errorf("%s/%d isn't served: %+v", topic, index, leases)
	}
	return leases[i], nil
}

// stop ends a node in an orderly way. It may have been ended by its disk watchdog just before.
func (b *blow) stop(n *harness.Node) error {
	switch code := n.Stop(calm); code {
	case 0:
		return nil
	case exitDiskStall:
		b.w.stalled(n)
		return nil
	default:
		return fmt.Errorf("%s ended with code %d when it was asked to stop: %s", n.Name, code, n.LogTail(3))
	}
}

// start starts a node and waits until it is ready.
func (b *blow) start(n *harness.Node) error {
	n.Start()
	return b.ready(n)
}

// ready waits until a node is ready. One that its disk watchdog ends meanwhile is started again.
func (b *blow) ready(n *harness.Node) error {
	return harness.Within(calm, func() error {
		if code, ended := n.Exited(); ended {
			if code != exitDiskStall {
				return fmt.Errorf("%s ended at its start with exit code %d: %s", n.Name, code, n.LogTail(3))
			}
			b.w.stalled(n)
			n.Start()
		}
		if err := n.Get("/readyz", nil); err != nil {
			return fmt.Errorf("%s is not ready: %w", n.Name, err)
		}
		return nil
	})
}
