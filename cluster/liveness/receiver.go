package liveness

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

// ReceiverConfig is what a Raft voter needs to judge by beats.
type ReceiverConfig struct {
	Tracker *Tracker
	// Address gives the peer address of a node, to see whether anybody listens there.
	Address func(vtop.NodeName) (string, bool)
	// Evidence is called, from any goroutine, when a verdict may have changed at once. It must not block.
	Evidence func(vtop.NodeName)
	Log      hclog.Logger
	// Dialer is how it looks whether anybody listens. Default: a plain net.Dialer.
	Dialer transport.NetDialer
}

// Receiver takes the heartbeat streams of other nodes and acknowledges beats once leadership was verified.
type Receiver struct {
	cfg ReceiverConfig

	mu      sync.Mutex
	streams map[vtop.NodeName]*inbound
	looking map[vtop.NodeName]bool
}

type inbound struct {
	stream *transport.Stream
	life   vtop.Incarnation
	mu     sync.Mutex // one writer at a time
	acked  uint64
}

// NewReceiver makes a receiver; Serve is its stream handler.
func NewReceiver(cfg ReceiverConfig) *Receiver {
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{}
	}
	return &Receiver{cfg: cfg, streams: map[vtop.NodeName]*inbound{}, looking: map[vtop.NodeName]bool{}}
}

// Serve reads beats from one stream until it breaks, then looks whether the process is still there.
func (r *Receiver) Serve(ctx context.Context, s *transport.Stream) {
	peer := s.Peer()
	in := &inbound{stream: s, life: peer.Incarnation}
	r.mu.Lock()
	r.streams[peer.Name] = in
	r.mu.Unlock()
	err := r.read(s, peer)
	r.mu.Lock()
	current := r.streams[peer.Name] == in
	if current {
		delete(r.streams, peer.Name)
	}
	r.mu.Unlock()
	r.cfg.Log.Debug("heartbeat stream ended", "node", peer.Name, "error", err)
	if !current || ctx.Err() != nil {
		return
	}
	if r.refused(ctx, peer.Name) && r.cfg.Tracker.Lost(peer.Name, peer.Incarnation, true) {
		r.cfg.Log.Warn("node is gone: connection lost and refused", "node", peer.Name)
		r.cfg.Evidence(peer.Name)
	}
}

func (r *Receiver) read(s *transport.Stream, peer transport.Caller) error {
	var last Health
	for {
		frame, err := s.Recv()
		if err != nil {
			return err
		}
		msg, err := transport.DecodeControl(frame.Type, frame.Body)
		frame.Release()
		if err != nil {
			return err
		}
		beat, ok := msg.(*peerpb.Beat)
		if !ok {
			return errors.New("not a beat")
		}
		h := healthOf(beat, peer)
		r.cfg.Tracker.Beat(peer.Name, beat.GetSeq(), h)
		if worth(last, h) {
			r.cfg.Evidence(peer.Name)
		}
		last = h
	}
}

func healthOf(b *peerpb.Beat, peer transport.Caller) Health {
	return Health{
		Storage:     peer.Storage,
		Incarnation: peer.Incarnation,
		DiskStalled: time.Duration(b.GetDiskStalledMs()) * time.Millisecond,
		DiskFailing: !b.GetDiskOk(),
		NoSpace:     b.GetNoSpace(),
		Leaving:     b.GetDraining(),
		FreeBytes:   b.GetFreeBytes(),
		Applied:     b.GetAppliedIndex(),
	}
}

// worth reports whether a node says something new enough to look at once.
func worth(last, now Health) bool {
	return last.Incarnation != now.Incarnation || last.DiskFailing != now.DiskFailing || last.NoSpace != now.NoSpace || last.Leaving != now.Leaving
}

// Look dials a node that has no stream here, unless that is going on already: a Raft leader that has just started
// never had a stream from a node that died before, and would else wait out the whole silence limit. life is the
// registered incarnation. It returns at once; what is found goes to the Tracker.
func (r *Receiver) Look(ctx context.Context, node vtop.NodeName, life vtop.Incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams[node] != nil || r.looking[node] {
		return
	}
	r.looking[node] = true
	go func() {
		gone := r.refused(ctx, node)
		r.mu.Lock()
		delete(r.looking, node)
		gone = gone && r.streams[node] == nil
		r.mu.Unlock()
		if gone && r.cfg.Tracker.Lost(node, life, true) {
			r.cfg.Log.Warn("node is gone: connection refused", "node", node)
			r.cfg.Evidence(node)
		}
	}()
}

// refused dials the node: a refusal proves that no process listens there. All else proves nothing.
func (r *Receiver) refused(ctx context.Context, node vtop.NodeName) bool {
	addr, ok := r.cfg.Address(node)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A process that is being killed closes its sockets one by one: look twice before the port is believed to be open.
	for range 2 {
		conn, err := r.cfg.Dialer.DialContext(ctx, "tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
		if err == nil {
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// Pending are the last beats that were not acknowledged yet, by node.
type Pending map[vtop.NodeName]uint64

// Pending takes note of the beats that have arrived. Acknowledge them only after leadership was verified *after*
// this call: the verification must be younger than the beat. A node that is judged unfit is left out: its leases are
// moving, and it should stop serving by its own clock no later than the lease time after that (I7).
func (r *Receiver) Pending() Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Pending{}
	for name, in := range r.streams {
		if seq, life := r.cfg.Tracker.Seq(name); life == in.life && seq != 0 && r.cfg.Tracker.Verdict(name).Alive {
			p[name] = seq
		}
	}
	return p
}

// Acknowledge answers the beats of p as a verified leader of term.
func (r *Receiver) Acknowledge(p Pending, term uint64, self vtop.NodeName) {
	for name, seq := range p {
		r.mu.Lock()
		in := r.streams[name]
		r.mu.Unlock()
		if in == nil {
			continue
		}
		if err := in.acknowledge(seq, term, self); err != nil {
			_ = in.stream.Close() // its reader notices
		}
	}
}

func (in *inbound) acknowledge(seq, term uint64, self vtop.NodeName) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if seq <= in.acked {
		return nil
	}
	in.acked = seq
	ack := &peerpb.BeatAck{Seq: seq, Leader: true, QuorumVerified: true, Term: term, LeaderName: string(self)}
	return errors.Join(in.stream.SendControl(ack), in.stream.Flush())
}
