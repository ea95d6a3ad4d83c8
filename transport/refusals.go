package transport

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Bounds of what is remembered about refused callers.
const (
	refusalQuiet = 10 * time.Second
	refusalHosts = 256
)

// refusals keeps a caller that is refused, and calls again and again, from filling the log: one line for each
// host and quiet time, with the number of those left out.
type refusals struct {
	mu    sync.Mutex
	hosts map[string]*refusal
	total uint64
}

type refusal struct {
	last    time.Time
	skipped int
}

func (r *refusals) report(log hclog.Logger, what string, from net.Addr, err error) {
	host, _, serr := net.SplitHostPort(from.String())
	if serr != nil {
		host = from.String()
	}
	skipped, say := r.count(host, time.Now())
	switch {
	case errors.Is(err, io.EOF):
		log.Debug(what, "from", from, "error", err) // a port scan, or a load balancer's health check
	case say:
		log.Info(what, "from", from, "error", err, "more_since_last_line", skipped)
	}
}

func (r *refusals) count(host string, now time.Time) (skipped int, say bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	seen := r.hosts[host]
	if seen == nil {
		if r.hosts == nil || len(r.hosts) >= refusalHosts {
			r.hosts = map[string]*refusal{}
		}
		r.hosts[host] = &refusal{last: now}
		return 0, true
	}
	if now.Sub(seen.last) < refusalQuiet {
		seen.skipped++
		return 0, false
	}
	skipped, seen.skipped, seen.last = seen.skipped, 0, now
	return skipped, true
}

func (r *refusals) sum() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}
