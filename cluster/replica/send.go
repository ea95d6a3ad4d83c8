package replica

import (
	"context"
	"errors"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// send writes frames until the connection breaks or ctx ends. What is gathered is flushed when there is nothing more to
// gather, so that a lone batch leaves at once and a crowd shares one write.
func (p *peer) send(ctx context.Context, stream *transport.Stream) error {
	var buf []byte
	gathered := 0
	for {
		f, marks := p.pop()
		if marks {
			if err := p.sendMarks(stream); err != nil {
				return err
			}
			gathered++
		}
		if f != nil {
			n, err := p.step(stream, f, &buf)
			if err != nil {
				return err
			}
			if gathered += n; gathered < flushAfter {
				continue
			}
		}
		if gathered > 0 {
			if err := stream.Flush(); err != nil {
				return err
			}
			gathered = 0
		}
		if f != nil {
			continue
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step does the one next thing for a flow and returns about how many bytes were written.
func (p *peer) step(stream *transport.Stream, f *flow, buf *[]byte) (int, error) {
	p.mu.Lock()
	switch f.state {
	case flowGone:
		delete(p.flows, f.handle)
		p.mu.Unlock()
		return 64, stream.SendControl(&peerpb.Unfollow{Handle: f.handle, Epoch: int32(f.ld.epoch), Reason: "the leadership or the replica ended"})
	case flowFresh:
		f.state, f.moved = flowAsked, time.Now()
		p.mu.Unlock()
		return 128, stream.SendControl(&peerpb.Follow{
			Handle: f.handle, Range: transport.RangeTo(f.ld.r), ReplicaId: uint64(f.replica), Epoch: int32(f.ld.epoch),
			GrantIndex: f.ld.index, Leader: string(p.engine.self),
			HighWatermark: int64(max(f.ld.highWatermark(), 0)), LogStart: int64(f.ld.log.Start()),
		})
	case flowLive:
		from := f.next
		p.mu.Unlock()
		return p.sendBatches(stream, f, from, buf)
	}
	p.mu.Unlock()
	return 0, nil
}

// sendBatches sends one frame of what the follower does not have, from the tail buffer or from disk, at any distance.
func (p *peer) sendBatches(stream *transport.Stream, f *flow, from vtop.Offset, buf *[]byte) (int, error) {
	log := f.ld.log
	batches, next, base, err := log.ReadPeer(from, sendChunk, log.End(), *buf)
	if err != nil {
		return p.unreadable(stream, f, err)
	}
	if cap(batches) > cap(*buf) && cap(batches) <= 4*sendChunk {
		*buf = batches[:0]
	}
	if len(batches) == 0 {
		return 0, nil
	}
	hw := f.ld.highWatermark()
	p.mu.Lock()
	if f.state != flowLive || f.next != from {
		p.mu.Unlock()
		p.ready(f) // rewound or dropped meanwhile
		return 0, nil
	}
	behind := f.durable == from
	f.next, f.told = next, hw
	if behind {
		f.moved = time.Now() // it was not behind before
	}
	f.inflight.push(next, len(batches))
	p.inflight += int64(len(batches))
	if next < log.End() {
		p.readyLocked(f)
	}
	p.mu.Unlock()
	p.engine.metrics.sentBytes.Add(uint64(len(batches)))
	first := batch.Batch(batches).BaseOffset()
	return len(batches), stream.SendAppend(transport.Append{
		Handle: f.handle, Epoch: f.ld.epoch, SegmentBase: base, Base: first, HighWatermark: max(hw, 0), LogStart: log.Start(),
	}, batches)
}

// unreadable decides what a failed read of the leader's own log means for one follower.
func (p *peer) unreadable(stream *transport.Stream, f *flow, err error) (int, error) {
	if errors.Is(err, vtop.ErrOffsetOutOfRange) {
		p.mu.Lock()
		live := f.state == flowLive && f.next < f.ld.log.Start()
		p.mu.Unlock()
		if live {
			return p.sendReset(stream, f)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.state == flowLive {
		p.log.Warn("cannot read for a replica that is behind", "range", p.engine.name(f.ld.r), "at", f.next, "error", err)
		p.pauseLocked(f, err)
	}
	return 0, nil
}

// sendReset tells a follower that ends below the log start to begin anew there.
func (p *peer) sendReset(stream *transport.Stream, f *flow) (int, error) {
	base, producers, err := f.ld.log.ResetPoint()
	p.mu.Lock()
	if f.state != flowLive {
		p.mu.Unlock()
		return 0, nil
	}
	if err != nil {
		p.pauseLocked(f, err)
		p.mu.Unlock()
		return 0, nil
	}
	f.state, f.moved = flowAsked, time.Now()
	p.mu.Unlock()
	return 64 + len(producers), stream.SendControl(&peerpb.Reset{
		Handle: f.handle, Epoch: int32(f.ld.epoch), Start: int64(f.ld.log.Start()), SegmentBase: int64(base), Producers: producers,
	})
}

// sendMarks tells idle followers the high watermark, so that one of them that is promoted begins near it.
func (p *peer) sendMarks(stream *transport.Stream) error {
	var marks []transport.Mark
	p.mu.Lock()
	for _, f := range p.flows {
		if hw := f.ld.highWatermark(); f.state == flowLive && f.told < hw {
			f.told = hw
			marks = append(marks, transport.Mark{Handle: f.handle, Epoch: f.ld.epoch, HighWatermark: hw, LogStart: f.ld.log.Start()})
		}
	}
	p.mu.Unlock()
	for part := range chunks(marks, 4096) {
		if err := stream.SendMarks(part); err != nil {
			return err
		}
	}
	return nil
}
