package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// plan is what a seed decides before a life begins: how large it is, and when which fault comes.
type plan struct {
	hosts, ranges int
	replicas      int   // of each range, in the beginning
	zeros         int64 // step in which tails are zeroed ahead; negative: never
	gather        int   // see storage.Options.GatherSyncs
	config        map[string]string
	readers       int
	events        []event
}

// event is one blow. What it hits is looked up when it comes.
type event struct {
	after time.Duration // since the one before
	kind  kind
	host  int
	other int
	n     int
	dur   time.Duration
}

type kind int

// The kinds of events, with how often they come.
const (
	killAtOp kind = iota
	killNow
	powerAtOp
	powerNow
	powerAll
	pause
	cutOneWay
	cutPair
	isolate
	slowDisk
	syncError
	lagMetadata
	moveMetadata
	moveLease
	sealRange
	stopHost
	wipeHost
	repairRange
	kinds
)

var kindNames = [kinds]string{
	"kill in a disk call", "kill", "power cut in a disk call", "power cut", "power cut of all", "pause", "cut one way", "cut a pair", "isolate",
	"slow disk", "sync error", "metadata lags", "metadata leader moves", "lease moves", "seal", "orderly stop", "wiped disk", "repair",
}

var weights = [kinds]int{9, 4, 9, 4, 3, 5, 6, 5, 7, 5, 4, 5, 5, 12, 6, 4, 8, 4}

func (k kind) String() string { return kindNames[k] }

// newPlan draws the plan of a seed.
func newPlan(seed uint64) *plan {
	rng := rngOf(seed, "plan")
	p := &plan{hosts: 3, replicas: 3, ranges: 1 + rng.IntN(2), zeros: [...]int64{-1, 4096}[rng.IntN(2)], readers: 1, config: map[string]string{}}
	if rng.IntN(4) == 0 {
		p.hosts = 4 + rng.IntN(2)
	}
	if rng.IntN(2) == 0 {
		p.config["segment.bytes"] = fmt.Sprint(1500 + rng.IntN(8000))
	}
	if rng.IntN(3) == 0 {
		p.config["segment.ms"] = fmt.Sprint(1500 + rng.IntN(6000))
		p.config["retention.bytes"] = fmt.Sprint(2000 + rng.IntN(20000))
	}
	total := 0
	for _, w := range weights {
		total += w
	}
	for range 4 + rng.IntN(9) {
		e := event{after: time.Duration(rng.IntN(1800)) * time.Millisecond, host: rng.IntN(p.hosts), other: rng.IntN(p.hosts), n: 1 + rng.IntN(25)}
		if rng.IntN(4) == 0 {
			e.after = time.Duration(rng.IntN(60)) * time.Millisecond // while the one before still works
		}
		e.dur = duration(rng)
		pick := rng.IntN(total)
		for pick >= weights[e.kind] {
			pick -= weights[e.kind]
			e.kind++
		}
		p.events = append(p.events, e)
	}
	p.gather = [...]int{0, 1}[rng.IntN(2)]
	return p
}

// duration of a fault: often shorter than a lease, sometimes longer than all patience.
func duration(rng *rand.Rand) time.Duration {
	switch rng.IntN(5) {
	case 0:
		return time.Duration(rng.IntN(200)) * time.Millisecond
	case 1, 2:
		return time.Duration(rng.IntN(2500)) * time.Millisecond
	case 3:
		return time.Duration(rng.IntN(6000)) * time.Millisecond
	}
	return time.Duration(rng.IntN(10000)) * time.Millisecond
}
