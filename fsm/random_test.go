package fsm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vtop-log/vtop"
)

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

// stepRepairs: a job changes only while it is active, moves forward or says that it begins anew, and is only forgotten when it has
// ended; ids are never used again.
func stepRepairs(from, to *State) error {
	for old := range from.Repairs() {
		j, ok := to.Repair(old.ID)
		if !ok {
			if old.Active() || to.ended.Len() < MaxEndedRepairs {
				return fmt.Errorf("repair %d was forgotten", old.ID)
			}
			continue
		}
		switch {
		case j == old:
		case !old.Active():
			return fmt.Errorf("repair %d had ended and became %+v", old.ID, j)
		case j.Range != old.Range || j.Destination != old.Destination || j.Created != old.Created:
			return fmt.Errorf("repair %+v became %+v", old, j)
		case j.StepVersion != old.StepVersion && j.StepVersion != old.StepVersion+1, j.StepVersion == old.StepVersion && j.Step != old.Step:
			return fmt.Errorf("repair %d: step version %d→%d, step %s→%s", j.ID, old.StepVersion, j.StepVersion, old.Step, j.Step)
		case (j.Step < old.Step) && j.Attempts != old.Attempts+1:
			return fmt.Errorf("repair %d went from %s to %s in attempt %d", j.ID, old.Step, j.Step, j.Attempts)
		case j.Outcome == OutcomeWhole:
			r, _ := to.Range(j.Range)
			if rep, ok := r.VoterOn(j.Destination); !ok || rep.ID != j.Replica {
				return fmt.Errorf("I12: repair %d calls replica %d whole, the voter is %d", j.ID, j.Replica, rep.ID)
			}
		}
	}
	for j := range to.Repairs() {
		if _, ok := from.Repair(j.ID); !ok && j.ID <= from.lastRepair {
			return fmt.Errorf("repair id %d was used again", j.ID)
		}
	}
	return nil
}

// history remembers what must hold from state to state.
type history struct {
	brokers map[vtop.NodeName]vtop.BrokerID
	// epochs is the highest epoch ever granted under a topic name and index, over all lives of the name.
	epochs   map[string]vtop.Epoch
	replicas map[vtop.ReplicaID]vtop.Replica
	producer int64
}

func newHistory() *history {
	return &history{brokers: map[vtop.NodeName]vtop.BrokerID{}, epochs: map[string]vtop.Epoch{}, replicas: map[vtop.ReplicaID]vtop.Replica{}}
}

// step returns what is wrong with the step from one state to the next.
func (h *history) step(from, to *State, out Outcome) error {
	for n := range to.Nodes() {
		if id, ok := h.brokers[n.Name]; ok && id != n.Broker {
			return fmt.Errorf("node %s changed from broker %d to %d", n.Name, id, n.Broker)
		}
		h.brokers[n.Name] = n.Broker
	}
	if b := out.ProducerIDs; b.Count > 0 {
		if b.First < h.producer {
			return fmt.Errorf("producer ids from %d were given out before", b.First)
		}
		h.producer = b.First + int64(b.Count)
	}
	for r := range to.Ranges() {
		for _, rep := range r.Replicas {
			if known, ok := h.replicas[rep.ID]; ok && known != rep.Replica {
				return fmt.Errorf("I10: replica id %d was %s's, is %s's", rep.ID, known.Node, rep.Node)
			}
			h.replicas[rep.ID] = rep.Replica
		}
	}
	for _, item := range out.Items {
		r, ok := to.Range(item.Range)
		if !ok || item.Refusal != nil || r.GrantIndex != out.Index {
			continue
		}
		name := to.RangeName(item.Range)
		if item.Epoch <= h.epochs[name] {
			return fmt.Errorf("I5: %s was granted epoch %d after %d", name, item.Epoch, h.epochs[name])
		}
		h.epochs[name] = item.Epoch
	}
	if err := stepRepairs(from, to); err != nil {
		return err
	}
	if err := stepGroups(from, to, out); err != nil {
		return err
	}
	for old := range from.Ranges() {
		r, ok := to.Range(old.ID)
		if !ok {
			if !to.Deleted(old.ID.Topic) {
				return fmt.Errorf("range %s went without a tombstone", from.RangeName(old.ID))
			}
			continue
		}
		if err := stepRange(from, to, old, r); err != nil {
			return fmt.Errorf("range %s: %w", to.RangeName(r.ID), err)
		}
	}
	return nil
}

func stepRange(from, to *State, old, r *Range) error {
	kept, recovered := vtop.Offset(1<<63-1), false // offsets below kept were not given up in this step
	if n := len(r.LostOffsets); n > 0 && r.LostOffsets[n-1].Index == to.index {
		kept, recovered = r.LostOffsets[n-1].From, true
	}
	switch {
	case r.Floor < min(old.Floor, kept), r.LogStart < old.LogStart, !recovered && r.CatalogueEnd < old.CatalogueEnd:
		return fmt.Errorf("I7: floor %d→%d, log start %d→%d, catalogue end %d→%d", old.Floor, r.Floor, old.LogStart, r.LogStart, old.CatalogueEnd, r.CatalogueEnd)
	case r.ConfigVersion < old.ConfigVersion, r.LastEpoch < old.LastEpoch:
		return fmt.Errorf("configuration %d→%d, last epoch %d→%d", old.ConfigVersion, r.ConfigVersion, old.LastEpoch, r.LastEpoch)
	case r.Lease != old.Lease && r.Lease.Holder != "" && r.Lease.Epoch <= old.LastEpoch:
		return fmt.Errorf("I5: lease %+v came after epoch %d", r.Lease, old.LastEpoch)
	}
	for o := r.LogStart; o < min(old.Floor, kept); o++ { // what is promised has one history, for ever
		a, okA := old.Epochs.At(o)
		b, okB := r.Epochs.At(o)
		if okA && (a != b || !okB) {
			return fmt.Errorf("I2: offset %d below the floor %d went from epoch %d to %d", o, old.Floor, a, b)
		}
	}
	for seg := range from.Catalogue(r.ID) {
		if now, ok := to.Segment(r.ID, seg.Base); seg.End > r.LogStart && seg.End <= kept && (!ok || *now != *seg) {
			return fmt.Errorf("I9: segment %+v became %+v", *seg, now)
		}
	}
	if recovered {
		return stepRecovered(old, r, kept)
	}
	return stepVoters(old, r)
}

