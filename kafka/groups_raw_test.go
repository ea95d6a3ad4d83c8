package kafka

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

func wantCode(t *testing.T, what string, code int16, want *kerr.Error) {
	t.Helper()
	if err := kerr.ErrorForCode(code); want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func joinRequest(version int16, group, member string, edit func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = version, group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 60_000, 60_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte("about me")
	req.Protocols = append(req.Protocols, p)
	if edit != nil {
		edit(req)
	}
	return req
}

func syncRequest(group, member string, generation int32, give map[string]string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, group, member, generation
	for id, a := range give {
		ra := kmsg.NewSyncGroupRequestGroupAssignment()
		ra.MemberID, ra.MemberAssignment = id, []byte(a)
		req.GroupAssignment = append(req.GroupAssignment, ra)
	}
	return req
}

func (c *rawConn) join(t testing.TB, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	t.Helper()
	return c.ask(t, req).(*kmsg.JoinGroupResponse)
}

// beat asks as a member, in version 0.
func (c *rawConn) beat(t testing.TB, group, member string, generation int32) int16 {
	t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	return c.ask(t, req).(*kmsg.HeartbeatResponse).ErrorCode
}

func commitRequest(group, member string, generation int32, topic string, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 2, group, member, generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *rawConn) commit(t testing.TB, req *kmsg.OffsetCommitRequest) int16 {
	t.Helper()
	return c.ask(t, req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func TestGroups_MemberByHand(t *testing.T) {
	c := newFakeCluster(t, 3, nil)
	c.topic("t", 1)
	conn := dial(t, c.coordinator("g"))
	first := conn.join(t, joinRequest(9, "g", "", nil))
	wantCode(t, "the first join", first.ErrorCode, kerr.MemberIDRequired)
	j := conn.join(t, joinRequest(9, "g", first.MemberID, nil))
	if j.ErrorCode != 0 || j.MemberID != first.MemberID || j.LeaderID != j.MemberID || j.Generation != 1 || *j.Protocol != "range" ||
		len(j.Members) != 1 || string(j.Members[0].ProtocolMetadata) != "about me" {
		t.Fatalf("joined: %+v", j)
	}
	wantCode(t, "commit before the assignment", conn.commit(t, commitRequest("g", j.MemberID, 1, "t", 1)), kerr.RebalanceInProgress)
	s := conn.ask(t, syncRequest("g", j.MemberID, 1, map[string]string{j.MemberID: "all"})).(*kmsg.SyncGroupResponse)
	if s.ErrorCode != 0 || string(s.MemberAssignment) != "all" {
		t.Fatalf("synced: %+v", s)
	}
	wantCode(t, "heartbeat", conn.beat(t, "g", j.MemberID, 1), nil)
	wantCode(t, "heartbeat of another generation", conn.beat(t, "g", j.MemberID, 2), kerr.IllegalGeneration)
	wantCode(t, "heartbeat of nobody", conn.beat(t, "g", "nobody", 1), kerr.UnknownMemberID)
	wantCode(t, "heartbeat in no group", conn.beat(t, "", "nobody", 1), kerr.InvalidGroupID)
	wantCode(t, "commit", conn.commit(t, commitRequest("g", j.MemberID, 1, "t", 7)), nil)
	wantCode(t, "commit of another generation", conn.commit(t, commitRequest("g", j.MemberID, 0, "t", 1)), kerr.IllegalGeneration)
	wantCode(t, "commit of nobody", conn.commit(t, commitRequest("g", "", -1, "t", 1)), kerr.UnknownMemberID)
	fenced := commitRequest("g", j.MemberID, 1, "t", 1)
	fenced.Version, fenced.InstanceID = 7, kmsg.StringPtr("nobody's")
	wantCode(t, "commit of an instance that is not there", conn.commit(t, fenced), kerr.UnknownMemberID)
	late := joinRequest(2, "g", "", func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" })
	wantCode(t, "join with another protocol", conn.join(t, late).ErrorCode, kerr.InconsistentGroupProtocol)
	short := joinRequest(2, "g", "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 })
	wantCode(t, "join with too short a session", conn.join(t, short).ErrorCode, kerr.InvalidSessionTimeout)

	// Case: another node, and the same after the slot moved there: same member, same generation.
	other := c.other(c.coordinator("g"))
	there := dial(t, other)
	wantCode(t, "heartbeat elsewhere", there.beat(t, "g", j.MemberID, 1), kerr.NotCoordinator)
	wantCode(t, "commit elsewhere", there.commit(t, commitRequest("g", j.MemberID, 1, "t", 9)), kerr.NotCoordinator)
	c.moveSlot(fsm.GroupSlot("g"), other.name)
	wantCode(t, "heartbeat after the move", there.beat(t, "g", j.MemberID, 1), nil)
	wantCode(t, "commit at the old coordinator", conn.commit(t, commitRequest("g", j.MemberID, 1, "t", 9)), kerr.NotCoordinator)
	wantCode(t, "commit after the move", there.commit(t, commitRequest("g", j.MemberID, 1, "t", 9)), nil)

	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "g", j.MemberID
	wantCode(t, "leave", there.ask(t, leave).(*kmsg.LeaveGroupResponse).ErrorCode, nil)
	wantCode(t, "second leave", there.ask(t, leave).(*kmsg.LeaveGroupResponse).ErrorCode, kerr.UnknownMemberID)
	wantCode(t, "a simple commit to the empty group", there.commit(t, commitRequest("g", "", -1, "t", 3)), nil)
}

// TestGroups_ConnectionThatEndsHoldsNobodyUp: a member that waits in JoinGroup and whose connection ends is not waited for.
func TestGroups_ConnectionThatEndsHoldsNobodyUp(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	conn, gone := dial(t, c.nodes[0]), dial(t, c.nodes[0])
	j := conn.join(t, joinRequest(3, "g", "", nil))
	// The second member waits for the first to join again; then it is cut off.
	gone.send(t, joinRequest(3, "g", "", nil))
	for conn.beat(t, "g", j.MemberID, 1) != kerr.RebalanceInProgress.Code {
	}
	gone.Close()
	server := c.nodes[0].server
	for open := 2; open > 1; { // until the server has seen it go
		server.mu.Lock()
		open = len(server.conns)
		server.mu.Unlock()
	}
	if again := conn.join(t, joinRequest(3, "g", j.MemberID, nil)); again.ErrorCode != 0 || len(again.Members) != 1 || again.Generation != 2 {
		t.Errorf("joined again: %+v", again)
	}
}

// TestGroups_WhoWaitsHoldsNobodyUp: a member that waits in SyncGroup keeps nothing of the budget that others need to be served (I13).
func TestGroups_WhoWaitsHoldsNobodyUp(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	server := c.nodes[0].server
	server.work = newBudget(elementCost) // for one at a time
	leader, waits := dial(t, c.nodes[0]), dial(t, c.nodes[0])
	first := joinRequest(3, "g", leader.join(t, joinRequest(3, "g", "", nil)).MemberID, nil)
	second := joinRequest(3, "g", "", nil)
	waits.send(t, second)
	for leader.beat(t, "g", first.MemberID, 1) != kerr.RebalanceInProgress.Code {
	}
	generation := leader.join(t, first).Generation
	_, joined := waits.receive(t, second)
	give := map[string]string{}
	for i := range 1000 {
		give[strconv.Itoa(i)] = "to nobody"
	}
	sync := syncRequest("g", joined.(*kmsg.JoinGroupResponse).MemberID, generation, give)
	waits.send(t, sync)
	wantCode(t, "beat", leader.beat(t, "g", first.MemberID, generation), nil) // by now it waits, as good as surely
	describe := kmsg.NewPtrDescribeGroupsRequest()
	for i := range 100 {
		describe.Groups = append(describe.Groups, strconv.Itoa(i))
	}
	if got := leader.ask(t, describe).(*kmsg.DescribeGroupsResponse); len(got.Groups) != 100 {
		t.Errorf("%d groups", len(got.Groups))
	}
	s := leader.ask(t, syncRequest("g", first.MemberID, generation, nil)).(*kmsg.SyncGroupResponse)
	wantCode(t, "the leader's sync", s.ErrorCode, nil)
	_, synced := waits.receive(t, sync)
	wantCode(t, "the sync that waited", synced.(*kmsg.SyncGroupResponse).ErrorCode, nil)
}

func TestGroups_StaticMemberIsFenced(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	conn := dial(t, c.nodes[0])
	static := func(r *kmsg.JoinGroupRequest) { r.InstanceID = kmsg.StringPtr("i1") }
	one := conn.join(t, joinRequest(9, "g", "", static))
	s := conn.ask(t, syncRequest("g", one.MemberID, one.Generation, map[string]string{one.MemberID: "all"})).(*kmsg.SyncGroupResponse)
	wantCode(t, "sync", s.ErrorCode, nil)
	two := conn.join(t, joinRequest(9, "g", "", static))
	if two.ErrorCode != 0 || two.MemberID == one.MemberID || two.Generation != one.Generation || !two.SkipAssignment || len(two.Members) != 1 {
		t.Fatalf("the second process: %+v, the first was %+v", two, one)
	}
	s = conn.ask(t, syncRequest("g", two.MemberID, two.Generation, nil)).(*kmsg.SyncGroupResponse)
	if s.ErrorCode != 0 || string(s.MemberAssignment) != "all" {
		t.Errorf("the second process is assigned %+v", s)
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = 4, "g", one.MemberID, one.Generation, kmsg.StringPtr("i1")
	wantCode(t, "heartbeat of the first process", conn.ask(t, req).(*kmsg.HeartbeatResponse).ErrorCode, kerr.FencedInstanceID)
	// An operator takes it out by its instance id.
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group = 5, "g"
	for _, id := range []string{"i1", "i2"} {
		m := kmsg.NewLeaveGroupRequestMember()
		m.InstanceID = kmsg.StringPtr(id)
		leave.Members = append(leave.Members, m)
	}
	left := conn.ask(t, leave).(*kmsg.LeaveGroupResponse)
	if left.ErrorCode != 0 || len(left.Members) != 2 || left.Members[0].ErrorCode != 0 || left.Members[1].ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("left: %+v", left)
	}
}

func TestFindCoordinator(t *testing.T) {
	c := newFakeCluster(t, 3, func(cfg *Config) { cfg.LeaderWait = 50 * time.Millisecond })
	conn := dial(t, c.nodes[2])
	id := func(n *fakeNode) int32 {
		node, _ := n.State().Node(n.name)
		return int32(node.Broker)
	}
	for v := int16(0); v <= 3; v++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey = v, "g"
		if r := conn.ask(t, req).(*kmsg.FindCoordinatorResponse); r.ErrorCode != 0 || r.NodeID != id(c.coordinator("g")) || r.Host != "127.0.0.1" {
			t.Errorf("v%d: %+v", v, r)
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, []string{"a", "b", "a", ""}
	r := conn.ask(t, req).(*kmsg.FindCoordinatorResponse)
	if len(r.Coordinators) != 3 || r.Coordinators[0].NodeID != id(c.coordinator("a")) || r.Coordinators[1].NodeID != id(c.coordinator("b")) {
		t.Errorf("v4: %+v", r)
	}
	wantCode(t, "an empty id", r.Coordinators[2].ErrorCode, nil) // as in Kafka: the coordinator refuses it
	req.CoordinatorType = 1
	r = conn.ask(t, req).(*kmsg.FindCoordinatorResponse)
	if wantCode(t, "transactions", r.Coordinators[0].ErrorCode, kerr.TransactionalIDAuthorizationFailed); r.Coordinators[0].ErrorMessage == nil || r.Coordinators[0].NodeID != -1 {
		t.Errorf("transactions: %+v", r.Coordinators[0])
	}
	req.Version, req.CoordinatorType = 6, 2
	wantCode(t, "share groups", conn.ask(t, req).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode, kerr.InvalidRequest)

	// Case: the coordinator is gone. Nobody else is named; with the next grant the answer comes at once.
	dead := c.coordinator("g")
	c.set(func(c *fakeCluster) { c.down[dead.name] = true })
	for _, n := range c.nodes {
		if n != dead {
			conn = dial(t, n)
		}
	}
	req = kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey = "g"
	wantCode(t, "without a holder", conn.ask(t, req).(*kmsg.FindCoordinatorResponse).ErrorCode, kerr.CoordinatorNotAvailable)
	c.moveSlot(fsm.GroupSlot("g"), c.other(dead).name)
	if r := conn.ask(t, req).(*kmsg.FindCoordinatorResponse); r.ErrorCode != 0 || r.NodeID != id(c.other(dead)) {
		t.Errorf("after the grant: %+v", r)
	}
}

func TestOffsetFetch_Versions(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 2)
	conn := dial(t, c.nodes[0])
	wantCode(t, "commit", conn.commit(t, commitRequest("g", "", -1, "t", 7)), nil)
	for v := int16(1); v <= 7; v++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group = v, "g"
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = "t", []int32{0, 1, 5}
		req.Topics = append(req.Topics, rt)
		r := conn.ask(t, req).(*kmsg.OffsetFetchResponse)
		if p := r.Topics[0].Partitions; r.ErrorCode != 0 || p[0].Offset != 7 || p[1].Offset != -1 || p[2].Offset != -1 || p[2].ErrorCode != 0 {
			t.Errorf("v%d: %+v", v, r)
		}
		if req.Topics = nil; v < 2 {
			continue
		}
		if r = conn.ask(t, req).(*kmsg.OffsetFetchResponse); len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Offset != 7 {
			t.Errorf("v%d, all: %+v", v, r)
		}
	}
	for v := int16(8); v <= 9; v++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = v
		for _, id := range []string{"g", "none"} {
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group = id
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.Partitions = "t", []int32{0}
			rg.Topics = append(rg.Topics, rt)
			req.Groups = append(req.Groups, rg)
		}
		r := conn.ask(t, req).(*kmsg.OffsetFetchResponse)
		if len(r.Groups) != 2 || r.Groups[0].Topics[0].Partitions[0].Offset != 7 || r.Groups[1].Topics[0].Partitions[0].Offset != -1 {
			t.Errorf("v%d: %+v", v, r)
		}
	}
	// Offsets below 0 and metadata without end are refused, each by itself.
	wantCode(t, "a negative offset", conn.commit(t, commitRequest("g", "", -1, "t", -5)), kerr.InvalidRequest)
	long := commitRequest("g", "", -1, "t", 8)
	long.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(string(make([]byte, 4097)))
	wantCode(t, "long metadata", conn.commit(t, long), kerr.OffsetMetadataTooLarge)
	// The retention that old clients name is the cluster's to decide (J6).
	old := commitRequest("g", "", -1, "t", 9)
	old.Version, old.RetentionTimeMillis = 4, -1
	wantCode(t, "a commit with a retention", conn.commit(t, old), nil)
}

// TestGroups_NoClientSeesAnErrorThatIsNotRetried: what is answered while the coordinator moves, or has no quorum, is what clients ask again on.
func TestGroups_NoClientSeesAnErrorThatIsNotRetried(t *testing.T) {
	c := newFakeCluster(t, 1, nil)
	c.topic("t", 1)
	conn := dial(t, c.nodes[0])
	j := conn.join(t, joinRequest(3, "g", "", nil))
	conn.ask(t, syncRequest("g", j.MemberID, j.Generation, nil))
	c.set(func(c *fakeCluster) { c.notReady = true })
	wantCode(t, "heartbeat at a node that is not ready", conn.beat(t, "g", j.MemberID, 1), kerr.NotCoordinator)
	wantCode(t, "commit at a node that is not ready", conn.commit(t, commitRequest("g", j.MemberID, 1, "t", 1)), kerr.NotCoordinator)
	wantCode(t, "list at a node that is not ready", conn.ask(t, kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse).ErrorCode, kerr.CoordinatorLoadInProgress)
	c.set(func(c *fakeCluster) { c.notReady = false })
	// The outcome of a commit is unknown, and a slot is lost in the middle.
	c.set(func(c *fakeCluster) {
		c.proposals = func(fsm.Command) error { c.proposals = nil; return vtop.ErrTimeout }
	})
	wantCode(t, "commit whose first proposal is lost", conn.commit(t, commitRequest("g", j.MemberID, 1, "t", 2)), nil)
}
