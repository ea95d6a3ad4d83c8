//go:build cluster

package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// burnCPU takes all processors several times over until the returned function is called.
func burnCPU(t *testing.T, processes int) (stop func()) {
	t.Helper()
	var burning []*exec.Cmd
	for range processes {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		burning = append(burning, cmd)
	}
	stop = func() {
		for _, cmd := range burning {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		burning = nil
	}
	t.Cleanup(stop)
	return stop
}

// hogDisk writes and syncs 4 MiB over and over beside the data until the returned function is called.
func hogDisk(t *testing.T, dir string) (stop func() int64) {
	t.Helper()
	end, done := make(chan struct{}), make(chan int64)
	go func() {
		var written int64
		defer func() { done <- written }()
		block := make([]byte, 4<<20)
		for {
			f, err := os.Create(filepath.Join(dir, "hog"))
			if err != nil {
				return
			}
			for range 64 {
				select {
				case <-end:
					_ = f.Close()
					return
				default:
				}
				_, err := f.Write(block)
				if err := errors.Join(err, f.Sync()); err != nil {
					_ = f.Close()
					return
				}
				written += int64(len(block))
			}
			_ = f.Close()
		}
	}()
	return func() int64 { close(end); return <-done }
}

// No flapping: with every processor and the disk overloaded for more than forty seconds, at the shipped defaults, no
// lease moves and no Raft election happens, and records are still acknowledged.
func TestStability_OverloadMovesNoLease(t *testing.T) {
	const overload = 45 * time.Second
	dir := t.TempDir()
	c := harness.Start(t, harness.Options{Nodes: 3})
	createTopic(t, c, "ledger", 6, 3)
	ledger := harness.StartLedger(t, c.Bootstrap(), "ledger", harness.LedgerOptions{Ranges: 6, Size: 1024, InFlight: 256, PerSecond: harness.Unbounded})
	ledger.WaitMore(500, 30*time.Second)
	before, err := c.Leases("ledger")
	if err != nil {
		t.Fatal(err)
	}
	term := c.RaftTerm()
	stopCPU, stopDisk := burnCPU(t, 8), hogDisk(t, dir)
	acked := ledger.Count()
	for end := time.Now().Add(overload); time.Now().Before(end); {
		ledger.WaitMore(1, overload)
		time.Sleep(time.Second)
	}
	acked = ledger.Count() - acked
	stopCPU()
	t.Logf("overloaded for %s by 8 burners and %d MB written and synced beside; %d records acknowledged meanwhile", overload, stopDisk()/1e6, acked)
	var after []harness.Lease
	c.Eventually(30*time.Second, "leases", func() error { after, err = c.Leases("ledger"); return err })
	for i, l := range after {
		if l.Epoch != before[i].Epoch || l.Holder != before[i].Holder {
			t.Errorf("lease of ledger/%d moved: %s epoch %d, was %s epoch %d", l.Range, l.Holder, l.Epoch, before[i].Holder, before[i].Epoch)
		}
	}
	if now := c.RaftTerm(); now != term {
		t.Errorf("Raft term went from %d to %d", term, now)
	}
	c.VerifyLedger("ledger", ledger.Stop(60*time.Second))
}
