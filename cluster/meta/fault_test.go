package meta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
	"github.com/vtop-log/vtop/transport/transporttest"
)

// snapshotFiles are the files of that name in all snapshots of a Raft directory, the oldest first.
func snapshotFiles(t *testing.T, raftDir, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(raftDir, snapshotsName, "*", name))
	if err != nil || len(files) != snapshotsKept {
		t.Fatalf("%d snapshots have a %s, want %d (%v)", len(files), name, snapshotsKept, err)
	}
	return files
}

func flipMiddle(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x10
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Damaged snapshots of the metadata (E4, M3): the node has all that was committed, or it stops with one line that names the
// remedy. It never goes on with less: what it does not know any more it would take for deleted.
func TestMeta_DamagedSnapshots(t *testing.T) {
	const topics = 40
	newest := func(name string, damage func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { damage(t, snapshotFiles(t, dir, name)[snapshotsKept-1]) }
	}
	empty := func(t *testing.T, file string) {
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what   string
		tail   uint64 // entries of the log that are kept behind a snapshot
		damage func(*testing.T, string)
		stops  bool
	}{
		{"a bit of the newest, and the log reaches back", 1000, newest("state.bin", flipMiddle), false},
		{"a bit of the newest, and the log does not reach back", 1, newest("state.bin", flipMiddle), true},
		{"the newest is empty", 1, newest("state.bin", empty), true},
		{"the newest has no description", 1, newest("meta.json", empty), true},
		{"a bit of each", 1, func(t *testing.T, dir string) {
			for _, file := range snapshotFiles(t, dir, "state.bin") {
				flipMiddle(t, file)
			}
		}, true},
		{"all are gone", 1, func(t *testing.T, dir string) { removeAll(t, filepath.Join(dir, snapshotsName)) }, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t, 1, "a")
			w.tune = func(cfg *Config) { cfg.TrailingLogs = c.tail }
			w.startAll("a")
			w.joined("a")
			a := w.box("a")
			for i := range topics {
				if _, err := w.createTopic(a, fmt.Sprint("t", i)); err != nil {
					t.Fatal(err)
				}
				if i%10 == 5 { // the last few are in the log alone
					if err := a.meta.server.Load().raft.Snapshot().Error(); err != nil {
						t.Fatal(err)
					}
				}
			}
			a.kill()
			c.damage(t, filepath.Join(a.disk.dir, "raft"))
			a.start()
			var fatal error
			w.until("an end or a whole state", func() bool {
				select {
				case fatal = <-a.meta.Fatal():
				default:
				}
				return fatal != nil || a.meta.CaughtUp()
			})
			if fatal == nil && a.fsm.State().TopicCount() != topics {
				t.Fatalf("went on with %d topics of %d", a.fsm.State().TopicCount(), topics)
			}
			if (fatal != nil) != c.stops {
				t.Fatalf("stops: %v, want %v", fatal, c.stops)
			}
			if fatal != nil && (!errors.Is(fatal, ErrBadRaftDB) || strings.Contains(fatal.Error(), "\n") || !contains(fatal.Error(), "remove the directory")) {
				t.Fatalf("not one line with the remedy: %v", fatal)
			}
		})
	}
}

