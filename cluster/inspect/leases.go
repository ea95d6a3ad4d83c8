package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// picture is the whole of what was learned for one answer.
type picture struct {
	node   operable
	state  *fsm.State
	locals map[vtop.NodeName]*adminapi.Local
	// refusals are of nodes that could not be asked because one end did not take the other's certificate.
	refusals []adminapi.Problem
	ranges   map[vtop.NodeName]map[vtop.Range]*adminapi.LocalRange
	stuck    map[vtop.Range]string
	judge    *adminapi.Local // the Raft leader's view; nil if it did not answer
}

func (f *Face) look(ctx context.Context, topic string) (*picture, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	locals, refusals := f.survey(ctx, n, topic)
	p := &picture{
		node: n, state: n.State(), locals: locals, refusals: refusals,
		ranges: map[vtop.NodeName]map[vtop.Range]*adminapi.LocalRange{}, stuck: map[vtop.Range]string{},
	}
	for name, local := range p.locals {
		p.ranges[name] = map[vtop.Range]*adminapi.LocalRange{}
		for i := range local.Ranges {
			r := &local.Ranges[i]
			if id, err := vtop.ParseUUID(r.TopicID); err == nil {
				p.ranges[name][vtop.Range{Topic: id, Index: r.Range}] = r
			}
		}
		if local.RaftLeader {
			p.judge = local
		}
	}
	if p.judge != nil {
		for _, s := range p.judge.Stuck {
			if id, err := vtop.ParseUUID(s.TopicID); err == nil {
				p.stuck[vtop.Range{Topic: id, Index: s.Range}] = s.Reason
			}
		}
	}
	return p, nil
}

// Leases implements adminapi.Handler.
func (f *Face) Leases(ctx context.Context, topic string) ([]adminapi.Lease, error) {
	p, err := f.look(ctx, topic)
	if err != nil {
		return nil, err
	}
	if topic == "" {
		var out []adminapi.Lease
		for t := range p.state.Topics() {
			out = append(out, p.leasesOf(t)...)
		}
		return out, nil
	}
	t, err := topicNamed(p.state, topic)
	if err != nil {
		return nil, err
	}
	return p.leasesOf(t), nil
}

func topicNamed(state *fsm.State, name string) (*fsm.Topic, error) {
	t, ok := state.TopicByName(name)
	if !ok {
		return nil, adminapi.Errorf(adminapi.CodeNotFound, "there is no topic %q", name).WithHint("vtopctl topic list shows the topics")
	}
	return t, nil
}

func (p *picture) leasesOf(t *fsm.Topic) []adminapi.Lease {
	var out []adminapi.Lease
	for r := range p.state.RangesOfTopic(t.ID) {
		out = append(out, p.lease(t, r))
	}
	return out
}

// lease joins what the metadata says of a range with what its leader knows.
func (p *picture) lease(t *fsm.Topic, r *fsm.Range) adminapi.Lease {
	out := adminapi.Lease{
		Topic: t.Name, Range: r.ID.Index, Holder: string(r.Lease.Holder), Epoch: int32(r.LastEpoch),
		Floor: int64(r.Floor), LogStart: int64(r.LogStart), HighWatermark: adminapi.Unknown, LogEnd: adminapi.Unknown,
	}
	leader := p.leader(r)
	out.State, out.Reason = p.stateOf(r, leader)
	if leader != nil && leader.Role == "leading" {
		out.HighWatermark, out.LogEnd = leader.HighWatermark, leader.LogEnd
		out.LogStart = max(out.LogStart, leader.LogStart)
	}
	out.Replicas = p.replicas(r, leader, out.LogEnd)
	return out
}

// leader is the holder's own word about the range under the present epoch; nil if it did not answer for it.
func (p *picture) leader(r *fsm.Range) *adminapi.LocalRange {
	l := p.ranges[r.Lease.Holder][r.ID]
	if l == nil || vtop.Epoch(l.Epoch) != r.Lease.Epoch || l.Role == "leading" && l.TimeLeftMS <= 0 {
		return nil // it did not answer, or slept past its deadline and does not know yet
	}
	return l
}

