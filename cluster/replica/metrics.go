package replica

import "sync/atomic"

// metrics are counters since the start.
type metrics struct {
	appends, sentBytes, cuts, resets, storageFailures, noSpace atomic.Uint64
}

// Metrics is a snapshot of what the engine counts and holds.
type Metrics struct {
	// Leading, Following, Promoting, Lost and Failed count the ranges in that role.
	Leading, Following, Promoting, Lost, Failed int
	// Waiting is the number of batches whose acknowledgement is awaited.
	Waiting int
	// Appends counts batches admitted; SentBytes what went to followers.
	Appends, SentBytes uint64
	// Cuts counts divergent suffixes cut, Resets logs begun anew, StorageFailures failed writes and syncs, NoSpace batches
	// refused for want of space, Rebuilds connections torn down because a replica made no progress.
	Cuts, Resets, StorageFailures, NoSpace, Rebuilds uint64
	// UnderReplicated counts led ranges of which a voter is lost or has not acknowledged the high watermark.
	UnderReplicated int
}

// Metrics returns a snapshot. It walks the ranges.
func (e *Engine) Metrics() Metrics {
	m := Metrics{
		Waiting: e.waiting(), Appends: e.metrics.appends.Load(), SentBytes: e.metrics.sentBytes.Load(), Cuts: e.metrics.cuts.Load(),
		Resets: e.metrics.resets.Load(), StorageFailures: e.metrics.storageFailures.Load(), NoSpace: e.metrics.noSpace.Load(),
	}
	for _, s := range e.allSlots() {
		s.mu.Lock()
		role := s.role
		s.mu.Unlock()
		switch role {
		case RoleLeading:
			m.Leading++
		case RoleFollowing:
			m.Following++
		case RolePromoting:
			m.Promoting++
		case RoleLost:
			m.Lost++
		case RoleFailed:
			m.Failed++
		}
		if ld := s.leading.Load(); ld != nil && ld.underReplicated() {
			m.UnderReplicated++
		}
	}
	e.peersMu.Lock()
	defer e.peersMu.Unlock()
	for _, p := range e.peers {
		m.Rebuilds += p.rebuilds.Load()
	}
	return m
}

func (l *leadership) underReplicated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	marks := l.book.Marks()
	for _, id := range l.book.Voters().Present {
		if marks.Of(id) < l.book.HighWatermark() {
			return true
		}
	}
	return false
}
