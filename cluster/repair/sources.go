package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// source is one node that a transfer fetches from. The mutable part is under transfer.mu.
type source struct {
	node    vtop.NodeName
	replica vtop.ReplicaID
	budget  *budget
	cancel  context.CancelCauseFunc

	// until is when it is asked again after failures in a row.
	failures int
	until    time.Time
	lastErr  string
	// fresh are the bytes that it gave since they were last looked at.
	fresh int64
}

// offlinePause is between two looks whether a source lives again: nothing is asked of anybody for it.
const offlinePause = 2 * time.Second

var errNoSource = errors.New("no longer a source")

// candidates are the replicas on other nodes that may give bytes: voters that are not lost, of those that the job names, if
// it names any. A dropped one is not among them.
func (t *task) candidates(s scene) (sources map[vtop.NodeName]vtop.ReplicaID, dead []string) {
	sources = map[vtop.NodeName]vtop.ReplicaID{}
	for _, rep := range s.rg.Replicas {
		switch {
		case !rep.CanVote() || rep.Node == t.r.cfg.Self || t.dropped(rep.Node):
		case len(s.job.Sources) > 0 && !slices.Contains(s.job.Sources, rep.Node):
		case !t.r.cfg.Alive(rep.Node):
			dead = append(dead, fmt.Sprintf("node %q", rep.Node))
		default:
			sources[rep.Node] = rep.ID
		}
	}
	return sources, dead
}

func (t *task) dropped(node vtop.NodeName) bool {
	return slices.ContainsFunc(t.p.DroppedSources, func(d fsm.DroppedSource) bool { return d.Node == node })
}

// refresh makes the sources those of the applied state, and ends the transfer if it is under another lease.
func (x *transfer) refresh(ctx context.Context, s scene) {
	if x.epoch != vtop.NoEpoch && s.rg.Lease.Epoch != x.epoch {
		x.halt(halt{kind: haltPin, why: fmt.Sprintf("the lease has moved to epoch %d", s.rg.Lease.Epoch), pause: shortPause})
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	want, _ := x.t.candidates(s)
	for name, src := range x.sources {
		if want[name] != src.replica {
			x.removeLocked(src)
		}
	}
	for name, replica := range want {
		if x.sources[name] != nil {
			continue
		}
		src := &source{node: name, replica: replica, budget: x.r.budgetOf(name)}
		var sctx context.Context
		sctx, src.cancel = context.WithCancelCause(ctx)
		x.sources[name] = src
		for range x.r.cfg.PerSource {
			x.wg.Go(func() { x.work(sctx, src) })
		}
	}
	x.broadcastLocked()
}

func (x *transfer) removeLocked(src *source) {
	src.cancel(errNoSource)
	delete(x.sources, src.node)
	x.r.releaseBudget(src.node)
	x.broadcastLocked()
}

// noSourceLocked says what becomes of a transfer that has nobody to ask.
func (x *transfer) noSourceLocked() *halt {
	s, ok := x.t.look()
	if !ok {
		return &halt{kind: haltWait, pause: shortPause}
	}
	want, dead := x.t.candidates(s)
	switch {
	case len(want) > 0:
		return &halt{kind: haltWait, why: "sources came back", pause: shortPause}
	case len(dead) > 0:
		return &halt{kind: haltWait, why: "source offline: " + strings.Join(dead, ", "), pause: offlinePause}
	case len(x.t.p.DroppedSources) > 0:
		var parts []string
		for _, d := range x.t.p.DroppedSources {
			parts = append(parts, fmt.Sprintf("node %q: %s", d.Node, d.Reason))
		}
		return &halt{kind: haltFailed, why: "no source is left whose bytes verify: " + strings.Join(parts, "; ")}
	}
	why := "no voter of the range is on another node"
	if len(s.job.Sources) > 0 {
		why = fmt.Sprintf("none of the sources that the job may use (--source %v) has a voter of the range: cancel it, and repair without --source", s.job.Sources)
	}
	return &halt{kind: haltWait, why: why}
}

// drop takes a source out for good, since what it sent is not what the catalogue has, and tells it. chunk is -1 for the
// manifest.
func (x *transfer) drop(src *source, seg segment, chunk int, cause error) {
	reason := clip(fmt.Sprintf("segment %d to %d, chunk %d: %v", seg.Base, seg.End, chunk, cause))
	if chunk < 0 {
		reason = clip(fmt.Sprintf("manifest of segment %d to %d: %v", seg.Base, seg.End, cause))
	}
	x.mu.Lock()
	known := x.t.dropped(src.node)
	if !known && len(x.t.p.DroppedSources) < fsm.MaxRepairSources {
		x.t.p.DroppedSources = append(slices.Clone(x.t.p.DroppedSources), fsm.DroppedSource{Node: src.node, Reason: reason})
	}
	if x.sources[src.node] == src {
		x.removeLocked(src)
	}
	x.mu.Unlock()
	if known {
		return
	}
	x.t.log.Error("a source sent bytes that do not verify: it is not asked any more", "node", src.node, "replica", uint64(src.replica), "reason", reason)
	x.r.count(func(c *Counts) { c.DroppedSources++ })
	req := &peerpb.ReportDamageRequest{
		Range: rangeTo(x.t.rng), ReplicaId: uint64(src.replica), Base: int64(seg.Base), Root: seg.Root[:], Chunk: int64(chunk), Reason: reason,
	}
	x.r.goroutine(func() {
		ctx, cancel := context.WithTimeout(x.r.ctx, reportTimeout)
		defer cancel()
		resp, err := x.r.cfg.Peers.ReportDamage(ctx, src.node, req)
		x.r.log.Info("told a source of damage", "node", src.node, "base", seg.Base, "verdict", resp.GetVerdict(), "says", resp.GetMessage(), "error", err)
	})
}

// failed sorts what a request to a source came to. Items go back to the queue by the caller.
func (x *transfer) failed(ctx context.Context, src *source, in *incoming, chunk int, err error) {
	switch {
	case ctx.Err() != nil: // the transfer is over, or the source was dropped
	case errors.Is(err, transport.ErrPinGone): // first: it may come with what else is wrong
		x.refused(src, in, err)
		x.halt(halt{kind: haltPin, why: clip(fmt.Sprintf("node %q: %v", src.node, err))})
	case errors.Is(err, transport.ErrWrongRoot), errors.Is(err, transport.ErrInvalid):
		x.drop(src, in.segment, chunk, err)
	case errors.Is(err, transport.ErrNoSegment), errors.Is(err, vtop.ErrDamaged), errors.Is(err, vtop.ErrOffsetOutOfRange),
		errors.Is(err, transport.ErrNotAllowed), errors.Is(err, vtop.ErrReplicaLost), errors.Is(err, vtop.ErrUnknownRange):
		x.refused(src, in, err)
	default:
		x.mu.Lock()
		if now := time.Now(); !now.Before(src.until) { // one pause for all that were under way
			src.until = now.Add(pauseAfter(src.failures))
			src.failures++
		}
		src.lastErr = clip(err.Error())
		x.broadcastLocked()
		x.mu.Unlock()
	}
}

func (x *transfer) refused(src *source, in *incoming, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in.refused[src.node] = clip(err.Error())
	x.t.p.LastError = clip(fmt.Sprintf("node %q does not give segment %d to %d: %v", src.node, in.Base, in.End, err))
	x.broadcastLocked()
}