// stateOf gives the word for what a range is doing, and the reason if it isn't serving.
func (p *picture) stateOf(r *fsm.Range, leader *adminapi.LocalRange) (state, reason string) {
	holder := r.Lease.Holder
	switch {
	case holder == "" && p.stuck[r.ID] != "":
		return "unavailable", p.stuck[r.ID]
	case holder == "":
		return "none", "no holder yet"
	case leader != nil && leader.Role == "leading":
		return "serving", ""
	case leader != nil:
		return "promoting", leader.Reason
	case p.stuck[r.ID] != "":
		return "unavailable", p.stuck[r.ID]
	case p.locals[holder] == nil:
		return "unavailable", fmt.Sprintf("its holder %s does not answer", holder)
	}
	return "promoting", ""
}

// replicas lists voters first, in the order of preference, then learners.
func (p *picture) replicas(r *fsm.Range, leader *adminapi.LocalRange, logEnd int64) []adminapi.Replica {
	order := func(rep fsm.Replica) int {
		at := slices.Index(r.Preferred, rep.Node)
		if at < 0 {
			at = len(r.Preferred)
		}
		if rep.Role == fsm.Learner {
			at += 1 << 16
		}
		return at
	}
	reps := slices.Clone(r.Replicas)
	slices.SortStableFunc(reps, func(a, b fsm.Replica) int { return order(a) - order(b) })
	out := make([]adminapi.Replica, 0, len(reps))
	made := map[vtop.ReplicaID]bool{}
	for _, rep := range reps {
		made[rep.ID] = true
		out = append(out, p.replica(r, rep, leader, logEnd))
	}
	for j := range p.state.ActiveRepairs(r.ID) {
		if j.Replica == 0 || !made[j.Replica] {
			out = append(out, adminapi.Replica{
				Node: string(j.Destination), Role: fsm.Learner.String(), State: stateReceiving, ReplicaID: uint64(j.Replica),
				LogEnd: adminapi.Unknown, DurableEnd: adminapi.Unknown, Lag: adminapi.Unknown, Reason: repairReason(j),
			})
		}
	}
	return out
}

// stateReceiving is a replica that a repair brings segments to: it has no position yet.
const stateReceiving = "receiving"

func repairReason(j *fsm.RepairJob) string { return fmt.Sprintf("repair %d is %s", j.ID, j.Step) }

func (p *picture) replica(r *fsm.Range, rep fsm.Replica, leader *adminapi.LocalRange, logEnd int64) adminapi.Replica {
	out := adminapi.Replica{
		Node: string(rep.Node), Role: rep.Role.String(), ReplicaID: uint64(rep.ID),
		State: "unknown", LogEnd: adminapi.Unknown, DurableEnd: adminapi.Unknown, Lag: adminapi.Unknown,
	}
	own := p.ranges[rep.Node][r.ID]
	if own != nil && own.ReplicaID == uint64(rep.ID) {
		out.State, out.LogEnd, out.DurableEnd, out.Reason = own.Role, own.LogEnd, own.DurableEnd, own.Reason
	} else if p.locals[rep.Node] == nil {
		out.State, out.Reason = "offline", "its node does not answer"
	}
	if rep.Lost != "" {
		out.State, out.Reason, out.LogEnd, out.DurableEnd = "lost", rep.Lost, adminapi.Unknown, adminapi.Unknown
		return out
	}
	if logEnd != adminapi.Unknown && out.LogEnd != adminapi.Unknown {
		out.Lag = max(0, logEnd-out.LogEnd)
	}
	if j, ok := p.state.ActiveRepair(r.ID, rep.Node); ok && j.Replica == rep.ID && !j.Holes {
		out.Reason = repairReason(j)
		if j.Step < fsm.RepairCatchingUp {
			out.State = stateReceiving
		}
	}
	if hole := p.damage(rep.Node, r); hole != "" {
		out.Reason = hole
		if out.State == "following" {
			out.State = "damaged"
		}
	}
	if out.State == "following" && leader != nil {
		for _, fl := range leader.Followers {
			if fl.ReplicaID == out.ReplicaID && fl.State != "" {
				out.State, out.Reason = fl.State, fl.Reason
			}
		}
	}
	return out
}

