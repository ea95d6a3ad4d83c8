package storage

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// I10: whoever removes files of a live replica, or puts others in their place, makes it one that may have forgotten: the next
// look finds it, tells it once, and a restart knows it.
func TestNames_RemovedUnderALiveLog(t *testing.T) {
	tail := func(l *Log) string { return l.path(l.tailBase(), logSuffix) }
	cases := map[string]struct {
		remove func(t *testing.T, fsys vfs.FS, l *Log)
		reason string
	}{
		"directory":   {func(t *testing.T, fsys vfs.FS, l *Log) { ok(t, fsys.RemoveAll(l.dir)) }, "its directory"},
		"identity":    {func(t *testing.T, fsys vfs.FS, l *Log) { ok(t, fsys.Remove(filepath.Join(l.dir, metaName))) }, "replica is gone"},
		"tail":        {func(t *testing.T, fsys vfs.FS, l *Log) { ok(t, fsys.Remove(tail(l))) }, "its file is missing"},
		"closed":      {func(t *testing.T, fsys vfs.FS, l *Log) { ok(t, fsys.Remove(l.path(l.Closed()[0].Base, logSuffix))) }, "its file is missing"},
		"other tail":  {replaceFile(tail), "another file"},
		"other owner": {otherOwner, "now that of replica 99"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewCrashFS(1)
			var told []Damage
			s, l := newLogOn(t, fsys, func(o *Options) { o.OnDamage = func(d Damage) { told = append(told, d) } })
			for i := range 50 {
				mustLead(t, l, 1, producerBatch(1, 0, int32(i), 1))
			}
			mustFlush(t, l)
			ok(t, l.CheckNames())
			c.remove(t, fsys, l)
			wantErr(t, l.CheckNames(), vtop.ErrReplicaLost)
			ok(t, l.CheckNames()) // said once
			wantErr(t, l.Err(), vtop.ErrReplicaLost)
			if _, _, err := l.AppendLead(1, plainBatch(1, 10, 1)); err == nil {
				t.Fatal("a lost replica takes a batch")
			}
			if len(told) != 1 || told[0].Hole || !strings.Contains(l.Info().Reason, c.reason) {
				t.Fatalf("told %+v, %s", told, l.Info().Reason)
			}
			again := openStore(t, fsys.CrashClone(newRand(1), vfs.KeepAll()))
			if infos := again.List(); len(infos) != 1 || infos[0].State != StateLost && infos[0].ReplicaID == l.ReplicaID() {
				t.Fatalf("after a restart: %+v", infos)
			}
			ok(t, s.SetAside(l.Range(), "its successor comes"))
			_, err := s.Create(l.Range(), 100, 0)
			ok(t, err)
		})
	}
}

func replaceFile(name func(*Log) string) func(*testing.T, vfs.FS, *Log) {
	return func(t *testing.T, fsys vfs.FS, l *Log) {
		ok(t, fsys.Remove(name(l)))
		f, err := fsys.CreateNew(name(l))
		ok(t, err)
		ok(t, f.Close())
	}
}

func otherOwner(t *testing.T, fsys vfs.FS, l *Log) {
	meta, err := l.readMeta()
	ok(t, err)
	meta.replicaID = 99
	ok(t, vfs.WriteFileAtomic(fsys, filepath.Join(l.dir, metaName), meta.encode()))
}

// What is whole is not lost, whatever the log is doing: closing, giving an empty tail up, sealing, retention, a failed disk.
func TestNames_WholeLogs(t *testing.T) {
	ld := newLeader(t, 100)
	ok(t, ld.l.CheckNames())
	_, err := ld.l.CloseTail(ld.l.LastEpoch())
	ok(t, err)
	ok(t, ld.l.CheckNames())
	settle(t, ld.l)
	ok(t, ld.l.SetLogStart(ld.all[1].End))
	ok(t, ld.l.CheckNames())
	ok(t, ld.l.Err())
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys)
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpWrite, "*.log"), syscall.EIO))
	mustLead(t, l, 1, plainBatch(1, 10, 1))
	wantErr(t, l.Flush(context.Background()), syscall.EIO)
	ok(t, l.CheckNames())
	fsys.SetHook(nil)
	ok(t, l.Reopen())
}

// A log that fails since its directory is gone has nothing to be read anew from: it is lost at once. A disk that fails is
// tried again.
func TestReopen_DirectoryGoneIsLost(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys)
	mustLead(t, l, 1, plainBatch(1, 10, 1))
	mustFlush(t, l)
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpWrite, "*.log"), syscall.EIO))
	mustLead(t, l, 1, plainBatch(1, 10, 1))
	wantErr(t, l.Flush(context.Background()), syscall.EIO)
	fsys.SetHook(vfs.Fail(vfs.On(vfs.OpOpen, "*.log"), syscall.EIO))
	wantErr(t, l.Reopen(), vtop.ErrStorage)
	if s := l.Info().State; s != StateFailed {
		t.Fatalf("a disk that fails: %s", s)
	}
	fsys.SetHook(nil)
	ok(t, fsys.RemoveAll(l.dir))
	wantErr(t, l.Reopen(), vtop.ErrReplicaLost)
	wantErr(t, l.Err(), vtop.ErrReplicaLost)
}

// I12: a scrub reads a file that is open; it is bad all the same when its name is gone or another file's.
func TestScrub_NameOfTheFile(t *testing.T) {
	ld := newLeader(t, 330)
	_, err := ld.s.Scrub(bg, testRange(0), 0, ld.want) // they are open now
	ok(t, err)
	ok(t, ld.fs.Remove(ld.l.path(ld.all[1].Base, logSuffix)))
	replaceFile(func(l *Log) string { return l.path(ld.all[2].Base, logSuffix) })(t, ld.fs, ld.l)
	verdicts, err := ld.s.Scrub(bg, testRange(0), 0, ld.want)
	ok(t, err)
	for i, v := range verdicts {
		bad := i == 1 || i == 2
		if (v.Health == HealthBad) != bad {
			t.Errorf("segment %d: %s, %s", v.Segment.Base, v.Health, v.Reason)
		}
	}
	if holes := ld.l.Holes(); len(holes) != 2 || !strings.Contains(holes[0].Hole, "missing") {
		t.Errorf("holes %+v", holes)
	}
	ok(t, ld.fs.RemoveAll(ld.l.dir))
	_, err = ld.s.Scrub(bg, testRange(0), 0, ld.want)
	wantErr(t, err, vtop.ErrReplicaLost)
}
