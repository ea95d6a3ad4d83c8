package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// maxLinks bounds the ranges of one session (I13); more are refused.
const maxLinks = 200_000

// session is the follower's end of one connection from a leading node. One goroutine reads and appends, one answers;
// slow steps run in the engine's pool.
type session struct {
	engine *Engine
	from   transport.Caller
	stream *transport.Stream
	wake   chan struct{} // has room for one

	// links is used by the reading goroutine alone.
	links map[uint32]*link

	mu      sync.Mutex
	closed  bool
	acks    []*link
	answers []proto.Message
	rewinds []transport.Rewind
}

// ServeStream is the follower's side of a replication stream; it returns when the stream has ended. It is what
// transport.Mux.HandleStream wants for transport.Replication.
func (e *Engine) ServeStream(ctx context.Context, stream *transport.Stream) {
	ended := make(chan struct{})
	ok := e.goroutine(func() {
		defer close(ended)
		e.serve(ctx, stream)
	})
	if !ok {
		_ = stream.End(vtop.ErrClosed)
		stream.Close()
		return
	}
	<-ended
}

func (e *Engine) serve(ctx context.Context, stream *transport.Stream) {
	s := &session{engine: e, from: stream.Peer(), stream: stream, wake: make(chan struct{}, 1), links: make(map[uint32]*link)}
	stop := context.AfterFunc(e.ctx, func() { stream.Close() })
	defer stop()
	wctx, cancel := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := s.write(wctx); err != nil {
			stream.Close() // the reader ends by it
		}
	}()
	err := s.read()
	cancel()
	s.end(err)
	stream.Close()
	<-written
}

// end lets go of all replicas that followed over this session.
func (s *session) end(err error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, f := range s.links {
		s.forget(f, fmt.Errorf("connection to the leader ended: %w", err))
	}
	if s.engine.ctx.Err() == nil && len(s.links) > 0 {
		s.engine.log.Info("replication session ended", "from", s.from.Name, "ranges", len(s.links), "cause", err)
	}
}

// forget ends one link without a word to the leader.
func (s *session) forget(f *link, cause error) {
	f.active.Store(false)
	s.mu.Lock()
	f.over = true
	s.mu.Unlock()
	if sl := s.engine.slotOf(f.r, false); sl != nil && sl.following.CompareAndSwap(f, nil) {
		sl.become(RoleIdle, cause.Error())
	}
}

func (s *session) read() error {
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			return err
		}
		err = s.handle(frame)
		frame.Release()
		if err != nil {
			return err
		}
	}
}

func (s *session) handle(frame transport.Frame) error {
	switch frame.Type {
	case transport.FrameAppend:
		a, batches, err := transport.DecodeAppend(frame.Body)
		if err != nil {
			return err
		}
		s.append(a, batches)
		return nil
	case transport.FrameMarks:
		marks, err := transport.DecodeMarks(nil, frame.Body)
		if err != nil {
			return err
		}
		for _, m := range marks {
			if f := s.links[m.Handle]; f != nil && f.epoch == m.Epoch && f.active.Load() {
				s.told(f, m.HighWatermark)
			}
		}
		return nil
	}
	m, err := transport.DecodeControl(frame.Type, frame.Body)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *peerpb.Follow:
		return s.follow(m)
	case *peerpb.Reset:
		s.reset(m)
	case *peerpb.Unfollow:
		if f := s.links[m.Handle]; f != nil && f.epoch == vtop.Epoch(m.Epoch) {
			delete(s.links, m.Handle)
			s.forget(f, fmt.Errorf("the leader stopped feeding this replica: %s", m.Reason))
		}
	default:
		return fmt.Errorf("%w: unexpected %s frame from a leader", transport.ErrInvalid, frame.Type)
	}
	return nil
}

func (s *session) told(f *link, hw vtop.Offset) {
	if sl := s.engine.slotOf(f.r, false); sl != nil {
		sl.tell(f.epoch, min(hw, f.log.End()))
	}
}

// follow leaves the request to the slow worker of the range, which may have to wait for the metadata.
func (s *session) follow(m *peerpb.Follow) error {
	r, err := transport.RangeFrom(m.Range)
	if err != nil {
		return err
	}
	if old := s.links[m.Handle]; old != nil {
		s.forget(old, errors.New("the leader asked anew"))
	}
	f := &link{session: s, handle: m.Handle, r: r, replica: vtop.ReplicaID(m.ReplicaId), epoch: vtop.Epoch(m.Epoch), index: m.GrantIndex}
	if len(s.links) >= maxLinks {
		s.refuse(f, fmt.Errorf("%w: %d ranges on one connection", vtop.ErrOverloaded, maxLinks))
		return nil
	}
	s.links[m.Handle] = f
	if !s.engine.caughtUp() {
		s.refuse(f, fmt.Errorf("%w: node %q has not caught up with the metadata", vtop.ErrNotReady, s.engine.self))
		return nil
	}
	s.engine.slotOf(r, true).park(f)
	s.engine.slow.add(r)
	return nil
}

