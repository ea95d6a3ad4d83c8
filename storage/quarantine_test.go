package storage

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// Where no rule allows a cut nothing is cut: the replica is quarantined, says why, serves nothing and stays as it is
// on disk (I8).
func TestReconcile_Quarantine(t *testing.T) {
	for _, c := range []struct {
		name  string
		epoch vtop.Epoch
		table vtop.EpochTable
		floor vtop.Offset
	}{
		{"below the floor", 5, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 5, Start: 60}}, 61},
		{"inside a sealed segment", 5, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 5, Start: 10}}, 0},
		{"inside a batch", 5, vtop.EpochTable{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 100}, {Epoch: 5, Start: 101}}, 0},
		{"records of a later epoch", 1, vtop.EpochTable{{Epoch: 1, Start: 0}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewCrashFS(1)
			s, l := newLogOn(t, fsys)
			for i := range 100 {
				mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
			}
			mustLead(t, l, 2, plainBatch(3, 20, 1))
			mustFlush(t, l)
			root, _, err := l.Root(0)
			ok(t, err)
			ok(t, l.Seal(0, root))
			before := segmentFiles(t, fsys, l)
			_, err = l.Reconcile(context.Background(), c.epoch, c.table, c.floor)
			var quarantine *QuarantineError
			if !asErr(err, &quarantine) || quarantine.Reason == "" {
				t.Fatalf("got %v, want a quarantine", err)
			}
			if info := l.Info(); info.State != StateQuarantined || info.End != 103 || info.Reason == "" {
				t.Fatalf("%+v", info)
			}
			_, _, _, err = l.Read(0, 10, 100, nil)
			wantErr(t, err, vtop.ErrDamaged)
			_, _, err = l.AppendLead(5, plainBatch(1, 10, 1))
			wantErr(t, err, vtop.ErrDamaged)
			wantErr(t, s.Promise([]Promise{{l.Range(), 1, 9}})[0], vtop.ErrDamaged)
			if segmentFiles(t, fsys, l) != before {
				t.Fatal("the segments were changed")
			}
		})
	}
}

// Without divergence nothing is cut and nobody waits, also where epochs without records make the table longer (B3),
// and below known history nothing is concluded (B5).
func TestReconcile_NothingToCut(t *testing.T) {
	_, l := newLogOn(t, vfs.NewCrashFS(1))
	for i := range 10 {
		mustLead(t, l, 2, producerBatch(1, 0, int32(i), 1))
	}
	for _, table := range []vtop.EpochTable{
		nil,
		{{Epoch: 2, Start: 0}},
		{{Epoch: 2, Start: 0}, {Epoch: 3, Start: 10}},
		{{Epoch: 2, Start: 0}, {Epoch: 9, Start: 15}},
		{{Epoch: 7, Start: 10}},
	} {
		cut, err := l.Reconcile(context.Background(), 9, table, 0)
		ok(t, err)
		if cut.Done || l.End() != 10 {
			t.Fatalf("table %v cuts %+v", table, cut)
		}
	}
}

// A reconciliation asks the lease: under another epoch it changes nothing (I3).
func TestReconcile_Fenced(t *testing.T) {
	fence := &testFence{}
	_, l := newLogOn(t, vfs.NewCrashFS(1), func(o *Options) { o.Fence = fence })
	mustLead(t, l, 2, plainBatch(5, 10, 1))
	fence.set(l.Range(), 4)
	table := vtop.EpochTable{{Epoch: 3, Start: 0}}
	_, err := l.Reconcile(context.Background(), 3, table, 0)
	wantErr(t, err, vtop.ErrFenced)
	wantErr(t, l.ResetTo(context.Background(), 3, 100, nil), vtop.ErrFenced)
	_, err = l.Roll(3, testTime(), 0)
	wantErr(t, err, vtop.ErrFenced)
	if l.End() != 5 || len(l.Segments()) != 1 {
		t.Fatalf("end %d, segments %+v", l.End(), l.Segments())
	}
}

// Rot in a frame that was synced is told from a torn end, even in the last one (I6): the note behind it says that it
// was durable. A bad note is nothing.
func TestDamage_LastPromiseRots(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, _ := newLogOn(t, fsys)
	ok(t, s.Promise([]Promise{{testRange(0), 1, 3}})[0])
	s.journal.mu.Lock()
	end := int(s.journal.size)
	s.journal.mu.Unlock()
	note := frameHeader + 8
	for at := end - note - entrySize; at < end; at++ {
		clone := fsys.CrashClone(newRand(1), vfs.KeepAll())
		edit(t, clone, filepath.Join(testDir, journalName), flip(at))
		l := openStore(t, clone).Get(testRange(0))
		if at >= end-note {
			ok(t, l.Err())
			if l.Promised() != 3 {
				t.Fatalf("byte %d: promise is %d, want 3", at, l.Promised())
			}
			continue
		}
		wantErr(t, l.Err(), vtop.ErrReplicaLost)
	}
}
