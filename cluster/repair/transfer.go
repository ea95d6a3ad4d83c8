package repair

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/storage/manifest"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// transfer brings segments into a staging from several sources at once. The workers of each source take what is missing
// next, so that each gives as fast as it can. It ends with a halt; what was received by then stays.
type transfer struct {
	// Set once.
	t       *task
	r       *Runner
	staging *storage.Staging
	// epoch is the lease's under which the sources are asked; 0 for any.
	epoch vtop.Epoch
	wg    sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something moved
	// wanted are the segments that are not whole yet, in order.
	wanted  []*incoming
	sources map[vtop.NodeName]*source
	// busy are the items in the workers' hands.
	busy int
	// done and left are bytes that are here and that are missing; before is done at the beginning.
	done, left, before int64
	moved              time.Time
	halted             *halt
}

// halt is why a transfer ended.
type halt struct {
	kind  haltKind
	why   string
	pause time.Duration
}

type haltKind uint8

const (
	// haltWait: nothing moves; again after a pause.
	haltWait haltKind = iota
	// haltWhole: all segments are whole.
	haltWhole
	// haltPin: the lease or the pin is another.
	haltPin
	// haltLost: a segment was reclaimed, and nobody has it any more.
	haltLost
	// haltFailed: no repeat helps.
	haltFailed
)

// incoming is one segment on its way. Under transfer.mu.
type incoming struct {
	segment
	state incomingState
	m     *manifest.Manifest
	// missing are the chunks that nobody fetches; flying those that somebody does; left how many are not written.
	missing []int
	flying  map[int]*flight
	left    int
	// refused are the sources that do not give it, with why.
	refused map[vtop.NodeName]string
}

type incomingState uint8

const (
	isPending incomingState = iota
	isOpening               // its manifest is being fetched
	isOpen
	isFinishing
	isWhole
)

// flight is one chunk being fetched, by one source or, when it takes long, by two.
type flight struct {
	since time.Time
	by    []vtop.NodeName
}

// stealAfter is how long a chunk may be on its way before an idle source fetches it too.
const stealAfter = 5 * time.Second

// idleLimit is how long a transfer may bring nothing before it gives up its turn, where its rate would let it bring something.
const idleLimit = 15 * time.Second

// patience is idleLimit and the time that the job's own rate needs for what all workers have asked for: each chunk is paid
// for as a whole before it is fetched.
func (x *transfer) patience() time.Duration {
	if x.t.limit == nil {
		return idleLimit
	}
	asked := float64(chunkSize * (1 + len(x.sources)*x.r.cfg.PerSource))
	return idleLimit + time.Duration(asked/x.t.limit.rate*float64(time.Second))
}

// transfer fetches the segments that are not whole in the staging.
func (t *task) transfer(ctx context.Context, s scene, staging *storage.Staging, segments []segment, epoch vtop.Epoch) halt {
	x := &transfer{
		t: t, r: t.r, staging: staging, epoch: epoch, changed: make(chan struct{}), sources: map[vtop.NodeName]*source{}, moved: time.Now(),
	}
	have := map[vtop.Offset]storage.StagedSegment{}
	for _, seg := range staging.Segments() {
		have[seg.Base] = seg
	}
	for _, seg := range segments {
		got := have[seg.Base]
		if got.Whole && got.Root == seg.Root {
			continue
		}
		x.wanted = append(x.wanted, &incoming{segment: seg, refused: map[vtop.NodeName]string{}, flying: map[int]*flight{}})
		x.left += seg.Bytes
	}
	x.done = max(t.p.BytesTotal-x.left, 0)
	if len(x.wanted) == 0 {
		return halt{kind: haltWhole}
	}
	x.before = x.done
	h := x.run(ctx, s)
	if x.done > x.before {
		t.failures, t.moved = 0, time.Now()
	}
	t.p.BytesDone, t.p.BytesTotal = x.done, x.done+x.left
	return h
}

// run lets the sources work and looks after them.
func (x *transfer) run(ctx context.Context, s scene) halt {
	ctx, cancel := context.WithCancelCause(ctx)
	defer x.stop(cancel)
	defer x.r.useBudget()()
	x.refresh(ctx, s)
	x.tell(s)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	renewed := make(chan error, 1)
	for {
		x.mu.Lock()
		h, changed := x.verdictLocked(), x.changed
		x.mu.Unlock()
		if h != nil {
			return *h
		}
		select {
		case <-changed:
		case err := <-renewed:
			if err != nil {
				x.halt(halt{kind: haltPin, why: err.Error()})
			}
		case <-second.C:
			now, ok := x.t.look()
			if !ok || now.job.StepVersion != s.job.StepVersion {
				return halt{kind: haltWait, pause: shortPause}
			}
			x.refresh(ctx, now)
			x.tell(now)
			x.renewPin(ctx, renewed)
		case <-ctx.Done():
			return halt{kind: haltWait}
		}
	}
}

// stop ends the workers and waits for them.
func (x *transfer) stop(cancel context.CancelCauseFunc) {
	cancel(errNoSource)
	x.wg.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, src := range x.sources {
		x.removeLocked(src)
	}
}

