package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/meta"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/peerpb"
)

func uuid(n uint64) (u vtop.UUID) {
	binary.BigEndian.PutUint64(u[:], 0x76746f70)
	binary.BigEndian.PutUint64(u[8:], n)
	return u
}

// world is a cluster of n1 to n4, topic "lines" of one range on n1, n2 and n3 that n1 leads under epoch 1 with 100 records,
// 80 of them sealed; and the node that is asked. What is proposed is applied at once.
type world struct {
	t     *testing.T
	state *fsm.State
	// down are nodes that do not answer; the Raft leader, n1, has not heard them for silent.
	down   map[vtop.NodeName]bool
	silent time.Duration
	// ends are the log ends of the replicas of lines/0; behind the floor a follower has less.
	ends map[vtop.NodeName]int64
	// problems and flow states that nodes tell.
	problems map[vtop.NodeName][]adminapi.Problem
	flows    map[vtop.NodeName]string
	noRaft   bool
	sealErr  error
}

var lines = vtop.Range{Topic: uuid(1)}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, state: fsm.NewState(), down: map[vtop.NodeName]bool{}, silent: time.Hour,
		ends:     map[vtop.NodeName]int64{"n1": 100, "n2": 100, "n3": 100},
		problems: map[vtop.NodeName][]adminapi.Problem{}, flows: map[vtop.NodeName]string{},
	}
	w.apply(&fsm.BootstrapCluster{ID: uuid(1), Level: fsm.LevelFirst})
	for i, name := range []vtop.NodeName{"n1", "n2", "n3", "n4"} {
		w.apply(&fsm.RegisterNode{Name: name, Identity: fsm.Identity{
			Storage: uuid(uint64(100 + i)), RaftID: "raft-" + string(name), Incarnation: 1, BootNonce: uuid(uint64(200 + i)),
			Addresses: fsm.Addresses{Peer: string(name) + ":9640", Admin: string(name) + ":9642"}, MaxLevel: fsm.LevelFirst, Rack: "rack-" + string(name),
		}})
	}
	w.apply(&fsm.CreateTopic{ID: uuid(1), Name: "lines", Ranges: [][]vtop.NodeName{{"n1", "n2", "n3"}}})
	w.apply(&fsm.GrantLeases{Items: []fsm.Grant{{Range: lines, Holder: "n1", Incarnation: 1}}})
	w.apply(&fsm.StartEpochs{Items: []fsm.EpochStart{{Range: lines, Epoch: 1}}})
	w.apply(&fsm.RegisterSegment{Range: lines, Epoch: 1, Config: 1, Base: 0, End: 80, Bytes: 8000, Root: [32]byte{1}, SealedAt: 1})
	w.apply(&fsm.ReportFloors{Items: []fsm.FloorReport{{Range: lines, Epoch: 1, Config: 1, Floor: 100, QuorumPosition: 100, LogEnd: 100}}})
	return w
}

func (w *world) apply(cmd fsm.Command) fsm.Outcome {
	w.t.Helper()
	out, err := w.propose(cmd)
	if err == nil {
		for _, item := range out.Items {
			err = errors.Join(err, item.Err())
		}
	}
	if err != nil {
		w.t.Fatalf("%s: %v", cmd.Op(), err)
	}
	return out
}

func (w *world) propose(cmd fsm.Command) (fsm.Outcome, error) {
	if err := cmd.Check(); err != nil {
		return fsm.Outcome{}, err
	}
	next, outs := w.state.Apply(w.state.Index()+1, cmd)
	if err := next.Check(); err != nil {
		w.t.Fatal(err)
	}
	w.state = next
	return outs[0], outs[0].Err()
}

func (w *world) rng() *fsm.Range {
	r, ok := w.state.Range(lines)
	if !ok {
		w.t.Fatal("no range")
	}
	return r
}

func (w *world) replica(node vtop.NodeName) vtop.ReplicaID {
	for _, rep := range w.rng().Replicas {
		if rep.Node == node && rep.Lost == "" {
			return rep.ID
		}
	}
	return 0
}

// lose marks the replica of a node lost.
func (w *world) lose(node vtop.NodeName) {
	n, _ := w.state.Node(node)
	w.apply(&fsm.MarkReplicasLost{
		Node: node, Storage: n.Storage, Incarnation: n.Incarnation, Reason: "its directory is gone", Items: []fsm.LostReplica{{Range: lines, ReplicaID: w.replica(node)}},
	})
}

