package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport/adminapi"
)

var _ adminapi.ScrubHandler = (*Face)(nil)

// scrubbed are the ranges that a request means.
func scrubbed(state *fsm.State, req adminapi.ScrubRequest) ([]*fsm.Range, error) {
	var out []*fsm.Range
	if req.Topic == "" {
		for r := range state.Ranges() {
			out = append(out, r)
		}
		return out, nil
	}
	if req.Range >= 0 {
		_, r, err := rangeNamed(state, req.Topic, req.Range)
		return append(out, r), err
	}
	t, err := topicNamed(state, req.Topic)
	if err != nil {
		return nil, err
	}
	for r := range state.RangesOfTopic(t.ID) {
		out = append(out, r)
	}
	return out, nil
}

// Scrub implements adminapi.ScrubHandler: all nodes read at the same time, each at its own pace.
func (f *Face) Scrub(ctx context.Context, req adminapi.ScrubRequest, found func(adminapi.ScrubVerdict) error) error {
	n, err := f.ready()
	if err != nil {
		return err
	}
	ranges, err := scrubbed(n.State(), req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	tell := func(v adminapi.ScrubVerdict) error {
		mu.Lock()
		defer mu.Unlock()
		if err := found(v); err != nil {
			cancel(err)
			return err
		}
		return nil
	}
	var wg sync.WaitGroup
	for node := range n.State().Nodes() {
		if node.State != fsm.NodeGone {
			wg.Go(func() {
				_ = scrubNode(ctx, n.State(), node, ranges, f.scrubber(n, node, req), tell) // what fails is told, or is the end of ctx
			})
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

// scrubber asks one node.
func (f *Face) scrubber(n *cluster.Node, node *fsm.Node, req adminapi.ScrubRequest) func(context.Context, func(adminapi.ScrubVerdict) error) error {
	return func(ctx context.Context, found func(adminapi.ScrubVerdict) error) error {
		if node.Name == n.Self() {
			return f.LocalScrub(ctx, req, found)
		}
		if node.Addresses.Admin == "" {
			return errors.New("no admin address is known")
		}
		_, err := f.clientOf(node.Addresses.Admin).LocalScrub(ctx, req, found)
		return err
	}
}

// scrubNode passes a node's verdicts on, and tells unknown of every catalogued segment that it should have and gave none
// of (I12).
func scrubNode(ctx context.Context, state *fsm.State, node *fsm.Node, ranges []*fsm.Range,
	run func(context.Context, func(adminapi.ScrubVerdict) error) error, tell func(adminapi.ScrubVerdict) error) error {
	reached := map[string]int64{} // verdicts of one range come in the order of offsets
	err := run(ctx, func(v adminapi.ScrubVerdict) error {
		v.Node = string(node.Name)
		reached[v.Range] = max(reached[v.Range], v.End)
		return tell(v)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	why := "the replica does not list it"
	if err != nil {
		why = err.Error()
	}
	for _, r := range ranges {
		rep, ok := replicaOn(r, node.Name)
		if !ok {
			continue
		}
		reason := why
		if rep.Lost != "" {
			reason = "the replica may have forgotten: " + rep.Lost
		}
		for seg := range state.CatalogueFrom(r.ID, 0) {
			if int64(seg.End) <= reached[state.RangeName(r.ID)] || seg.End <= r.LogStart {
				continue
			}
			v := adminapi.ScrubVerdict{
				Range: state.RangeName(r.ID), Node: string(node.Name), ReplicaID: uint64(rep.ID), Base: int64(seg.Base), End: int64(seg.End),
				Verdict: adminapi.ScrubUnknown, Reason: reason, Want: hex.EncodeToString(seg.Root[:]),
			}
			if err := tell(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// replicaOn is the node's replica of a range; one that is not lost, if there is such a one.
func replicaOn(r *fsm.Range, node vtop.NodeName) (rep fsm.Replica, ok bool) {
	for _, x := range r.Replicas {
		if x.Node == node && (!ok || rep.Lost != "") {
			rep, ok = x, true
		}
	}
	return rep, ok
}

// LocalScrub implements adminapi.ScrubHandler, one range after the other. What is found bad becomes a hole.
func (f *Face) LocalScrub(ctx context.Context, req adminapi.ScrubRequest, found func(adminapi.ScrubVerdict) error) error {
	n, err := f.ready()
	if err != nil {
		return err
	}
	ranges, err := scrubbed(n.State(), req)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		rep, ok := r.On(n.Self())
		if !ok {
			continue
		}
		ctx, cancel := context.WithCancelCause(ctx)
		err := n.Scrub(ctx, r.ID, req.MaxRate, func(v storage.Verdict) {
			if err := found(scrubVerdict(n.State().RangeName(r.ID), n.Self(), rep.ID, v)); err != nil {
				cancel(err)
			}
		})
		cause := context.Cause(ctx)
		cancel(nil)
		switch {
		case cause != nil:
			return cause
		case errors.Is(err, errors.ErrUnsupported):
			return unserved("scrub")
		case errors.Is(err, vtop.ErrUnknownRange):
			continue // it left meanwhile
		case err != nil:
			return fmt.Errorf("scrub of %s: %w", n.State().RangeName(r.ID), err)
		}
	}
	return nil
}

func scrubVerdict(name string, node vtop.NodeName, id vtop.ReplicaID, v storage.Verdict) adminapi.ScrubVerdict {
	out := adminapi.ScrubVerdict{
		Range: name, Node: string(node), ReplicaID: uint64(id), Base: int64(v.Segment.Base), End: int64(v.Segment.End), Bytes: v.Read,
		Verdict: v.Health.String(), Reason: v.Reason,
	}
	if v.Want != [32]byte{} {
		out.Want = hex.EncodeToString(v.Want[:])
	}
	if v.Root != [32]byte{} {
		out.Found = hex.EncodeToString(v.Root[:])
	}
	return out
}
