package replica

import (
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
)

// Description is what this node knows of one range. Offsets are -1 where it does not know.
type Description struct {
	Range vtop.Range
	// Role is this node's own, Why its reason: why a range in promotion is not served yet, or what was lost.
	Role  Role
	Why   string
	Epoch vtop.Epoch
	// HighWatermark is the leader's knowledge; on others the last that was told.
	HighWatermark, LogEnd, LogStart vtop.Offset
	// Damaged says which sealed segment of this node's replica is not served; empty if all are.
	Damaged string
	// Joint says that a change of voters is in flight.
	Joint bool
	// Replicas has one entry for each replica that the metadata names, in its order.
	Replicas []ReplicaDescription
}

// ReplicaDescription is one replica as this node sees it.
type ReplicaDescription struct {
	Node vtop.NodeName
	ID   vtop.ReplicaID
	Role fsm.Role
	// LogEnd and Durable are as the replica told last; Lag is what it lacks of the leader's log, in records. -1 if not known.
	LogEnd, Durable, Lag vtop.Offset
	// State is leading, following, connecting, asked to follow, refused, receiving, damaged, lost, or unknown; Why explains it.
	State, Why string
}

// name is TOPIC/N for the log, or the topic's id where the metadata does not know it.
func (e *Engine) name(r vtop.Range) string { return e.machine.State().RangeName(r) }

// Describe tells what this node knows of a range. Only the leader knows its followers; elsewhere the others are unknown.
func (e *Engine) Describe(r vtop.Range) (Description, error) {
	rg, ok := e.machine.State().Range(r)
	if !ok {
		return Description{}, fmt.Errorf("%w: %s", vtop.ErrUnknownRange, r)
	}
	d := Description{Range: r, Epoch: rg.Lease.Epoch, HighWatermark: -1, LogEnd: -1, LogStart: rg.LogStart}
	s := e.slotOf(r, false)
	var ld *leadership
	own := ReplicaDescription{State: "unknown", LogEnd: -1, Durable: -1, Lag: -1}
	if s != nil {
		ld = s.leading.Load()
		s.mu.Lock()
		d.Role, d.Why, d.HighWatermark = s.role, s.why, s.told
		log := s.log
		s.mu.Unlock()
		own.State, own.Why = d.Role.String(), d.Why
		if log != nil {
			end, durable, _ := log.Position()
			d.LogEnd, own.LogEnd, own.Durable = end, end, durable
			if info := log.Info(); info.State == storage.StateHoles {
				d.Damaged = info.Reason
			}
		}
	}
	if d.Damaged != "" && ld == nil {
		own.State, own.Why = StateDamaged, d.Damaged
	}
	if ld != nil {
		d.HighWatermark, own.Lag = ld.highWatermark(), 0
		ld.mu.Lock()
		d.Joint = ld.book.Voters().Joint()
		ld.mu.Unlock()
	}
	for _, rep := range rg.Replicas {
		d.Replicas = append(d.Replicas, e.describeReplica(rep, own, ld, d.LogEnd))
	}
	return d, nil
}

func (e *Engine) describeReplica(rep fsm.Replica, own ReplicaDescription, ld *leadership, end vtop.Offset) ReplicaDescription {
	out := ReplicaDescription{LogEnd: -1, Durable: -1, Lag: -1, State: "unknown"}
	switch {
	case rep.Lost != "":
		out.State, out.Why = "lost", rep.Lost
	case rep.Node == e.self:
		out = own
	case ld != nil:
		for _, f := range *ld.flows.Load() {
			if f.replica == rep.ID {
				out = f.describe(end)
			}
		}
	}
	out.Node, out.ID, out.Role = rep.Node, rep.ID, rep.Role
	return out
}

func (f *flow) describe(end vtop.Offset) ReplicaDescription {
	f.peer.mu.Lock()
	defer f.peer.mu.Unlock()
	out := ReplicaDescription{LogEnd: -1, Durable: -1, Lag: -1, State: f.state.String()}
	if f.why != nil && f.state != flowLive {
		out.Why = f.why.Error()
	}
	if f.durable > 0 || f.state == flowLive {
		out.LogEnd, out.Durable, out.Lag = max(f.end, f.durable), f.durable, max(end-f.durable, 0)
	}
	return out
}

// Leading lists the ranges that this node leads now.
func (e *Engine) Leading() []vtop.Range {
	var out []vtop.Range
	for _, s := range e.allSlots() {
		if s.leading.Load() != nil {
			out = append(out, s.r)
		}
	}
	return out
}
