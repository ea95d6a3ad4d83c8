package fsm

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/vtop-log/vtop"
)

// What the tests of this package build their worlds of.

func uuid(n uint64) (u vtop.UUID) {
	binary.BigEndian.PutUint64(u[:], 0x76746f70)
	binary.BigEndian.PutUint64(u[8:], n)
	return u
}

func rangeID(topic uint64, index int32) vtop.Range {
	return vtop.Range{Topic: uuid(topic), Index: index}
}

// identityOf is start number incarnation of data directory disk of a node.
func identityOf(name vtop.NodeName, disk uint64, incarnation vtop.Incarnation) Identity {
	at := func(port int) string { return fmt.Sprintf("%s:%d", name, port) }
	return Identity{
		Storage: uuid(1000*uint64(name[len(name)-1]) + disk), RaftID: fmt.Sprintf("raft-%s-%d", name, disk),
		Incarnation: incarnation, BootNonce: uuid(1_000_000*uint64(name[len(name)-1]) + 1000*disk + uint64(incarnation)),
		Addresses: Addresses{at(9092), at(9640), at(9641), at(9642)}, Rack: "rack-" + string(name), MaxLevel: LevelFirst, Version: "1.0.0",
	}
}

// world is a state under test. Every command that goes in is checked for the invariants.
type world struct {
	t *testing.T
	s *State
}

// newWorld is a cluster of n1…n5 with topic "lines" (id 1) of two ranges on n1, n2, n3.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, s: NewState()}
	w.ok(&BootstrapCluster{ID: uuid(1), Level: LevelFirst})
	for i := 1; i <= 5; i++ {
		name := vtop.NodeName(fmt.Sprintf("n%d", i))
		w.ok(&RegisterNode{Name: name, Identity: identityOf(name, 0, 1)})
	}
	nodes := []vtop.NodeName{"n1", "n2", "n3"}
	w.ok(&CreateTopic{ID: uuid(1), Name: "lines", Ranges: [][]vtop.NodeName{nodes, nodes}})
	return w
}

var r0 = rangeID(1, 0)

// do applies a command and checks all invariants.
func (w *world) do(cmd Command) Outcome {
	w.t.Helper()
	b, err := Encode(cmd)
	if err != nil {
		w.t.Fatalf("encode %s: %v", cmd.Op(), err)
	}
	decoded, err := Decode(b)
	if err != nil {
		w.t.Fatalf("decode %s: %v", cmd.Op(), err)
	}
	before := w.s.Hash()
	next, outs := w.s.Apply(w.s.Index()+1, decoded)
	if err := next.Check(); err != nil {
		w.t.Fatalf("after %+v: %v", cmd, err)
	}
	if w.s.Hash() != before || w.s.Check() != nil { // the indexes are not in the hash
		w.t.Fatalf("%s wrote into the state before it", cmd.Op())
	}
	w.s = next
	return outs[0]
}

// ok applies a command that must not be refused, nor any item of it.
func (w *world) ok(cmd Command) Outcome {
	w.t.Helper()
	out := w.do(cmd)
	if out.Refusal != nil {
		w.t.Fatalf("%s: %v", cmd.Op(), out.Refusal)
	}
	for _, item := range out.Items {
		if item.Refusal != nil {
			w.t.Fatalf("%s of %s: %v", cmd.Op(), item.Range, item.Refusal)
		}
	}
	return out
}

// refused applies a command that must be refused, as a whole or in its one item, and must then have changed nothing.
func (w *world) refused(cmd Command, code Code) Outcome {
	w.t.Helper()
	before := w.s
	out := w.do(cmd)
	refusal := out.Refusal
	if refusal == nil && len(out.Items) == 1 {
		refusal = out.Items[0].Refusal
	}
	if refusal == nil || refusal.Code != code {
		w.t.Fatalf("%s: refusal %v, want code %q", cmd.Op(), refusal, code)
	}
	before.index = w.s.index
	if code != CodePending && code != CodeRestoredCopy && before.Hash() != w.s.Hash() {
		w.t.Fatalf("%s was refused (%v) and changed the state", cmd.Op(), refusal)
	}
	return out
}

func (w *world) rng(id vtop.Range) *Range {
	w.t.Helper()
	r, ok := w.s.Range(id)
	if !ok {
		w.t.Fatalf("no range %s", id)
	}
	return r
}

func (w *world) node(name vtop.NodeName) *Node {
	w.t.Helper()
	n, ok := w.s.Node(name)
	if !ok {
		w.t.Fatalf("no node %s", name)
	}
	return n
}

// grant gives r0 to a node and returns the epoch.
func (w *world) grant(node vtop.NodeName) vtop.Epoch {
	w.t.Helper()
	return w.ok(w.grantOf(node)).Items[0].Epoch
}

func (w *world) grantOf(node vtop.NodeName) *GrantLeases {
	return &GrantLeases{Items: []Grant{{
		Range: r0, Holder: node, Incarnation: w.node(node).Incarnation, Expected: w.rng(r0).LastEpoch, Reason: "test",
	}}}
}

// lead grants r0 to a node and starts the epoch.
func (w *world) lead(node vtop.NodeName, start vtop.Offset) vtop.Epoch {
	w.t.Helper()
	e := w.grant(node)
	w.ok(startOf(e, start))
	return e
}

func startOf(e vtop.Epoch, start vtop.Offset) *StartEpochs {
	return &StartEpochs{Items: []EpochStart{{Range: r0, Epoch: e, Start: start}}}
}

// report tells floor and quorum position of r0 under its present configuration.
func (w *world) report(floor, quorum vtop.Offset) {
	w.t.Helper()
	w.ok(w.reportOf(floor, quorum))
}

func (w *world) reportOf(floor, quorum vtop.Offset) *ReportFloors {
	r := w.rng(r0)
	return &ReportFloors{Items: []FloorReport{{
		Range: r0, Epoch: r.LastEpoch, Config: r.ConfigVersion, Floor: floor, QuorumPosition: quorum, LogEnd: max(floor, quorum, r.LogEnd),
	}}}
}

func (w *world) segmentOf(base, end vtop.Offset) *RegisterSegment {
	r := w.rng(r0)
	return &RegisterSegment{
		Range: r0, Epoch: r.LastEpoch, Config: r.ConfigVersion, Base: base, End: end, Bytes: int64(end-base) * 10, Root: [32]byte{1, byte(base), byte(end)},
	}
}

func (w *world) changeOf(change ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) *ChangeReplicas {
	r := w.rng(r0)
	return &ChangeReplicas{
		Range: r0, Epoch: r.LastEpoch, Config: r.ConfigVersion, Change: change, Node: node, ReplicaID: id, SettleMark: r.LogEnd,
	}
}

func (w *world) lostOf(node vtop.NodeName, id vtop.ReplicaID) *MarkReplicasLost {
	n := w.node(node)
	return &MarkReplicasLost{
		Node: node, Storage: n.Storage, Incarnation: n.Incarnation, Reason: "damage", Items: []LostReplica{{r0, id}},
	}
}
