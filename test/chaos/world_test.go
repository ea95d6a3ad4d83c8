//go:build cluster

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/vtop-log/vtop/test/harness"
)

const (
	founders = 3
	nodes    = 4 // with one that holds no more than the others leave it
	diskSize = 2 << 30
	// healAfter is short, so that what was lost is rebuilt within a round.
	healAfter = "8s"
	// calm is how long whatever must come about is waited for at most. It is much longer than anything takes, as the machine may
	// be shared and slow: a run that is whole never waits for long, and one that isn't waits this long once or twice.
	calm = 5 * time.Minute
	// exitDiskStall is how vtopd ends when its disk hangs for too long.
	exitDiskStall = 5
)

// world is one cluster, with all that works with it, for one life: from a seed to the end of its rounds.
type world struct {
	t       *testing.T
	c       *harness.Cluster
	disks   []*harness.Disk
	net     *harness.Network
	missing map[need]string // why the machine can't
	adm     *kadm.Client

	// claims: a node is struck by one fault at a time, and is not the supervisor's meanwhile.
	claims [nodes]sync.Mutex

	load   *load
	leases *leaseWatch
	report *report

	// stepped is by what the clock of a node was stepped in this life, in milliseconds; 0: not yet.
	stepped atomic.Int64
	began   time.Time
	// stoodBefore is for how long the machine stood still before the round.
	stoodBefore time.Duration

	mu     sync.Mutex
	errs   []error // found while a round ran
	stalls int     // processes that the disk watchdog ended, started again
}

func newWorld(t *testing.T, rep *report) *world {
	t.Helper()
	w := &world{t: t, missing: map[need]string{}, report: rep, began: time.Now()}
	w.prepare()
	opt := harness.Options{Nodes: founders, Flags: []string{
		"--log-level", "debug", "--heal-after", healAfter, "--disk-reserve", "64MiB", "--auto-create-topics=false", "--pin-idle", "20s",
	}}
	if w.net != nil {
		opt.Flags = append(opt.Flags, "--allow-plaintext")
		opt.Host, opt.Wrap = w.net.Host, w.net.Wrap
	}
	if w.disks != nil {
		opt.Dir = func(i int) string { return filepath.Join(w.disks[i].Dir, "data") }
	}
	w.c = harness.Start(t, opt)
	for len(w.c.Nodes) < nodes {
		n := w.c.AddNode()
		n.Start()
		n.WaitReady()
	}
	client, err := kgo.NewClient(harness.ClientOptions(w.c.Bootstrap())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w.adm = kadm.NewClient(client)
	return w
}

// prepare makes disks and the network, and notes what the machine has not.
func (w *world) prepare() {
	for range nodes {
		d, err := harness.TryDisk(w.t, diskSize)
		if err != nil {
			w.missing[needDisks], w.disks = err.Error(), nil
			break
		}
		w.disks = append(w.disks, d)
	}
	if len(w.disks) == nodes {
		if err := w.disks[0].TryPowerCut(); err != nil {
			w.missing[needDisks] = err.Error()
		}
		w.disks[0].Remount()
	}
	var err error
	if w.net, err = harness.TryNetwork(w.t, nodes); err != nil {
		w.missing[needNetwork], w.net = err.Error(), nil
	}
	if _, err := exec.LookPath("strace"); err != nil {
		w.missing[needStrace] = err.Error()
	}
}

// fails notes what is wrong; the round ends with it.
func (w *world) fails(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

func (w *world) taken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.errs...)
}

// supervise does what a supervisor does for processes that nobody strikes: one that its disk watchdog ended is started again;
// any other end is a fault of vtop's.
func (w *world) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		for i, n := range w.c.Nodes {
			if !w.claims[i].TryLock() {
				continue
			}
			if code, ended := n.Exited(); ended {
				w.restart(n, code)
			}
			w.claims[i].Unlock()
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func (w *world) restart(n *harness.Node, code int) {
	if code == exitDiskStall {
		w.stalled(n)
	} else {
		w.fails("%s ended by itself with exit code %d; it said: %s", n.Name, code, n.LogTail(3))
	}
	n.Start()
}

func (w *world) stalled(n *harness.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalls++
	w.t.Logf("%s was ended by its disk watchdog, and is started again", n.Name)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ctl runs vtopctl at a node, for limit at most.
func ctl(n *harness.Node, limit time.Duration, args ...string) error {
	cmd := n.CtlCommand(args...)
	done := make(chan struct{})
	defer close(done)
	timer := time.AfterFunc(limit, func() {
		select {
		case <-done:
		default:
			_ = cmd.Process.Kill()
		}
	})
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("vtopctl %v: %w: %s", args, err, out)
	}
	return nil
}

func (w *world) createTopic(name string, ranges int32, config map[string]*string) {
	w.t.Helper()
	w.c.Eventually(calm, "topic "+name, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		resp, err := w.adm.CreateTopic(ctx, ranges, 3, config, name)
		return errors.Join(err, resp.Err)
	})
	for i := range ranges {
		w.c.Holder(name, i)
	}
}
