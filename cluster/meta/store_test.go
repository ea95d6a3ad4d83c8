package meta

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func mustOpen(t *testing.T, dir string) *stores {
	t.Helper()
	s, err := openStores(dir, "a", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStores_ServerIDLivesInRaftDB(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	s := mustOpen(t, dir)
	id := s.serverID
	if serverName(id) != "a" {
		t.Fatalf("server id %q does not name its node", id)
	}
	// Case: a second process is refused in a bounded time.
	if _, err := openStores(dir, "a", hclog.NewNullLogger()); !errors.Is(err, ErrRaftDBLocked) {
		t.Fatalf("second open: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s = mustOpen(t, dir); s.serverID != id {
		t.Fatalf("server id %q became %q", id, s.serverID)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	// Case: another node's directory is refused by both names.
	if _, err := openStores(dir, "b", hclog.NewNullLogger()); err == nil || !contains(err.Error(), `"a"`) || !contains(err.Error(), `"b"`) {
		t.Fatalf("open by another name: %v", err)
	}
	// Case: what is set aside takes its identity with it.
	aside, err := setAside(dir, time.Unix(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(aside, raftDBName)); err != nil {
		t.Fatal(err)
	}
	if s = mustOpen(t, dir); s.serverID == id || s.hasState.Load() {
		t.Fatalf("after raft.db was set aside: %q", s.serverID)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// A raft.db that a power cut or a bad disk left unreadable gives one line that names the remedy (E13).
func TestStores_DamagedRaftDB(t *testing.T) {
	for _, c := range []struct {
		what   string
		damage func(b []byte) []byte
	}{
		{"meta pages overwritten", func(b []byte) []byte { return fill(b, 0, 8192) }},
		{"all but the meta pages overwritten", func(b []byte) []byte { return fill(b, 8192, len(b)) }},
		{"all but the meta pages zero", func(b []byte) []byte { clear(b[8192:]); return b }},
		{"cut in the middle", func(b []byte) []byte { return b[:len(b)/2] }},
		{"cut behind the meta pages", func(b []byte) []byte { return b[:8192] }},
		{"empty of bytes", func(b []byte) []byte { clear(b); return b }},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "raft")
			s := mustOpen(t, dir)
			for i := uint64(1); i < 2000; i++ {
				if err := s.log.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 200)}); err != nil {
					t.Fatal(err)
				}
				if i == 20 {
					s.bolt.Close() // the rest in one file of many pages, without a sync each
					break
				}
			}
			path := filepath.Join(dir, raftDBName)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.damage(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err = openStores(dir, "a", hclog.NewNullLogger())
			if err == nil {
				_ = s.close()
				t.Fatal("a damaged raft.db opened")
			}
			if !errors.Is(err, ErrBadRaftDB) {
				t.Fatalf("not said to be damaged: %v", err)
			}
			if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "goroutine") || !contains(text, "remove the directory") {
				t.Fatalf("not one line with the remedy: %s", text)
			}
		})
	}
}

func fill(b []byte, from, to int) []byte {
	for i := from; i < to && i < len(b); i++ {
		b[i] = byte(i*7 + 13)
	}
	return b
}

// The first entry is the same on all founders, and writing it can be repeated after a crash between its two steps.
func TestStores_BootstrapIsRepeatable(t *testing.T) {
	founders := []member{{Name: "a", ServerID: "a/1", Peer: "x:1"}, {Name: "b", ServerID: "b/1", Peer: "x:2"}}
	s := mustOpen(t, filepath.Join(t.TempDir(), "raft"))
	defer s.close()
	if err := s.bolt.SetUint64(currentTermKey, 1); err != nil { // the crash came here
		t.Fatal(err)
	}
	for range 2 {
		if err := s.bootstrap(founders); err != nil {
			t.Fatal(err)
		}
	}
	last, err := s.bolt.LastIndex()
	if err != nil || last != 1 {
		t.Fatalf("last index %d, %v", last, err)
	}
	var entry raft.Log
	if err := s.bolt.GetLog(1, &entry); err != nil || entry.Term != 1 || entry.Type != raft.LogConfiguration {
		t.Fatalf("%+v %v", entry, err)
	}
	if got := raft.DecodeConfiguration(entry.Data); len(got.Servers) != 2 || got.Servers[1].ID != "b/1" {
		t.Fatalf("%+v", got)
	}
}

type slowLog struct {
	raft.LogStore
	gate chan struct{}
}

func (s slowLog) StoreLogs([]*raft.Log) error { <-s.gate; return nil }

// What hangs under Raft is visible while it hangs.
func TestTimedStore_ShowsAStall(t *testing.T) {
	gate := make(chan struct{})
	s := newTimedStore(slowLog{gate: gate})
	if s.stall() != 0 {
		t.Fatal("stalls before anything is written")
	}
	done := make(chan error)
	go func() { done <- s.StoreLog(&raft.Log{Data: make([]byte, 10)}) }()
	for s.stall() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(gate)
	if err := <-done; err != nil || s.stall() != 0 {
		t.Fatalf("after the write: %v, stall %s", err, s.stall())
	}
	if s.bytes.Load() != 10+entryOverhead || s.entries.Load() != 1 {
		t.Fatalf("counted %d bytes, %d entries", s.bytes.Load(), s.entries.Load())
	}
}
