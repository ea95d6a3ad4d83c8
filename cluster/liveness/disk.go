package liveness

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
)

// DiskConfig says what the watchdog watches.
type DiskConfig struct {
	// Probe writes and fsyncs a few bytes on the data disk. It may hang for as long as the disk does.
	Probe func(context.Context) error
	// InFlight gives the time that the Raft log's present write has taken; 0 if none is in flight. May be nil.
	InFlight func() time.Duration
	// Interval lies between two probes.
	Interval time.Duration
	// Limit is the stall after which OnStall is called, once.
	Limit time.Duration
	// OnStall ends the process: a Raft leader whose disk never answers stays leader for ever otherwise.
	OnStall func(stalled time.Duration)
	Clock   func() time.Duration
	Log     hclog.Logger
}

// Disk is the watchdog of a node's disk.
type Disk struct {
	cfg     DiskConfig
	started atomic.Int64 // when the probe in flight began, 0 if none
	failing atomic.Bool
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// StartDisk starts watching. Close ends it.
func StartDisk(cfg DiskConfig) *Disk {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Disk{cfg: cfg, cancel: cancel}
	go d.probe(ctx) // not waited for: it may hang in the kernel for as long as the disk does
	d.wg.Add(1)
	go d.watch(ctx)
	return d
}

// Stalled is the time that the oldest write in flight has taken, data disk or Raft log.
func (d *Disk) Stalled() time.Duration {
	var stalled time.Duration
	if s := d.started.Load(); s != 0 {
		stalled = d.cfg.Clock() - time.Duration(s)
	}
	if d.cfg.InFlight != nil {
		stalled = max(stalled, d.cfg.InFlight())
	}
	return stalled
}

// Failing reports whether the last probe came back with an error other than a full disk.
func (d *Disk) Failing() bool { return d.failing.Load() }

// Close stops the watchdog. A probe that hangs is left to the kernel.
func (d *Disk) Close() {
	d.cancel()
	d.wg.Wait()
}

func (d *Disk) probe(ctx context.Context) {
	ticker := time.NewTicker(d.cfg.Interval)
	defer ticker.Stop()
	for {
		d.started.Store(max(int64(d.cfg.Clock()), 1))
		err := d.cfg.Probe(ctx)
		d.started.Store(0)
		if ctx.Err() != nil {
			return
		}
		failing := err != nil && !errors.Is(err, vtop.ErrNoSpace)
		if d.failing.Swap(failing) != failing {
			if failing {
				d.cfg.Log.Error("data disk fails its probe", "error", err)
			} else {
				d.cfg.Log.Info("data disk answers again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *Disk) watch(ctx context.Context) {
	defer d.wg.Done()
	ticker := time.NewTicker(min(d.cfg.Interval, d.cfg.Limit/4))
	defer ticker.Stop()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stalled := d.Stalled()
		switch {
		case stalled > d.cfg.Limit:
			d.cfg.Log.Error("disk has hung past the limit: ending the process", "stalled", stalled, "limit", d.cfg.Limit)
			d.cfg.OnStall(stalled)
			return
		case stalled > d.cfg.Limit/4 && !warned:
			warned = true
			d.cfg.Log.Warn("storage stalled", "stalled", stalled)
		case stalled == 0 && warned:
			warned = false
			d.cfg.Log.Info("storage answers again")
		}
	}
}
