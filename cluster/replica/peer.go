package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// peer is this node's one connection for feeding another node's replicas, whatever their number. Two goroutines run
// it while there is a flow: one sends, one receives. Ranges with something to send wait in a queue and take turns, a
// frame each, so that a range that is far behind does not hold up the others.
type peer struct {
	engine *Engine
	node   vtop.NodeName
	log    hclog.Logger
	ctx    context.Context
	wake   chan struct{} // has room for one

	rebuilds atomic.Uint64 // connections torn down because a replica made no progress

	mu       sync.Mutex
	flows    map[uint32]*flow // by handle
	handles  uint32
	queue    []*flow
	head     int
	inflight int64
	marks    bool // told high watermarks are to be sent
	stream   *transport.Stream
	downErr  error
}

// peerOf returns the peer of a node and starts it with its first use.
func (e *Engine) peerOf(node vtop.NodeName) *peer {
	e.peersMu.Lock()
	defer e.peersMu.Unlock()
	p := e.peers[node]
	if p == nil {
		p = &peer{engine: e, node: node, log: e.log.With("peer", node), ctx: e.ctx,
			wake: make(chan struct{}, 1), flows: make(map[uint32]*flow)}
		e.peers[node] = p
		e.goroutine(p.run)
	}
	return p
}

// feed makes a flow for one replica and asks it to follow.
func (p *peer) feed(ld *leadership, id vtop.ReplicaID) *flow {
	f := &flow{ld: ld, peer: p, replica: id, moved: time.Now()}
	p.mu.Lock()
	p.handles++
	f.handle = p.handles
	p.flows[f.handle] = f
	p.enqueueLocked(f)
	p.mu.Unlock()
	p.signal()
	return f
}

// drop ends a flow. The follower learns it from the lease, and by Unfollow when there is a connection.
func (p *peer) drop(f *flow) {
	p.mu.Lock()
	known := f.state != flowFresh && f.state != flowGone
	p.inflight -= f.startOverLocked()
	f.state = flowGone
	if !known || p.stream == nil {
		delete(p.flows, f.handle)
	} else {
		p.enqueueLocked(f) // to say Unfollow
	}
	p.mu.Unlock()
	p.signal()
}

// ready puts a flow in the queue if there may be something to send. It is called for every batch that is appended.
func (p *peer) ready(f *flow) {
	p.mu.Lock()
	queued := p.readyLocked(f)
	p.mu.Unlock()
	if queued {
		p.signal()
	}
}

func (p *peer) readyLocked(f *flow) bool {
	if f.queued || f.state != flowLive || f.inflight.bytes >= flowWindow {
		return false
	}
	p.enqueueLocked(f)
	return true
}

func (p *peer) enqueueLocked(f *flow) {
	if f.queued {
		return
	}
	f.queued = true
	if p.head > 0 && p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	}
	p.queue = append(p.queue, f)
}

func (p *peer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// pop takes the next flow out of the queue; nil if there is none or the connection's window is full.
func (p *peer) pop() (f *flow, marks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	marks, p.marks = p.marks, false
	if p.head == len(p.queue) || p.inflight >= peerWindow {
		return nil, marks
	}
	f = p.queue[p.head]
	p.queue[p.head] = nil
	p.head++
	if p.head > 1024 && p.head*2 > len(p.queue) {
		p.queue = p.queue[:copy(p.queue, p.queue[p.head:])]
		p.head = 0
	}
	f.queued = false
	return f, marks
}

// run keeps a connection while there is anything to feed.
func (p *peer) run() {
	var pause backoff
	for p.awaitFlows() {
		began := time.Now()
		err := p.connect()
		p.lost(err)
		if p.ctx.Err() != nil {
			return
		}
		if time.Since(began) > 5*time.Second {
			pause.reset()
		}
		if !pause.wait(p.ctx) {
			return
		}
	}
}

func (p *peer) awaitFlows() bool {
	for {
		p.mu.Lock()
		n := len(p.flows)
		p.mu.Unlock()
		if n > 0 {
			return p.ctx.Err() == nil
		}
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return false
		}
	}
}

// connect dials, sends and receives until the connection breaks.
func (p *peer) connect() error {
	stream, err := p.engine.dial(p.ctx, p.node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	received := make(chan struct{})
	p.mu.Lock()
	p.stream = stream
	p.mu.Unlock()
	go func() {
		defer close(received)
		cancel(p.receive(stream))
	}()
	err = p.send(ctx, stream)
	if cause := context.Cause(ctx); cause != nil && p.ctx.Err() == nil {
		err = cause
	}
	if p.ctx.Err() != nil {
		_ = stream.End(nil) // the connection goes either way
	}
	stream.Close()
	<-received
	cancel(nil)
	return err
}

// lost brings all flows back to their beginning after the connection broke.
func (p *peer) lost(err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.ctx.Err() == nil && p.downErr == nil && len(p.flows) > 0 {
		p.log.Warn("replication connection lost", "ranges", len(p.flows), "error", err)
	}
	p.stream, p.downErr = nil, err
	clear(p.queue[p.head:])
	p.queue, p.head, p.inflight = p.queue[:0], 0, 0
	for handle, f := range p.flows {
		f.queued = false
		if f.state == flowGone {
			delete(p.flows, handle)
			continue
		}
		f.startOverLocked()
		f.moved, f.why = now, err
		p.enqueueLocked(f)
	}
}

// receive handles the follower's frames until the connection ends.
func (p *peer) receive(stream *transport.Stream) error {
	var acks []transport.Ack
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		if frame.Type == transport.FrameAcks {
			acks, err = transport.DecodeAcks(acks[:0], frame.Body)
			for _, a := range acks {
				p.acknowledged(a)
			}
		} else {
			err = p.answered(frame)
		}
		frame.Release()
		if err != nil {
			return err
		}
	}
}

