package meta

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// brokenStable fails with err while there is one.
type brokenStable struct {
	*raft.InmemStore
	err atomic.Pointer[error]
}

func (b *brokenStable) SetUint64(key []byte, val uint64) error {
	if err := b.err.Load(); err != nil {
		return fmt.Errorf("write raft.db: %w", *err)
	}
	return b.InmemStore.SetUint64(key, val)
}

// E9: a term that finds no room is kept as soon as there is some, and Raft, which would panic, hears of nothing. An error that is not for want of room is told once and ends the
// node, and neither holds up its end.
func TestStableStore_WaitsForRoom(t *testing.T) {
	for name, cause := range map[string]error{"no room": syscall.ENOSPC, "quota": syscall.EDQUOT, "broken": syscall.EIO} {
		for _, heals := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, heals %v", name, heals), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { keepTerm(t, cause, heals) })
			})
		}
	}
}

func keepTerm(t *testing.T, cause error, heals bool) {
	inner := &brokenStable{InmemStore: raft.NewInmemStore()}
	inner.err.Store(&cause)
	closed := make(chan struct{})
	var told []error
	s := &stableStore{StableStore: inner, log: hclog.NewNullLogger(), closed: closed, fatal: func(err error) { told = append(told, err) }}
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.SetUint64(currentTermKey, 7); err != nil {
			t.Errorf("Raft is told: %v", err)
		}
		returned = true
	}()
	synctest.Wait()
	waits := !errors.Is(cause, syscall.EIO)
	if waits != (len(told) == 0) {
		t.Fatalf("told of %v for %v", told, cause)
	}
	if !heals || !waits {
		close(closed)
	} else {
		inner.err.Store(nil)
	}
	<-ended
	if kept, _ := inner.GetUint64(currentTermKey); returned != (heals && waits) || returned != (kept == 7) {
		t.Errorf("returned %v with term %d kept", returned, kept)
	}
}

// E9: without room a start fails for that reason, and nobody is advised to remove what is whole.
func TestStores_NoRoomIsNoDamage(t *testing.T) {
	err := damagedDB("/data/raft/raft.db", fmt.Errorf("write: %w", syscall.ENOSPC))
	if errors.Is(err, ErrBadRaftDB) || !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "remove") {
		t.Error(err)
	}
}
