package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vtop-log/vtop/transport/adminapi"
)

// fakeCluster answers as two nodes would that share one metadata: n1 and n2. What becomes of a repair follows from the
// name of its topic.
type fakeCluster struct {
	adminapi.Handler // what is not asked for here is never called

	mu     sync.Mutex
	ports  []*adminapi.Listener
	addrs  []string
	jobs   []adminapi.Repair
	looked map[uint64]int
	paused string
	plan   uint64
	drains int
	// hashes counts how often states were compared.
	hashes int
	// looks counts how often a job that stays was looked at; fatal ends the nodes at the next time.
	looks int
	fatal bool
	// ready: n1 has caught up.
	ready bool
}

// lookedAt returns how often a job that stays was looked at.
func (f *fakeCluster) lookedAt() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

func (f *fakeCluster) killWhenLookedAt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fatal = true
}

// fakeNode is one of the two.
type fakeNode struct {
	*fakeCluster
	index int
}

func startFakeCluster() (*fakeCluster, error) {
	f := &fakeCluster{looked: map[uint64]int{}, plan: 6}
	for i := range 2 {
		l, err := adminapi.Listen("127.0.0.1:0", nil, adminapi.NewServer(&fakeNode{f, i}, adminapi.Hooks{}), nil)
		if err != nil {
			f.stop()
			return nil, err
		}
		f.mu.Lock()
		f.ports, f.addrs = append(f.ports, l), append(f.addrs, l.Addr().String())
		f.mu.Unlock()
	}
	return f, nil
}

func (f *fakeCluster) stop() {
	for i := range f.ports {
		f.kill(i)
	}
}

// kill ends one node at once, in the middle of its answers.
func (f *fakeCluster) kill(i int) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.mu.Lock()
	l := f.ports[i]
	f.ports[i] = nil
	f.mu.Unlock()
	if l != nil {
		_ = l.Close(ctx)
	}
}

func (f *fakeCluster) Nodes(context.Context) ([]adminapi.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []adminapi.Node{{Name: "n1", AdminAddr: f.addrs[0]}, {Name: "n2", AdminAddr: f.addrs[1]}}, nil
}

func (f *fakeCluster) SubmitRepairs(_ context.Context, req adminapi.RepairRequest) ([]adminapi.Repair, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req.All {
		if req.Destination == "whole" {
			return nil, nil
		}
		var out []adminapi.Repair
		for _, topic := range []string{"whole", "gap"} {
			out = append(out, f.submit(topic, 0, req))
		}
		return out, nil
	}
	switch req.Topic {
	case "missing":
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "there is no topic %q", req.Topic)
	case "fenced":
		return nil, adminapi.Errorf(adminapi.CodeFenced, "the lease moved")
	case "stranger":
		return nil, adminapi.Errorf(adminapi.CodeNotAllowed, "n4 is not on the transfer allowlist").WithHint("add it")
	case "unwritten":
		return nil, adminapi.Errorf(adminapi.CodeNeverWritten, "unwritten/0 was never written").WithHint("produce to the range before repairing from it")
	case "nosource":
		return nil, adminapi.Errorf(adminapi.CodeNoSource, "no whole replica is left")
	case "headless":
		return nil, adminapi.Errorf(adminapi.CodeUnavailable, "no Raft leader")
	case "healthy":
		return []adminapi.Repair{{Range: "healthy/0", Destination: req.Destination, Outcome: adminapi.OutcomeNothingToRepair, Cause: "its replica votes and is whole",
			Step: adminapi.StepDone, Floor: 9, LogEnd: 9, Voter: true}}, nil
	}
	return []adminapi.Repair{f.submit(req.Topic, req.Range, req)}, nil
}

func (f *fakeCluster) submit(topic string, n int32, req adminapi.RepairRequest) adminapi.Repair {
	j := adminapi.Repair{
		Range: fmt.Sprintf("%s/%d", topic, n), TopicID: "id", Destination: req.Destination, Replaces: req.Replaces, SealTail: req.SealTail, MaxRate: req.MaxRate,
		Origin: "operator", Step: adminapi.StepQueued, Sources: []string{"n1", "n2"}, DroppedSources: []adminapi.DroppedSource{},
		SealedEnd: 100, Segments: 3, BytesTotal: 3 << 20, Floor: adminapi.Unknown, LogEnd: adminapi.Unknown, Gap: adminapi.Unknown, ETAMS: adminapi.Unknown,
	}
	if len(req.Sources) > 0 {
		j.Sources = req.Sources
	}
	if req.DryRun {
		j.Outcome = adminapi.OutcomePlanned
		return j
	}
	for _, old := range f.jobs {
		if old.Range == j.Range && old.Destination == j.Destination && !old.Ended() {
			return old
		}
	}
	j.ID = uint64(len(f.jobs) + 1)
	f.jobs = append(f.jobs, j)
	return j
}