// answered handles a follower's frame other than acknowledgements.
func (p *peer) answered(frame transport.Frame) error {
	if frame.Type == transport.FrameRewind {
		r, err := transport.DecodeRewind(frame.Body)
		if err == nil {
			p.rewound(r)
		}
		return err
	}
	m, err := transport.DecodeControl(frame.Type, frame.Body)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *peerpb.FollowOK:
		p.followed(m)
	case *peerpb.Refuse:
		p.refused(m)
	default:
		return fmt.Errorf("%w: unexpected %s frame from a follower", transport.ErrInvalid, frame.Type)
	}
	return nil
}

// acknowledged counts one acknowledgement. It counts under the epoch of the flow only, and for its replica id: an
// answer of an earlier life, epoch or connection finds no flow (A7).
func (p *peer) acknowledged(a transport.Ack) {
	p.mu.Lock()
	f := p.flows[a.Handle]
	if f == nil || f.ld.epoch != a.Epoch || f.state != flowLive || a.Durable > f.ld.log.End() {
		p.mu.Unlock()
		return
	}
	wasFull := p.inflight >= peerWindow
	if a.Durable > f.durable {
		f.durable, f.moved, f.refusals = a.Durable, time.Now(), 0
	}
	f.end = max(f.end, a.End)
	p.inflight -= f.inflight.upTo(a.Durable)
	wake := f.next < f.ld.log.End() && p.readyLocked(f)
	wake = wake || wasFull && p.inflight < peerWindow
	p.mu.Unlock()
	if wake {
		p.signal()
	}
	f.ld.acknowledge(f.replica, a.Durable)
}

// followed begins to feed a replica that has reconciled its log under the flow's epoch.
func (p *peer) followed(m *peerpb.FollowOK) {
	p.mu.Lock()
	f := p.flows[m.Handle]
	if f == nil || f.ld.epoch != vtop.Epoch(m.Epoch) || f.state != flowAsked && f.state != flowLive {
		p.mu.Unlock()
		return
	}
	end, durable := vtop.Offset(m.End), vtop.Offset(m.Durable)
	runs, err := transport.RunsFrom(m.Runs)
	if err == nil {
		err = f.ld.fits(end, durable, runs)
	}
	if err != nil {
		p.log.Error("replica does not fit the leader's log", "range", p.engine.name(f.ld.r), "replica", f.replica, "error", err)
		p.pauseLocked(f, err)
		p.mu.Unlock()
		return
	}
	p.inflight -= f.inflight.clear()
	if durable > f.durable {
		f.refusals = 0 // who follows and takes nothing has refused once more when it refuses the next batch
	}
	f.state, f.next, f.end, f.durable = flowLive, end, end, durable
	f.moved, f.why = time.Now(), nil
	p.enqueueLocked(f)
	p.mu.Unlock()
	p.signal()
	f.ld.acknowledge(f.replica, durable)
	f.ld.slot.engine.watches.moved(f.ld.r)
}

// rewound goes on from where the follower's log ends.
func (p *peer) rewound(r transport.Rewind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flows[r.Handle]
	if f == nil || f.ld.epoch != r.Epoch || f.state != flowLive || r.End > f.next {
		return
	}
	f.next, f.end = r.End, r.End
	p.inflight -= f.inflight.clear()
	p.enqueueLocked(f)
	p.signal()
}

// refused asks again later.
func (p *peer) refused(m *peerpb.Refuse) {
	err := transport.RefusalOf(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flows[m.Handle]
	if f == nil || f.ld.epoch != vtop.Epoch(m.Epoch) || f.state == flowGone {
		return
	}
	if f.refusals == 0 {
		p.log.Info("replica refuses to follow", "range", p.engine.name(f.ld.r), "replica", f.replica, "epoch", f.ld.epoch, "error", err)
	}
	p.pauseLocked(f, err)
	p.signal() // its bytes are no longer in flight
}

func (p *peer) pauseLocked(f *flow, err error) {
	p.inflight -= f.startOverLocked()
	f.state, f.why = flowPaused, err
	f.retry = time.AfterFunc(pauseAfter(min(f.refusals, 5)), func() {
		p.mu.Lock()
		if f.state == flowPaused {
			f.state = flowFresh
			p.enqueueLocked(f)
		}
		p.mu.Unlock()
		p.signal()
	})
	f.refusals++
}
