package storage

import (
	"testing"

	"github.com/vtop-log/vtop/storage/vfs"
)

// A follower that was away while the catalogue dropped what lies below the log start can seal those segments no more:
// they go as they are, once they are closed and whole.
func TestSetLogStart_TakesClosedSegmentsThatWereNeverSealed(t *testing.T) {
	_, l := newLogOn(t, vfs.NewCrashFS(3), func(o *Options) { o.SegmentBytes = 1 << 10 })
	for i := range 200 {
		mustLead(t, l, 1, plainBatch(1, 60, uint64(i)))
	}
	settle(t, l)
	if n := len(l.Closed()); n < 3 {
		t.Fatalf("only %d closed segments", n)
	}
	ok(t, l.SetLogStart(l.End()))
	if segs := l.Segments(); len(segs) != 1 || segs[0].State != SegmentTail {
		t.Fatalf("left: %+v", segs)
	}
	if base := l.Segments()[0].Base; base > l.End() || l.Start() != l.End() {
		t.Fatalf("base %d, start %d, end %d", base, l.Start(), l.End())
	}
}
