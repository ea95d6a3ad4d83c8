package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/fsm"
)

func (n *fakeNode) State() *fsm.State {
	n.c.states.Add(1)
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.c.state
}

func (n *fakeNode) Self() vtop.NodeName { return n.name }

func (n *fakeNode) Ready() error {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.unready > 0 {
		n.c.unready--
	} else if !n.c.notReady {
		return nil
	}
	return fmt.Errorf("%w: fake", vtop.ErrNotReady)
}

func (n *fakeNode) Alive(name vtop.NodeName) bool {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return !n.c.down[name]
}

func (n *fakeNode) Controller() (vtop.NodeName, bool) { return n.c.nodes[len(n.c.nodes)-1].name, true }

// leadLocked checks what every request to a leader checks.
func (n *fakeNode) leadLocked(r vtop.Range, clientEpoch vtop.Epoch) (*fsm.Range, error) {
	fr, ok := n.c.state.Range(r)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %s", vtop.ErrUnknownRange, r)
	case fr.Lease.Holder != n.name:
		return nil, fmt.Errorf("%w: %s is led by %q", vtop.ErrNotLeader, r, fr.Lease.Holder)
	case clientEpoch >= 0 && clientEpoch < fr.Lease.Epoch:
		return nil, fmt.Errorf("%w: %d, want %d", vtop.ErrEpochFenced, clientEpoch, fr.Lease.Epoch)
	case clientEpoch > fr.Lease.Epoch:
		return nil, fmt.Errorf("%w: %d, have %d", vtop.ErrEpochUnknown, clientEpoch, fr.Lease.Epoch)
	case !fr.Started:
		return nil, fmt.Errorf("%w: in promotion", vtop.ErrNotReady)
	}
	return fr, nil
}

func (n *fakeNode) Append(_ context.Context, r vtop.Range, clientEpoch vtop.Epoch, b batch.Batch, acks int16, done func(vtop.AppendResult)) {
	n.c.appends.Add(1)
	n.c.mu.Lock()
	fr, err := n.leadLocked(r, clientEpoch)
	if err == nil && n.c.refuse != nil {
		err = n.c.refuse(r, b)
	}
	l := n.c.log(r)
	base := l.end
	if err == nil {
		base, err = l.sequence(b)
	}
	if err != nil {
		n.c.mu.Unlock()
		done(vtop.AppendResult{Base: -1, LogStart: l.start, Err: err})
		return
	}
	if base == l.end {
		own := slices.Clone(b)
		own.Stamp(base, fr.Lease.Epoch)
		l.batches, l.end = append(l.batches, own), own.LastOffset()+1
	}
	end, epoch := base+vtop.Offset(b.Count()), fr.Lease.Epoch
	ack := func() {
		n.c.mu.Lock()
		var err error
		if n.c.unknown != nil {
			err = n.c.unknown
		} else if now, ok := n.c.state.Range(r); !ok || now.Lease.Epoch != epoch {
			err = &vtop.FencedError{Range: r, Claimed: epoch, Reason: "lease moved"}
		} else {
			l.high = max(l.high, end)
			n.c.wakeLocked(r)
		}
		start := l.start
		n.c.mu.Unlock()
		done(vtop.AppendResult{Base: base, LogStart: start, Err: err})
	}
	if n.c.holding && acks != 0 {
		n.c.held = append(n.c.held, ack)
		n.c.mu.Unlock()
		return
	}
	n.c.mu.Unlock()
	ack()
}

// sequence checks an idempotent batch; the base of a duplicate is that of its original.
func (l *fakeLog) sequence(b batch.Batch) (vtop.Offset, error) {
	id := b.ProducerID()
	if id < 0 {
		return l.end, nil
	}
	seen := l.producers[id]
	for _, s := range seen {
		if s.epoch == b.ProducerEpoch() && s.first == b.BaseSequence() && s.last == b.LastSequence() {
			return s.base, nil
		}
	}
	if k := len(seen); k > 0 {
		last := seen[k-1]
		if b.ProducerEpoch() < last.epoch {
			return -1, fmt.Errorf("%w: %d, have %d", vtop.ErrStaleProducerEpoch, b.ProducerEpoch(), last.epoch)
		}
		if b.ProducerEpoch() == last.epoch && b.BaseSequence() != batch.AddSequence(last.last, 1) {
			return -1, fmt.Errorf("%w: %d after %d", vtop.ErrOutOfOrderSequence, b.BaseSequence(), last.last)
		}
	}
	seen = append(seen, fakeSeq{b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(), l.end})
	l.producers[id] = seen[max(0, len(seen)-5):]
	return l.end, nil
}