// reset hands a reset to the slow worker; it takes effect together with a new judgement of the link.
func (s *session) reset(m *peerpb.Reset) {
	f := s.links[m.Handle]
	if f == nil || f.epoch != vtop.Epoch(m.Epoch) {
		return
	}
	f.active.Store(false)
	s.mu.Lock()
	f.reset = m
	s.mu.Unlock()
	s.engine.slotOf(f.r, true).park(f)
	s.engine.slow.add(f.r)
}

// append takes one frame of batches. A link that is not active any more has been answered for already.
func (s *session) append(a transport.Append, batches []byte) {
	f := s.links[a.Handle]
	if f == nil || f.epoch != a.Epoch || !f.active.Load() {
		return
	}
	err := f.append(a, batches)
	if err == nil {
		return
	}
	var gap *storage.GapError
	if errors.As(err, &gap) {
		s.mu.Lock()
		s.rewinds = append(s.rewinds, transport.Rewind{Handle: f.handle, Epoch: f.epoch, End: gap.End})
		s.mu.Unlock()
		s.signal()
		return
	}
	if errors.Is(err, vtop.ErrCorruptBatch) {
		s.engine.log.Error("the leader sent a batch that does not hold", "range", s.engine.name(f.r), "from", s.from.Name, "error", err)
	}
	s.engine.unfollow(f, err)
}

// unfollow ends a link for a reason that the leader is told; it may ask again.
func (e *Engine) unfollow(f *link, cause error) {
	var diverged *storage.DivergedError
	var boundary *storage.BoundaryError
	if s := e.slotOf(f.r, false); s != nil {
		if errors.As(cause, &diverged) || errors.As(cause, &boundary) {
			s.touched()
		}
		if s.following.CompareAndSwap(f, nil) {
			s.become(RoleIdle, cause.Error())
		}
	}
	f.session.refuse(f, cause)
}

// refuse tells the leader that this link is over and why.
func (s *session) refuse(f *link, cause error) {
	f.active.Store(false)
	s.mu.Lock()
	if f.over {
		s.mu.Unlock()
		return
	}
	f.over = true
	s.mu.Unlock()
	s.control(transport.RefuseFollow(s.engine.self, f.handle, f.epoch, cause))
}

// control queues a control frame.
func (s *session) control(m proto.Message) {
	s.mu.Lock()
	if !s.closed {
		s.answers = append(s.answers, m)
	}
	s.mu.Unlock()
	s.signal()
}

// acknowledge has the leader told how far the replica is durable. Many of them go in one frame.
func (s *session) acknowledge(f *link) {
	s.mu.Lock()
	queued := !f.acking && !s.closed
	if queued {
		f.acking = true
		s.acks = append(s.acks, f)
	}
	s.mu.Unlock()
	if queued {
		s.signal()
	}
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued until ctx ends, one flush for all that is there.
func (s *session) write(ctx context.Context) error {
	var due []*link
	var acks []transport.Ack
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		answers, rewinds := s.answers, s.rewinds
		s.answers, s.rewinds = nil, nil
		due, s.acks = s.acks, due[:0]
		for _, f := range due {
			f.acking = false
		}
		s.mu.Unlock()
		acks = acks[:0]
		for _, f := range due {
			if a, ok := s.ackOf(f); ok {
				acks = append(acks, a)
			}
		}
		clear(due)
		if err := s.send(answers, rewinds, acks); err != nil {
			return err
		}
	}
}

// ackOf says how far the replica is durable under the link's epoch, if that epoch is still the applied one.
func (s *session) ackOf(f *link) (transport.Ack, bool) {
	lease, started := s.engine.machine.Leases().Get(f.r)
	if !f.active.Load() || lease.Epoch != f.epoch || !started {
		return transport.Ack{}, false
	}
	durable := f.log.Durable()
	return transport.Ack{Handle: f.handle, Epoch: f.epoch, Durable: durable, End: max(durable, f.log.End())}, f.active.Load()
}

func (s *session) send(answers []proto.Message, rewinds []transport.Rewind, acks []transport.Ack) error {
	for _, m := range answers {
		if err := s.stream.SendControl(m); err != nil {
			return err
		}
	}
	for _, r := range rewinds {
		if err := s.stream.SendRewind(r); err != nil {
			return err
		}
	}
	if len(acks) > 0 {
		if err := s.stream.SendAcks(acks); err != nil {
			return err
		}
	}
	if len(answers)+len(rewinds)+len(acks) == 0 {
		return nil
	}
	return s.stream.Flush()
}
