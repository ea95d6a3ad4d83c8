package inspect

import (
	"context"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/adminapi"
)

// Drills is how a process strikes itself when a drill asks. The daemon has one if it was started with --allow-drills.
type Drills interface {
	// ReturnsBy says who starts the process again when it has ended.
	ReturnsBy() string
	// Strike prepares the blow and returns; it falls once the answer has had time to leave. wipe takes away the replica that
	// a wipe is of, and is called just before the process ends. A refusal is an *adminapi.Error.
	Strike(req adminapi.DrillRequest, wipe func() error) (*adminapi.DrillResult, error)
}

var _ adminapi.DrillHandler = (*Face)(nil)

// AllowDrills lets drills strike the process.
func (f *Face) AllowDrills(d Drills) { f.drills.Store(&d) }

// Drill implements adminapi.DrillHandler.
func (f *Face) Drill(_ context.Context, req adminapi.DrillRequest) (*adminapi.DrillResult, error) {
	n, err := f.ready()
	if err != nil {
		return nil, err
	}
	if req.Node != string(n.Self()) {
		return nil, adminapi.Errorf(adminapi.CodeInvalid, "this is node %s, and %s is meant: its admin address is answered by another node", n.Self(), req.Node)
	}
	d := f.drills.Load()
	if d == nil {
		return nil, adminapi.Errorf(adminapi.CodeNotAllowed, "node %s was started without --allow-drills: it does not %s itself", n.Self(), req.Fault).
			WithHint("start it with --allow-drills (vtopd dev does so), or run a drill that needs no help: leader-transfer or repair")
	}
	wipe := func() error { return nil }
	if req.Fault == adminapi.DrillWipe {
		_, r, err := rangeNamed(n.State(), req.Topic, req.Range)
		if err != nil {
			return nil, err
		}
		if _, ok := r.On(n.Self()); !ok || !n.HasReplica(r.ID) {
			return nil, adminapi.Errorf(adminapi.CodeNotFound, "node %s has no replica of %s/%d", n.Self(), req.Topic, req.Range)
		}
		wipe = func() error { return n.WipeReplica(r.ID) }
	}
	f.log.Warn("a drill strikes this process", "fault", req.Fault, "returns-by", (*d).ReturnsBy())
	out, err := (*d).Strike(req, wipe)
	if err != nil {
		return nil, err
	}
	out.Node, out.Fault, out.Incarnation, out.ReturnsBy = req.Node, req.Fault, uint64(incarnationOf(n.State(), n.Self())), (*d).ReturnsBy()
	return out, nil
}

// incarnationOf is 0 for a node that the metadata does not know.
func incarnationOf(state *fsm.State, name vtop.NodeName) vtop.Incarnation {
	n, ok := state.Node(name)
	if !ok {
		return 0
	}
	return n.Incarnation
}
