package replica

import (
	"context"
	"fmt"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// AddLearner adds a learner on the calling node, which is the destination of an active repair of the range. A learner that is
// there already is returned, so that a lost answer can be asked for again. It implements transport.SegmentHandler.
func (e *Engine) AddLearner(ctx context.Context, from transport.Caller, req *peerpb.AddLearnerRequest) (*peerpb.AddLearnerResponse, error) {
	r, err := transport.RangeFrom(req.GetRange())
	if err != nil {
		return nil, err
	}
	node := vtop.NodeName(req.GetNode())
	if node != from.Name {
		return nil, fmt.Errorf("%w: node %q asks for a learner on %q: a destination asks for itself", transport.ErrNotAllowed, from.Name, node)
	}
	if _, err := e.leadingUnder(r, vtop.Epoch(req.GetEpoch())); err != nil {
		return nil, err
	}
	st := e.machine.State()
	if job, ok := st.ActiveRepair(r, node); !ok || job.Holes || uint64(job.ID) != req.GetJob() {
		return nil, fmt.Errorf("%w: at index %d there is no active repair %d of range %s to node %q", vtop.ErrNotReady, st.Index(), req.GetJob(), r, node)
	}
	if resp, err := e.learnerOn(r, node); resp != nil || err != nil {
		return resp, err
	}
	_, changed := e.ChangeReplicas(ctx, r, fsm.AddLearner, node, 0)
	resp, err := e.learnerOn(r, node) // whoever made it: two calls may have met
	if resp == nil && err == nil {
		err = changed
	}
	if resp != nil {
		resp.Already = changed != nil
	}
	return resp, err
}

// learnerOn is the answer about a learner that is there; nil if none is. A node that has a voter wants none.
func (e *Engine) learnerOn(r vtop.Range, node vtop.NodeName) (*peerpb.AddLearnerResponse, error) {
	st := e.machine.State()
	rg, ok := st.Range(r)
	if !ok {
		return nil, fmt.Errorf("%w: %s", vtop.ErrUnknownRange, r)
	}
	rep, ok := rg.On(node)
	switch {
	case !ok:
		return nil, nil
	case rep.Role != fsm.Learner:
		return nil, fmt.Errorf("%w: node %q has voter %d of range %s, which is whole", transport.ErrInvalid, node, rep.ID, r)
	}
	return &peerpb.AddLearnerResponse{ReplicaId: uint64(rep.ID), ConfigVersion: rg.ConfigVersion, Index: st.Index(), Already: true}, nil
}

// receiving reports whether an active repair job brings this node the replica, and has not adopted it yet: then no directory is
// made for it, what is there is left to the job, and nothing of it is served (I11).
func (e *Engine) receiving(st *fsm.State, rg *fsm.Range, mine fsm.Replica) bool {
	if mine.Role != fsm.Learner {
		return false
	}
	if log := e.store.Get(rg.ID); log != nil && log.ReplicaID() == mine.ID {
		return false // adopted
	}
	if e.cfg.Adopting != nil {
		return e.cfg.Adopting(rg.ID)
	}
	job, ok := st.ActiveRepair(rg.ID, e.self)
	return ok && !job.Holes && job.Step <= fsm.RepairAdopting
}

// WakeRange has the engine look at one range again: its replica was adopted, or its repair has ended. It does not block.
func (e *Engine) WakeRange(r vtop.Range) { e.dirty.add(r) }
