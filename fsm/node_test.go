package fsm

import (
	"errors"
	"slices"
	"testing"

	"github.com/vtop-log/vtop"
)

func TestBootstrapCluster(t *testing.T) {
	w := &world{t: t, s: NewState()}
	w.refused(&RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 1)}, CodeNotBootstrapped)
	w.ok(&BootstrapCluster{ID: uuid(1), Level: 1, At: 7})
	if c := w.s.Cluster(); c != (Cluster{ID: uuid(1), Level: 1, Generation: 1, CreatedAt: 7}) {
		t.Errorf("cluster %+v", c)
	}
	w.ok(&BootstrapCluster{ID: uuid(1), Level: 1, At: 8})
	if w.s.Cluster().CreatedAt != 7 {
		t.Error("a repeat changed the cluster")
	}
	w.refused(&BootstrapCluster{ID: uuid(2), Level: 1}, CodeOtherCluster)
}

func TestRegisterNode_BrokerIDsAreUniqueAndStable(t *testing.T) {
	w := newWorld(t)
	for i, name := range []vtop.NodeName{"n1", "n2", "n3", "n4", "n5"} {
		if got := w.node(name).Broker; got != vtop.BrokerID(i+1) {
			t.Errorf("%s has broker id %d", name, got)
		}
	}
	out := w.ok(&RegisterNode{Name: "n3", Identity: identityOf("n3", 0, 2)})
	if out.Registration != (Registration{Broker: 3, Storage: identityOf("n3", 0, 2).Storage, Incarnation: 2}) {
		t.Errorf("registration %+v", out.Registration)
	}
	if n, ok := w.s.NodeByBroker(3); !ok || n.Name != "n3" {
		t.Errorf("broker 3 is %+v", n)
	}
	w.refused(&RegisterNode{Name: "n9", Identity: identityOf("n3", 0, 3)}, CodeConflict) // one disk, two names
	copied := identityOf("n9", 0, 1)
	copied.RaftID = identityOf("n3", 0, 1).RaftID
	w.refused(&RegisterNode{Name: "n9", Identity: copied}, CodeConflict) // one raft.db, two names
}

// A new incarnation does not move the lease, but nobody holds it any more (I5).
func TestRegisterNode_LeaseDiesWithItsProcess(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	w.ok(&RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 2)})
	lease := w.rng(r0).Lease
	if lease.Epoch != e || lease.HeldBy("n1", 2) || !lease.HeldBy("n1", 1) {
		t.Errorf("lease %+v", lease)
	}
	// The earlier process's promotion comes late.
	w.ok(&RegisterNode{Name: "n2", Identity: identityOf("n2", 0, 2)})
	e = w.grant("n2")
	w.ok(&RegisterNode{Name: "n2", Identity: identityOf("n2", 0, 3)})
	w.refused(startOf(e, 0), CodeStaleIncarnation)
	grant := w.grantOf("n2")
	grant.Items[0].Incarnation = 2
	w.refused(grant, CodeStaleIncarnation)
}

func TestRegisterNode_RepeatChangesNothing(t *testing.T) {
	w := newWorld(t)
	cmd := &RegisterNode{Name: "n2", Identity: identityOf("n2", 0, 2), ReplicasLost: "data directory was empty"}
	w.ok(cmd)
	w.lead("n1", 0)
	id := w.ok(w.changeOf(AddLearner, "n2", 0)).ReplicaID
	w.ok(cmd)
	if rep, _ := w.rng(r0).Replica(id); rep.Lost != "" {
		t.Errorf("I10: the repeat of a registration lost a replica that was made since: %+v", rep)
	}
}

func TestRegisterNode_ReplicasLostEndsLeases(t *testing.T) {
	w := newWorld(t)
	e := w.lead("n1", 0)
	before := w.rng(r0).ConfigVersion
	w.ok(&RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 2), ReplicasLost: "data directory was empty"})
	for r := range w.s.RangesOf("n1") {
		rep, _ := r.Replica(r.Replicas[0].ID)
		if rep.Node != "n1" || rep.Lost == "" || rep.CanVote() {
			t.Errorf("I10: replica %+v of %s", rep, w.s.RangeName(r.ID))
		}
	}
	r := w.rng(r0)
	if r.Lease.Holder != "" || r.Started || r.LastEpoch != e || r.ConfigVersion == before || len(r.Losses) != 1 {
		t.Errorf("I10: range %+v", r)
	}
	w.refused(w.grantOf("n1"), CodeReplicaLost)
	if last := r.Changes[len(r.Changes)-1]; last.Event != LeaseRevoked || last.Epoch != e {
		t.Errorf("last change %+v", last)
	}
}