// A leader that is cut off keeps proposals that nobody else has. The others go on, and compact their logs beyond them: when it is
// back it gets a snapshot that contradicts its own entries, and converges all the same (M2).
func TestMeta_DivergentEntriesAndACompactedLogConverge(t *testing.T) {
	w, cables := newCabledWorld(t, func(cfg *Config) { cfg.TrailingLogs = 1 })
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	old := w.leader()
	cables[old.name].sever()
	for i := range 10 {
		raw, err := fsm.Encode(&fsm.CreateTopic{ID: randomUUID(), Name: fmt.Sprint("ghost", i), Ranges: [][]vtop.NodeName{{old.name}}})
		if err != nil {
			t.Fatal(err)
		}
		old.meta.server.Load().raft.Apply(raw, 0) // nobody waits for it
	}
	var next *box
	w.until("another leader", func() bool {
		for _, b := range w.boxes {
			if b != old && b.meta.IsLeader() {
				next = b
			}
		}
		return next != nil
	})
	for i := range 20 {
		if _, err := w.createTopic(next, fmt.Sprint("t", i)); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := old.meta.db().bolt.LastIndex(); err != nil || last <= old.fsm.Applied() {
		t.Fatalf("the test shows nothing: the old leader's log ends at %d (%v), applied %d", last, err, old.fsm.Applied())
	}
	for _, b := range w.boxes {
		if b != old {
			w.until("all applied at "+string(b.name), func() bool { return b.fsm.State().TopicCount() == 20 })
			if err := b.meta.server.Load().raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cables[old.name].heal()
	w.until("the old leader to have the others' state", func() bool { return old.fsm.State().Hash() == next.fsm.State().Hash() })
	if _, ok := old.fsm.State().TopicByName("ghost0"); ok {
		t.Error("a proposal that no majority had is in the state")
	}
	if out, err := w.createTopic(old, "after"); err != nil || out.Refusal != nil {
		t.Fatalf("a proposal of the old leader: %v %v", err, out.Refusal)
	}
}

// Raft may stay in a hand-over for ever, and then takes no proposal for ever: the node says so and ends (M1).
func TestMeta_HandOverThatNeverEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Meta{log: hclog.NewNullLogger(), fatal: make(chan error, 1)}
		refused := fmt.Errorf("apply: %w", raft.ErrLeadershipTransferInProgress)
		given := func() error {
			select {
			case err := <-m.fatal:
				return err
			default:
				return nil
			}
		}
		m.noteTransfer(refused)
		time.Sleep(transferLimit - time.Second)
		m.noteTransfer(refused)
		m.noteTransfer(nil) // it came to an end: the next one is another
		time.Sleep(time.Minute)
		m.noteTransfer(refused)
		time.Sleep(transferLimit)
		m.noteTransfer(refused)
		if err := given(); err != nil {
			t.Fatalf("given up within the limit: %v", err)
		}
		time.Sleep(time.Second)
		m.noteTransfer(refused)
		if given() == nil {
			t.Fatal("a hand-over that never ends is waited for without end")
		}
	})
}

// After a long partition nobody is in anybody's list of members any more, and nobody would call anybody: seeds are called
// for ever (H3).
func TestGossip_CallsSeedsForEver(t *testing.T) {
	here, there := transporttest.FreeAddr(t), transporttest.FreeAddr(t)
	a := startTestGossip(t, "a", here)
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	var done sync.WaitGroup
	done.Go(func() {
		a.rejoin(ctx, func() map[vtop.NodeName]string { asked.Add(1); return map[vtop.NodeName]string{"b": there} })
	})
	defer done.Wait()
	defer cancel()
	w := &world{t: t}
	w.until("the seed to be called in vain", func() bool { return asked.Load() >= 2 })
	b := startTestGossip(t, "b", there) // it calls nobody
	w.until("both to know each other", func() bool { return len(a.members()) == 2 && len(b.members()) == 2 })
}

// Nodes are killed around their own snapshots while topics are made through all of them (E5, M4): every topic whose making was
// acknowledged is on every node in the end, and nodes that have applied the same have the same state.
func TestMeta_KillsAroundSnapshotsForgetNothing(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	w := newWorld(t, 3, "a", "b", "c")
	w.tune = func(cfg *Config) { cfg.TrailingLogs = 3 }
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	names := []string{"a", "b", "c"}
	var made []string
	for round := range rounds {
		victim, by := w.box(names[round%3]), w.box(names[(round+1)%3])
		var snapshots sync.WaitGroup
		snap := victim.meta.server.Load().raft
		snapshots.Go(func() { _ = snap.Snapshot().Error() }) // it may end with the process
		for i := range 5 {
			name := fmt.Sprintf("t%d-%d", round, i)
			if _, err := w.createTopic(by, name); err == nil {
				made = append(made, name)
			}
			if i == 2 {
				victim.kill()
			}
		}
		snapshots.Wait()
		victim.start()
		w.joined(string(victim.name))
	}
	if len(made) < 3*rounds {
		t.Fatalf("only %d topics were made: the test shows nothing", len(made))
	}
	w.until("the same state everywhere", func() bool {
		first := w.box("a").fsm.State()
		for _, b := range w.boxes {
			if s := b.fsm.State(); s.Index() != first.Index() || s.Hash() != first.Hash() {
				return false
			}
		}
		return true
	})
	for _, b := range w.boxes {
		for _, name := range made {
			if _, ok := b.fsm.State().TopicByName(name); !ok {
				t.Errorf("%s forgot topic %s", b.name, name)
			}
		}
	}
}
