package meta

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// timedStore is the log store with a watch on it: how long the write in flight has been taking, and how many
// bytes came since the last snapshot. Raft writes its log from one goroutine; readers of the watch are many.
type timedStore struct {
	raft.LogStore

	// started is the start of the write in flight in nanoseconds since base, plus one; 0 means none.
	started atomic.Int64
	base    time.Time
	// last is the duration of the last finished write in nanoseconds.
	last   atomic.Int64
	writes atomic.Uint64
	failed atomic.Uint64
	// bytes and entries count all that was stored since open.
	bytes   atomic.Uint64
	entries atomic.Uint64
}

func newTimedStore(inner raft.LogStore) *timedStore {
	return &timedStore{LogStore: inner, base: time.Now()}
}

// StoreLog implements raft.LogStore.
func (s *timedStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore: it returns when the entries are durable.
func (s *timedStore) StoreLogs(logs []*raft.Log) error {
	begin := time.Since(s.base)
	s.started.Store(int64(begin) + 1)
	err := s.LogStore.StoreLogs(logs)
	s.started.Store(0)
	s.last.Store(int64(time.Since(s.base) - begin))
	s.writes.Add(1)
	if err != nil {
		s.failed.Add(1)
		return err
	}
	var n uint64
	for _, l := range logs {
		n += uint64(len(l.Data)+len(l.Extensions)) + entryOverhead
	}
	s.bytes.Add(n)
	s.entries.Add(uint64(len(logs)))
	return nil
}

// entryOverhead is what an entry takes on disk beside its data, about.
const entryOverhead = 64

// DeleteRange implements raft.LogStore. Compaction writes too, and can hang like any write.
func (s *timedStore) DeleteRange(first, last uint64) error {
	s.started.Store(int64(time.Since(s.base)) + 1)
	defer s.started.Store(0)
	return s.LogStore.DeleteRange(first, last)
}

// stall is how long the write in flight has been taking; 0 if none is.
func (s *timedStore) stall() time.Duration {
	started := s.started.Load()
	if started == 0 {
		return 0
	}
	return time.Since(s.base) - time.Duration(started-1)
}