// Repairs moves the jobs that have not ended on, too, if it is asked for those.
func (n *fakeNode) Repairs(_ context.Context, all bool) ([]adminapi.Repair, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []adminapi.Repair
	for i := range slices.Backward(n.jobs) {
		if !all && !n.jobs[i].Ended() {
			n.moveOn(&n.jobs[i])
		}
		if j := n.jobs[i]; all || !j.Ended() {
			out = append(out, j)
		}
	}
	return out, nil
}

var fakeSteps = []string{adminapi.StepSealing, adminapi.StepTransferring, adminapi.StepAdopting, adminapi.StepCatchingUp, adminapi.StepPromoting}

// Repair moves a job on by a step each time it is looked at.
func (n *fakeNode) Repair(_ context.Context, id uint64) (*adminapi.Repair, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == 0 || id > uint64(len(n.jobs)) {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "no repair %d", id)
	}
	n.moveOn(&n.jobs[id-1])
	out := n.jobs[id-1]
	return &out, nil
}

// moveOn takes the next step. A job of topic "dies" takes node n1 with it on the way, one of "stays" never moves.
func (n *fakeNode) moveOn(j *adminapi.Repair) {
	topic, _, _ := strings.Cut(j.Range, "/")
	if j.Ended() {
		return
	}
	if topic == "stays" {
		j.Step, j.Waiting = adminapi.StepSealing, "its leader has no majority"
		n.looks++
		if n.fatal {
			go n.stop()
		}
		return
	}
	at := n.looked[j.ID]
	n.looked[j.ID]++
	if at == 2 && topic == "dies" {
		go n.kill(0)
	}
	if at >= len(fakeSteps) {
		endJob(j, topic)
		return
	}
	if j.Step = fakeSteps[at]; j.Step == adminapi.StepTransferring {
		j.BytesDone, j.BytesPerSecond, j.ETAMS = 1<<20, 1<<20, 2000
	}
}

func endJob(j *adminapi.Repair, topic string) {
	j.Step, j.BytesDone, j.Bytes, j.Sources = adminapi.StepDone, j.BytesTotal, j.BytesTotal, []string{}
	j.Floor, j.LogEnd, j.Gap, j.Voter, j.Outcome = 110, 120, 0, true, adminapi.OutcomeWhole
	switch topic {
	case "gap":
		j.Gap, j.LogEnd, j.Voter, j.Outcome, j.Cause = 7, 103, false, adminapi.OutcomeGap, "retention reclaimed [3, 10) after the pin expired"
	case "liar": // says whole, but what was read back is not
		j.Voter = false
	case "fails":
		j.Step, j.Outcome, j.Cause = adminapi.StepFailed, adminapi.OutcomeFailed, "the disk of n4 is full"
	case "denied":
		j.Step, j.Outcome, j.Cause = adminapi.StepFailed, adminapi.OutcomeRefused, "fenced: the lease moved"
	case "rotten":
		j.DroppedSources = []adminapi.DroppedSource{{Node: "n2", Reason: "chunk 3 of segment 0 does not verify"}}
	}
}

// CancelRepair ends a job that has not ended.
func (f *fakeCluster) CancelRepair(_ context.Context, id uint64) (*adminapi.Repair, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &f.jobs[id-1]
	if !j.Ended() {
		j.Step, j.Outcome, j.Cause = adminapi.StepCancelled, adminapi.OutcomeCancelled, "an operator"
	}
	return j, nil
}

func (f *fakeCluster) Seal(_ context.Context, topic string, n int32, req adminapi.SealRequest) (*adminapi.SealResult, error) {
	switch {
	case req.Epoch != 0 && req.Epoch != 7:
		return nil, adminapi.Errorf(adminapi.CodeFenced, "epoch %d is not the lease's, which is 7", req.Epoch)
	case topic == "slow":
		return nil, adminapi.Errorf(adminapi.CodeNotCommitted, "closed at 120, committed up to 110").WithHint("nothing is lost: seal again")
	case topic == "unwritten":
		return nil, adminapi.Errorf(adminapi.CodeNeverWritten, "unwritten/0 was never written").WithHint("produce to the range before repairing from it")
	}
	return &adminapi.SealResult{Range: fmt.Sprintf("%s/%d", topic, n), Leader: "n1", Epoch: 7, SealedEnd: 120, RecordsSealed: 20, Segments: 4}, nil
}

func (f *fakeCluster) Pins(context.Context) ([]adminapi.Pin, error) { return nil, nil }

func (f *fakeCluster) DrainNode(ctx context.Context, node string, req adminapi.DrainRequest) (*adminapi.DrainResult, error) {
	if req.Cancel {
		return &adminapi.DrainResult{Node: node, State: "active", ReplicasLeft: 2}, nil
	}
	return f.DrainStatus(ctx, node)
}

func (f *fakeCluster) DrainStatus(_ context.Context, node string) (*adminapi.DrainResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &adminapi.DrainResult{Node: node, State: "draining"}
	if node == "n3" {
		d.ReplicasLeft = 1
		d.Stuck = []adminapi.Reason{{Subject: "orders/0", Message: "no other node can take its replica: all three have one", Hint: "add a node"}}
		return d, nil
	}
	if f.drains++; f.drains < 3 {
		d.LeasesLeft, d.ReplicasLeft, d.Repairs = 2-f.drains, 3-f.drains, []uint64{5}
		return d, nil
	}
	d.Done = true
	return d, nil
}

