package kafka

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// jobsOf tells the active jobs of a range as "destination<-replaced".
func (c *fakeCluster) jobsOf(r vtop.Range) (out []string) {
	for j := range c.nodes[0].State().ActiveRepairs(r) {
		out = append(out, fmt.Sprintf("%s<-%s", j.Destination, j.Replace))
	}
	slices.Sort(out)
	return out
}

func (c *fakeCluster) preferred(r vtop.Range) []vtop.NodeName {
	rg, _ := c.nodes[0].State().Range(r)
	return rg.Preferred
}

// bring carries a job out: a learner, then a voter, then the one that is replaced goes.
func (c *fakeCluster) bring(t *testing.T, r vtop.Range, to vtop.NodeName) {
	t.Helper()
	state := func() *fsm.Range { rg, _ := c.nodes[0].State().Range(r); return rg }
	change := func(kind fsm.ReplicaChange, node vtop.NodeName, id vtop.ReplicaID) {
		t.Helper()
		rg := state()
		if err := c.apply(&fsm.ReportFloors{Items: []fsm.FloorReport{{Range: r, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Floor: 0, QuorumPosition: 0, LogEnd: 0}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.apply(&fsm.ChangeReplicas{Range: r, Epoch: rg.Lease.Epoch, Config: rg.ConfigVersion, Change: kind, Node: node, ReplicaID: id}); err != nil {
			t.Fatal(err)
		}
	}
	job, ok := c.nodes[0].State().ActiveRepair(r, to)
	if !ok {
		t.Fatalf("no job to %s", to)
	}
	change(fsm.AddLearner, to, 0)
	rep, _ := state().On(to)
	change(fsm.PromoteLearner, "", rep.ID)
	if old, ok := state().VoterOn(job.Replace); ok {
		change(fsm.RemoveVoter, "", old.ID)
	}
	ended, err := c.nodes[0].CancelRepairs(t.Context(), []fsm.RepairID{job.ID}, "stands for done")
	if err != nil || ended[0].Err() != nil {
		t.Fatalf("%v %v", ended, err)
	}
}

func TestReassign_MoveGrowShrinkReorderAndCancel(t *testing.T) {
	c := newFakeCluster(t, 5, nil)
	id, err := c.nodes[0].CreateTopic(t.Context(), TopicSpec{Name: "t", Ranges: 1, Replicas: 3}) // on n1, n2, n3
	if err != nil {
		t.Fatal(err)
	}
	r := vtop.Range{Topic: id}
	adm, ctx := admin(t, c)
	assign := func(brokers ...int32) error {
		t.Helper()
		var req kadm.AlterPartitionAssignmentsReq
		if len(brokers) == 0 {
			req.CancelAssign("t", 0)
		} else {
			req.Assign("t", 0, brokers)
		}
		rs, err := adm.AlterPartitionAssignments(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return rs["t"][0].Err
	}
	want := func(what string, preferred string, jobs ...string) {
		t.Helper()
		if got := fmt.Sprint(c.preferred(r)); got != "["+preferred+"]" || !slices.Equal(c.jobsOf(r), jobs) {
			t.Errorf("%s: preferred %s, jobs %v; want %s, %v", what, got, c.jobsOf(r), preferred, jobs)
		}
	}
	listed := func(what, replicas, adding, removing string) {
		t.Helper()
		rs, err := adm.ListPartitionReassignments(ctx, kadm.TopicsSet{"t": {0: {}}, "none": {0: {}}})
		if err != nil {
			t.Fatal(err)
		}
		p := rs["t"][0]
		if got := fmt.Sprint(p.Replicas, p.AddingReplicas, p.RemovingReplicas); got != fmt.Sprintf("[%s] [%s] [%s]", replicas, adding, removing) {
			t.Errorf("%s: %s", what, got)
		}
	}
	listed("nothing on its way", "", "", "")
	if err := assign(2, 3, 1); err != nil {
		t.Error(err)
	}
	want("another order", "n2 n3 n1")
	if err := assign(4, 5, 1); err != nil {
		t.Error(err)
	}
	want("two move", "n4 n5 n1", "n4<-n2", "n5<-n3")
	listed("two move", "1 2 3 4 5", "4 5", "2 3")
	if err := assign(4, 1, 2); err != nil {
		t.Error(err)
	}
	want("another target: what fits no more is cancelled", "n4 n1 n2", "n4<-n3")
	listed("another target", "1 2 3 4", "4", "3")
	c.bring(t, r, "n4")
	want("arrived", "n4 n1 n2")
	listed("arrived", "", "", "")
	if err := assign(1, 2, 3, 4, 5); err != nil {
		t.Error(err)
	}
	want("more replicas", "n1 n2 n3 n4 n5", "n3<-", "n5<-")
	if err := assign(); err != nil {
		t.Error(err)
	}
	want("cancelled: those that are there, in their order", "n1 n2 n4")
	if err := assign(); !is(err, kerr.NoReassignmentInProgress) {
		t.Errorf("nothing to cancel: %v", err)
	}
	if err := assign(4, 1); err != nil {
		t.Error(err)
	}
	want("fewer replicas", "n4 n1")
	listed("fewer replicas", "4 1 2", "", "2")
	if err := assign(); err != nil {
		t.Error(err)
	}
	want("fewer replicas, cancelled", "n4 n1 n2")
	if err := assign(5); err != nil {
		t.Error(err)
	}
	want("one replica elsewhere", "n5", "n5<-n1")
	listed("one replica elsewhere", "1 2 4 5", "5", "1 2 4")
}

func TestReassign_Refusals(t *testing.T) {
	c := newFakeCluster(t, 4, nil)
	id, err := c.nodes[0].CreateTopic(t.Context(), TopicSpec{Name: "t", Ranges: 1, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.apply(&fsm.UpdateNode{Name: "n4", State: fsm.NodeDraining}); err != nil {
		t.Fatal(err)
	}
	r := vtop.Range{Topic: id}
	ask := func(version int16, change bool, topic string, index int32, brokers ...int32) *kmsg.AlterPartitionAssignmentsResponse {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.Version, req.AllowReplicationFactorChange = version, change
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = index, brokers
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic, rt.Partitions = topic, []kmsg.AlterPartitionAssignmentsRequestTopicPartition{rp}
		req.Topics = append(req.Topics, rt)
		return dial(t, c.nodes[0]).ask(t, req).(*kmsg.AlterPartitionAssignmentsResponse)
	}
	for name, tc := range map[string]struct {
		resp *kmsg.AlterPartitionAssignmentsResponse
		want *kerr.Error
	}{
		"an unknown topic":               {ask(0, false, "none", 0, 1), kerr.UnknownTopicOrPartition},
		"an unknown partition":           {ask(0, false, "t", 9, 1), kerr.UnknownTopicOrPartition},
		"an unknown broker":              {ask(0, false, "t", 0, 1, 2, 9), kerr.InvalidReplicaAssignment},
		"a negative broker":              {ask(0, false, "t", 0, 1, 2, -1), kerr.InvalidReplicaAssignment},
		"a broker twice":                 {ask(0, false, "t", 0, 1, 2, 2), kerr.InvalidReplicaAssignment},
		"no broker":                      {ask(0, false, "t", 0, []int32{}...), kerr.InvalidReplicaAssignment},
		"null, and nothing on its way":   {ask(0, false, "t", 0), kerr.NoReassignmentInProgress},
		"a node that is being emptied":   {ask(0, false, "t", 0, 1, 2, 4), kerr.InvalidReplicaAssignment},
		"a number that may not change":   {ask(1, false, "t", 0, 1, 2), kerr.InvalidReplicationFactor},
		"the same number, which may not": {ask(1, false, "t", 0, 3, 2, 1), nil},
		"a number that may change":       {ask(1, true, "t", 0, 3, 2, 1), nil},
	} {
		got := tc.resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); !is(err, tc.want) || tc.want != nil && got.ErrorMessage == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := c.jobsOf(r); len(got) != 0 {
		t.Errorf("refused reassignments left %v", got)
	}
}

// Of a range whose second job is refused the first is taken back.
func TestReassign_AllOfARangeOrNothing(t *testing.T) {
	c := newFakeCluster(t, 4, nil)
	id, err := c.nodes[0].CreateTopic(t.Context(), TopicSpec{Name: "t", Ranges: 1, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.apply(&fsm.UpdateNode{Name: "n4", State: fsm.NodeDraining}); err != nil {
		t.Fatal(err)
	}
	adm, ctx := admin(t, c)
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign("t", 0, []int32{2, 4})
	rs, err := adm.AlterPartitionAssignments(ctx, req)
	if err != nil || !is(rs["t"][0].Err, kerr.InvalidReplicaAssignment) {
		t.Errorf("%+v %v", rs, err)
	}
	r := vtop.Range{Topic: id}
	if got := c.jobsOf(r); len(got) != 0 || !slices.Equal(c.preferred(r), []vtop.NodeName{"n1"}) {
		t.Errorf("jobs %v, preferred %v", got, c.preferred(r))
	}
}

// What heals or drains is told of as well; a replica that is rebuilt where it was does not move.
func TestListPartitionReassignments_WhoeverWantsIt(t *testing.T) {
	c := newFakeCluster(t, 4, nil)
	id, err := c.nodes[0].CreateTopic(t.Context(), TopicSpec{Name: "t", Ranges: 2, Replicas: 3}) // on n1 n2 n3 and n2 n3 n4
	if err != nil {
		t.Fatal(err)
	}
	second := vtop.Range{Topic: id, Index: 1}
	rg, _ := c.nodes[0].State().Range(second)
	lost, _ := rg.VoterOn("n4")
	n4, _ := c.nodes[0].State().Node("n4")
	for _, cmd := range []fsm.Command{
		&fsm.MarkReplicasLost{Node: "n4", Storage: n4.Storage, Incarnation: 1, Reason: "test", Items: []fsm.LostReplica{{Range: second, ReplicaID: lost.ID}}},
		&fsm.SubmitRepairs{Items: []fsm.RepairRequest{
			{Range: vtop.Range{Topic: id}, Destination: "n4", Replace: "n2", Origin: fsm.OriginDrain, Reason: "test"},
			{Range: second, Destination: "n4", Replace: "n4", Origin: fsm.OriginHeal, Reason: "test"},
		}},
	} {
		if err := c.apply(cmd); err != nil {
			t.Fatal(err)
		}
	}
	adm, ctx := admin(t, c)
	all := dial(t, c.nodes[0]).ask(t, kmsg.NewPtrListPartitionReassignmentsRequest()).(*kmsg.ListPartitionReassignmentsResponse)
	if len(all.Topics) != 1 || len(all.Topics[0].Partitions) != 1 {
		t.Fatalf("%+v", all)
	}
	if p := all.Topics[0].Partitions[0]; p.Partition != 0 || fmt.Sprint(p.AddingReplicas, p.RemovingReplicas) != "[4] [2]" {
		t.Errorf("%+v", p)
	}
	some, err := adm.ListPartitionReassignments(ctx, kadm.TopicsSet{"t": {1: {}}})
	if err != nil || len(some) != 0 {
		t.Errorf("of a range that does not move: %+v %v", some, err)
	}
}
