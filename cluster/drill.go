package cluster

import (
	"fmt"

	"github.com/vtop-log/vtop"
)

// HasReplica reports whether this node's disk has a replica of r.
func (n *Node) HasReplica(r vtop.Range) bool { return n.store.Get(r) != nil }

// WipeReplica takes the files of this node's replica of r away behind the store's back, as an accident would. The caller
// ends the process at once: after its next start the replica is missed, votes no more (I10) and is rebuilt.
func (n *Node) WipeReplica(r vtop.Range) error {
	if err := n.store.Wipe(r); err != nil {
		return fmt.Errorf("wipe replica of %s: %w", n.State().RangeName(r), err)
	}
	return nil
}
