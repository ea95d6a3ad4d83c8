package liveness

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// SenderConfig is what a node needs to send its beats.
type SenderConfig struct {
	// Interval lies between two beats.
	Interval time.Duration
	// AckTimeout is how long streams are kept while no voter acknowledges a beat as the leader; then all are dialed anew. 0 keeps
	// them until TCP gives up, which may take a quarter of an hour.
	AckTimeout time.Duration
	// Voters are the present Raft voters but for this node.
	Voters func() []transport.Target
	// Dial opens a heartbeat stream.
	Dial func(context.Context, transport.Target) (*transport.Stream, error)
	// Beat fills in what the node says of itself; Seq and SentNs are the sender's.
	Beat func() *peerpb.Beat
	// Extend is called with the time a beat was sent that a verified Raft leader acknowledged.
	Extend func(sent time.Duration)
	// Gone is called when a voter's port refuses connections: no process listens there.
	Gone  func(vtop.NodeName)
	Clock func() time.Duration
	Log   hclog.Logger
}

// Sender keeps one heartbeat stream to every Raft voter.
type Sender struct {
	cfg    SenderConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// acked is when a beat was acknowledged last, on any stream, by Clock.
	acked atomic.Int64

	mu    sync.Mutex
	links map[vtop.NodeName]*link
}

// link is the stream to one voter.
type link struct {
	target transport.Target
	cancel context.CancelFunc
	poke   chan struct{} // a beat is due at once
}

// StartSender starts sending. Close ends it.
func StartSender(cfg SenderConfig) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender{cfg: cfg, ctx: ctx, cancel: cancel, links: map[vtop.NodeName]*link{}}
	s.wg.Add(1)
	go s.followVoters()
	return s
}

// Close ends all streams and waits for their goroutines. No Extend or Gone is called afterwards.
func (s *Sender) Close() {
	s.cancel()
	s.wg.Wait()
}

// Now sends a beat to every voter at once, for news that should not wait for the next interval.
func (s *Sender) Now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		select {
		case l.poke <- struct{}{}:
		default:
		}
	}
}

func (s *Sender) followVoters() {
	defer s.wg.Done()
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for {
		s.adjust(s.cfg.Voters())
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// adjust opens links to new voters and ends those to voters that left or moved.
func (s *Sender) adjust(voters []transport.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := map[vtop.NodeName]transport.Target{}
	for _, v := range voters {
		want[v.Name] = v
	}
	for name, l := range s.links {
		if want[name] != l.target {
			l.cancel()
			delete(s.links, name)
		}
	}
	for name, target := range want {
		if s.links[name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(s.ctx)
		l := &link{target: target, cancel: cancel, poke: make(chan struct{}, 1)}
		s.links[name] = l
		s.wg.Add(1)
		go s.keep(ctx, l)
	}
}

// keep dials the voter again and again while the link lasts.
func (s *Sender) keep(ctx context.Context, l *link) {
	defer s.wg.Done()
	defer l.cancel()
	pause := s.cfg.Interval / 4
	for ctx.Err() == nil {
		started := s.cfg.Clock()
		err := s.beat(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			s.cfg.Gone(l.target.Name)
		}
		s.cfg.Log.Debug("heartbeat stream ended", "voter", l.target.Name, "error", err)
		if s.cfg.Clock()-started > time.Second {
			pause = 0 // it worked for a while: try at once
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(max(2*pause, s.cfg.Interval/4), 2*s.cfg.Interval)
	}
}

// sentRing remembers when the last beats were sent. An acknowledgement of an older one extends nothing.
type sentRing struct {
	mu   sync.Mutex
	sent [64]struct {
		seq uint64
		at  time.Duration
	}
}

func (r *sentRing) put(seq uint64, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &r.sent[seq%uint64(len(r.sent))]
	e.seq, e.at = seq, at
}

func (r *sentRing) get(seq uint64) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sent[seq%uint64(len(r.sent))]
	return e.at, e.seq == seq && seq != 0
}

// beat sends beats over one stream until it breaks.
func (s *Sender) beat(ctx context.Context, l *link) error {
	stream, err := s.cfg.Dial(ctx, l.target)
	if err != nil {
		return err
	}
	ring := &sentRing{}
	received := make(chan error, 1)
	go func() { received <- s.receive(stream, ring) }()
	err = s.send(ctx, stream, l, ring, received)
	_ = stream.Close() // ends receive too
	<-received
	return err
}

// errSilent ends a stream on which nothing comes though it stays up.
var errSilent = errors.New("no voter acknowledges beats")

// silent reports whether a stream has had its time, and no voter has acknowledged a beat within it. Only the leader acknowledges: of one
// stream alone nothing can be said, but without any acknowledgement the one to the leader is among those that are stuck.
func (s *Sender) silent(opened time.Duration) bool {
	return s.cfg.AckTimeout > 0 && s.cfg.Clock()-max(opened, time.Duration(s.acked.Load())) > s.cfg.AckTimeout
}

func (s *Sender) send(ctx context.Context, stream *transport.Stream, l *link, ring *sentRing, received chan error) error {
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	opened := s.cfg.Clock()
	for seq := uint64(1); ; seq++ {
		if s.silent(opened) {
			return errSilent
		}
		beat := s.cfg.Beat()
		now := s.cfg.Clock()
		beat.Seq, beat.SentNs = seq, int64(now)
		ring.put(seq, now)
		if err := errors.Join(stream.SendControl(beat), stream.Flush()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-received:
			received <- err
			return err
		case <-ticker.C:
		case <-l.poke:
		}
	}
}

func (s *Sender) receive(stream *transport.Stream, ring *sentRing) error {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		msg, err := transport.DecodeControl(frame.Type, frame.Body)
		frame.Release()
		if err != nil {
			return err
		}
		ack, ok := msg.(*peerpb.BeatAck)
		if !ok || !ack.GetLeader() || !ack.GetQuorumVerified() {
			continue
		}
		s.acked.Store(int64(s.cfg.Clock()))
		if at, ok := ring.get(ack.GetSeq()); ok {
			s.cfg.Extend(at)
		}
	}
}
