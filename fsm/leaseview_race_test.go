package fsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vtop-log/vtop"
)

// raceRange is the shadow of one range in the race test: what a log under the fence would hold.
type raceRange struct {
	id vtop.Range
	mu sync.Mutex // stands for the log's append lock: taken inside the cell
	// under mu
	epoch   vtop.Epoch
	appends int
}

// append is what storage does: check and effect in one critical section.
func (r *raceRange) append(m *Machine, e vtop.Epoch) error {
	return m.Leases().Hold(r.id, e, vtop.FenceLead, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		applied, ok := m.State().Range(r.id)
		switch {
		case !ok:
			return fmt.Errorf("I3: %s does not exist any more", r.id)
		case applied.LastEpoch > e:
			return fmt.Errorf("I3: epoch %d took effect, the published state is at epoch %d", e, applied.LastEpoch)
		case applied.LastEpoch == e && !applied.Lease.HeldBy("n1", 1):
			return fmt.Errorf("I3: epoch %d took effect, the published lease is %+v", e, applied.Lease)
		case r.epoch > e:
			return fmt.Errorf("I2: epoch %d took effect after epoch %d", e, r.epoch)
		}
		r.epoch, r.appends = e, r.appends+1
		return nil
	})
}

// Grants, starts, releases, snapshots and deletions fly while appends run. No append ever takes effect under a lease that
// the applied state no longer holds (I3), and none is stuck.
func TestLeaseView_Race(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 1_000
	}
	m, _ := viewUnder(t)
	m.Leases().SetDeadline(time.Hour)
	ranges := []*raceRange{{id: r0}, {id: rangeID(1, 1)}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, r := range ranges {
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					runtime.Gosched() // else spinning appenders keep the one that is inside from its processor
					lease, _ := m.Leases().Get(r.id)
					for _, e := range []vtop.Epoch{lease.Epoch, lease.Epoch - 1} {
						if err := r.append(m, e); err != nil && !errors.Is(err, vtop.ErrFenced) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range rounds {
		raceRound(t, m, pick(rng.IntN, ranges).id, rng)
	}
	step(t, m, &DeleteTopic{ID: uuid(1)})
	close(stop)
	wg.Wait()
	for _, r := range ranges {
		if r.appends == 0 {
			t.Errorf("no append of %s ever held: the test showed nothing", r.id)
		}
		if err := r.append(m, r.epoch); !errors.Is(err, vtop.ErrFenced) {
			t.Errorf("append to a deleted range: %v", err)
		}
	}
	t.Logf("%d rounds, %d and %d appends took effect", rounds, ranges[0].appends, ranges[1].appends)
}

// raceRound moves one lease: granted and perhaps started and released, in one entry or several, or through a snapshot.
func raceRound(t *testing.T, m *Machine, id vtop.Range, rng *rand.Rand) {
	r, _ := m.State().Range(id)
	grant := &GrantLeases{Items: []Grant{{Range: id, Holder: pick(rng.IntN, []vtop.NodeName{"n1", "n1", "n2"}), Incarnation: 1, Expected: r.LastEpoch}}}
	start := &StartEpochs{Items: []EpochStart{{id, r.LastEpoch + 1, r.Floor}}}
	release := &ReleaseLeases{Items: []Release{{Range: id, Epoch: r.LastEpoch + 1}}}
	switch rng.IntN(5) {
	case 0: // one batch: only its end is ever seen
		m.ApplyCommands(m.Applied()+1, grant, start, release)
	case 1: // the entries were skipped: a snapshot
		next, _ := m.State().Apply(m.Applied()+1, grant, start)
		m.Replace(next)
	case 2:
		step(t, m, grant)
		step(t, m, start)
		step(t, m, release)
	default:
		step(t, m, grant)
		step(t, m, start)
	}
}