func TestRegisterNode_RestoredCopy(t *testing.T) {
	w := newWorld(t)
	for i := vtop.Incarnation(2); i <= 10; i++ {
		w.ok(&RegisterNode{Name: "n1", Identity: identityOf("n1", 0, i)})
	}
	at := func(i vtop.Incarnation, nonce uint64, expected vtop.Incarnation) *RegisterNode {
		id := identityOf("n1", 0, i)
		if nonce != 0 {
			id.BootNonce = uuid(nonce)
		}
		return &RegisterNode{Name: "n1", Identity: id, Expected: expected}
	}
	// Case: a command of an earlier start comes late. It must lose nothing.
	w.refused(at(9, 0, 8), CodeStaleIncarnation)
	// Case: the copy runs beside the original.
	alive := at(7, 77, 10)
	alive.HolderAlive = true
	w.refused(alive, CodeNameTaken)
	if w.rng(r0).Replicas[0].Lost != "" {
		t.Fatal("a living node lost its replicas to a copy of its disk")
	}
	// Case: a copy that looked at what is registered.
	out := w.refused(at(7, 77, 10), CodeRestoredCopy)
	if !errors.Is(out.Refusal, vtop.ErrReplicaLost) || out.Registration.Incarnation != 10 {
		t.Errorf("outcome %+v", out)
	}
	if w.rng(r0).Replicas[0].Lost == "" {
		t.Error("I10: the replicas of a restored copy are not lost")
	}
	w.refused(at(7, 77, 10), CodeRestoredCopy) // a repeat
	w.ok(at(11, 78, 10))
	w.refused(at(7, 77, 10), CodeStaleIncarnation) // a late repeat
}

// Two starts of one disk never share a counter: an equal one under another nonce is a copy, whatever it expects.
func TestRegisterNode_EqualCounterOtherNonceIsACopy(t *testing.T) {
	w := newWorld(t)
	id := identityOf("n1", 0, 1)
	id.BootNonce = uuid(99)
	w.refused(&RegisterNode{Name: "n1", Identity: id}, CodeRestoredCopy)
	if w.rng(r0).Replicas[0].Lost == "" {
		t.Error("I10: the replicas of a restored copy are not lost")
	}
}

func TestRegisterNode_AnotherDataDirectory(t *testing.T) {
	w := newWorld(t)
	w.lead("n1", 0)
	other := &RegisterNode{Name: "n1", Identity: identityOf("n1", 1, 1), HolderAlive: true}
	w.refused(other, CodeNameTaken)
	other.HolderAlive = false
	out := w.refused(other, CodePending)
	if out.Registration.Storage != identityOf("n1", 0, 1).Storage {
		t.Errorf("registration %+v", out.Registration)
	}
	w.refused(other, CodePending)
	restarted := &RegisterNode{Name: "n1", Identity: identityOf("n1", 1, 2)}
	w.refused(restarted, CodePending)
	w.refused(other, CodePending) // late: the claim keeps the newer start
	if p := w.node("n1").Pending; len(p) != 1 || p[0].Incarnation != 2 {
		t.Fatalf("claims %+v", p)
	}
	if w.rng(r0).Lease.Holder != "n1" || w.rng(r0).Replicas[0].Lost != "" {
		t.Error("a claim took something from the owner of the name")
	}
	for disk := uint64(2); disk <= MaxClaims; disk++ {
		w.refused(&RegisterNode{Name: "n1", Identity: identityOf("n1", disk, 1)}, CodePending)
	}
	w.refused(&RegisterNode{Name: "n1", Identity: identityOf("n1", 99, 1)}, CodeLimit)

	w.refused(&AdmitPending{Name: "n1", Storage: uuid(5)}, CodeConflict)
	w.refused(&AdmitPending{Name: "n7", Storage: uuid(5)}, CodeUnknownNode)
	admit := &AdmitPending{Name: "n1", Storage: identityOf("n1", 1, 1).Storage, Reason: "node replace"}
	w.ok(admit)
	n := w.node("n1")
	if n.Broker != 1 || n.Storage != admit.Storage || n.Incarnation != 2 || len(n.Pending) != 0 {
		t.Errorf("node %+v", n)
	}
	if r := w.rng(r0); r.Replicas[0].Lost == "" || r.Lease.Holder != "" {
		t.Errorf("I10: range after its node was replaced: %+v", r)
	}
	w.ok(admit)
	w.refused(&RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 5)}, CodePending) // the old disk comes back
}

