package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/cluster/meta"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/adminapi"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// operable is what is asked of a node when something is to be brought back, emptied or recovered; *cluster.Node is one.
// What it proposes is applied here when it returns.
type operable interface {
	Self() vtop.NodeName
	State() *fsm.State
	RaftLeader() (vtop.NodeName, bool)
	RaftServers() []meta.RaftServer
	HealAfter() time.Duration
	LeaseTime() time.Duration

	SubmitRepairs(ctx context.Context, requests []fsm.RepairRequest) ([]fsm.Item, error)
	CancelRepairs(ctx context.Context, ids []fsm.RepairID, reason string) ([]fsm.Item, error)
	SetHeal(ctx context.Context, paused bool, why string) error
	SetNodeState(ctx context.Context, name vtop.NodeName, state fsm.NodeState) error
	RemoveNode(ctx context.Context, name vtop.NodeName) error
	AdmitPending(ctx context.Context, name vtop.NodeName, storage vtop.StorageID, reason string) error
	RecoverRange(ctx context.Context, cmd fsm.RecoverRange) error
	LogEnd(ctx context.Context, node vtop.NodeName, r vtop.Range, id vtop.ReplicaID) (end vtop.Offset, last vtop.Epoch, err error)
	SealTail(ctx context.Context, r vtop.Range, epoch vtop.Epoch) (leader vtop.NodeName, at vtop.Epoch, _ *peerpb.SealTailResponse, _ error)
}

var (
	_ operable               = (*cluster.Node)(nil)
	_ adminapi.RepairHandler = (*Face)(nil)
)

// changeTimeout bounds what changes the metadata.
const changeTimeout = 20 * time.Second

// Repairs implements adminapi.RepairHandler: the newest first. Every node answers the same, from the applied state.
func (f *Face) Repairs(_ context.Context, ended bool) ([]adminapi.Repair, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	out := []adminapi.Repair{}
	for j := range n.State().Repairs() {
		if ended || j.Active() {
			out = append(out, describeRepair(j, n.Alive))
		}
	}
	slices.SortFunc(out, func(a, b adminapi.Repair) int { return cmp.Compare(b.ID, a.ID) })
	return out, nil
}

// Repair implements adminapi.RepairHandler.
func (f *Face) Repair(_ context.Context, id uint64) (*adminapi.Repair, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	j, ok := n.State().Repair(fsm.RepairID(id))
	if !ok {
		return nil, unknownRepair(id)
	}
	out := describeRepair(j, n.Alive)
	return &out, nil
}

func unknownRepair(id uint64) error {
	return adminapi.Errorf(adminapi.CodeNotFound, "there is no repair %d; of those that have ended the last %d are remembered", id, fsm.MaxEndedRepairs).
		WithHint("vtopctl repair list --all shows them")
}

// describeRepair turns a job into what operators read. alive tells why a job that nobody works on does not move.
func describeRepair(j *fsm.RepairJob, alive func(vtop.NodeName) bool) adminapi.Repair {
	out := adminapi.Repair{
		ID: uint64(j.ID), Range: j.Name, TopicID: j.Range.Topic.String(), Destination: string(j.Destination), Replaces: string(j.Replace),
		Origin: j.Origin.String(), Reason: j.Reason, SealTail: j.SealTail, InPlace: j.Holes, Attempts: int(j.Attempts) - 1, MaxRate: j.MaxRate,
		Step: j.Step.String(), Waiting: j.Waiting, Sources: []string{}, DroppedSources: []adminapi.DroppedSource{}, LastError: j.LastError,
		SealedEnd: int64(j.SealedEnd), RecordsSealed: j.RecordsSealed, Segments: int(j.Segments), Bytes: j.BytesTotal,
		BytesDone: j.BytesDone, BytesTotal: j.BytesTotal, BytesPerSecond: j.BytesPerSecond, ETAMS: adminapi.Unknown,
		ReplicaID: uint64(j.Replica), Floor: int64(j.Floor), LogEnd: int64(j.LogEnd), Gap: adminapi.Unknown, Voter: j.Voter,
		Outcome: j.Outcome.String(), Cause: j.Cause, CreatedAt: time.UnixMilli(j.CreatedAt).UTC(), UpdatedAt: time.UnixMilli(j.UpdatedAt).UTC(),
	}
	for _, s := range j.ActiveSources {
		out.Sources = append(out.Sources, string(s))
	}
	for _, d := range j.DroppedSources {
		out.DroppedSources = append(out.DroppedSources, adminapi.DroppedSource{Node: string(d.Node), Reason: d.Reason})
	}
	if j.Outcome == fsm.OutcomeWhole || j.Outcome == fsm.OutcomeGap {
		out.Gap = j.Gap
	}
	switch {
	case !j.Active():
		out.Bytes = j.BytesDone
	case j.BytesPerSecond > 0 && j.BytesTotal >= j.BytesDone:
		out.ETAMS = 1000 * (j.BytesTotal - j.BytesDone) / j.BytesPerSecond
	}
	if j.Outcome == fsm.OutcomeWhole || j.Active() && j.Waiting == "" {
		out.LastError = "" // it was got over
	}
	if j.Active() && !alive(j.Destination) {
		out.Waiting = fmt.Sprintf("its destination %s is not alive: it goes on when %s is back", j.Destination, j.Destination)
	}
	return out
}

