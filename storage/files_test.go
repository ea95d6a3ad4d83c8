package storage

import (
	"context"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// checkHandles fails if the store holds a file open for a segment that is in no log any more: its bytes would stay on the disk after
// retention took it, until so many other files were opened that it is the longest idle one.
func checkHandles(t testing.TB, s *Store, logs ...*Log) {
	t.Helper()
	present := map[*segment]bool{}
	for _, l := range logs {
		l.mu.Lock()
		for _, seg := range l.segs {
			present[seg] = true
		}
		l.mu.Unlock()
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	for e := s.files.idle.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*handle); !present[h.owner] {
			t.Errorf("segment %d left the log, and its file is still open", h.owner.base)
		}
	}
	if s.files.open != s.files.idle.Len() {
		t.Errorf("%d files are open, %d of them idle, and nobody reads or writes", s.files.open, s.files.idle.Len())
	}
}

// longLog has some closed segments and has been read whole, so that their files are open.
func longLog(t *testing.T) (*Store, *Log) {
	t.Helper()
	s, l := newLogOn(t, vfs.NewCrashFS(4), func(o *Options) { o.SegmentBytes = 1 << 10 })
	for i := range 100 {
		mustLead(t, l, 1, plainBatch(1, 60, uint64(i)))
	}
	settle(t, l)
	mustRead(t, l, 0, l.End())
	if n := len(l.Closed()); n < 3 {
		t.Fatalf("only %d closed segments", n)
	}
	checkHandles(t, s, l)
	return s, l
}

// A cut and a reset make every segment of the log anew, also those that they don't touch.
func TestFiles_NoneIsHeldForWhatLeftTheLog(t *testing.T) {
	for name, change := range map[string]func(l *Log) error{
		"cut": func(l *Log) error {
			_, err := l.Reconcile(context.Background(), 2, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 2, Start: l.End() - 2}}, 0)
			return err
		},
		"reset":     func(l *Log) error { return l.ResetTo(context.Background(), 1, l.End()+50, nil) },
		"log start": func(l *Log) error { return l.SetLogStart(l.End()) },
	} {
		t.Run(name, func(t *testing.T) {
			s, l := longLog(t)
			ok(t, change(l))
			checkHandles(t, s, l)
			checkLog(t, l)
		})
	}
}

// A reader that planned before a segment went may open it after its handle was dropped, and before its file is removed.
func TestFiles_OpenedWhileTheSegmentGoes(t *testing.T) {
	s, l := longLog(t)
	l.mu.Lock()
	seg := l.segs[0]
	l.mu.Unlock()
	s.files.retire(seg)
	h, err := s.files.acquire(seg, false, true)
	ok(t, err)
	var b [1]byte
	_, err = h.file.ReadAt(b[:], 0)
	ok(t, err)
	s.files.release(h)
	if seg.handle != nil {
		t.Error("the file of a segment that left the log stays open when its last reader is done")
	}
	checkHandles(t, s, l)
}
