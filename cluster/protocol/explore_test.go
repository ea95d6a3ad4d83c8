package protocol

import (
	"os"
	"testing"
)

// scale multiplies the budgets of walks: 1 for every run, 20 with VTOP_EXPLORE=long.
func scale() uint64 {
	if os.Getenv("VTOP_EXPLORE") == "long" {
		return 20
	}
	return 1
}

// row is one bounded world to walk in.
type row struct {
	name  string
	rules rules
	lim   limits
	from  scene
	walks uint64 // budget
	steps int
}

// The worlds: small enough that what matters is near, each with the faults that a rule is about.
var (
	inBase    = limits{nodes: 3, voters: 3, epochs: 4, values: 3, retries: 6, bounces: 2, jumps: true, floors: true, partial: true}
	inFail    = limits{nodes: 3, voters: 3, epochs: 4, values: 3, retries: 6, bounces: 1, fails: 2, jumps: true, floors: true, partial: true}
	inWipe    = limits{nodes: 3, voters: 3, epochs: 4, values: 3, retries: 6, bounces: 1, wipes: 1, spares: 1, jumps: true, floors: true, partial: true}
	inRestart = limits{nodes: 3, voters: 3, epochs: 2, values: 1, retries: 1, bounces: 1}
	inRewind  = limits{nodes: 3, voters: 3, epochs: 2, values: 2, retries: 3, bounces: 1, rewinds: 1}
	inRewind4 = limits{nodes: 3, voters: 3, epochs: 4, values: 3, retries: 6, bounces: 2, rewinds: 1, jumps: true, floors: true, partial: true}
	inGrow    = limits{nodes: 4, voters: 3, epochs: 1, values: 3, retries: 3, changes: 3, spares: 1}
	inFive    = limits{nodes: 5, voters: 5, epochs: 1, values: 1, retries: 1, changes: 2}
	inAll     = limits{nodes: 5, voters: 3, epochs: 6, values: 4, retries: 10, bounces: 4, wipes: 1, fails: 1, changes: 4, spares: 3,
		jumps: true, floors: true, partial: true, maxNet: 90}
)

// TestExplore_Exhaustive visits every world of three nodes, two epochs, one record and one crash: every order of
// messages, delays, repeats and losses, every lag of the metadata. I1, I2, I5, I7 and the floor hold in all.
func TestExplore_Exhaustive(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("the exhaustive search takes about a minute")
	}
	t.Parallel()
	lim := limits{nodes: 3, voters: 3, epochs: 2, values: 1, retries: 1, bounces: 1, firstHolder: true, quiet: true}
	f, complete := explore(&rules{}, &lim, 4_000_000)
	if f.bad != "" {
		t.Fatalf("counter-example: %s", f)
	}
	if !complete {
		t.Fatalf("gave up after %d worlds", f.states)
	}
	t.Logf("all %d worlds", f.states)
}

// TestExplore_ExhaustiveFindsTheNearest: with a rule turned off, the exhaustive search finds the shortest way to break
// it, and the way can be replayed.
func TestExplore_ExhaustiveFindsTheNearest(t *testing.T) {
	lim := limits{nodes: 3, voters: 3, epochs: 1, values: 2, retries: 2, bounces: 1, firstHolder: true, quiet: true}
	broken := rules{leaseOutlives: true}
	f, _ := explore(&broken, &lim, 200_000)
	if f.bad == "" {
		t.Fatalf("%d worlds without a violation of I5", f.states)
	}
	bad, used, ok := replay(&broken, &lim, f.trace)
	if !ok || bad != f.bad || used != len(f.trace) {
		t.Fatalf("replay gives %q after %d of %d steps, search gave %q", bad, used, len(f.trace), f.bad)
	}
	t.Logf("%d worlds: %s", f.states, f)
}

// TestExplore_SwarmKeepsInvariants walks at random through larger worlds, with all kinds of faults.
func TestExplore_SwarmKeepsInvariants(t *testing.T) {
	t.Parallel()
	for _, c := range []row{
		{"crashes, jumps and lags", rules{}, inBase, sceneEmpty, 1500, 150},
		{"failed writes", rules{}, inFail, sceneEmpty, 1000, 150},
		{"a lost disk", rules{}, inWipe, sceneEmpty, 1000, 150},
		{"two rivals and a restart", rules{}, inRestart, sceneRivals, 3000, 60},
		{"lost metadata", rules{}, inRewind, sceneAgain, 3000, 90},
		{"lost metadata, overtaken", rules{}, inRewind, sceneOvertaken, 2000, 90},
		{"lost metadata and more epochs", rules{}, inRewind4, sceneEmpty, 1000, 150},
		{"changes of voters", rules{}, inGrow, sceneGrown, 3000, 90},
		{"changes of five voters", rules{}, inFive, sceneHalf, 2000, 90},
		{"all faults at once", rules{}, inAll, sceneEmpty, 1000, 300},
		{"all faults at once, with a learner", rules{}, inAll, sceneGrown, 1000, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := 0
			for seed := range c.budget() {
				f := walk(&c.rules, &c.lim, c.from, seed, c.steps)
				steps += f.states
				if f.bad != "" {
					t.Fatalf("seed %d: %s", seed, shrink(&c.rules, &c.lim, f))
				}
			}
			t.Logf("%d walks, %d steps", c.budget(), steps)
		})
	}
}

