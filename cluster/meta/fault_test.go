package meta

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/vtop-log/vtop/transport"
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

// cable is what Raft of one box hangs on: while it is cut no connection is made, and those there were are broken; while it
// is deaf nobody else makes one to the box.
type cable struct {
	cut, deaf atomic.Bool
	tries     atomic.Int64 // to make a connection
	said      atomic.Int64 // what was written to connections that it made
	mu        sync.Mutex
	conns     []net.Conn
}

// speaker is a connection of which the cable counts what its maker says.
type speaker struct {
	net.Conn
	said *atomic.Int64
}

func (s speaker) Write(b []byte) (int, error) {
	s.said.Add(1)
	return s.Conn.Write(b)
}

func (c *cable) sever() {
	c.cut.Store(true)
	c.breakAll()
}

func (c *cable) deafen() {
	c.deaf.Store(true)
	c.breakAll()
}

func (c *cable) heal() {
	c.cut.Store(false)
	c.deaf.Store(false)
}

func (c *cable) breakAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// newCabledWorld makes three boxes whose Raft connections can be cut.
func newCabledWorld(t *testing.T, tune func(*Config)) (*world, map[vtop.NodeName]*cable) {
	w := newWorld(t, 3, "a", "b", "c")
	cables := map[vtop.NodeName]*cable{"a": {}, "b": {}, "c": {}}
	w.tune = func(cfg *Config) {
		cfg.HeartbeatTimeout = max(1500*time.Millisecond, 3*w.pace) // a busy machine must not elect by accident
		if tune != nil {
			tune(cfg)
		}
		own, dial := cables[cfg.Who.Self().Name], cfg.DialRaft
		cfg.DialRaft = func(ctx context.Context, to transport.Target) (net.Conn, error) {
			own.tries.Add(1)
			ends := []*cable{own}
			if other := cables[to.Name]; other != nil {
				ends = append(ends, other)
			}
			for _, end := range ends {
				if end.cut.Load() || end != own && end.deaf.Load() {
					return nil, fmt.Errorf("%w: cut", transport.ErrUnreachable)
				}
			}
			conn, err := dial(ctx, to)
			if err != nil {
				return nil, err
			}
			for _, end := range ends {
				end.mu.Lock()
				end.conns = append(end.conns, conn)
				end.mu.Unlock()
			}
			return speaker{conn, &own.said}, nil
		}
	}
	return w, cables
}

// A voter that is cut off campaigns all the time and all for nothing: its term does not rise (M6), so that it comes back as one of
// them. When it is back, the end of an old connection is no evidence of the leader's death, and costs no election.
func TestMeta_CutOffVoterDoesNotRaiseTheTerm(t *testing.T) {
	w, cables := newCabledWorld(t, nil)
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	leader, victim := w.leader(), w.box("a")
	if victim == leader {
		victim = w.box("b")
	}
	term, line := leader.meta.Term(), cables[victim.name]
	line.sever()
	state := func() string { return victim.meta.Stats()["state"] }
	w.until("the victim to stand for election", func() bool { return state() == "Candidate" })
	asked := line.tries.Load()
	w.until("several rounds of it", func() bool { return line.tries.Load() > asked+4 })
	if now := victim.meta.Term(); now != term {
		t.Errorf("M6: its term went from %d to %d without anybody's vote", term, now)
	}
	line.heal()
	w.until("it is one of them again", func() bool { return state() != "Candidate" })
	if _, err := w.createTopic(victim, "after"); err != nil {
		t.Fatal(err)
	}
	if now := w.leader().meta.Term(); now != term {
		t.Errorf("M6: term %d before the cut, %d after it", term, now)
	}
}

// The leader lives, and a majority with it; only its connection to one voter breaks and does not come back for a while. That voter
// has evidence of a death, would get everybody's vote, and must not stand before it has asked (M6). It does not, it waits for
// as long as any follower does that hears nothing, and then asks for votes that nobody gives.
func TestMeta_BrokenConnectionIsNoDeath(t *testing.T) {
	w, cables := newCabledWorld(t, nil)
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	for range 3 {
		leader, victim := w.leader(), w.box("a")
		if victim == leader {
			victim = w.box("b")
		}
		term := leader.meta.Term()
		state := func() string { return victim.meta.Stats()["state"] }
		cables[victim.name].deafen()
		w.until("the victim to miss its leader", func() bool { return state() != "Follower" })
		cables[victim.name].heal()
		if _, err := w.createTopic(leader, fmt.Sprint("t", randomUUID())); err != nil {
			t.Fatal(err)
		}
		w.until("it is one of them again, or leads", func() bool { return state() != "Candidate" })
		if now := w.leader(); now != leader || now.meta.Term() != term {
			t.Fatalf("M6: a broken connection cost an election: %s led in term %d, %s leads in %d", leader.name, term, now.name, now.meta.Term())
		}
	}
}

// A voter whose Raft port nobody can call, while it can call all others (M9): leadership may move to it, which is as good as any;
// no term ever has two leaders, and proposals of every node are taken. Its own it learns of when it can be called again.
func TestMeta_DeafVoterMakesNoSecondLeader(t *testing.T) {
	for name, behind := range map[string]bool{"it may win an election": false, "it lacks an entry and wins none": true} {
		t.Run(name, func(t *testing.T) { deafVoter(t, behind) })
	}
}

func deafVoter(t *testing.T, behind bool) {
	w, cables := newCabledWorld(t, nil)
	w.startAll("a", "b", "c")
	w.joined("a", "b", "c")
	w.wantVoters("a b c")
	victim := w.box("a")
	if victim == w.leader() {
		victim = w.box("b")
	}
	led := map[uint64]vtop.NodeName{}
	oneLeader := func() {
		for _, b := range w.boxes {
			if term, ok := b.meta.LeadingTerm(); ok {
				if other, ok := led[term]; ok && other != b.name {
					t.Fatalf("M9: %s and %s lead in term %d", other, b.name, term)
				}
				led[term] = b.name
			}
		}
	}
	oneLeader()
	cables[victim.name].deafen()
	topics := 3
	if behind {
		topics++
		if _, err := w.createTopic(w.leader(), "unheard"); err != nil {
			t.Fatal(err)
		}
	}
	w.until("the victim to miss its leader, or to lead", func() bool {
		oneLeader()
		return victim.meta.IsLeader() || victim.meta.Stats()["state"] == "Candidate"
	})
	asked := cables[victim.name].said.Load() // a candidate says nothing but that it wants votes
	w.until("the victim to lead, or to have asked in vain for a while", func() bool {
		oneLeader()
		return victim.meta.IsLeader() || cables[victim.name].said.Load() > asked+8
	})
	proposed := make(chan error, 1)
	go func() {
		_, err := w.createTopic(victim, "by-"+string(victim.name))
		proposed <- err
	}()
	for _, b := range w.boxes {
		if b == victim {
			continue
		}
		if _, err := w.createTopic(b, "by-"+string(b.name)); err != nil {
			t.Errorf("%s while %s is deaf: %v", b.name, victim.name, err)
		}
		oneLeader()
	}
	all := func(of func(*box) bool) func() bool {
		return func() bool {
			oneLeader()
			for _, b := range w.boxes {
				if of(b) && b.fsm.State().TopicCount() != topics {
					return false
				}
			}
			return true
		}
	}
	w.until("the others to have what the deaf one proposed", all(func(b *box) bool { return b != victim }))
	cables[victim.name].heal()
	w.until("all have all", all(func(*box) bool { return true }))
	if err := <-proposed; err != nil {
		t.Errorf("the deaf one proposed, and can be called again: %v", err)
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
