package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// A life is a function of its seed. VTOP_SIM_SEED is the first one (default 1), VTOP_SIM_LIVES how many follow it (default 40, so that
// `go test ./...` stays quick; make sim runs thousands), VTOP_SIM_BUDGET how long no new one begins after. VTOP_SIM_TRACE prints what happened.
func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// stuckLimit is in real time: a life takes a fraction of a second. Virtual time stands still while a goroutine waits for a
// sync.Mutex whose holder waits for time; that is a mistake in the simulation or a deadlock, and both should show.
const stuckLimit = 2 * time.Minute

// live runs one life in a bubble of its own.
func live(t *testing.T, seed uint64) (res Result) {
	t.Helper()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		var done atomic.Bool
		stuck := time.AfterFunc(stuckLimit, func() {
			if !done.Load() {
				buf := make([]byte, 4<<20)
				panic(fmt.Sprintf("seed %d: time stands still\n%s", seed, buf[:runtime.Stack(buf, true)]))
			}
		})
		synctest.Test(t, func(*testing.T) { res = Live(seed) })
		done.Store(true)
		stuck.Stop()
		if len(res.Failures) > 0 {
			t.Errorf("seed %d after %d events, %s of virtual time:\n%s\nthe last of the trace:\n%s\nagain: make sim SEED=%d LIVES=1",
				seed, res.Events, res.Took.Round(time.Millisecond), strings.Join(res.Failures, "\n"), lastLines(res.Tail, 60), seed)
		}
	})
	return res
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// TestLives is the simulation: many short lives of a cluster, each from the next seed.
func TestLives(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first, lives := envInt("VTOP_SIM_SEED", 1), envInt("VTOP_SIM_LIVES", 40)
	if testing.Short() {
		lives = min(lives, 10)
	}
	budget := time.Duration(envInt("VTOP_SIM_BUDGET", 1<<20)) * time.Second
	began, ran := time.Now(), 0
	var total counts
	var virtual time.Duration
	for seed := first; seed < first+lives && time.Since(began) < budget; seed++ {
		res := live(t, uint64(seed))
		ran++
		virtual += res.Took
		total.plus(res.counts)
		if os.Getenv("VTOP_SIM_TRACE") != "" {
			t.Logf("seed %d: hash %016x, %d events, %s\n%s", seed, res.Hash, res.Events, res.Took, res.Tail)
		}
		if t.Failed() {
			break // the seeds behind it may show the same
		}
	}
	t.Logf("%d lives, %s of virtual time in %s: %+v", ran, virtual.Round(time.Second), time.Since(began).Round(time.Millisecond), total)
	if total.acked < 5*ran && !t.Failed() {
		t.Fatalf("%d records were acknowledged in %d lives: that shows nothing", total.acked, ran)
	}
}