// Lease implements adminapi.Handler.
func (f *Face) Lease(ctx context.Context, topic string, index int32) (*adminapi.LeaseDetail, error) {
	p, err := f.look(ctx, topic)
	if err != nil {
		return nil, err
	}
	t, r, err := rangeNamed(p.state, topic, index)
	if err != nil {
		return nil, err
	}
	out := &adminapi.LeaseDetail{
		Lease: p.lease(t, r), TopicID: t.ID.String(), Incarnation: uint64(r.Lease.Incarnation),
		Why: r.GrantReason, TimeLeftMS: adminapi.Unknown, ConfigVersion: r.ConfigVersion,
		Epochs: []adminapi.EpochStart{},
	}
	if r.GrantedAt != 0 {
		out.Since = time.UnixMilli(r.GrantedAt).UTC()
	}
	if leader := p.leader(r); leader != nil {
		out.TimeLeftMS = leader.TimeLeftMS
	}
	for _, e := range r.Epochs {
		out.Epochs = append(out.Epochs, adminapi.EpochStart{Epoch: int32(e.Epoch), Start: int64(e.Start)})
	}
	for _, l := range r.LostOffsets {
		out.Losses = append(out.Losses, adminapi.Loss{
			From: int64(l.From), To: int64(l.To), Floor: int64(l.Floor), Epoch: int32(l.Epoch), Kept: string(l.Kept.Node), Reason: l.Reason, At: time.UnixMilli(l.At).UTC(),
		})
	}
	out.Changes = changesOf(r)
	return out, nil
}

// changesOf lists the last changes of a lease, newest first, each with where its epoch starts if that is known.
func changesOf(r *fsm.Range) []adminapi.LeaseChange {
	starts := map[vtop.Epoch]vtop.Offset{}
	for _, c := range r.Changes {
		if start, ok := c.Start(); ok {
			starts[c.Epoch] = start
		}
	}
	for _, e := range r.Epochs {
		starts[e.Epoch] = e.Start
	}
	out := []adminapi.LeaseChange{}
	for _, c := range slices.Backward(r.Changes) {
		change := adminapi.LeaseChange{Epoch: int32(c.Epoch), Holder: string(c.Holder), Why: c.Event.String(), Start: adminapi.Unknown}
		if c.Reason != "" {
			change.Why += ": " + c.Reason
		}
		if c.At != 0 {
			change.At = time.UnixMilli(c.At).UTC()
		}
		if start, ok := starts[c.Epoch]; ok {
			change.Start = int64(start)
		}
		out = append(out, change)
	}
	return out
}

func rangeNamed(state *fsm.State, topic string, index int32) (*fsm.Topic, *fsm.Range, error) {
	t, err := topicNamed(state, topic)
	if err != nil {
		return nil, nil, err
	}
	r, ok := state.Range(vtop.Range{Topic: t.ID, Index: index})
	if !ok {
		return nil, nil, adminapi.Errorf(adminapi.CodeNotFound, "topic %q has ranges 0 to %d, not %d", topic, t.Ranges-1, index)
	}
	return t, r, nil
}

// TransferLease implements adminapi.Handler. It returns once the new holder serves, or says why not.
func (f *Face) TransferLease(ctx context.Context, topic string, index int32, to string) (*adminapi.LeaseDetail, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	_, r, err := rangeNamed(n.State(), topic, index)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	epoch, err := n.TransferLease(ctx, r.ID, vtop.NodeName(to))
	if err != nil {
		return nil, transferRefusal(err, topic, index)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if now, ok := n.State().Range(r.ID); ok && (now.LastEpoch > epoch || now.Lease.Epoch == epoch && now.Started) {
			detail, err := f.Lease(ctx, topic, index)
			if err == nil && (detail.State == "serving" || now.LastEpoch > epoch) {
				return detail, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, adminapi.Errorf(adminapi.CodeTimeout, "%s holds the lease under epoch %d but does not serve yet", to, epoch).
				WithHint("vtopctl lease show %s/%d tells why", topic, index)
		case <-ticker.C:
		}
	}
}
