package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// RegisterNode announces one start of one data directory under a name.
//
//	op            2, since level 1
//	proposed by   the Raft leader, on behalf of a node that has just started
//	precondition  the name is free, or its owner is this data directory with a lower incarnation
//	effect        a new name gets the next broker id, for ever; a known one gets the new incarnation, identity and
//	              addresses. A new incarnation does not move a lease, but from here on no process holds it (I5).
//	              With ReplicasLost, and where the owner changes, every replica of the node is marked lost (I10),
//	              and a lease resting on one of them ends.
//	refused       CodeNameTaken: another data directory owns the name and HolderAlive, or the same one (a clone) is alive;
//	              CodePending: another data directory owns the name and is not alive: the claim is noted, wait
//	              for AdmitPending. CodeRestoredCopy: the counter is behind the registered one (or equal under
//	              another nonce), so this is an old copy of the disk: all replicas of the node are marked lost; raise the counter above
//	              Outcome.Registration.Incarnation, then register again. CodeStaleIncarnation: the counter is
//	              behind, and Expected is not what is registered: either a command that came late, or a copy
//	              that has not looked yet; the node itself looks again and repeats. CodeNodeGone. CodeConflict: the data
//	              directory or Raft id is registered under another name.
//	a repeat      (equal incarnation and nonce) changes nothing and succeeds; replicas made since are not lost
//
// Expected is what makes the verdict 'restored copy' safe against a late command of an earlier start: only a
// process that is running now can have seen what is registered now. So the node fills it in, never a forwarder.
type RegisterNode struct {
	Name vtop.NodeName
	Identity
	// Expected is the incarnation that the node saw registered under its name; 0 if none.
	Expected vtop.Incarnation
	// HolderAlive says that the proposer hears another process under this name. Liveness is not metadata.
	HolderAlive bool
	// ReplicasLost says that the node knows that it forgot, and why; empty means that it did not.
	ReplicasLost string
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *RegisterNode) Op() Op { return OpRegisterNode }

// Check implements Command.
func (c *RegisterNode) Check() error {
	var s shape
	s.node(c.Name)
	s.identity(c.Identity)
	s.text("reason", c.ReplicasLost)
	return s.err()
}

func (c *RegisterNode) encode() proto.Message {
	return &fsmpb.RegisterNode{
		Name: string(c.Name), Identity: putIdentity(c.Identity), Expected: uint64(c.Expected),
		HolderAlive: c.HolderAlive, ReplicasLost: c.ReplicasLost, At: c.At,
	}
}

func decodeRegisterNode(r *reader, p *fsmpb.RegisterNode) *RegisterNode {
	return &RegisterNode{
		Name: vtop.NodeName(p.GetName()), Identity: r.identity(p.GetIdentity()), Expected: vtop.Incarnation(p.GetExpected()),
		HolderAlive: p.GetHolderAlive(), ReplicasLost: p.GetReplicasLost(), At: p.GetAt(),
	}
}

func (c *RegisterNode) apply(t *tx) Outcome {
	old, known := t.s.Node(c.Name)
	refusal := t.identityTaken(c.Name, c.Identity)
	switch {
	case refusal != nil:
	case !known:
		refusal = c.add(t)
	case old.State == NodeGone && old.Storage == c.Storage:
		refusal = refusef(CodeNodeGone, "node %q was removed: start it with an empty data directory, or make it active first", c.Name)
	case old.State == NodeGone:
		t.replaceOwner(old, c.Identity, "the node was removed, and another took its name", c.At)
	case old.Storage != c.Storage:
		refusal = c.claim(t, old)
	case c.Incarnation == old.Incarnation && c.BootNonce == old.BootNonce:
	case c.Incarnation > old.Incarnation:
		c.advance(t, old)
	default:
		refusal = c.copied(t, old)
	}
	return Outcome{Refusal: refusal, Registration: t.registration(c.Name)}
}

// add registers a new name.
func (c *RegisterNode) add(t *tx) *Refusal {
	if t.s.nodes.Len() >= MaxNodes {
		return refusef(CodeLimit, "node %q: %d nodes are registered, at most %d", c.Name, t.s.nodes.Len(), MaxNodes)
	}
	t.s.lastBroker++
	t.putNode(&Node{
		Name: c.Name, Broker: t.s.lastBroker, Identity: c.Identity, State: NodeActive, RegisteredAt: c.At,
	})
	return nil
}

// advance registers the next start of the data directory that owns the name.
func (c *RegisterNode) advance(t *tx, old *Node) {
	n := *old
	n.Identity, n.RegisteredAt = c.Identity, c.At
	t.putNode(&n)
	if c.ReplicasLost != "" {
		t.loseAll(c.Name, c.ReplicasLost, c.At)
	}
}

// claim notes that another data directory wants the name.
func (c *RegisterNode) claim(t *tx, old *Node) *Refusal {
	if c.HolderAlive {
		return refusef(CodeNameTaken, "node name %q is held by a living process with data directory %s (peer address %s); this one is %s (%s): give it another name",
			c.Name, old.Storage, old.Addresses.Peer, c.Storage, c.Addresses.Peer)
	}
	n := *old
	n.Pending = make([]Claim, 0, len(old.Pending)+1)
	for _, p := range old.Pending {
		switch {
		case p.Storage != c.Storage:
			n.Pending = append(n.Pending, p)
		case p.Incarnation > c.Incarnation: // this command came late
			return c.pending(old)
		}
	}
	if len(n.Pending) >= MaxClaims {
		return refusef(CodeLimit, "node name %q: %d data directories claim it already", c.Name, len(n.Pending))
	}
	n.Pending = append(n.Pending, Claim{Identity: c.Identity, ClaimedAt: c.At})
	t.putNode(&n)
	return c.pending(old)
}

func (c *RegisterNode) pending(old *Node) *Refusal {
	return refusef(CodePending, "node name %q belongs to data directory %s, this one is %s: it waits to be admitted in the other's place",
		c.Name, old.Storage, c.Storage)
}

// copied answers a data directory whose counter is not ahead of the registered one, though its start is another.
func (c *RegisterNode) copied(t *tx, old *Node) *Refusal {
	if c.HolderAlive {
		return refusef(CodeNameTaken, "node name %q is held by a living process with the same data directory %s, incarnation %d (peer address %s); this one, incarnation %d (%s), is a copy",
			c.Name, old.Storage, old.Incarnation, old.Addresses.Peer, c.Incarnation, c.Addresses.Peer)
	}
	if c.Incarnation < old.Incarnation && c.Expected != old.Incarnation {
		return refusef(CodeStaleIncarnation, "node %q registers incarnation %d expecting %d: registered is %d", c.Name, c.Incarnation, c.Expected, old.Incarnation)
	}
	reason := fmt.Sprintf("restored from an old copy: incarnation %d came after %d", c.Incarnation, old.Incarnation)
	t.loseAll(c.Name, reason, c.At)
	return refusef(CodeRestoredCopy, "node %q was %s; its replicas are lost: continue above incarnation %d", c.Name, reason, old.Incarnation)
}
