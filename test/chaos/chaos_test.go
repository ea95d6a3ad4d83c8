//go:build cluster

package chaos

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// defaultSeed is that of the short set, as it runs before every change lands.
const defaultSeed = 20_241

// TestChaos deals every fault once, from VTOP_CHAOS_SEED, to each of VTOP_CHAOS_LIVES clusters that work, each from the next seed;
// with VTOP_CHAOS_MINUTES to one cluster after the other until so much time has passed. VTOP_CHAOS_FAULTS names the only faults
// to deal, with commas between them.
func TestChaos(t *testing.T) {
	seed, lives, minutes := number(t, "VTOP_CHAOS_SEED", defaultSeed), number(t, "VTOP_CHAOS_LIVES", 1), number(t, "VTOP_CHAOS_MINUTES", 0)
	faults := only(catalogue(), os.Getenv("VTOP_CHAOS_FAULTS"))
	if len(faults) == 0 {
		t.Fatal("VTOP_CHAOS_FAULTS names no fault")
	}
	until := time.Now().Add(time.Duration(minutes) * time.Minute)
	rep := newReport()
	for life := seed; ; life++ {
		ok := t.Run("seed "+strconv.FormatUint(life, 10), func(t *testing.T) { live(t, life, faults, rep) })
		rep.lives++
		if ok && os.Getenv("VTOP_KEEP") == "" {
			if left := harness.Leftovers(); len(left) > 0 {
				ok = false
				t.Errorf("seed %d passed, and left behind: %s", life, strings.Join(left, "; "))
			}
		}
		if !ok || uint64(rep.lives) >= lives && !time.Now().Before(until) {
			break
		}
	}
	t.Log(rep)
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", name, text, err)
	}
	return v
}

// live is one life of a cluster: all rounds of a seed.
func live(t *testing.T, seed uint64, faults []fault, rep *report) {
	t.Cleanup(func() {
		if t.Failed() {
			line := "make chaos LIVES=1 SEED=" + strconv.FormatUint(seed, 10)
			if names := os.Getenv("VTOP_CHAOS_FAULTS"); names != "" {
				line += " FAULTS=" + names
			}
			t.Logf("run it again: %s", line)
		}
	})
	w := newWorld(t, rep)
	for what, why := range w.missing {
		t.Logf("this machine has no %s: %s", what, why)
	}
	w.leases = newLeaseWatch(w)
	w.createTopics()
	before, err := w.holds()
	if err != nil {
		t.Fatal(err)
	}
	w.startLoad()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() { w.supervise(ctx) })
	background.Go(func() { w.leases.run(ctx) })
	end := sync.OnceFunc(func() { cancel(); background.Wait() })
	defer end()
	for _, r := range plan(seed, faults) {
		if w.round(r); t.Failed() {
			return
		}
	}
	w.load.stop()
	after, err := w.backTo(before)
	if err != nil {
		t.Error(err)
	}
	t.Logf("goroutines and open files, idle: before %v, after %v; %d processes ended by their disk watchdog beside those that were meant to", before, after, w.stalls)
}

// round strikes, lets everything heal, and checks.
func (w *world) round(r round) {
	began := time.Now()
	w.stoodBefore = harness.StoodStill()
	if err := w.load.more(10, calm); err != nil {
		w.t.Fatalf("round %d (%s): before the first blow: %v", r.number, r, err)
	}
	admins := w.startChurn(r)
	blows := w.strike(r)
	struck := time.Now()
	err := w.load.more(20, calm)
	if err != nil {
		err = errors.Join(errors.New("unavailable after the last blow"), err)
	}
	served := time.Now()
	err = errors.Join(err, admins.stop(), w.taken())
	var checks []string
	if err == nil {
		err = w.check(&checks)
	}
	err = errors.Join(err, w.taken())
	w.report.rounds++
	for _, b := range blows {
		silence := w.load.silence(b)
		w.t.Logf("round %d: %s: %s; healed after %s, no record acknowledged for %s", r.number, b.name, b.did, short(b.healed.Sub(b.struck)), short(silence))
		w.report.saw(b.name, len(blows), silence)
	}
	w.t.Logf("round %d (%s): struck for %s, served %s later, checked in %s; %s; %s", r.number, r, short(struck.Sub(began)), short(served.Sub(struck)), short(time.Since(served)), strings.Join(checks, ", "), admins)
	if still := w.stoodStill(); still > 0 {
		w.t.Logf("round %d: the machine, or this process, stood still for %s in all; limits were longer by as much", r.number, short(still))
	}
	if err != nil {
		w.t.Fatalf("round %d (%s): %v", r.number, r, err)
	}
}

// strike has all faults of a round struck and healed, overlapping one another, and returns those that were.
func (w *world) strike(r round) []*blow {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var done []*blow
	for i, f := range r.faults {
		b := &blow{w: w, rng: r.rng(uint64(10 + i)), name: f.name}
		if why, ok := w.missing[f.needs]; ok {
			w.report.skipped[f.name] = why
			w.t.Logf("round %d: %s did not run: %s", r.number, f.name, why)
			continue
		}
		wg.Go(func() {
			if i > 0 {
				b.hold(0, 3*time.Second)
			}
			err := f.run(b)
			b.healed = time.Now()
			var not skipped
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.As(err, &not):
				w.report.skipped[f.name] = not.why.Error()
				w.t.Logf("round %d: %s %v", r.number, f.name, err)
			case err != nil:
				w.fails("%s (%s): %w", f.name, b.did, err)
			default:
				done = append(done, b)
			}
		})
	}
	wg.Wait()
	return done
}
