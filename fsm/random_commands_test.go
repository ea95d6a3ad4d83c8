package fsm

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
)

// The random commands of the walks: most make sense in the state that they are made for, some do not.

// chooser picks a number in [0, n): from rapid, or from a seeded source.
type chooser func(n int) int

func pick[T any](choose chooser, from []T) T { return from[choose(len(from))] }

// randomCommand makes a command that the state mostly takes, and now and then one based on something stale.
func randomCommand(s *State, choose chooser) Command {
	if s.cluster.ID.IsZero() {
		return &BootstrapCluster{ID: uuid(1), Level: LevelFirst}
	}
	names := []vtop.NodeName{"n1", "n2", "n3", "n4", "n5"}
	if s.NodeCount() < 3 {
		return randomRegistration(s, choose, names)
	}
	ranges := slices.Collect(s.Ranges())
	if len(ranges) == 0 || choose(25) == 0 {
		return randomTopicCommand(s, choose, names)
	}
	if choose(5) == 0 {
		return randomGroupCommand(s, choose)
	}
	if choose(20) == 0 {
		return randomWish(pick(choose, ranges), choose)
	}
	if choose(12) == 0 {
		return randomNodeCommand(s, choose, names)
	}
	if choose(4) == 0 {
		return randomRepairCommand(s, pick(choose, ranges), choose)
	}
	return randomRangeCommand(s, pick(choose, ranges), choose)
}

func randomRegistration(s *State, choose chooser, names []vtop.NodeName) Command {
	name := pick(choose, names)
	c := &RegisterNode{Name: name, Identity: identityOf(name, 0, vtop.Incarnation(1+choose(3))), HolderAlive: choose(4) == 0}
	if n, ok := s.Node(name); ok {
		c.Identity = n.Identity
		c.Expected = n.Incarnation - vtop.Incarnation(choose(2))
		switch choose(6) {
		case 0: // repeat
		case 1: // a copy, or late
			c.Incarnation -= vtop.Incarnation(choose(int(n.Incarnation)))
			c.BootNonce = uuid(uint64(choose(1 << 20)))
		case 2: // another disk
			c.Identity = identityOf(name, uint64(1+choose(8)), 1)
		default:
			c.Incarnation++
			c.BootNonce = identityOf(name, 0, c.Incarnation).BootNonce
		}
	}
	if choose(5) == 0 {
		c.ReplicasLost = "wiped"
	}
	return c
}

// randomWish is a quota, or an order of preference: the replicas of a range turned round, now and then without one.
func randomWish(r *Range, choose chooser) Command {
	if choose(2) == 0 {
		return &AlterClientQuotas{Items: []QuotaChange{{Client: fmt.Sprint(choose(3)), SetFetch: true, Fetch: int64(choose(3))}}}
	}
	var nodes []vtop.NodeName
	for _, rep := range r.Replicas {
		if !slices.Contains(nodes, rep.Node) {
			nodes = append(nodes, rep.Node)
		}
	}
	at := choose(len(nodes))
	nodes = append(nodes[at:], nodes[:at]...)
	return &SetPreferred{Items: []Preference{{r.ID, nodes[:max(1, len(nodes)-choose(2))]}}}
}

func randomNodeCommand(s *State, choose chooser, names []vtop.NodeName) Command {
	n := pick(choose, slices.Collect(s.Nodes()))
	switch choose(6) {
	case 0:
		return &UpdateNode{Name: n.Name, State: NodeState(1 + choose(3))}
	case 1:
		if len(n.Pending) > 0 {
			return &AdmitPending{Name: n.Name, Storage: pick(choose, n.Pending).Storage, Reason: "test"}
		}
	case 2:
		return &AllocateProducerIDs{Node: n.Name, Incarnation: n.Incarnation, Count: int32(1 + choose(10))}
	}
	return randomRegistration(s, choose, names)
}

func randomTopicCommand(s *State, choose chooser, names []vtop.NodeName) Command {
	places := make([][]vtop.NodeName, 1+choose(2))
	for i := range places {
		at := choose(len(names))
		for j := range 1 + choose(3) {
			places[i] = append(places[i], names[(at+j)%len(names)])
		}
	}
	topics := slices.Collect(s.Topics())
	if len(topics) > 0 {
		topic := pick(choose, topics)
		switch choose(5) {
		case 0:
			return &DeleteTopic{ID: topic.ID}
		case 1:
			return &CreateRanges{Topic: topic.ID, Expected: topic.Ranges - int32(choose(2)*int(topic.Ranges-1)), Ranges: places}
		case 2:
			return &AlterTopicConfig{Topic: topic.ID, Set: map[string]string{"k": fmt.Sprint(choose(3))}, Delete: []string{"x"}}
		}
	}
	return &CreateTopic{ID: uuid(uint64(1 + choose(40))), Name: fmt.Sprintf("topic%d", choose(3)), Ranges: places}
}

