package sim

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// VTOP_SIM_SEED is the first seed (default 1), VTOP_SIM_LIVES how many lives there are (default 40, so that `go test ./...` stays
// quick; make sim runs more), VTOP_SIM_BUDGET after how many seconds none begins any more. VTOP_SIM_FRESH gives each life a process of
// its own, so that nothing is left of those before it. VTOP_SIM_TRACE prints what happened in each.
func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// stuckLimit is in minutes of real time: a life takes a fraction of a second. Virtual time stands still while a goroutine waits for a
// sync.Mutex whose holder waits for time; that is a mistake in the simulation or a deadlock, and both should show. The minutes are
// looked at one by one, so that a process that was stopped meanwhile has not used them up when it goes on.
const stuckLimit = 5

// live runs one life in a bubble of its own.
func live(t *testing.T, seed uint64) (res Result) {
	t.Helper()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		var done atomic.Bool
		var stuck atomic.Pointer[time.Timer]
		var look func(left int) *time.Timer
		look = func(left int) *time.Timer {
			return time.AfterFunc(time.Minute, func() {
				switch {
				case done.Load():
				case left > 1:
					stuck.Store(look(left - 1))
				default:
					buf := make([]byte, 4<<20)
					panic(fmt.Sprintf("seed %d: time stands still\n%s", seed, buf[:runtime.Stack(buf, true)]))
				}
			})
		}
		stuck.Store(look(stuckLimit))
		synctest.Test(t, func(*testing.T) { res = Live(seed) })
		done.Store(true)
		stuck.Load().Stop()
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

// countsMark begins the line in which a process with one life tells what that did.
const countsMark = "counts of the life:"

// liveApart runs one life in a process of its own, which is this program.
func liveApart(t *testing.T, seed int) (c counts) {
	t.Helper()
	run := exec.Command(os.Args[0], "-test.run", "^TestLives$", "-test.v")
	run.Env = append(os.Environ(), fmt.Sprintf("VTOP_SIM_SEED=%d", seed), "VTOP_SIM_LIVES=1", "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=3GiB")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("seed %d: %v\n%s", seed, err, out)
		return c
	}
	if _, after, ok := strings.Cut(string(out), countsMark); ok {
		if _, err := fmt.Sscan(after, &c.acked, &c.read, &c.grants, &c.repairs, &c.seals, &c.cuts, &c.kills, &c.lost); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	return c
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
		ran++
		if os.Getenv("VTOP_SIM_FRESH") != "" && lives > 1 {
			total.plus(liveApart(t, seed))
			if t.Failed() {
				break
			}
			continue
		}
		res := live(t, uint64(seed))
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
	if lives == 1 {
		fmt.Printf("%s %d %d %d %d %d %d %d %d\n", countsMark, total.acked, total.read, total.grants, total.repairs, total.seals, total.cuts, total.kills, total.lost)
	}
	if total.acked < 5*ran && !t.Failed() && lives > 1 {
		t.Fatalf("%d records were acknowledged in %d lives: that shows nothing", total.acked, ran)
	}
}

// TestLives_OfOneSeed measures how far a seed repeats a life: it runs some seeds twice and compares the hashes of all that happened.
// That they are equal is not asserted: docs/testing.md says why they may not be.
func TestLives_OfOneSeed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first, seeds := envInt("VTOP_SIM_SEED", 1), envInt("VTOP_SIM_TWICE", 5)
	same := 0
	for seed := first; seed < first+seeds && !t.Failed(); seed++ {
		a, b := live(t, uint64(seed)), live(t, uint64(seed))
		if a.Hash == b.Hash {
			same++
			continue
		}
		la, lb := strings.Split(a.Tail, "\n"), strings.Split(b.Tail, "\n")
		for i := range min(len(la), len(lb)) {
			if la[i] != lb[i] {
				t.Logf("seed %d: %d and %d events; they differ from event %d on:\n%.200s\n%.200s", seed, a.Events, b.Events, i, la[i], lb[i])
				break
			}
		}
	}
	t.Logf("%d of %d seeds went the same way twice", same, seeds)
}
