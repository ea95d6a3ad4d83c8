//go:build cluster

package chaos

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// needs are the tools of the machine that a fault is made with.
type need string

const (
	needDisks   need = "disks"   // loop devices, mkfs.ext4 and the ioctl that shuts a file system down
	needNetwork need = "network" // network namespaces and a bridge
	needStrace  need = "strace"
)

// fault is one kind of blow.
type fault struct {
	name  string
	needs need
	// destroys what a replica held: two at once could take a majority's copies, which no log survives.
	destroys bool
	// waits, with a node down, until a range is served again. That comes only if no other copy is gone, and no other fault waits so.
	waits bool
	// alone is struck by itself, as it touches every node.
	alone bool
	run   func(b *blow) error
}

// beside reports whether two faults may be struck in one round.
func (f fault) beside(g fault) bool {
	return !f.alone && !g.alone && !((f.destroys || f.waits) && (g.destroys || g.waits))
}

// round is what is struck at a time, and the seed that says how.
type round struct {
	number int
	seed   uint64
	faults []fault
}

func (r round) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, stream)) }

func (r round) String() string {
	var names []string
	for _, f := range r.faults {
		names = append(names, f.name)
	}
	return strings.Join(names, " + ")
}

// plan deals every fault once, in the order that the seed gives. With an odd seed two overlap, where they may; with an even one each is
// struck by itself, which tells what it alone costs.
func plan(seed uint64, catalogue []fault) []round {
	rng := rand.New(rand.NewPCG(seed, 0))
	deck := slices.Clone(catalogue)
	rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	var out []round
	for len(deck) > 0 {
		r := round{number: len(out) + 1, seed: rng.Uint64(), faults: deck[:1:1]}
		deck = deck[1:]
		if i := slices.IndexFunc(deck, r.faults[0].beside); i >= 0 && seed%2 == 1 {
			r.faults = append(r.faults, deck[i])
			deck = slices.Delete(deck, i, i+1)
		}
		out = append(out, r)
	}
	return out
}

// only keeps the faults that are named; all of them if names is empty.
func only(catalogue []fault, names string) []fault {
	if names == "" {
		return catalogue
	}
	wanted := strings.Split(names, ",")
	return slices.DeleteFunc(slices.Clone(catalogue), func(f fault) bool { return !slices.Contains(wanted, f.name) })
}

func TestPlan(t *testing.T) {
	for seed := range uint64(200) {
		rounds, again := plan(seed, catalogue()), plan(seed, catalogue())
		dealt := map[string]int{}
		if all := len(catalogue()); seed%2 == 0 && len(rounds) != all || seed%2 == 1 && len(rounds) > all*2/3 {
			t.Errorf("seed %d: %d rounds for %d faults", seed, len(rounds), all)
		}
		for i, r := range rounds {
			if r.String() != again[i].String() || r.seed != again[i].seed {
				t.Fatalf("seed %d, round %d: %s and %s", seed, r.number, r, again[i])
			}
			copies := 0 // that may be gone at a time
			for _, f := range r.faults {
				dealt[f.name]++
				if f.destroys || f.waits {
					copies++
				}
				if f.alone && len(r.faults) > 1 {
					t.Errorf("seed %d: %s in one round, and %s is struck alone", seed, r, f.name)
				}
			}
			if copies > 1 {
				t.Errorf("seed %d: %s could take two copies of three, and wait for the range", seed, r)
			}
		}
		for _, f := range catalogue() {
			if dealt[f.name] != 1 {
				t.Fatalf("seed %d: %s is dealt %d times", seed, f.name, dealt[f.name])
			}
		}
	}
	if got := only(catalogue(), "kill-all,wipe-disk"); len(got) != 2 {
		t.Errorf("%d faults of two that were named", len(got))
	}
}