// stepRecovered: what a recovery gives up is written down, and nobody goes on as if nothing had been.
func stepRecovered(old, r *Range, kept vtop.Offset) error {
	lost := r.LostOffsets[len(r.LostOffsets)-1]
	rep, known := old.Replica(r.Replicas[0].ID)
	if len(r.Replicas) != 1 || !known || rep.Lost != "" || r.Lease.Holder != "" || r.ConfigVersion == old.ConfigVersion {
		return fmt.Errorf("I10: recovered %+v", r)
	}
	if lost.From != kept || lost.To < old.Floor || lost.Floor != old.Floor || r.Floor != min(old.Floor, kept) {
		return fmt.Errorf("I1: lost %+v, floor %d→%d", lost, old.Floor, r.Floor)
	}
	if table, err := r.Epochs.With(r.LastEpoch+1, kept); err != nil || kept < r.Floor {
		return fmt.Errorf("no epoch can start at %d: table %v, floor %d: %v", kept, table, r.Floor, err)
	}
	return nil
}

// stepVoters: voters change one at a time, and only after the last change has settled.
func stepVoters(old, r *Range) error {
	before, after := map[vtop.ReplicaID]bool{}, map[vtop.ReplicaID]bool{}
	for _, v := range old.Voters() {
		before[v.ID] = true
	}
	changed := 0
	for _, v := range r.Voters() {
		after[v.ID] = true
		if !before[v.ID] {
			changed++
		}
	}
	for id := range before {
		if !after[id] {
			changed++
		}
	}
	if changed > 1 || (changed == 1 && (!old.Settled() || r.ConfigVersion == old.ConfigVersion || r.Settled())) {
		return fmt.Errorf("I1: %d voters changed at once, settled before: %t, after: %t", changed, old.Settled(), r.Settled())
	}
	for _, rep := range old.Replicas {
		if now, ok := r.Replica(rep.ID); ok && rep.Lost != "" && now.Lost == "" {
			return fmt.Errorf("I10: replica %d was lost and is not any more", rep.ID)
		}
	}
	return nil
}

// Every invariant holds after every command, and every step keeps what must be kept.
func TestState_InvariantsHoldUnderRandomCommands(t *testing.T) {
	taken := map[Op]int{}
	rapid.Check(t, func(t *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		s, h := NewState(), newHistory()
		for range rapid.IntRange(20, 120).Draw(t, "commands") {
			walk(t.Fatalf, &s, h, randomCommand(s, choose), taken)
		}
	})
}

// The same with a plain source: longer walks, cheaper choices, and every command taken at least once.
func TestState_InvariantsHoldOnLongWalks(t *testing.T) {
	taken := map[Op]int{}
	walks, steps := 60, 600
	if testing.Short() {
		walks = 10
	}
	for seed := range walks {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		s, h := NewState(), newHistory()
		for i := range steps {
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, step %d: %s", seed, i, fmt.Sprintf(format, args...))
			}
			walk(fail, &s, h, randomCommand(s, rng.IntN), taken)
		}
	}
	for _, row := range commands {
		if taken[row.op] == 0 && row.op != OpSetFeatureLevel {
			t.Errorf("%s was never taken: the walk does not reach it", row.name)
		}
	}
}

func walk(fail func(string, ...any), s **State, h *history, cmd Command, taken map[Op]int) {
	next, outs := (*s).Apply((*s).Index()+1, cmd)
	if err := next.Check(); err != nil {
		fail("after %+v: %v", cmd, err)
	}
	if err := h.step(*s, next, outs[0]); err != nil {
		fail("after %+v: %v", cmd, err)
	}
	if outs[0].Refusal == nil && (len(outs[0].Items) == 0 || outs[0].Items[0].Refusal == nil) {
		taken[cmd.Op()]++
	}
	*s = next
}

// randomLog is a log of encoded commands, and the state that they lead to.
func randomLog(t *testing.T, seed uint64, n int) (log [][]byte, end *State) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	s := NewState()
	for len(log) < n {
		cmd := randomCommand(s, rng.IntN)
		b, err := Encode(cmd)
		if err != nil {
			continue
		}
		log = append(log, b)
		s, _ = s.Apply(uint64(len(log)), cmd)
	}
	return log, s
}

// The same log gives the same state, however it is cut into batches, on however many processors, and with a
// snapshot and a restore in between.
func TestState_Deterministic(t *testing.T) {
	for seed := range uint64(8) {
		log, end := randomLog(t, seed, 400)
		want := end.Hash()
		rng := rand.New(rand.NewPCG(seed, 3))
		for _, procs := range []int{1, 4} {
			before := runtime.GOMAXPROCS(procs)
			m := New(Options{})
			for at := 0; at < len(log); {
				n := min(1+rng.IntN(40), len(log)-at)
				applyRaw(m, at, log[at:at+n])
				at += n
				if rng.IntN(4) == 0 {
					m = restarted(t, m)
				}
			}
			runtime.GOMAXPROCS(before)
			if m.State().Hash() != want {
				t.Fatalf("seed %d: another state hash with other batches", seed)
			}
			if err := m.State().Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
