package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
	"github.com/vtop-log/vtop/fsm"
)

// CreateTopic places the replicas on live nodes and creates the topic with all its ranges in one entry. 0 ranges or
// replicas take the defaults; the default number of replicas shrinks to the number of nodes, one that was asked for
// does not. Errors: *placement.TooFewNodesError, an *fsm.Refusal, or one whose outcome is unknown.
func (n *Node) CreateTopic(ctx context.Context, name string, ranges int32, replicas int16, config map[string]string) (vtop.TopicID, error) {
	if ranges == 0 {
		ranges = n.cfg.DefaultRanges
	}
	placed, err := n.assign(ctx, int(ranges), int(replicas))
	if err != nil {
		return vtop.TopicID{}, err
	}
	id, err := newUUID()
	if err != nil {
		return vtop.TopicID{}, err
	}
	out, err := n.meta.Propose(ctx, &fsm.CreateTopic{ID: id, Name: name, Config: config, Ranges: placed, At: time.Now().UnixMilli()})
	if err != nil {
		return vtop.TopicID{}, err
	}
	return id, out.Err()
}

// ReplicasFor is the number of replicas that a topic gets which asks for this many; 0 asks for the default.
func (n *Node) ReplicasFor(asked int) int {
	if asked > 0 {
		return asked
	}
	return max(1, min(int(n.cfg.DefaultReplicas), activeNodes(n.State()), fsm.MaxReplicas))
}

// DeleteTopic deletes one life of a topic.
func (n *Node) DeleteTopic(ctx context.Context, id vtop.TopicID) error {
	return n.propose(ctx, &fsm.DeleteTopic{ID: id, At: time.Now().UnixMilli()})
}

// CreateRanges raises the number of ranges of a topic from `from` to `to`; it is refused if the topic has not `from`.
// The new ranges have as many replicas as range 0.
func (n *Node) CreateRanges(ctx context.Context, id vtop.TopicID, from, to int32) error {
	first, ok := n.State().Range(vtop.Range{Topic: id})
	if !ok {
		return fmt.Errorf("topic %s: %w", id, vtop.ErrUnknownRange)
	}
	if to <= from {
		return fmt.Errorf("topic %s has %d ranges: want more than that, got %d", id, from, to)
	}
	placed, err := n.assign(ctx, int(to-from), len(first.Voters()))
	if err != nil {
		return err
	}
	return n.propose(ctx, &fsm.CreateRanges{Topic: id, Expected: from, Ranges: placed})
}

// AlterTopicConfig sets and unsets keys in one step. The values were validated by topicconfig.
func (n *Node) AlterTopicConfig(ctx context.Context, id vtop.TopicID, set map[string]string, unset []string) error {
	return n.propose(ctx, &fsm.AlterTopicConfig{Topic: id, Set: set, Delete: unset})
}

func (n *Node) propose(ctx context.Context, cmd fsm.Command) error {
	out, err := n.meta.Propose(ctx, cmd)
	if err != nil {
		return err
	}
	return out.Err()
}

// assignWait is how long a placement waits for nodes that are just registering: in the first second of a cluster not
// every node has heard of every other.
const assignWait = 3 * time.Second

// assign places ranges on live nodes. 0 replicas take the default, or as many as the cluster has nodes.
func (n *Node) assign(ctx context.Context, ranges, replicas int) ([][]vtop.NodeName, error) {
	ctx, cancel := context.WithTimeout(ctx, assignWait)
	defer cancel()
	for {
		sites := n.sites(n.State())
		placed, err := placement.Assign(sites, ranges, n.ReplicasFor(replicas))
		var few *placement.TooFewNodesError
		if !errors.As(err, &few) {
			return placed, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// activeNodes counts the nodes that take replicas, those that are down included: an outage never makes a topic with
// fewer copies than usual.
func activeNodes(state *fsm.State) int {
	count := 0
	for node := range state.Nodes() {
		if node.State == fsm.NodeActive {
			count++
		}
	}
	return count
}

// sites are the nodes that may take replicas: active and, as far as this node knows, alive.
func (n *Node) sites(state *fsm.State) []placement.Site {
	preferred := map[vtop.NodeName]int{}
	for r := range state.Ranges() {
		if len(r.Preferred) > 0 {
			preferred[r.Preferred[0]]++
		}
	}
	var out []placement.Site
	for node := range state.Nodes() {
		if node.State != fsm.NodeActive || !n.Alive(node.Name) {
			continue
		}
		count := 0
		for range state.RangesOf(node.Name) {
			count++
		}
		out = append(out, placement.Site{Name: node.Name, Rack: node.Rack, Replicas: count, Preferred: preferred[node.Name]})
	}
	return out
}

func newUUID() (id vtop.UUID, err error) {
	_, err = rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // RFC 9562, version 4
	return id, err
}

// producerBlock is how many producer ids a node takes at once.
const producerBlock = 1000

// producerIDs is what is left of this process's block of producer ids. What a restart leaves unused is never used.
type producerIDs struct {
	mu   sync.Mutex
	next int64
	end  int64
}

// ProducerID gives out an id that no producer of this cluster ever had.
func (n *Node) ProducerID(ctx context.Context) (int64, error) {
	p := &n.ids
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		self := n.who.Self()
		out, err := n.meta.Propose(ctx, &fsm.AllocateProducerIDs{Node: self.Name, Incarnation: self.Incarnation, Count: producerBlock})
		if err == nil {
			err = out.Err()
		}
		if err != nil {
			return 0, err
		}
		p.next, p.end = out.ProducerIDs.First, out.ProducerIDs.First+int64(out.ProducerIDs.Count)
	}
	p.next++
	return p.next - 1, nil
}