func (n *fakeNode) Fetch(r vtop.Range, spec vtop.FetchSpec, dst []byte) (vtop.FetchResult, error) {
	n.c.fetches.Add(1)
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	out := vtop.FetchResult{Dst: dst, HighWatermark: -1, LogStart: -1}
	fr, err := n.leadLocked(r, spec.ClientEpoch)
	if err != nil {
		return out, err
	}
	l := n.c.log(r)
	out.HighWatermark, out.LogStart = l.high, l.start
	if spec.LastFetchedEpoch >= 0 {
		if end := l.epochEnd(fr, spec.LastFetchedEpoch); end.Epoch != spec.LastFetchedEpoch || end.Offset < spec.Offset {
			out.Diverging = &end
			return out, nil
		}
	}
	if spec.Offset < l.start || spec.Offset > l.end {
		return out, fmt.Errorf("%w: %d: have %d to %d", vtop.ErrOffsetOutOfRange, spec.Offset, l.start, l.end)
	}
	for _, b := range l.batches {
		if b.LastOffset() < spec.Offset || b.LastOffset() >= l.high {
			continue
		}
		taken := len(out.Dst) - len(dst)
		if taken+len(b) > spec.MaxBytes && (taken > 0 || !spec.AtLeastOne) {
			break
		}
		out.Dst = append(out.Dst, b...)
	}
	return out, nil
}

// epochEnd is the largest epoch at or below e in the table, and its end.
func (l *fakeLog) epochEnd(fr *fsm.Range, e vtop.Epoch) vtop.EpochOffset {
	out := vtop.EpochOffset{Epoch: -1, Offset: -1}
	for i, entry := range fr.Epochs {
		if entry.Epoch <= e {
			out = vtop.EpochOffset{Epoch: entry.Epoch, Offset: l.end}
			if i+1 < len(fr.Epochs) {
				out.Offset = fr.Epochs[i+1].Start
			}
		}
	}
	return out
}

func (n *fakeNode) Watch(ranges []vtop.Range, wake chan<- struct{}) func() {
	n.c.watched.Add(1)
	w := &fakeWatch{slices.Clone(ranges), wake}
	n.c.set(func(c *fakeCluster) { c.watches[w] = struct{}{} })
	return func() { n.c.set(func(c *fakeCluster) { delete(c.watches, w) }) }
}

func (n *fakeNode) WaitLeading(ctx context.Context, r vtop.Range) error {
	wake := make(chan struct{}, 1)
	defer n.Watch([]vtop.Range{r}, wake)()
	for {
		n.c.mu.Lock()
		_, err := n.leadLocked(r, -1)
		n.c.mu.Unlock()
		if !errors.Is(err, vtop.ErrNotReady) {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return err
		}
	}
}

func (n *fakeNode) EndOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	fr, err := n.leadLocked(r, clientEpoch)
	if err != nil {
		return vtop.EpochOffset{}, err
	}
	l := n.c.log(r)
	if last, ok := fr.Epochs.Last(); ok && l.high < last.Start {
		return vtop.EpochOffset{}, fmt.Errorf("%w: below the epoch's start", vtop.ErrOffsetNotAvailable)
	}
	return vtop.EpochOffset{Epoch: fr.Lease.Epoch, Offset: l.high}, nil
}

func (n *fakeNode) StartOffset(r vtop.Range, clientEpoch vtop.Epoch) (vtop.EpochOffset, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	fr, err := n.leadLocked(r, clientEpoch)
	if err != nil {
		return vtop.EpochOffset{}, err
	}
	return vtop.EpochOffset{Epoch: fr.Lease.Epoch, Offset: n.c.log(r).start}, nil
}

