package storage

import (
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// What a drill wiped is missed after the next start, and told lost: it is never made again under its id as if it were new.
func TestWipe_ReplicaIsMissedAfterTheNextStart(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	mustLead(t, l, 1, plainBatch(1, 50, 1))
	mustFlush(t, l)
	r := l.Range()
	ok(t, s.Wipe(r))
	_ = s.Close() // what it could not write is gone, as it would be with the process

	s = openStore(t, fsys)
	if got := s.Get(r); got != nil && got.Err() == nil {
		t.Fatalf("the wiped replica is there: %+v", got.Info())
	}
	_, err := s.Create(r, l.ReplicaID(), 0)
	wantErr(t, err, vtop.ErrReplicaLost)
	wantErr(t, s.Wipe(testRange(7)), vtop.ErrUnknownRange)
}