// CancelRepair implements adminapi.RepairHandler.
func (f *Face) CancelRepair(ctx context.Context, id uint64) (*adminapi.Repair, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	items, err := n.CancelRepairs(ctx, []fsm.RepairID{fsm.RepairID(id)}, fmt.Sprintf("cancelled by an operator at %s", n.Self()))
	if err != nil {
		return nil, refusal(err)
	}
	for _, item := range items {
		var r *fsm.Refusal
		if err := item.Err(); errors.As(err, &r) && r.Code != fsm.CodeRepairEnded {
			return nil, refusal(err)
		}
	}
	return f.Repair(ctx, id)
}

// Pins implements adminapi.RepairHandler. A node that does not answer has none in the list; status says that it is down.
func (f *Face) Pins(ctx context.Context) ([]adminapi.Pin, error) {
	p, err := f.look(ctx, noTopic)
	if err != nil {
		return nil, err
	}
	out := []adminapi.Pin{}
	for _, local := range p.locals {
		out = append(out, local.Pins...)
	}
	slices.SortFunc(out, func(a, b adminapi.Pin) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

func localPins(self vtop.NodeName, state *fsm.State, pins []storage.PinInfo) []adminapi.Pin {
	var out []adminapi.Pin
	for _, p := range pins {
		out = append(out, adminapi.Pin{
			Node: string(self), Range: state.RangeName(p.Range), ID: uint64(p.ID), Job: p.Job, Files: p.Files, Bytes: p.Bytes,
			IdleMS: p.Idle.Milliseconds(), LimitMS: p.Limit.Milliseconds(),
		})
	}
	return out
}

// Seal implements adminapi.RepairHandler.
func (f *Face) Seal(ctx context.Context, topic string, index int32, req adminapi.SealRequest) (*adminapi.SealResult, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	return seal(ctx, n, topic, index, req)
}

func seal(ctx context.Context, n operable, topic string, index int32, req adminapi.SealRequest) (*adminapi.SealResult, error) {
	_, r, err := rangeNamed(n.State(), topic, index)
	if err != nil {
		return nil, err
	}
	if !r.EverStarted() {
		return nil, neverWritten(topic, index)
	}
	leader, epoch, resp, err := n.SealTail(ctx, r.ID, vtop.Epoch(req.Epoch))
	if err != nil {
		return nil, sealRefusal(err, topic, index)
	}
	return &adminapi.SealResult{
		Range: n.State().RangeName(r.ID), Leader: string(leader), Epoch: int32(epoch), SealedEnd: resp.GetSealedEnd(),
		RecordsSealed: resp.GetRecordsSealed(), Segments: len(resp.GetSnapshot().GetSegments()),
	}, nil
}

func neverWritten(topic string, index int32) error {
	return adminapi.Errorf(adminapi.CodeNeverWritten, "%s/%d was never written: there is no record to seal or to repair from", topic, index).
		WithHint("produce to the range before repairing from it")
}

// sealRefusal says what a leader's answer means, and what to do about it.
func sealRefusal(err error, topic string, index int32) error {
	var behind *transport.NotCommittedError
	switch {
	case errors.As(err, &behind):
		return adminapi.Errorf(adminapi.CodeNotCommitted, "%v", err).
			WithHint("nothing is lost: seal again; vtopctl lease show %s/%d tells which voter is behind", topic, index)
	case errors.Is(err, transport.ErrNotCommitted):
		return adminapi.Errorf(adminapi.CodeNotCommitted, "%v", err).WithHint("nothing is lost: seal again")
	case errors.Is(err, transport.ErrNeverWritten):
		return neverWritten(topic, index)
	case errors.Is(err, vtop.ErrFenced):
		return adminapi.Errorf(adminapi.CodeFenced, "%v", err).
			WithHint("nothing was changed: vtopctl lease show %s/%d tells who may write now; seal again then, without --epoch or with the present one", topic, index)
	case errors.Is(err, transport.ErrNotAllowed):
		return notAllowed(err)
	case errors.Is(err, vtop.ErrNotLeader):
		return adminapi.Errorf(adminapi.CodeUnavailable, "%v", err).WithHint("vtopctl lease show %s/%d tells who leads; seal again", topic, index)
	case errors.Is(err, transport.ErrUnimplemented):
		return unserved("seal")
	}
	return refusal(err)
}

func notAllowed(err error) error {
	return adminapi.Errorf(adminapi.CodeNotAllowed, "%v", err).
		WithHint("only nodes on the transfer allowlist may seal and copy: by default those that are registered and not removed")
}

// unserved is for what another version of vtopd does.
func unserved(call string) error {
	return adminapi.Errorf(adminapi.CodeUnavailable, "%s is not served by this build of vtopd", call).WithHint("upgrade the node that answers, or ask another one")
}