func (n *fakeNode) OffsetForTime(r vtop.Range, clientEpoch vtop.Epoch, ts int64) (best vtop.TimeOffset, found bool, err error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	fr, err := n.leadLocked(r, clientEpoch)
	if err != nil {
		return best, false, err
	}
	l := n.c.log(r)
	for _, b := range l.batches {
		b.Records(1<<20, func(rec batch.Record) error {
			switch {
			case rec.Offset < l.start || rec.Offset >= l.high:
			case ts == vtop.MaxTimestamp && (!found || rec.Timestamp > best.Timestamp), ts >= 0 && !found && rec.Timestamp >= ts:
				best, found = vtop.TimeOffset{Timestamp: rec.Timestamp, Offset: rec.Offset, Epoch: fr.Lease.Epoch}, true
			}
			return nil
		})
	}
	return best, found, nil
}

func (n *fakeNode) EpochEnd(r vtop.Range, clientEpoch, epoch vtop.Epoch) (vtop.EpochOffset, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	fr, err := n.leadLocked(r, clientEpoch)
	if err != nil {
		return vtop.EpochOffset{}, err
	}
	return n.c.log(r).epochEnd(fr, epoch), nil
}

func (n *fakeNode) place(ranges int32, replicas int16) [][]vtop.NodeName {
	out := make([][]vtop.NodeName, ranges)
	for i := range out {
		for k := range int(replicas) {
			out[i] = append(out[i], n.c.nodes[(i+k)%len(n.c.nodes)].name)
		}
	}
	return out
}

func (n *fakeNode) CreateTopic(_ context.Context, spec TopicSpec) (vtop.TopicID, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	id := randomUUID()
	placed := n.place(spec.Ranges, spec.Replicas)
	if err := n.c.applyLocked(&fsm.CreateTopic{ID: id, Name: spec.Name, Config: spec.Config, Ranges: placed}); err != nil {
		return id, err
	}
	n.c.leaseLocked(id, placed, 0)
	return id, nil
}

func (c *fakeCluster) leaseLocked(id vtop.TopicID, placed [][]vtop.NodeName, from int32) {
	for i, nodes := range placed {
		if !c.noLeases {
			c.grantLocked(vtop.Range{Topic: id, Index: from + int32(i)}, nodes[0], !c.onlyHeld)
		}
	}
}

func (n *fakeNode) DeleteTopic(_ context.Context, id vtop.TopicID) error {
	return n.c.apply(&fsm.DeleteTopic{ID: id})
}

func (n *fakeNode) CreateRanges(_ context.Context, id vtop.TopicID, from, to int32) error {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	fr, _ := n.c.state.Range(vtop.Range{Topic: id})
	placed := n.place(to-from, int16(len(fr.Replicas)))
	if err := n.c.applyLocked(&fsm.CreateRanges{Topic: id, Expected: from, Ranges: placed}); err != nil {
		return err
	}
	n.c.leaseLocked(id, placed, from)
	return nil
}

func (n *fakeNode) AlterTopicConfig(_ context.Context, id vtop.TopicID, set map[string]string, unset []string) error {
	return n.c.apply(&fsm.AlterTopicConfig{Topic: id, Set: set, Delete: unset})
}

func (n *fakeNode) DeleteRecords(_ context.Context, r vtop.Range, before vtop.Offset) (vtop.Offset, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if _, err := n.leadLocked(r, -1); err != nil {
		return -1, err
	}
	l := n.c.log(r)
	if before == -1 {
		before = l.high
	}
	if before > l.high {
		return -1, fmt.Errorf("%w: %d above the high watermark %d", vtop.ErrOffsetOutOfRange, before, l.high)
	}
	l.start = max(l.start, before)
	n.c.wakeLocked(r)
	return l.start, nil
}

func (n *fakeNode) ProducerID(context.Context) (int64, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.pid++
	return n.c.pid, nil
}
