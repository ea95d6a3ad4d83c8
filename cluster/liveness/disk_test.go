package liveness

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vtop-log/vtop"
)

func startTestDisk(t *testing.T, probe func(context.Context) error, inFlight func() time.Duration, onStall func(time.Duration)) *Disk {
	t.Helper()
	start := time.Now()
	return StartDisk(DiskConfig{
		Probe: probe, InFlight: inFlight, OnStall: onStall,
		Interval: time.Second, Limit: 10 * time.Second,
		Clock: func() time.Duration { return time.Since(start) + time.Second },
		Log:   hclog.NewNullLogger(),
	})
}

func TestDisk_HangIsSeenAndEndsTheProcessPastTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		hang := make(chan struct{})
		d := startTestDisk(t, func(context.Context) error { <-hang; return nil }, nil, func(s time.Duration) { ended <- s })
		time.Sleep(4 * time.Second)
		if s := d.Stalled(); s < 3*time.Second {
			t.Fatalf("stalled %s after 4 s of hang", s)
		}
		if s := <-ended; s <= 10*time.Second {
			t.Fatalf("ended the process after %s", s)
		}
		close(hang)
		d.Close()
	})
}

func TestDisk_RaftLogHangCountsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startTestDisk(t, func(context.Context) error { return nil }, func() time.Duration { return 7 * time.Second }, nil)
		synctest.Wait()
		if s := d.Stalled(); s != 7*time.Second {
			t.Fatalf("stalled %s", s)
		}
		d.Close()
	})
}

func TestDisk_FailingProbeHealsAndFullDiskIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := make(chan error, 3)
		errs <- errors.New("input/output error")
		errs <- vtop.ErrNoSpace
		errs <- nil
		d := startTestDisk(t, func(ctx context.Context) error {
			select {
			case err := <-errs:
				return err
			case <-ctx.Done():
				return nil
			}
		}, nil, func(time.Duration) {})
		synctest.Wait()
		if !d.Failing() {
			t.Fatal("an I/O error is a failure")
		}
		time.Sleep(1500 * time.Millisecond)
		if d.Failing() {
			t.Fatal("a full disk is not a failing one")
		}
		d.Close()
		synctest.Wait()
	})
}

// A process that was stopped with a write in flight does not take its own absence for a hang of the disk.
func TestDisk_PauseOfTheProcessIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var paused atomic.Int64
		hang, ended := make(chan struct{}), make(chan time.Duration, 1)
		d := StartDisk(DiskConfig{
			Probe:    func(context.Context) error { <-hang; return nil },
			OnStall:  func(s time.Duration) { ended <- s },
			Interval: time.Second, Limit: 10 * time.Second,
			// The clock of the machine goes on while the process, and with it every timer of its own, stands still.
			Clock: func() time.Duration { return time.Since(start) + time.Second + time.Duration(paused.Load()) },
			Log:   hclog.NewNullLogger(),
		})
		time.Sleep(1500 * time.Millisecond)
		paused.Store(int64(17 * time.Second))
		time.Sleep(5 * time.Second)
		select {
		case s := <-ended:
			t.Fatalf("ended the process after %s, of which it had slept 17 s", s)
		default:
		}
		// Case: the disk does hang, beside the pause.
		if s := <-ended; s < 27*time.Second {
			t.Fatalf("ended the process after %s: less than the limit without the pause", s)
		}
		close(hang)
		d.Close()
	})
}
