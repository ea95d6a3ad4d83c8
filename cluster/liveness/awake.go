package liveness

import (
	"sync"
	"time"
)

// awake is a clock that stands still while this process does not run: stopped, swapped out, or its machine asleep. Who
// reads it learns of a pause by the pause itself, whichever goroutine comes first; a pause that another goroutine has to
// find out and tell of is told too late. It must be read often, or not having been read looks like one.
type awake struct {
	clock func() time.Duration
	// most is the longest time between two readings that counts.
	most time.Duration

	mu    sync.Mutex
	read  bool
	last  time.Duration
	slept time.Duration
}

// now returns the time awake, and for how long in all the process was found not to run.
func (a *awake) now() (now, slept time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.clock() // under the lock: of two readings the later one is the later time
	if gap := t - a.last; a.read && gap > a.most {
		a.slept += gap
	}
	a.read, a.last = true, t
	return t - a.slept, a.slept
}
