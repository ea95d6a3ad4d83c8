package replica

import (
	"sync"
	"time"

	"github.com/vtop-log/vtop"
)

const (
	// pressureFull is how long something of the clients' has to wait for this node's disk or followers for the pressure to be 100.
	pressureFull = 50 * time.Millisecond
	// pressureAge is how long one look at it is good for.
	pressureAge = 20 * time.Millisecond
	// pressureActive is what a node says at least that wrote something for clients within the last activeTime, here or for a
	// leader elsewhere.
	pressureActive = 25
	activeTime     = time.Second
)

// pressure is the last look at how busy the node is with its clients.
type pressure struct {
	mu   sync.Mutex
	at   time.Time
	last int
	// behind are the logs that had something undurable at the last look, with their durable ends and since when.
	behind map[vtop.Range]backlog
	// written is the sum of the durable ends of all logs at the last look, moved when it changed last.
	written vtop.Offset
	moved   time.Time
}

type backlog struct {
	durable vtop.Offset
	since   time.Time
}

// Pressure says how busy this node is with its clients, from 0 to 100: how long, in parts of 50 ms, the oldest batch waits for
// its acknowledgement, or a follower's log for the disk; and at least 25 while there are clients at all. Transfers read it and
// yield. A store that takes no writes is 100.
func (e *Engine) Pressure() int {
	p := &e.pressure
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.at) < pressureAge {
		return p.last
	}
	var oldest time.Duration
	var written vtop.Offset
	behind := make(map[vtop.Range]backlog)
	for _, s := range e.allSlots() {
		if ld := s.leading.Load(); ld != nil {
			oldest = max(oldest, ld.oldest(now))
		}
		log := s.opened()
		if log == nil {
			continue
		}
		end, durable, _ := log.Position()
		written += durable
		if durable < end {
			was, known := p.behind[s.r]
			if !known || was.durable != durable {
				was = backlog{durable, now}
			}
			behind[s.r] = was
			oldest = max(oldest, now.Sub(was.since))
		}
	}
	if written != p.written && now.Sub(p.at) < activeTime { // else nobody knows when
		p.moved = now
	}
	p.at, p.behind, p.written = now, behind, written
	p.last = int(min(100*oldest/pressureFull, 100))
	if !p.moved.IsZero() && now.Sub(p.moved) < activeTime {
		p.last = max(p.last, pressureActive)
	}
	if e.store.Admits() != nil {
		p.last = 100
	}
	return p.last
}

// oldest is how long the first of the waiting batches has waited.
func (l *leadership) oldest(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.all.age(now), l.one.age(now))
}

// age is how long the first one has waited; 0 if none does.
func (w *waitList) age(now time.Time) time.Duration {
	if w.len() == 0 {
		return 0
	}
	return now.Sub(w.items[w.head].since)
}
