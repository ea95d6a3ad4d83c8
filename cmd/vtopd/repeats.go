package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatEvery is how often a line of the kinds below is let through, for each peer.
const repeatEvery = time.Minute

// repeating are lines that libraries write several times a second while a peer is away, or at every start and stop.
// They would bury the one line that says what happened.
var repeating = []string{
	"failed to appendEntries to", "failed to heartbeat to", "failed to make requestVote RPC", "failed to contact",
	"failed to decode incoming command", "failed to accept connection", "memberlist: Got ping for unexpected node",
	"memberlist: Failed fallback TCP ping", "memberlist: Failed UDP ping", "memberlist: Failed to send gossip",
	"http: TLS handshake error",
}

// repeats lets one such line through a minute for each peer, and all others.
type repeats struct {
	now  func() time.Time
	mu   sync.Mutex
	last map[string]time.Time
}

func newRepeats(now func() time.Time) *repeats {
	return &repeats{now: now, last: map[string]time.Time{}}
}

// exclude is hclog's filter: true drops the line.
func (r *repeats) exclude(_ hclog.Level, msg string, args ...any) bool {
	for _, kind := range repeating {
		if strings.HasPrefix(msg, kind) {
			return !r.due(kind + peerOf(args))
		}
	}
	return false
}

func (r *repeats) due(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if last, ok := r.last[key]; ok && now.Sub(last) < repeatEvery {
		return false
	}
	if len(r.last) > 1000 {
		clear(r.last)
	}
	r.last[key] = now
	return true
}

// peerOf finds which peer a line of Raft is about.
func peerOf(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id":
			return fmt.Sprint(args[i+1])
		}
	}
	return ""
}
