package kafka

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// view is the metadata as clients are shown it: one applied state, and who is alive.
type view struct {
	state *fsm.State
	node  Node
}

// broker is one node as clients see it.
type broker struct {
	id   int32
	host string
	port int32
	rack *string
}

// alive says whether clients may be sent to a node.
func (v *view) alive(n *fsm.Node) bool {
	return n.State != fsm.NodeGone && (n.Name == v.node.Self() || v.node.Alive(n.Name))
}

// brokers lists the nodes that clients may be sent to, by name.
func (v *view) brokers() []broker {
	var out []broker
	for n := range v.state.Nodes() {
		if b, ok := asBroker(n); ok && v.alive(n) {
			out = append(out, b)
		}
	}
	return out
}

// broker finds one of them.
func (v *view) broker(id int32) (broker, bool) {
	n, ok := v.state.NodeByBroker(vtop.BrokerID(id))
	if !ok || !v.alive(n) {
		return broker{}, false
	}
	return asBroker(n)
}

// asBroker is a node as clients see it; false if it has no address for them.
func asBroker(n *fsm.Node) (broker, bool) {
	host, port, err := net.SplitHostPort(n.Addresses.Kafka)
	if err != nil {
		return broker{}, false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return broker{}, false
	}
	b := broker{id: int32(n.Broker), host: host, port: int32(number)}
	if n.Rack != "" {
		rack := n.Rack
		b.rack = &rack
	}
	return b, true
}

// controller is the broker that clients send changes of metadata to: the Raft leader where one is known, else this
// node, which forwards them. -1 where even that is not registered.
func (v *view) controller() int32 {
	if name, ok := v.node.Controller(); ok {
		if n, ok := v.state.Node(name); ok && v.alive(n) {
			return int32(n.Broker)
		}
	}
	if n, ok := v.state.Node(v.node.Self()); ok {
		return int32(n.Broker)
	}
	return -1
}

// leader is the broker that holds the range's lease, if it is alive and still the process that was granted it (I5).
// A holder in promotion counts: requests wait there until it serves.
func (v *view) leader(r *fsm.Range) (id int32, ok bool) {
	if r.Lease.Holder == "" {
		return -1, false
	}
	n, known := v.state.Node(r.Lease.Holder)
	if !known || n.Incarnation != r.Lease.Incarnation || !v.alive(n) || !v.node.Alive(n.Name) {
		return -1, false // (this node is always there for clients, but may know that it leads nothing now)
	}
	return int32(n.Broker), true
}

// replicas lists the voters of a range as clients see them: all in the preferred order, those that are alive and may
// vote, and those that are not.
func (v *view) replicas(r *fsm.Range) (all, inSync, offline []int32) {
	all, inSync = make([]int32, 0, len(r.Replicas)), make([]int32, 0, len(r.Replicas))
	add := func(rep fsm.Replica) {
		n, ok := v.state.Node(rep.Node)
		if !ok {
			return
		}
		id := int32(n.Broker)
		all = append(all, id)
		switch up := v.alive(n); {
		case up && rep.CanVote():
			inSync = append(inSync, id)
		case !up:
			offline = append(offline, id)
		}
	}
	voters := r.Voters()
	for _, name := range r.Preferred {
		for i, rep := range voters {
			if rep.Node == name {
				add(rep)
				voters = append(voters[:i], voters[i+1:]...)
				break
			}
		}
	}
	for _, rep := range voters {
		add(rep)
	}
	return all, inSync, offline
}

// active counts the nodes that take replicas.
func (v *view) active() int {
	count := 0
	for n := range v.state.Nodes() {
		if n.State == fsm.NodeActive {
			count++
		}
	}
	return count
}

// replicaCount is the number of voters of a topic's first range: what clients call its replication factor.
func (v *view) replicaCount(t *fsm.Topic) int {
	r, ok := v.state.Range(vtop.Range{Topic: t.ID})
	if !ok {
		return 0
	}
	return len(r.Voters())
}

// partition is one range in a Metadata answer.
func (v *view) partition(r *fsm.Range) (kmsg.MetadataResponseTopicPartition, bool) {
	p := kmsg.NewMetadataResponseTopicPartition()
	p.Partition = r.ID.Index
	p.LeaderEpoch = int32(r.LastEpoch)
	p.Replicas, p.ISR, p.OfflineReplicas = v.replicas(r)
	var ok bool
	p.Leader, ok = v.leader(r)
	return p, ok
}

// leaderTable remembers since when ranges have been seen without a leader, so that only a fresh loss is waited for: a
// range that has lost its majority must not slow every Metadata request for hours. The zero value is ready.
type leaderTable struct {
	count atomic.Int32
	mu    sync.Mutex
	since map[vtop.Range]time.Time
}

const (
	// freshLoss is how long after it was first seen a loss is waited for.
	freshLoss = 5 * time.Second
	// maxLeaderTable bounds the table; beyond it nothing new is waited for.
	maxLeaderTable = 10_000
)

// fresh notes that r has no leader, and says whether that is worth waiting for.
func (t *leaderTable) fresh(r vtop.Range, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since, ok := t.since[r]; ok {
		return now.Sub(since) < freshLoss
	}
	if t.since == nil {
		t.since = map[vtop.Range]time.Time{}
	}
	if len(t.since) >= maxLeaderTable {
		for old, since := range t.since { // deleted topics are never seen again
			if now.Sub(since) > time.Hour {
				delete(t.since, old)
			}
		}
		if len(t.since) >= maxLeaderTable {
			return false
		}
	}
	t.since[r] = now
	t.count.Store(int32(len(t.since)))
	return true
}

// led notes that r has a leader.
func (t *leaderTable) led(r vtop.Range) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, r)
	t.count.Store(int32(len(t.since)))
}
