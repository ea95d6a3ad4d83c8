package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// host is a machine: it has a disk, and at most one process.
type host struct {
	life *life
	name vtop.NodeName

	mu    sync.Mutex
	rng   *rand.Rand
	fs    *vfs.CrashFS
	disks int // how many disks it has had
	proc  *process
	// starting is set while a process is being started.
	starting bool
	frozen   chan struct{} // closed when the pause ends; nil: no pause
	lag      time.Duration
	// snapshot is the index of the metadata with which the next process begins.
	snapshot uint64
}

func newHost(l *life, name vtop.NodeName) *host {
	return &host{life: l, name: name, rng: rngOf(l.seed, "host "+string(name)), fs: vfs.NewCrashFS(l.seed), disks: 1}
}

// running is the process that lives, or nil.
func (h *host) running() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proc == nil || h.proc.dead.Load() {
		return nil
	}
	return h.proc
}

// present is the process that is there, dead or alive.
func (h *host) present() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proc
}

func (h *host) lagging() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lag
}

func (h *host) setLag(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lag = d
}

// thaw waits until the host is not paused.
func (h *host) thaw(ctx context.Context) error {
	h.mu.Lock()
	frozen := h.frozen
	h.mu.Unlock()
	if frozen == nil {
		return nil
	}
	select {
	case <-frozen:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// freeze pauses the host, as far as others and its disk can see: nothing comes in or goes out until thawed.
func (h *host) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen != nil || h.proc == nil {
		return
	}
	h.frozen = make(chan struct{})
	frozen := h.frozen
	h.proc.disk.with(func() { h.proc.disk.frozen = frozen })
	h.life.net.setFrozen(string(h.name), true)
}

func (h *host) unfreeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen == nil {
		return
	}
	close(h.frozen)
	h.frozen = nil
	if h.proc != nil {
		h.proc.disk.with(func() { h.proc.disk.frozen = nil })
	}
	h.life.net.setFrozen(string(h.name), false)
}

// kill ends the process. Without power, what was not synced is lost in part, and nobody hears of it.
func (h *host) kill(power bool) {
	h.unfreeze()
	p := h.present()
	if p == nil {
		return
	}
	p.dead.Store(true)
	h.mu.Lock()
	old := h.fs
	h.mu.Unlock()
	old.PowerCut()
	h.life.oracle.dies(p) // it asks hosts: not under mu
	h.mu.Lock()
	if h.proc != p { // somebody else was quicker
		h.mu.Unlock()
		return
	}
	h.proc = nil
	policy := vfs.KeepAll()
	if power {
		policy = vfs.AnyPolicy(h.rng)
	}
	h.fs = old.CrashClone(h.rng, policy)
	if applied := p.machine.Applied(); applied > h.snapshot && h.rng.IntN(2) == 0 {
		h.snapshot += h.rng.Uint64N(applied - h.snapshot + 1)
	}
	h.mu.Unlock()
	if power {
		h.life.net.setOff(string(h.name), true)
	}
	h.life.net.sever(p, power)
	h.life.ledger.leave(p)
	h.life.graves.Go(p.bury)
}

// wipe gives the host, which runs nothing, a new disk.
func (h *host) wipe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disks++
	h.fs, h.snapshot = vfs.NewCrashFS(h.life.seed+uint64(h.disks)), 0
}
