package meta

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// roomPause lies between two attempts to keep a term or a vote on a disk without room.
const roomPause = 500 * time.Millisecond

// stableStore keeps Raft's term and vote. Raft ends the process with a panic where its term can't be kept; so no error of a write gets
// through to it. Without room it waits, which holds up this node's part in elections and nothing else, and goes on when there is room again. Any other
// error ends the node in an orderly way.
type stableStore struct {
	raft.StableStore
	log    hclog.Logger
	fatal  func(error)
	closed <-chan struct{}
}

// Set implements raft.StableStore.
func (s *stableStore) Set(key, val []byte) error {
	s.keep(func() error { return s.StableStore.Set(key, val) })
	return nil
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	s.keep(func() error { return s.StableStore.SetUint64(key, val) })
	return nil
}

// keep returns once write has. When the node closes before, it ends Raft's goroutine, which is the one that calls it.
func (s *stableStore) keep(write func() error) {
	for waits := false; ; waits = true {
		err := write()
		switch {
		case err == nil && waits:
			s.log.Info("the disk has room for Raft's term again")
			return
		case err == nil:
			return
		case !noRoom(err):
			s.fatal(err)
			<-s.closed
			runtime.Goexit()
		case !waits:
			s.log.Error("no room for Raft's term on the disk: this node takes no part in elections until space is freed", "error", err)
		}
		select {
		case <-s.closed:
			runtime.Goexit()
		case <-time.After(roomPause):
		}
	}
}

// noRoom reports whether a write failed for want of space alone: nothing is damaged then.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