func randomRangeCommand(s *State, r *Range, choose chooser) Command {
	e := r.LastEpoch - vtop.Epoch(choose(8)/7) // now and then the one before
	if e < 1 || r.Lease.Holder == "" || choose(10) == 0 {
		return randomGrant(s, r, choose)
	}
	if !r.Started && choose(4) != 0 {
		return &StartEpochs{Items: []EpochStart{{Range: r.ID, Epoch: e, Start: r.Floor + vtop.Offset(choose(20)-2)*vtop.Offset(choose(2))}}}
	}
	config := max(1, r.ConfigVersion-uint64(choose(10)/9))
	switch choose(9) {
	case 0:
		return &ReleaseLeases{Items: []Release{{Range: r.ID, Epoch: e}}}
	case 1, 2, 3:
		floor := r.Floor + vtop.Offset(choose(10))
		end := max(floor, r.LogEnd) + vtop.Offset(choose(10))
		quorum := max(end-vtop.Offset(choose(6)), 0)
		return &ReportFloors{Items: []FloorReport{{Range: r.ID, Epoch: e, Config: config, Floor: floor, QuorumPosition: quorum, LogEnd: end}}}
	case 4:
		start := max(0, r.LogStart+vtop.Offset(choose(15)-2))
		return &MoveLogStart{Range: r.ID, Epoch: e, Start: start}
	case 5:
		base := max(0, max(r.CatalogueEnd, r.LogStart*vtop.Offset(choose(2)))+vtop.Offset(choose(10)/8-choose(10)/9))
		return &RegisterSegment{
			Range: r.ID, Epoch: e, Config: config, Base: base, End: base + 1 + vtop.Offset(choose(15)), Bytes: 1 + int64(choose(100)), Root: [32]byte{byte(1 + choose(200))},
		}
	case 6:
		rep := pick(choose, r.Replicas)
		n, _ := s.Node(rep.Node)
		return &MarkReplicasLost{
			Node: n.Name, Storage: n.Storage, Incarnation: n.Incarnation, Items: []LostReplica{{r.ID, rep.ID}}, Reason: "damage",
		}
	}
	c := &ChangeReplicas{Range: r.ID, Epoch: e, Config: config, Change: ReplicaChange(1 + choose(4)), SettleMark: r.LogEnd}
	if c.Change == AddLearner {
		c.Node = pick(choose, slices.Collect(s.Nodes())).Name
	} else {
		c.ReplicaID = pick(choose, r.Replicas).ID
	}
	return c
}

func randomGrant(s *State, r *Range, choose chooser) Command {
	n, _ := s.Node(pick(choose, r.Replicas).Node)
	g := Grant{Range: r.ID, Holder: n.Name, Incarnation: n.Incarnation, Expected: r.LastEpoch - vtop.Epoch(choose(8)/7), Reason: "test"}
	g.Expected = max(0, g.Expected)
	if choose(10) == 0 {
		g.Minimum = r.LastEpoch + vtop.Epoch(choose(5))
	}
	return &GrantLeases{Items: []Grant{g}}
}

func randomRepairCommand(s *State, r *Range, choose chooser) Command {
	nodes := slices.Collect(s.Nodes())
	jobs := slices.Collect(s.Repairs())
	switch n := choose(24); {
	case n == 0:
		return &SetHeal{Paused: choose(3) == 0, Why: "test"}
	case n == 1:
		return &RemoveNode{Name: pick(choose, nodes).Name}
	case n == 2:
		from := max(0, r.LogStart+vtop.Offset(choose(20)-2))
		return &RecoverRange{
			Range: r.ID, Keep: pick(choose, r.Replicas).ID, Config: r.ConfigVersion, Epoch: r.LastEpoch, From: from, To: max(from, r.Floor), Reason: "test",
		}
	case n == 3 && len(jobs) > 0:
		return &CancelRepairs{IDs: []RepairID{pick(choose, jobs).ID}, Reason: "test"}
	case n < 18 && s.ActiveRepairCount() > 0:
		active := slices.DeleteFunc(jobs, func(j *RepairJob) bool { return !j.Active() })
		return randomUpdate(s, pick(choose, active), choose)
	}
	q := RepairRequest{Range: r.ID, Destination: pick(choose, nodes).Name, Origin: RepairOrigin(1 + choose(4)), Holes: choose(4) == 0}
	if choose(3) == 0 {
		q.Replace = pick(choose, r.Replicas).Node
	}
	return &SubmitRepairs{Items: []RepairRequest{q}}
}

func randomUpdate(s *State, j *RepairJob, choose chooser) Command {
	n, _ := s.Node(j.Destination)
	u := RepairUpdate{ID: j.ID, StepVersion: max(1, j.StepVersion-uint64(choose(10)/9)), Progress: j.RepairProgress}
	u.Step = min(j.Step+RepairStep(choose(2)), RepairFailed)
	p := &u.Progress
	p.BytesDone++
	if r, _ := s.Range(j.Range); p.Replica == 0 || choose(6) == 0 {
		if rep, ok := r.On(j.Destination); ok {
			p.Replica = rep.ID
		}
	}
	switch choose(12) {
	case 0:
		u.Step, p.LastError = RepairSealing, "test"
	case 1:
		u.Step, p.Outcome, p.Cause = RepairFailed, OutcomeFailed, "test"
	case 2:
		u.Step, p.Outcome, p.Cause, p.Gap = RepairDone, OutcomeGap, "test", 3
	}
	if u.Step == RepairDone && p.Outcome == OutcomeNone {
		p.Outcome, p.Voter, p.Floor, p.LogEnd = OutcomeWhole, true, 5, 6
	}
	return &UpdateRepairs{Node: n.Name, Incarnation: n.Incarnation, Items: []RepairUpdate{u}}
}