// look is what a Face at n1 sees.
func (w *world) look() *picture {
	p := &picture{
		node: w, state: w.state, locals: map[vtop.NodeName]*adminapi.Local{}, ranges: map[vtop.NodeName]map[vtop.Range]*adminapi.LocalRange{},
		stuck: map[vtop.Range]string{},
	}
	for n := range w.state.Nodes() {
		if w.down[n.Name] || n.State == fsm.NodeGone {
			continue
		}
		p.locals[n.Name] = &adminapi.Local{Node: string(n.Name), Problems: w.problems[n.Name]}
		p.ranges[n.Name] = map[vtop.Range]*adminapi.LocalRange{}
		if id := w.replica(n.Name); id != 0 {
			p.ranges[n.Name][lines] = &adminapi.LocalRange{
				ReplicaID: uint64(id), Role: "following", Epoch: int32(w.rng().Lease.Epoch), LogEnd: w.ends[n.Name], DurableEnd: w.ends[n.Name], TimeLeftMS: -1,
			}
		}
	}
	if leader := p.ranges[w.rng().Lease.Holder][lines]; leader != nil {
		leader.Role, leader.TimeLeftMS = "leading", 5000
		for _, rep := range w.rng().Replicas {
			if rep.Node == w.rng().Lease.Holder {
				continue
			}
			state := w.flows[rep.Node]
			if state == "" {
				state = "following"
			}
			leader.Followers = append(leader.Followers, adminapi.LocalReplica{ReplicaID: uint64(rep.ID), State: state, DurableEnd: w.ends[rep.Node]})
		}
	}
	if !w.noRaft && p.locals["n1"] != nil {
		p.judge = p.locals["n1"]
		for n := range w.state.Nodes() {
			v := adminapi.LocalVerdict{Node: string(n.Name), Alive: !w.down[n.Name]}
			if !v.Alive {
				v.Reason, v.SilentMS = "was not heard", w.silent.Milliseconds()
			}
			p.judge.Verdicts = append(p.judge.Verdicts, v)
		}
	}
	return p
}

// The rest is operable.

func (w *world) Self() vtop.NodeName { return "n1" }
func (w *world) State() *fsm.State   { return w.state }
func (w *world) RaftLeader() (vtop.NodeName, bool) {
	return "n1", !w.noRaft
}
func (w *world) HealAfter() time.Duration { return 10 * time.Minute }
func (w *world) LeaseTime() time.Duration { return 10 * time.Second }

func (w *world) RaftServers() (out []meta.RaftServer) {
	for n := range w.state.Nodes() {
		out = append(out, meta.RaftServer{Name: n.Name, Voter: n.Name != "n4"})
	}
	return out
}

func (w *world) SubmitRepairs(_ context.Context, requests []fsm.RepairRequest) ([]fsm.Item, error) {
	out, err := w.propose(&fsm.SubmitRepairs{Items: requests, At: 1})
	return out.Items, err
}

func (w *world) CancelRepairs(_ context.Context, ids []fsm.RepairID, reason string) ([]fsm.Item, error) {
	out, err := w.propose(&fsm.CancelRepairs{IDs: ids, Reason: reason, At: 1})
	return out.Items, err
}

func (w *world) SetHeal(_ context.Context, paused bool, why string) error {
	_, err := w.propose(&fsm.SetHeal{Paused: paused, Why: why, At: 1})
	return err
}

func (w *world) SetNodeState(_ context.Context, name vtop.NodeName, state fsm.NodeState) error {
	_, err := w.propose(&fsm.UpdateNode{Name: name, State: state})
	return err
}

func (w *world) RemoveNode(_ context.Context, name vtop.NodeName) error {
	_, err := w.propose(&fsm.RemoveNode{Name: name})
	return err
}

func (w *world) AdmitPending(_ context.Context, name vtop.NodeName, storage vtop.StorageID, reason string) error {
	_, err := w.propose(&fsm.AdmitPending{Name: name, Storage: storage, Reason: reason, At: 1})
	return err
}

func (w *world) RecoverRange(_ context.Context, cmd fsm.RecoverRange) error {
	_, err := w.propose(&cmd)
	return err
}

func (w *world) LogEnd(_ context.Context, node vtop.NodeName, _ vtop.Range, id vtop.ReplicaID) (vtop.Offset, vtop.Epoch, error) {
	if w.down[node] || w.replica(node) != id {
		return 0, 0, errors.New("no answer")
	}
	return vtop.Offset(w.ends[node]), 1, nil
}

func (w *world) SealTail(_ context.Context, _ vtop.Range, epoch vtop.Epoch) (vtop.NodeName, vtop.Epoch, *peerpb.SealTailResponse, error) {
	if w.sealErr != nil {
		return "", 0, nil, w.sealErr
	}
	return "n1", max(epoch, 1), &peerpb.SealTailResponse{SealedEnd: 100, RecordsSealed: 20, Snapshot: &peerpb.Snapshot{Segments: []*peerpb.SealedSegment{{}, {}}}}, nil
}

func codeOf(err error) adminapi.Code {
	var e *adminapi.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

// wantRefusal wants a refusal that says what to do.
func wantRefusal(t *testing.T, err error, codes ...adminapi.Code) {
	t.Helper()
	var e *adminapi.Error
	if !errors.As(err, &e) || !slices.Contains(codes, e.Code) || e.Hint == "" || e.Message == "" {
		t.Fatalf("got %#v, want a refusal of %v with a hint", err, codes)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
