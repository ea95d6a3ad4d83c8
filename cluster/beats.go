package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/liveness"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/transport"
	"github.com/vtop-log/vtop/transport/peerpb"
)

func (n *Node) startLiveness() {
	n.receive = liveness.NewReceiver(liveness.ReceiverConfig{
		Tracker:  n.tracker,
		Address:  n.peerAddress,
		Evidence: func(vtop.NodeName) { n.control.Wake() },
		Log:      n.cfg.Log.Named("liveness"),
	})
	n.control = controller.Start(controller.Config{
		Self: n.cfg.Name, Machine: n.machine, Quorum: n.meta, Tracker: n.tracker, Receiver: n.receive,
		SelfHealth: n.health, LogEnds: n.logEnds, Extend: n.extend,
		Interval: beatInterval, LogEndTimeout: logEndTimeout, PromotionDeadline: promotionDeadline,
		BalanceEvery: balanceEvery, HomeAfter: homeAfter, HealAfter: n.cfg.HealAfter, RepairRate: n.cfg.RepairRate, Clock: monotonic, Log: n.cfg.Log.Named("controller"),
	})
	n.mux.HandleStream(transport.Heartbeat, n.receive.Serve)
}

func (n *Node) startSender() *liveness.Sender {
	return liveness.StartSender(liveness.SenderConfig{
		Interval:   beatInterval,
		AckTimeout: 2 * n.cfg.NodeTimeout,
		Voters:     n.otherVoters,
		Dial: func(ctx context.Context, to transport.Target) (*transport.Stream, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return n.dialer.DialStream(ctx, to, transport.Heartbeat)
		},
		Beat: n.beat, Extend: n.extend, Gone: n.meta.HintLeaderDead, Clock: monotonic, Log: n.cfg.Log.Named("liveness"),
	})
}

func (n *Node) otherVoters() []transport.Target {
	var out []transport.Target
	for _, s := range n.meta.RaftServers() {
		if s.Name == n.cfg.Name || !s.Voter || s.Name == "" {
			continue
		}
		if addr, ok := n.peerAddress(s.Name); ok {
			out = append(out, transport.Target{Name: s.Name, Addr: addr})
		}
	}
	return out
}

func (n *Node) peerAddress(node vtop.NodeName) (string, bool) {
	a, ok := n.meta.NodeAddress(node)
	return a.Peer, ok && a.Peer != ""
}

// extend moves the deadline until which this process may lead: the lease time from when the beat was sent that the
// verified Raft leader answered (I7).
func (n *Node) extend(sent time.Duration) {
	if n.disk.Stalled() > diskStallSuspect {
		return // see stepAside
	}
	n.machine.Leases().SetDeadline(sent + n.cfg.LeaseTime)
}

// health is what this node says of itself.
func (n *Node) health() liveness.Health {
	return liveness.Health{
		Incarnation: n.who.Self().Incarnation,
		FreeBytes:   n.freeBytes(),
		DiskStalled: n.disk.Stalled(),
		DiskFailing: n.disk.Failing(),
		NoSpace:     errors.Is(n.store.Admits(), vtop.ErrNoSpace),
		Leaving:     n.leaving.Load(),
		Applied:     n.machine.Applied(),
	}
}

// freeBytes of the data disk; 0 if it can't be learned.
func (n *Node) freeBytes() uint64 {
	free, _, err := n.cfg.FS.Free(n.cfg.DataDir)
	if err != nil {
		return 0
	}
	return free
}

func (n *Node) beat() *peerpb.Beat {
	h := n.health()
	return &peerpb.Beat{
		FreeBytes:     n.freeBytes(),
		DiskOk:        !h.DiskFailing,
		DiskStalledMs: uint32(min(h.DiskStalled, time.Hour) / time.Millisecond),
		NoSpace:       h.NoSpace,
		Draining:      h.Leaving,
		AppliedIndex:  h.Applied,
	}
}

// Alive says whether this node believes that another runs: by its own verdict if it is sent beats, being a Raft
// voter, else by whether it is registered at all.
//
// A node whose own deadline has passed is cut off, or has just started: its silence about others proves nothing, and it
// leads nothing itself. Clients that reach only it must still learn of the others.
func (n *Node) Alive(name vtop.NodeName) bool {
	if n.TimeLeft() <= 0 {
		return name != n.cfg.Name
	}
	return believedAlive(n.tracker.Verdict(name), name == n.cfg.Name, n.votes)
}

// believedAlive: who isn't a voter, be it no more, is sent no beats, and the silence since the last ones proves nothing.
func believedAlive(v liveness.Verdict, self bool, votes func() bool) bool {
	return v.Alive || !self && !votes()
}

func (n *Node) votes() bool {
	for _, s := range n.meta.RaftServers() {
		if s.Name == n.cfg.Name {
			return s.Voter
		}
	}
	return false
}

func (n *Node) logEnds(ctx context.Context, node vtop.NodeName, asks []controller.Ask) ([]controller.LogEnd, error) {
	req := &peerpb.LogEndsRequest{}
	for _, a := range asks {
		req.Items = append(req.Items, &peerpb.LogEndsItem{Range: transport.RangeTo(a.Range), ReplicaId: uint64(a.Replica)})
	}
	resp, err := n.askLogEnds(ctx, node, req)
	if err != nil {
		return nil, err
	}
	if len(resp.GetResults()) != len(asks) {
		return nil, errors.New("log ends: answers do not match the questions")
	}
	var out []controller.LogEnd
	for i, r := range resp.GetResults() {
		if r.GetCode() != peerpb.Code_CODE_UNSPECIFIED {
			continue
		}
		out = append(out, controller.LogEnd{
			Range: asks[i].Range, End: vtop.Offset(r.GetDurableEnd()),
			LastEpoch: vtop.Epoch(r.GetLastEpoch()), Promised: vtop.Epoch(r.GetPromised()),
			Damaged: r.GetState() == replica.StateDamaged,
		})
	}
	return out, nil
}

func (n *Node) askLogEnds(ctx context.Context, node vtop.NodeName, req *peerpb.LogEndsRequest) (*peerpb.LogEndsResponse, error) {
	if node == n.cfg.Name {
		e := n.engine.Load()
		if e == nil {
			return nil, vtop.ErrNotReady
		}
		return e.LogEnds(ctx, transport.Caller{Self: n.who.Self()}, req)
	}
	to, err := n.target(node)
	if err != nil {
		return nil, err
	}
	return n.client.LogEnds(ctx, to, req)
}
