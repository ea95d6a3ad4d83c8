//go:build cluster

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vtop-log/vtop/test/harness"
)

// leaseWatch asks the nodes in turn who holds what, all the time: no epoch of a range has two holders (K6).
type leaseWatch struct {
	w *world

	mu       sync.Mutex
	holders  map[lease]string
	breaches []error
}

type lease struct {
	topic string
	index int32
	epoch int32
}

func newLeaseWatch(w *world) *leaseWatch { return &leaseWatch{w: w, holders: map[lease]string{}} }

func (l *leaseWatch) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if running := l.w.c.Running(); len(running) > 0 {
			var out []harness.Lease
			if n := running[i%len(running)]; n.Get("/v1/leases", &out) == nil {
				l.saw(n.Name, out)
			}
		}
		pause(ctx, 250*time.Millisecond)
	}
}

func (l *leaseWatch) saw(by string, leases []harness.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range leases {
		key := lease{one.Topic, one.Range, one.Epoch}
		if one.Holder == "" {
			continue
		}
		if before, ok := l.holders[key]; ok && before != one.Holder {
			l.breaches = append(l.breaches, fmt.Errorf("K6: %s/%d: epoch %d is held by %s, as %s tells, and was by %s", one.Topic, one.Range, one.Epoch, one.Holder, by, before))
		}
		l.holders[key] = one.Holder
	}
}

// found are the breaches so far, and how many epochs were seen.
func (l *leaseWatch) found() (breaches []error, epochs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.breaches[:min(len(l.breaches), 10)]...), len(l.holders)
}
