package cluster

import (
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage"
)

// MetadataMember is one node's place in the metadata, as this node sees it.
type MetadataMember struct {
	Name  vtop.NodeName
	Voter bool
	// Applied is the index that the node had applied when it was last heard of, Silent the time since. Both are 0 for a
	// node that this one has not heard of (Known is false): only Raft voters are told.
	Applied uint64
	Silent  time.Duration
	Known   bool
}

// MetadataMembers lists all nodes that are not gone: Raft voters first, each by name.
func (n *Node) MetadataMembers() []MetadataMember {
	votes := map[vtop.NodeName]bool{}
	for _, s := range n.meta.RaftServers() {
		votes[s.Name] = s.Voter
	}
	var voters, others []MetadataMember
	for node := range n.State().Nodes() {
		m := MetadataMember{Name: node.Name, Voter: votes[node.Name]}
		if node.Name == n.cfg.Name {
			m.Applied, m.Known = n.machine.Applied(), true
		} else if v := n.tracker.Verdict(node.Name); v.Incarnation != 0 {
			m.Applied, m.Silent, m.Known = v.Health.Applied, v.SilentFor, true
		}
		if m.Voter {
			voters = append(voters, m)
		} else {
			others = append(others, m)
		}
	}
	return append(voters, others...)
}

// AppliedIndex is the last index of the metadata that this node has applied.
func (n *Node) AppliedIndex() uint64 { return n.machine.Applied() }

// DataDir is this node's data directory, with the bytes of its file system; -1 where that can't be learned. The error says
// that the disk hangs or fails.
func (n *Node) DataDir() (path string, total, free int64, err error) {
	path, total, free = n.cfg.DataDir, -1, -1
	stalled, failing := n.Disk()
	switch {
	case stalled > diskStallSuspect:
		return path, total, free, fmt.Errorf("the disk has not answered for %s: %w", stalled.Round(time.Millisecond), vtop.ErrStorage)
	case failing:
		err = fmt.Errorf("the disk fails its probes: %w", vtop.ErrStorage)
	}
	if f, t, e := n.cfg.FS.Free(n.cfg.DataDir); e == nil {
		total, free = int64(min(t, 1<<62)), int64(min(f, 1<<62))
	}
	return path, total, free, err
}

// Producers lists the idempotent producers that this node's replica of a range knows, at most limit of them, the last to
// write first. vtop.ErrUnknownRange if there is no replica here.
func (n *Node) Producers(r vtop.Range, limit int) ([]storage.ProducerInfo, error) {
	log := n.store.Get(r)
	if log == nil {
		return nil, fmt.Errorf("no replica of range %s here: %w", r, vtop.ErrUnknownRange)
	}
	return log.Producers(limit), nil
}
