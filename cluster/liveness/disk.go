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
	// Limit is the stall after which OnStall is called, once. Time in which this process did not run is not counted.
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
	period := min(d.cfg.Interval, d.cfg.Limit/4)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	warned := false
	seen, last := time.Duration(0), d.cfg.Clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		stalled, now := d.Stalled(), d.cfg.Clock()
		seen, last = witnessed(seen, stalled, now-last, 2*period), now
		switch {
		case seen > d.cfg.Limit:
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

// witnessed is how much of a stall this process was running for, given what it had seen of it at the last look, gap ago. Of a
// gap only so much as most counts: a process that was stopped with a write in flight (SIGSTOP, a paused virtual machine) finds
// that write as old as its pause when it wakes, and the disk has done nothing wrong.
func witnessed(seen, stalled, gap, most time.Duration) time.Duration {
	if stalled <= gap {
		return min(stalled, most) // it began after the last look
	}
	return seen + min(gap, most)
}
