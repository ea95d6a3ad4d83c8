package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/storage/vfs"
)

// A lost replica stays lost whatever else happens to it: a failing disk, a reopening (I10).
func TestDamage_LostStaysLost(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	_, l := newLogOn(t, fsys)
	mustLead(t, l, 1, plainBatch(1, 50, 1))
	mustFlush(t, l)
	gate := vfs.NewGate(vfs.On(vfs.OpSyncData, "*.log"))
	fsys.SetHook(vfs.Chain(gate.Hook, vfs.Fail(vfs.On(vfs.OpSyncData, "*.log"), vfs.ErrLocked)))
	mustLead(t, l, 1, plainBatch(1, 50, 2))
	<-gate.Arrived()
	ok(t, l.Lose("restored from a copy"))
	gate.Open()
	ok(t, l.takeAlone(context.Background()))
	l.leaveAlone()
	fsys.SetHook(nil)
	wantErr(t, l.Err(), vtop.ErrReplicaLost)
	wantErr(t, l.Reopen(), vtop.ErrReplicaLost)
	wantErr(t, l.Err(), vtop.ErrReplicaLost)
}

// A creation or removal that the disk refused can be tried again.
func TestStore_CreateAndRemoveAgain(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s := openStore(t, fsys)
	refuse := func() {
		fsys.SetHook(vfs.FailOnce(vfs.On(vfs.OpSyncDir, rangesDir), vfs.ErrLocked))
	}
	refuse()
	_, err := s.Create(testRange(0), 1, 0)
	wantErr(t, err, vtop.ErrStorage)
	l, err := s.Create(testRange(0), 1, 0)
	ok(t, err)
	mustLead(t, l, 1, plainBatch(1, 50, 1))
	mustFlush(t, l)
	refuse()
	wantErr(t, s.SetAside(testRange(0), "test"), vtop.ErrStorage)
	ok(t, s.SetAside(testRange(0), "test"))
	refuse()
	_, err = s.Create(testRange(0), 2, 0)
	wantErr(t, err, vtop.ErrStorage)
	_, err = s.Create(testRange(0), 2, 0)
	ok(t, err)
	refuse()
	wantErr(t, s.Delete(testRange(0)), vtop.ErrStorage)
	ok(t, s.Delete(testRange(0)))
	ok(t, s.Close())
	if infos := openStore(t, fsys).List(); len(infos) != 0 {
		t.Fatalf("%+v", infos)
	}
}

// A journal or identity that is damaged, cut short or gone makes every replica one that may have forgotten; it
// never lowers a promise in silence, and other files stay (I6, I10, E11).
func TestDamage_JournalAndIdentity(t *testing.T) {
	for _, name := range []string{journalName, identityName} {
		for what, change := range map[string]func([]byte) []byte{
			"emptied": func([]byte) []byte { return nil },
			"halved":  func(b []byte) []byte { return b[:len(b)/2] },
			"zeroed":  func(b []byte) []byte { clear(b); return b },
			"flipped": flip(45),
			"end cut": func(b []byte) []byte { return b[:len(b)-1] },
			"removed": nil,
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				var before vtop.StorageID
				s, l := damaged(t, func(fsys *vfs.CrashFS, l *Log) {
					before = l.store.Identity().Storage
					file := filepath.Join(testDir, name)
					if change == nil {
						ok(t, fsys.Remove(file))
						return
					}
					edit(t, fsys, file, change)
				})
				wantErr(t, l.Err(), vtop.ErrReplicaLost)
				wantErr(t, s.Promise([]Promise{{testRange(0), 1, 9}})[0], vtop.ErrReplicaLost)
				if same := s.Identity().Storage == before; same != (name == journalName) {
					t.Fatalf("storage id %s, was %s", s.Identity().Storage, before)
				}
				fsys := s.fs
				ok(t, s.Close())
				wantErr(t, openStore(t, fsys).Get(testRange(0)).Err(), vtop.ErrReplicaLost)
			})
		}
	}
}

// What nobody knows is set aside and never deleted (E4); deletion is for what is named.
func TestStore_SetsAsideAndDeletes(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s, l := newLogOn(t, fsys)
	mustLead(t, l, 1, plainBatch(1, 10, 1))
	ok(t, s.Promise([]Promise{{testRange(0), 1, 3}})[0])
	ok(t, s.Close())
	ok(t, fsys.MkdirAll(filepath.Join(testDir, rangesDir, "lost+found")))
	s = openStore(t, fsys)
	aside := func() string { names, _ := fsys.ReadDir(filepath.Join(testDir, asideDir)); return fmt.Sprint(names) }
	if got := aside(); got != "[lost+found.1 lost+found.1.why]" {
		t.Fatalf("aside: %s", got)
	}
	if _, err := s.Create(testRange(0), 2, 0); err == nil {
		t.Fatal("a replica is made over another")
	}
	ok(t, s.SetAside(testRange(0), "replaced"))
	if got := aside(); !strings.Contains(got, dirName(testRange(0))+".1") {
		t.Fatalf("aside: %s", got)
	}
	l, err := s.Create(testRange(0), 2, 0)
	ok(t, err)
	if l.Promised() != 0 || len(s.List()) != 1 {
		t.Fatalf("promise %d, replicas %+v", l.Promised(), s.List())
	}
	ok(t, s.Delete(testRange(0)))
	ok(t, s.Delete(testRange(0)))
	_, _, err = l.AppendLead(1, plainBatch(1, 10, 1))
	wantErr(t, err, vtop.ErrClosed)
	if len(s.List()) != 0 || s.Get(testRange(0)) != nil {
		t.Fatalf("replicas %+v", s.List())
	}
}

// The identity is made once; the cluster is set once; the incarnation only rises (I5); one process at a time.
func TestStore_Identity(t *testing.T) {
	fsys := vfs.NewCrashFS(1)
	s := openStore(t, fsys)
	id := s.Identity()
	if id.Storage.IsZero() || id.Incarnation != 1 {
		t.Fatalf("%+v", id)
	}
	_, err := tryOpen(fsys)
	wantErr(t, err, vfs.ErrLocked)
	ok(t, s.SetCluster(vtop.UUID{9}))
	ok(t, s.SetCluster(vtop.UUID{9}))
	if err := s.SetCluster(vtop.UUID{8}); err == nil {
		t.Fatal("another cluster was taken")
	}
	ok(t, s.SetIncarnation(10))
	if err := s.SetIncarnation(9); err == nil {
		t.Fatal("the incarnation went down")
	}
	ok(t, s.LoseAll("restored from a copy"))
	ok(t, s.Close())
	again := openStore(t, fsys).Identity()
	if again.Storage != id.Storage || again.Incarnation != 11 || again.Cluster != (vtop.UUID{9}) {
		t.Fatalf("%+v after %+v", again, id)
	}
}
