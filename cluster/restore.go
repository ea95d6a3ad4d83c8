package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/controller"
	"github.com/vtop-log/vtop/cluster/repair"
	"github.com/vtop-log/vtop/cluster/replica"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/storage"
	"github.com/vtop-log/vtop/transport"
)

const (
	// scrubEvery is how often the background scrub begins with the sealed segments of this node, if it is not busy with them still.
	scrubEvery = time.Hour
	// scrubCalm is the pressure under which a scrub begins with the next range; scrubPause how long it waits for it.
	scrubCalm  = 40
	scrubPause = time.Second
)

// startRepairs starts the runner of the jobs to this node, and lets others read its sealed segments.
func (n *Node) startRepairs(engine *replica.Engine) error {
	self := n.who.Self()
	runner, err := repair.New(repair.Config{
		Self: self.Name, Incarnation: self.Incarnation, Machine: n.machine, Store: n.store,
		Peers:   repair.ClientPeers{Client: n.client, Target: n.target},
		Propose: n.meta.Propose, CaughtUp: n.meta.CaughtUp,
		Follows: func(r vtop.Range) repair.Following { return follows(engine, r) },
		Wake:    engine.WakeRange, Alive: n.Alive, Pressure: engine.Pressure, Log: n.cfg.Log,
	})
	if err != nil {
		return err
	}
	n.runner.Store(runner)
	n.mux.SetHandler(n.handlers().WithSegments(engine))
	return nil
}

func (n *Node) handlers() transport.Handlers {
	return transport.Join(n.meta.Handler(), replicaSide{n}, controlSide{n})
}

// follows is what the engine knows of the replica of a range on this node.
func follows(e *replica.Engine, r vtop.Range) repair.Following {
	d, err := e.Describe(r)
	if err != nil {
		return repair.Following{HighWatermark: -1, Why: err.Error()}
	}
	return repair.Following{HighWatermark: d.HighWatermark, Why: d.Why}
}

// allowTransfer is the transfer allowlist: see allowed.
func (n *Node) allowTransfer(from transport.Caller) error {
	if n.engine.Load() == nil || !n.meta.CaughtUp() {
		return fmt.Errorf("%w: node %q does not know yet who is registered", vtop.ErrNotReady, n.cfg.Name)
	}
	return allowed(n.State(), n.cfg.TransferAllow, from.Self)
}

// allowed says whether a node may seal and copy from this one: the nodes of this cluster may, those that drain too, each with the
// data directory that is registered under its name; if only names some, no others.
func allowed(st *fsm.State, only []vtop.NodeName, from transport.Self) error {
	node, ok := st.Node(from.Name)
	switch {
	case !ok || node.State == fsm.NodeGone:
		return errors.New("it is no node of this cluster: join it first")
	case node.Storage != from.Storage:
		return fmt.Errorf("its data directory is %s, registered is %s: 'vtopctl node replace %s %s' admits it", from.Storage, node.Storage, from.Name, from.Name)
	case len(only) > 0 && !slices.Contains(only, from.Name):
		return fmt.Errorf("--transfer-allow names %v: add it there", only)
	}
	return nil
}

// onDamage hands on what the store found damaged. What it finds before there is an engine, that finds by itself.
func (n *Node) onDamage(d storage.Damage) {
	if e := n.engine.Load(); e != nil {
		e.Damaged(d)
	}
}

// scrub reads the sealed segments of this node again and again, gently (L3): what has rotted becomes a hole, and is fetched anew.
func (n *Node) scrub() {
	defer n.wg.Done()
	if n.cfg.ScrubRate <= 0 || n.meta.WaitCaughtUp(n.ctx) != nil {
		return
	}
	for {
		if n.rest(scrubPause) != nil { // not with the first moments of a start
			return
		}
		began := monotonic()
		bad := 0
		for _, info := range n.store.List() {
			for e := n.engine.Load(); e != nil && e.Pressure() > scrubCalm; {
				if n.rest(scrubPause) != nil {
					return
				}
			}
			err := n.Scrub(n.ctx, info.Range, n.cfg.ScrubRate, func(v storage.Verdict) {
				if v.Health == storage.HealthBad {
					bad++
				}
			})
			if err != nil && n.ctx.Err() == nil {
				n.log.Debug("replica not scrubbed", "range", n.State().RangeName(info.Range), "error", err)
			}
		}
		n.log.Debug("scrubbed", "took", monotonic()-began, "bad", bad)
		if n.rest(max(scrubEvery-(monotonic()-began), scrubPause)) != nil {
			return
		}
	}
}

// rest waits; the cause of the node's end if that comes first.
func (n *Node) rest(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-n.ctx.Done():
		return context.Cause(n.ctx)
	}
}

// Healing is what this node, being Raft leader, does about replicas that are missing.
func (n *Node) Healing() controller.Healing { return n.control.Healing() }
