package replica

import (
	"fmt"
	"time"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport"
)

// watchdog looks for replicas that are behind and make no progress (G7): first they are asked anew, and if that does
// not help, the connection is torn down and built again.
func (p *peer) watchdog(now time.Time, patience time.Duration) {
	p.mu.Lock()
	var tear *transport.Stream
	for _, f := range p.flows {
		idle := f.state == flowLive && !f.behind()
		if idle || f.state == flowFresh || f.state == flowGone || f.state == flowPaused {
			if idle {
				f.moved = now
			}
			continue
		}
		switch stuck := now.Sub(f.moved); {
		case stuck > 2*patience && p.stream != nil:
			tear = p.stream
			f.why = fmt.Errorf("%w: no progress for %s", vtop.ErrTimeout, stuck.Round(time.Second))
		case stuck > patience && f.state == flowLive:
			moved := f.moved
			p.inflight -= f.startOverLocked()
			f.moved = moved
			p.enqueueLocked(f)
		}
		if f.state == flowLive && f.told < f.ld.highWatermark() {
			p.marks = true
		}
	}
	p.mu.Unlock()
	if tear != nil {
		p.rebuilds.Add(1)
		p.log.Warn("no progress on a replica that is behind: building the connection anew", "patience", patience)
		tear.Close()
	}
	p.signal()
}