func TestUpdateNode(t *testing.T) {
	w := newWorld(t)
	rack, addresses := "r9", Addresses{Kafka: "new:9092"}
	w.ok(&UpdateNode{Name: "n1", Incarnation: 1, Addresses: &addresses, Rack: &rack})
	if n := w.node("n1"); n.Rack != "r9" || n.Addresses != addresses || n.State != NodeActive {
		t.Errorf("node %+v", n)
	}
	w.refused(&UpdateNode{Name: "n1", Incarnation: 2, Rack: &rack}, CodeStaleIncarnation)
	w.refused(&UpdateNode{Name: "n9", State: NodeDraining}, CodeUnknownNode)
	w.ok(&UpdateNode{Name: "n1", State: NodeDraining})
	w.ok(&RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 2)})
	if w.node("n1").State != NodeDraining {
		t.Error("a restart ended the drain")
	}
	w.refused(&UpdateNode{Name: "n1", State: NodeGone}, CodeConflict) // it has replicas

	w.ok(&UpdateNode{Name: "n5", State: NodeGone})
	w.refused(&RegisterNode{Name: "n5", Identity: identityOf("n5", 0, 2)}, CodeNodeGone)
	w.refused(&CreateTopic{ID: uuid(9), Name: "x", Ranges: [][]vtop.NodeName{{"n5"}}}, CodeNodeGone)
	w.ok(&RegisterNode{Name: "n6", Identity: func() Identity { id := identityOf("n5", 0, 3); id.RaftID = "new"; return id }()})
	w.refused(&UpdateNode{Name: "n5", State: NodeActive}, CodeConflict) // its disk is n6 now
	w.ok(&RegisterNode{Name: "n5", Identity: identityOf("n5", 1, 1)})   // a gone name is free
	if n := w.node("n5"); n.Broker != 5 || n.State != NodeActive {
		t.Errorf("node %+v", n)
	}
}

func TestAllocateProducerIDs_BlocksNeverMeet(t *testing.T) {
	w := newWorld(t)
	next := int64(1)
	for _, count := range []int32{1, MaxProducerBlock, 7} {
		block := w.ok(&AllocateProducerIDs{Node: "n1", Incarnation: 1, Count: count}).ProducerIDs
		if block != (ProducerBlock{First: next, Count: count}) {
			t.Errorf("block %+v, want from %d", block, next)
		}
		next += int64(count)
	}
	w.refused(&AllocateProducerIDs{Node: "n1", Incarnation: 2, Count: 1}, CodeStaleIncarnation)
	w.refused(&AllocateProducerIDs{Node: "n9", Incarnation: 2, Count: 1}, CodeUnknownNode)
	w.s.nextProducerID = 1<<63 - 5
	w.refused(&AllocateProducerIDs{Node: "n1", Incarnation: 1, Count: 5}, CodeLimit)
}

func TestSetFeatureLevel(t *testing.T) {
	w := newWorld(t)
	w.ok(&SetFeatureLevel{Level: 1})
	w.refused(&SetFeatureLevel{Level: 2}, CodeConflict) // no node understands it
	w.s.cluster.Level = 3
	w.refused(&SetFeatureLevel{Level: 2}, CodeConflict) // never falls
	w.s.cluster.Level = 1
	for i := 1; i <= 5; i++ {
		name := vtop.NodeName([]string{"n1", "n2", "n3", "n4", "n5"}[i-1])
		id := identityOf(name, 0, 2)
		id.MaxLevel = 2
		w.ok(&RegisterNode{Name: name, Identity: id})
	}
	defer func() {
		var fault *Fault
		if err, _ := recover().(error); !errors.As(err, &fault) {
			t.Errorf("this build went on at a level that it does not understand: %v", err)
		}
	}()
	w.do(&SetFeatureLevel{Level: 2})
}

func TestRangesOf_IsAnIndex(t *testing.T) {
	w := newWorld(t)
	w.ok(&CreateTopic{ID: uuid(2), Name: "more", Ranges: [][]vtop.NodeName{{"n4", "n1"}, {"n5"}}})
	names := func(node vtop.NodeName) (out []string) {
		for r := range w.s.RangesOf(node) {
			out = append(out, w.s.RangeName(r.ID))
		}
		return out
	}
	for node, want := range map[vtop.NodeName][]string{
		"n1": {"lines/0", "lines/1", "more/0"}, "n2": {"lines/0", "lines/1"}, "n4": {"more/0"}, "n5": {"more/1"}, "n9": nil,
	} {
		if got := names(node); !slices.Equal(got, want) {
			t.Errorf("ranges of %s: %v, want %v", node, got, want)
		}
	}
	// Case: a lost voter and the learner that replaces it are one range.
	w.lead("n1", 0)
	w.ok(w.lostOf("n2", w.rng(r0).Replicas[1].ID))
	w.ok(w.changeOf(AddLearner, "n2", 0))
	if got := names("n2"); !slices.Equal(got, []string{"lines/0", "lines/1"}) {
		t.Errorf("ranges of n2: %v", got)
	}
	if leases := slices.Collect(w.s.LeasesOf("n1")); len(leases) != 1 || leases[0].ID != r0 {
		t.Errorf("leases of n1: %v", leases)
	}
}