func (c *row) budget() uint64 {
	if raceEnabled {
		return c.walks / 50
	}
	return c.walks * scale()
}

// TestExplore_EveryRuleIsNeeded turns the rules off one by one. The explorer must find what each prevents: this is
// the proof that the invariants can fail, and that the model reaches the worlds in which they would.
func TestExplore_EveryRuleIsNeeded(t *testing.T) {
	if raceEnabled {
		t.Skip("needs the whole budget")
	}
	t.Parallel()
	for _, c := range []row{
		{"a promise outlives a crash (I6), where metadata went back", rules{volatilePromise: true}, inRewind, sceneAgain, 12000, 90},
		{"a promise outlives a crash (I6), where the restarted node trusts an old snapshot", rules{volatilePromise: true, staleRestart: true}, inRestart, sceneRivals, 6000, 90},
		{"a promise binds the holder of an older lease too (I6)", rules{leadBelowPromise: true}, inRewind, sceneOvertaken, 6000, 90},
		{"a lease dies with its process (I5)", rules{leaseOutlives: true}, inBase, sceneEmpty, 4000, 150},
		{"a span ends at the lowest later start (I8)", rules{nextStartDecides: true}, inBase, sceneEmpty, 4000, 150},
		{"both sets acknowledge while a change is in flight", rules{oneSetInFlight: true}, inGrow, sceneGrown, 6000, 90},
		{"only the quorum position settles a change", rules{settleByHigh: true}, inFive, sceneHalf, 6000, 90},
		{"only a settled change is proposed", rules{proposeUnsettled: true}, inGrow, sceneRefused, 6000, 90},
		{"a refusal counts when the applied state shows it", rules{refusedEarly: true}, inGrow, sceneGrown, 12000, 90},
		{"an offset is handed out once in an epoch (I5)", rules{reuseOffset: true}, inFail, sceneEmpty, 4000, 150},
		{"a duplicate waits for the high watermark (I1)", rules{eagerDuplicate: true}, inBase, sceneEmpty, 4000, 150},
		{"a follower acknowledges only what it compared (I8)", rules{ackUnreconciled: true}, inBase, sceneEmpty, 4000, 150},
		{"a log is compared again when the epoch starts (I8)", rules{compareOnce: true}, inBase, sceneEmpty, 4000, 150},
		{"replica ids are counted, not nodes (I10)", rules{countNodes: true}, inWipe, sceneEmpty, 4000, 150},
		{"a success is bound to epoch and offset (I1)", rules{ackByOffset: true}, inBase, sceneEmpty, 4000, 150},
		{"acknowledgements of an earlier epoch are forgotten", rules{marksSurviveEpoch: true}, inBase, sceneEmpty, 4000, 150},
		{"no end is shown below the epoch's start (I7)", rules{showEarly: true}, inBase, sceneEmpty, 4000, 150},
		{"records above the last started epoch are quarantined, not cut (I8)", rules{leaseQuarantine: true}, inRewind4, sceneEmpty, 4000, 150},
		{"a proven divergence below the floor is cut, not quarantined (I8)", rules{floorGuard: true}, inBase, sceneEmpty, 4000, 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range c.walks {
				f := walk(&c.rules, &c.lim, c.from, seed, c.steps)
				if f.bad == "" {
					continue
				}
				f = shrink(&c.rules, &c.lim, f)
				t.Logf("walk %d, %d steps: %s", seed, len(f.trace), f)
				return
			}
			t.Fatalf("%d walks found no violation: the model does not reach what the rule is for", c.walks)
		})
	}
}

// TestExplore_TwoLocks: within an unbroken metadata history the durable promise and the barrier after a restart guard
// the same door, and each alone holds it. The promise is load-bearing where metadata went back (I6), or where a
// defect lets a restarted node act on an old snapshot; the rows above show both.
func TestExplore_TwoLocks(t *testing.T) {
	for _, c := range []row{
		{"no durable promise", rules{volatilePromise: true}, inRestart, sceneRivals, 2000, 90},
		{"no barrier", rules{staleRestart: true}, inRestart, sceneRivals, 2000, 90},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range c.budget() {
				if f := walk(&c.rules, &c.lim, c.from, seed, c.steps); f.bad != "" {
					t.Fatalf("seed %d: %s", seed, shrink(&c.rules, &c.lim, f))
				}
			}
		})
	}
}