func (x *transfer) broadcastLocked() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// halt ends the transfer, for the first reason that comes.
func (x *transfer) halt(h halt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.haltLocked(h)
}

func (x *transfer) haltLocked(h halt) {
	if x.halted == nil {
		x.halted = &h
		x.broadcastLocked()
	}
}

// verdictLocked says whether, and why, the transfer is over.
func (x *transfer) verdictLocked() *halt {
	x.wanted = slices.DeleteFunc(x.wanted, func(in *incoming) bool { return in.state == isWhole })
	switch {
	case x.halted != nil:
		return x.halted
	case len(x.wanted) == 0:
		return &halt{kind: haltWhole}
	case x.busy > 0:
		return nil
	case len(x.sources) == 0:
		return x.noSourceLocked()
	}
	stuck := 0
	for _, in := range x.wanted {
		if !x.refusedByAllLocked(in) {
			continue
		}
		stuck++
		switch reclaimed := x.reclaimed(in); {
		case reclaimed && in.pinned: // so it was said; the leader is asked what it holds now
			return &halt{kind: haltPin, why: x.whyRefused(in)}
		case reclaimed:
			return &halt{kind: haltLost, why: x.whyRefused(in)}
		}
	}
	if stuck == len(x.wanted) || time.Since(x.moved) > x.patience() {
		return &halt{kind: haltWait, why: x.whyStuckLocked()}
	}
	return nil
}

func (x *transfer) refusedByAllLocked(in *incoming) bool {
	for name := range x.sources {
		if in.refused[name] == "" {
			return false
		}
	}
	return true
}

// reclaimed says that retention took a segment. Of one that only fills a hole, the hole has gone with it.
func (x *transfer) reclaimed(in *incoming) bool {
	if x.epoch == vtop.NoEpoch {
		return false
	}
	rg, ok := x.r.cfg.Machine.State().Range(x.t.rng)
	return ok && in.End <= rg.LogStart
}

func (x *transfer) whyRefused(in *incoming) string {
	var parts []string
	for name, why := range in.refused {
		parts = append(parts, fmt.Sprintf("node %q: %s", name, why))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// whyStuckLocked says why nothing moves.
func (x *transfer) whyStuckLocked() string {
	var parts []string
	for name, s := range x.sources {
		if s.lastErr != "" && s.failures > 0 {
			parts = append(parts, fmt.Sprintf("node %q: %s", name, s.lastErr))
		}
	}
	if len(parts) > 0 {
		slices.Sort(parts)
		return "no source gives anything: " + strings.Join(parts, "; ")
	}
	for _, in := range x.wanted {
		if x.refusedByAllLocked(in) {
			return fmt.Sprintf("no source has segment %d to %d: %s", in.Base, in.End, x.whyRefused(in))
		}
	}
	return "nothing came for a while"
}

// tell reports how far it is.
func (x *transfer) tell(s scene) {
	x.mu.Lock()
	p := &x.t.p
	p.BytesDone, p.BytesTotal, p.ActiveSources = x.done, x.done+x.left, nil
	for _, name := range slices.Sorted(maps.Keys(x.sources)) {
		src := x.sources[name]
		if src.fresh > 0 {
			p.ActiveSources = append(p.ActiveSources, name)
		}
		src.fresh = 0
		if src.lastErr != "" && src.failures > 0 {
			p.LastError = clip(fmt.Sprintf("node %q: %s", name, src.lastErr))
		}
	}
	p.ActiveSources = p.ActiveSources[:min(len(p.ActiveSources), fsm.MaxRepairSources)]
	switch {
	case time.Since(x.moved) > 2*time.Second+x.patience()-idleLimit:
		p.Waiting = clip(x.whyStuckLocked())
	case x.done > x.before:
		p.Waiting = "" // until then it waits for what it waited for
	}
	p.BytesPerSecond = x.t.meter.look(x.done, time.Now())
	told := *p // the workers go on changing the other one
	x.mu.Unlock()
	x.t.r.report.tell(s.job, told)
}

// renewPin keeps the leader's pin alive while others give the bytes, or nobody does.
func (x *transfer) renewPin(ctx context.Context, renewed chan<- error) {
	pin := &x.t.pin
	now := time.Now()
	if pin.id == 0 || x.epoch == vtop.NoEpoch || now.Sub(pin.touched) < pin.idle/4 {
		return
	}
	pin.touched = now
	id, node := pin.id, pin.node
	x.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, pinTimeout)
		defer cancel()
		resp, err := x.r.cfg.Peers.PinSegments(ctx, node, &peerpb.PinSegmentsRequest{
			Range: rangeTo(x.t.rng), Epoch: int32(x.epoch), Job: uint64(x.t.id), Pin: id, Have: x.t.haveWhole(),
		})
		switch got := resp.GetSnapshot().GetPin(); {
		case err != nil && !transport.Retryable(err):
			err = fmt.Errorf("the pin cannot be renewed: %w", err)
		case err != nil:
			err = nil // it is tried again, and if the leader is gone the lease moves
		case got != id:
			// The old one has gone. The new one holds what is there now: take it over in order.
			err = fmt.Errorf("the pin on node %q had ended", node)
		}
		select {
		case renewed <- err:
		default:
		}
	})
}
