package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/protocol"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

func rangeTo(r vtop.Range) *peerpb.Range { return transport.RangeTo(r) }

// promisedFrom reads one result of a Fence call.
func promisedFrom(m *peerpb.FenceResult) (promised, error) {
	a := promised{end: vtop.Offset(m.DurableEnd), logEnd: vtop.Offset(m.LogEnd), start: vtop.Offset(m.LogStart),
		told: vtop.Offset(m.HighWatermark), epoch: vtop.Epoch(m.Promised), err: transport.ErrorOf(m.Code, m.Message)}
	if a.err != nil {
		return a, nil
	}
	runs, err := transport.RunsFrom(m.Runs)
	if err != nil {
		return a, err
	}
	if a.end < 0 || a.end > a.logEnd {
		return a, fmt.Errorf("%w: durable end %d, log end %d", transport.ErrInvalid, a.end, a.logEnd)
	}
	a.runs = runs
	return a, nil
}

// start proposes the epochs of ranges whose log is the longest of a majority, in one command. What is taken is led when
// the applied state says so: see turnLeader.
func (p *promoter) start(ready []*promotion) {
	e, st := p.engine, p.engine.machine.State()
	items := make([]fsm.EpochStart, len(ready))
	for i, pr := range ready {
		e.closeCatalogued(st, pr.r, pr.slot.opened())
		items[i] = fsm.EpochStart{Range: pr.r, Epoch: pr.lease.Epoch, Start: pr.choice.End}
	}
	ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
	defer cancel()
	out, err := e.cfg.Propose(ctx, &fsm.StartEpochs{Items: items, At: e.cfg.Now().UnixMilli()})
	if err == nil {
		err = out.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pr := range ready {
		switch {
		case err != nil:
			pr.why = fmt.Sprintf("start the epoch: %v", err)
		case i < len(out.Items) && out.Items[i].Refusal != nil:
			pr.why = fmt.Sprintf("start the epoch: %v", out.Items[i].Refusal)
		default:
			pr.state = promoteDone
			continue
		}
		pr.state = promoteAsk
	}
}

// fetchMissing copies the missing part of the longest log from a voter whose promise is still this epoch, verifies it as any
// append, makes it durable, and starts the epoch.
func (p *promoter) fetchMissing(pr *promotion) {
	select {
	case p.fetch <- struct{}{}:
		defer func() { <-p.fetch }()
	case <-pr.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(pr.ctx, fetchTime)
	defer cancel()
	log := pr.slot.opened()
	if log == nil {
		return
	}
	from, began := log.End(), time.Now()
	var err error
	for _, source := range pr.choice.Sources {
		if source == pr.self {
			continue
		}
		if err = p.fetchFrom(ctx, pr, source); err == nil {
			break
		}
	}
	if err == nil {
		err = log.Flush(ctx)
	}
	end, durable, runs := log.Position()
	if err == nil {
		p.engine.log.Info("fetched the rest of the longest log", "range", p.engine.name(pr.r), "epoch", pr.lease.Epoch, "from", from, "to", durable, "took", time.Since(began))
	}
	p.mu.Lock()
	own := answerOf(pr.self, pr.lease.Epoch, promised{end: durable, logEnd: end, runs: runs})
	pr.answers = append(dropAnswer(pr.answers, pr.self), own)
	pr.choice = pr.rule.Choose(pr.answers)
	ready := err == nil && pr.choice.Step == protocol.StepStart
	if ready {
		pr.state = promoteStart
	} else {
		pr.state = promoteAsk
		pr.why = fmt.Sprintf("fetch the longest log: %v", err)
	}
	p.mu.Unlock()
	if ready {
		p.start([]*promotion{pr})
	}
}

// fetchFrom reads one voter's log from this log's end to the chosen end.
func (p *promoter) fetchFrom(ctx context.Context, pr *promotion, source vtop.ReplicaID) error {
	log := pr.slot.opened()
	if log == nil {
		return fmt.Errorf("%w: log of range %s", vtop.ErrClosed, pr.r)
	}
	peer := p.engine.cfg.Network.Peer(pr.nodes[source])
	for end := log.End(); end < pr.choice.End; {
		resp, err := peer.ReadLog(ctx, &peerpb.ReadLogRequest{
			Range: rangeTo(pr.r), ReplicaId: uint64(source), Epoch: int32(pr.lease.Epoch),
			From: int64(end), Limit: int64(pr.choice.End), MaxBytes: 4 << 20,
		})
		if err != nil {
			return fmt.Errorf("replica %d on node %q: %w", source, pr.nodes[source], err)
		}
		if len(resp.Batches) == 0 {
			return fmt.Errorf("replica %d on node %q has nothing at %d, though it said that it ends at %d", source, pr.nodes[source], end, pr.choice.End)
		}
		next, err := log.AppendFollow(pr.lease.Epoch, vtop.FencePromote, vtop.Offset(resp.SegmentBase), resp.Batches)
		if err != nil {
			return fmt.Errorf("append what replica %d sent: %w", source, err)
		}
		if next <= end {
			return fmt.Errorf("replica %d on node %q sent nothing new at %d", source, pr.nodes[source], end)
		}
		end = next
		if err := log.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// renew asks for the same lease under an epoch above a promise that stands in the way: the metadata once went back. If a
// later epoch was granted, the applied state will say so by itself.
func (p *promoter) renew(pr *promotion) {
	e := p.engine
	minimum := pr.choice.Minimum
	e.log.Warn("a voter has promised a higher epoch: asking for a grant above it", "range", e.name(pr.r), "epoch", pr.lease.Epoch, "promised", minimum)
	ctx, cancel := context.WithTimeout(pr.ctx, 5*time.Second)
	defer cancel()
	_, err := e.cfg.Propose(ctx, &fsm.GrantLeases{At: e.cfg.Now().UnixMilli(), Items: []fsm.Grant{{
		Range: pr.r, Holder: e.self, Incarnation: e.cfg.Incarnation, Expected: pr.lease.Epoch, Minimum: minimum + 1,
		Reason: fmt.Sprintf("a voter had promised epoch %d", minimum),
	}}})
	if err != nil {
		p.mu.Lock()
		pr.state, pr.why = promoteAsk, fmt.Sprintf("ask for a grant above epoch %d: %v", minimum, err)
		p.mu.Unlock()
	}
}
