package cluster

import (
	"context"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// releaseTimeout bounds the last word of a node that stops: without a metadata quorum nobody hears it.
const releaseTimeout = time.Second

// slotsHeld counts the coordinator slots of this process.
func (n *Node) slotsHeld() (held int) {
	self := n.who.Self()
	for c := range n.State().CoordinatorsOf(self.Name) {
		if c.HeldBy(self.Name, self.Incarnation) {
			held++
		}
	}
	return held
}

// slotsToHandOver counts the coordinator slots of this process that another node could take.
func (n *Node) slotsToHandOver() int {
	held := n.slotsHeld()
	if held == 0 {
		return 0
	}
	for other := range n.State().Nodes() {
		if other.Name != n.cfg.Name && other.State == fsm.NodeActive && n.Alive(other.Name) {
			return held
		}
	}
	return 0
}

// releaseSlots gives back the coordinator slots that nobody took, so that the next Raft leader need not wait for this node's silence.
func (n *Node) releaseSlots(ctx context.Context) {
	if n.engine.Load() == nil {
		return // never joined
	}
	held := n.slotsHeld()
	if held == 0 {
		return
	}
	self := n.who.Self()
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := n.propose(ctx, &fsm.ReleaseCoordinators{Node: self.Name, Incarnation: self.Incarnation}); err != nil {
		n.log.Warn("coordinator slots not given back; others take them when this node is silent", "slots", held, "error", err)
	}
}
