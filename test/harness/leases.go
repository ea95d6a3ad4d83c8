package harness

import (
	"errors"
	"fmt"
	"time"
)

// Lease is one line of `vtopctl lease list -o json`, by the names that operators' scripts rely on.
type Lease struct {
	Topic         string    `json:"topic"`
	Range         int32     `json:"range"`
	Holder        string    `json:"holder"`
	Epoch         int32     `json:"epoch"`
	State         string    `json:"state"`
	Floor         int64     `json:"floor"`
	HighWatermark int64     `json:"high_watermark"`
	LogEnd        int64     `json:"log_end"`
	LogStart      int64     `json:"log_start"`
	Replicas      []Replica `json:"replicas"`
}

// Replica is one replica of a Lease.
type Replica struct {
	Node   string `json:"node"`
	Role   string `json:"role"`
	State  string `json:"state"`
	LogEnd int64  `json:"log_end"`
	Lag    int64  `json:"lag"`
}

// NodeLine is one line of `vtopctl node list -o json`.
type NodeLine struct {
	Name        string `json:"name"`
	ID          int32  `json:"id"`
	State       string `json:"state"`
	Alive       bool   `json:"alive"`
	Incarnation uint64 `json:"incarnation"`
	KafkaAddr   string `json:"kafka_addr"`
	PeerAddr    string `json:"peer_addr"`
	RaftRole    string `json:"raft_role"`
	Leases      int    `json:"leases"`
}

// Leases asks the first running node that answers for the leases of a topic; all topics if it is empty.
func (c *Cluster) Leases(topic string) ([]Lease, error) {
	path := "/v1/leases"
	if topic != "" {
		path += "?topic=" + topic
	}
	var errs []error
	for _, n := range c.Running() {
		var out []Lease
		err := n.Get(path, &out)
		if err == nil {
			return out, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no node gave leases: %w", errors.Join(errs...))
}

// Nodes asks the first running node that answers for the nodes.
func (c *Cluster) NodeLines() ([]NodeLine, error) {
	var errs []error
	for _, n := range c.Running() {
		var out []NodeLine
		err := n.Get("/v1/nodes", &out)
		if err == nil {
			return out, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no node listed nodes: %w", errors.Join(errs...))
}

// Holder waits for a serving holder of a range that runs, and returns it with its lease.
func (c *Cluster) Holder(topic string, index int32) (*Node, Lease) {
	c.T.Helper()
	var found Lease
	c.Eventually(30*time.Second, fmt.Sprintf("a serving holder of %s/%d", topic, index), func() error {
		leases, err := c.Leases(topic)
		if err != nil {
			return err
		}
		for _, l := range leases {
			if l.Range != index {
				continue
			}
			if l.Holder == "" || l.State != "serving" || !c.Node(l.Holder).Runs() {
				return fmt.Errorf("lease is %+v", l)
			}
			found = l
			return nil
		}
		return errors.New("no such range")
	})
	return c.Node(found.Holder), found
}

// RaftLeader waits for a Raft leader that runs.
func (c *Cluster) RaftLeader() *Node {
	c.T.Helper()
	var leader *Node
	c.Eventually(30*time.Second, "a Raft leader", func() error {
		nodes, err := c.NodeLines()
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if n.RaftRole == "leader" && c.Node(n.Name).Runs() {
				leader = c.Node(n.Name)
				return nil
			}
		}
		return fmt.Errorf("none among %+v", nodes)
	})
	return leader
}

// WaitCaughtUp waits until every voter of the topic's ranges is as far as the leader and nothing is missing.
func (c *Cluster) WaitCaughtUp(topic string, limit time.Duration) []Lease {
	c.T.Helper()
	var out []Lease
	c.Eventually(limit, "replicas of "+topic+" caught up", func() error {
		leases, err := c.Leases(topic)
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			return errors.New("no leases yet")
		}
		for _, l := range leases {
			if l.State != "serving" || l.HighWatermark != l.LogEnd || l.Floor != l.LogEnd {
				return fmt.Errorf("%s/%d: %+v", l.Topic, l.Range, l)
			}
			for _, r := range l.Replicas {
				if r.LogEnd != l.LogEnd || r.Lag != 0 {
					return fmt.Errorf("%s/%d: replica %+v, log end %d", l.Topic, l.Range, r, l.LogEnd)
				}
			}
		}
		out = leases
		return nil
	})
	return out
}

// WaitInSync waits until every replica of the topic is a voter that leads or follows, while records may still come in.
func (c *Cluster) WaitInSync(topic string, limit time.Duration) {
	c.T.Helper()
	c.Eventually(limit, "replicas of "+topic+" in sync", func() error {
		leases, err := c.Leases(topic)
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			return errors.New("no leases yet")
		}
		for _, l := range leases {
			if l.State != "serving" {
				return fmt.Errorf("%s/%d: %+v", l.Topic, l.Range, l)
			}
			for _, r := range l.Replicas {
				if r.Role != "voter" || r.State != "leading" && r.State != "following" {
					return fmt.Errorf("%s/%d: replica %+v", l.Topic, l.Range, r)
				}
			}
		}
		return nil
	})
}

// HolderBeside moves the lease of range 0 to the Raft leader, or away from it, and returns the holder.
func (c *Cluster) HolderBeside(topic string, onLeader bool) (*Node, Lease) {
	c.T.Helper()
	var holder *Node
	var lease Lease
	c.Eventually(60*time.Second, fmt.Sprintf("lease of %s/0 with Raft leader %v", topic, onLeader), func() error {
		leader := c.RaftLeader()
		holder, lease = c.Holder(topic, 0)
		if (holder == leader) == onLeader {
			return nil
		}
		to := leader
		if !onLeader {
			to = c.Nodes[(leader.Index+1)%len(c.Nodes)]
		}
		if _, errOut, code := leader.Ctl("lease", "transfer", topic+"/0", "--to", to.Name); code != 0 {
			return fmt.Errorf("lease transfer: exit %d: %s", code, errOut)
		}
		return fmt.Errorf("lease is %+v, Raft leader %s", lease, leader.Name)
	})
	return holder, lease
}