func (f *fakeCluster) RemoveNode(_ context.Context, node string) (*adminapi.RemoveResult, error) {
	if node == "n3" {
		return &adminapi.RemoveResult{Node: node, Left: []adminapi.Reason{{Subject: "orders/0", Message: "its only replica is here"}}}, nil
	}
	return &adminapi.RemoveResult{Node: node, Removed: true, Left: []adminapi.Reason{}}, nil
}

func (f *fakeCluster) ReplaceNode(_ context.Context, node string, req adminapi.ReplaceRequest) (*adminapi.ReplaceResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &adminapi.ReplaceResult{Node: node, With: req.With, Admitted: node == req.With, Repairs: []adminapi.Repair{}}
	if !out.Admitted {
		q := adminapi.RepairRequest{Destination: req.With, Replaces: node, DryRun: req.DryRun}
		out.Repairs = append(out.Repairs, f.submit("whole", 0, q), f.submit("whole", 1, q))
	}
	return out, nil
}

func (f *fakeCluster) SafeToStop(_ context.Context, node string) (*adminapi.SafeToStop, error) {
	s := &adminapi.SafeToStop{Node: node, Safe: node == "n1", Reasons: []adminapi.Reason{}, Unknown: []adminapi.Reason{}}
	if node == "n2" {
		s.Reasons = append(s.Reasons, adminapi.Reason{Subject: "orders/0", Message: "n3 is 400 behind: 1 of 3 voters would be left"})
	}
	if node == "n3" {
		s.Unknown = append(s.Unknown, adminapi.Reason{Subject: "orders/1", Message: "its leader does not answer"})
	}
	return s, nil
}

func (f *fakeCluster) heal() *adminapi.HealStatus {
	s := &adminapi.HealStatus{
		Paused: f.paused != "", Why: f.paused, Since: time.Unix(1, 0), AfterMS: 600000, Running: 1, Limit: 4,
		Gone: []adminapi.GoneNode{{Node: "n3", GoneMS: 60000, LeftMS: 540000, Replicas: 2}},
	}
	s.Stuck = []adminapi.Reason{{Subject: "orders/0", Message: "no node can take it"}}
	return s
}

func (f *fakeCluster) HealStatus(context.Context) (*adminapi.HealStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heal(), nil
}

func (f *fakeCluster) PauseHeal(_ context.Context, why string) (*adminapi.HealStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = why
	return f.heal(), nil
}

func (f *fakeCluster) ResumeHeal(context.Context) (*adminapi.HealStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = ""
	return f.heal(), nil
}

func (f *fakeCluster) Scrub(_ context.Context, req adminapi.ScrubRequest, found func(adminapi.ScrubVerdict) error) error {
	verdict := func(node, word, reason string) error {
		return found(adminapi.ScrubVerdict{Range: req.Topic + "/0", Node: node, End: 10, Bytes: 1 << 20, Verdict: word, Reason: reason})
	}
	err := verdict("n1", adminapi.ScrubOK, "")
	switch req.Topic {
	case "rotten":
		err = errors.Join(err, verdict("n2", adminapi.ScrubBad, "root differs"), verdict("n3", adminapi.ScrubUnknown, "does not answer"))
	case "quiet":
		err = errors.Join(err, verdict("n3", adminapi.ScrubUnknown, "does not answer"))
	case "cut":
		err = errors.Join(err, adminapi.Errorf(adminapi.CodeUnreachable, "n2 went away"))
	}
	return err
}

func (f *fakeCluster) LocalScrub(context.Context, adminapi.ScrubRequest, func(adminapi.ScrubVerdict) error) error {
	return nil
}

func (f *fakeCluster) RecoverRange(_ context.Context, topic string, n int32, req adminapi.RecoverRequest) (*adminapi.RecoverPlan, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if topic == "alive" {
		return nil, adminapi.Errorf(adminapi.CodeConflict, "alive/0 has its majority").WithHint("nothing to recover")
	}
	p := &adminapi.RecoverPlan{
		Range: fmt.Sprintf("%s/%d", topic, n), From: req.From, ReplicaID: 3, ConfigVersion: f.plan, Floor: 100, KeepEnd: 90,
		Lost:   []adminapi.LostOffsets{{From: 90, To: 100, Promised: true}, {From: 100, To: 104}},
		Voters: []adminapi.RecoverVoter{{Node: "n3", ReplicaID: 3, Alive: true, State: "following", LogEnd: 90}, {Node: "n1", ReplicaID: 1, State: "unknown", LogEnd: adminapi.Unknown}},
	}
	if topic == "moves" {
		f.plan++
	}
	if req.DryRun {
		return p, nil
	}
	if req.ConfigVersion != p.ConfigVersion {
		return nil, adminapi.Errorf(adminapi.CodeConflict, "the plan was made under %d, the range is at %d", req.ConfigVersion, p.ConfigVersion)
	}
	p.Applied, p.Epoch = true, 9
	return p, nil
}
