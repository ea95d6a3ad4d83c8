package replica

import (
	"context"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// handIn carries to the metadata what this node has to say without being asked: leases that it gives back, and replicas
// that may have forgotten. It gathers, proposes in batches, and goes on until the applied state shows it or makes it
// pointless. At most one entry per range and kind (I13).
type handIn struct {
	engine *Engine
	wake   chan struct{}

	mu       sync.Mutex
	releases map[vtop.Range]fsm.Release
	losses   map[vtop.Range]loss
}

type loss struct {
	replica fsm.LostReplica
	why     string
}

func newHandIn(e *Engine) *handIn {
	return &handIn{engine: e, wake: make(chan struct{}, 1), releases: make(map[vtop.Range]fsm.Release), losses: make(map[vtop.Range]loss)}
}

func (h *handIn) release(r fsm.Release) {
	h.mu.Lock()
	h.releases[r.Range] = r
	h.mu.Unlock()
	h.signal()
}

func (h *handIn) lost(r fsm.LostReplica, why string) {
	h.mu.Lock()
	h.losses[r.Range] = loss{r, clip(why)}
	h.mu.Unlock()
	h.signal()
}

func (h *handIn) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *handIn) run() {
	e := h.engine
	for {
		select {
		case <-h.wake:
		case <-e.ctx.Done():
			return
		}
		var pause backoff
		for h.once() {
			if !pause.wait(e.ctx) {
				return
			}
		}
	}
}

// once proposes what is there and reports whether something is left.
func (h *handIn) once() bool {
	h.prune()
	h.mu.Lock()
	releases := make([]fsm.Release, 0, len(h.releases))
	for _, r := range h.releases {
		releases = append(releases, r)
	}
	byReason := make(map[string][]fsm.LostReplica)
	for _, l := range h.losses {
		byReason[l.why] = append(byReason[l.why], l.replica)
	}
	h.mu.Unlock()
	e := h.engine
	at := e.cfg.Now().UnixMilli()
	for part := range chunks(releases, fsm.MaxItems) {
		h.propose(&fsm.ReleaseLeases{Items: part, At: at})
	}
	for why, items := range byReason {
		for part := range chunks(items, fsm.MaxItems) {
			h.propose(&fsm.MarkReplicasLost{Node: e.self, Storage: e.store.Identity().Storage, Incarnation: e.cfg.Incarnation, Items: part, Reason: why, At: at})
		}
	}
	h.prune()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.releases)+len(h.losses) > 0
}

func (h *handIn) propose(cmd fsm.Command) {
	ctx, cancel := context.WithTimeout(h.engine.ctx, 5*time.Second)
	defer cancel()
	out, err := h.engine.cfg.Propose(ctx, cmd)
	if err == nil {
		err = out.Err()
	}
	if err != nil && h.engine.ctx.Err() == nil {
		h.engine.log.Warn("handing in", "command", cmd.Op(), "error", err)
	}
}

// prune drops what the applied state shows already, or what it has overtaken.
func (h *handIn) prune() {
	st := h.engine.machine.State()
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, release := range h.releases {
		rg, ok := st.Range(r)
		if !ok || rg.Lease.Epoch != release.Epoch || !rg.Lease.HeldBy(h.engine.self, h.engine.cfg.Incarnation) {
			delete(h.releases, r)
		}
	}
	for r, l := range h.losses {
		rg, ok := st.Range(r)
		if !ok {
			delete(h.losses, r)
			continue
		}
		if rep, ok := rg.Replica(l.replica.ReplicaID); !ok || rep.Lost != "" {
			delete(h.losses, r)
		}
	}
}

// chunks cuts items into parts of at most n.
func chunks[T any](items []T, n int) func(func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(items) > 0 {
			k := min(n, len(items))
			if !yield(items[:k]) {
				return
			}
			items = items[k:]
		}
	}
}
