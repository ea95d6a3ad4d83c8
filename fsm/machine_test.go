package fsm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/vtop-log/vtop"
)

// applyRaw applies encoded commands as one batch of Raft; the first is entry at+1.
func applyRaw(m *Machine, at int, log [][]byte) []any {
	entries := make([]*raft.Log, len(log))
	for i, b := range log {
		entries[i] = &raft.Log{Index: uint64(at + i + 1), Type: raft.LogCommand, Data: b}
	}
	return m.ApplyBatch(entries)
}

// memorySink is a raft.SnapshotSink in memory.
type memorySink struct {
	bytes.Buffer
	room              int
	closed, cancelled bool
}

func (s *memorySink) Write(b []byte) (int, error) {
	if s.Len()+len(b) > s.room {
		return 0, errors.New("no space")
	}
	return s.Buffer.Write(b)
}
func (s *memorySink) ID() string    { return "test" }
func (s *memorySink) Close() error  { s.closed = true; return nil }
func (s *memorySink) Cancel() error { s.cancelled = true; return nil }

// restarted is a machine that was restored from the snapshot of another.
func restarted(t *testing.T, m *Machine) *Machine {
	t.Helper()
	next := New(Options{})
	restore(t, next, m)
	return next
}

func restore(t *testing.T, into, from *Machine) {
	t.Helper()
	snap, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	sink := &memorySink{room: 1 << 30}
	if err := snap.Persist(sink); err != nil || !sink.closed || sink.cancelled {
		t.Fatalf("persist: %v, closed %t, cancelled %t", err, sink.closed, sink.cancelled)
	}
	snap.Release()
	if err := into.Restore(io.NopCloser(&sink.Buffer)); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, cmd Command) []byte {
	t.Helper()
	b, err := Encode(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMachine_ApplyBatch(t *testing.T) {
	m := New(Options{})
	var seen []Change
	m.Observe(func(c Change) {
		if c.Index != m.Applied() {
			t.Errorf("observer of index %d sees the state at %d", c.Index, m.Applied())
		}
		seen = append(seen, c)
	})
	answers := m.ApplyBatch([]*raft.Log{
		{Index: 3, Type: raft.LogCommand, Data: encode(t, &BootstrapCluster{ID: uuid(1), Level: 1})},
		{Index: 4, Type: raft.LogConfiguration, Data: []byte("not ours")},
		{Index: 5, Type: raft.LogCommand, Data: encode(t, &RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 1)})},
		{Index: 6, Type: raft.LogCommand, Data: encode(t, &CreateTopic{ID: uuid(1), Name: "a", Ranges: [][]vtop.NodeName{{"n1"}}})},
		{Index: 7, Type: raft.LogCommand, Data: encode(t, &DeleteTopic{ID: uuid(7)})},
	})
	if len(answers) != 5 || answers[1] != nil {
		t.Fatalf("answers %v", answers)
	}
	for i, want := range map[int]uint64{0: 3, 2: 5, 3: 6, 4: 7} {
		if out := answers[i].(Outcome); out.Index != want || (out.Refusal != nil) != (i == 4) {
			t.Errorf("answer %d: %+v", i, out)
		}
	}
	want := []Change{{Index: 7, Ranges: []vtop.Range{r0}, Topics: true, Nodes: true}}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("changes %+v, want %+v", seen, want)
	}
	if m.ApplyBatch([]*raft.Log{{Index: 8, Type: raft.LogConfiguration}}); len(seen) != 1 || m.Applied() != 7 {
		t.Errorf("an entry of Raft's own moved the state to %d", m.Applied())
	}
	if out := m.Apply(&raft.Log{Index: 9, Data: encode(t, &DeleteTopic{ID: uuid(1)})}).(Outcome); out.Refusal != nil {
		t.Errorf("outcome %+v", out)
	}
}

// A committed entry that cannot be read stops the node, and nothing of its batch is seen.
func TestMachine_StopsAtWhatItCannotRead(t *testing.T) {
	for name, bad := range map[string][]byte{"unknown op": {1, 0, 200}, "garbage": {1, 0, 5, 0xff}, "empty": nil} {
		var told *Fault
		m := New(Options{OnFault: func(f *Fault) { told = f }})
		func() {
			defer func() {
				fault, ok := recover().(*Fault)
				if !ok || fault.Index != 2 || !strings.Contains(fault.Error(), "index 2") || fault.Unwrap() == nil {
					t.Errorf("%s: panic value %v", name, fault)
				}
			}()
			applyRaw(m, 0, [][]byte{encode(t, &BootstrapCluster{ID: uuid(1), Level: 1}), bad})
			t.Errorf("%s: went on", name)
		}()
		if told == nil || told.Index != 2 {
			t.Errorf("%s: nobody was told to end the process: %v", name, told)
		}
		if m.Applied() != 0 {
			t.Errorf("%s: part of the batch is visible", name)
		}
	}
}

// M8: a whole snapshot of a newer level ends the process as an entry of the log does; a damaged one that only says so is one that
// cannot be read, and another may be.
func TestMachine_StopsAtASnapshotOfANewerLevel(t *testing.T) {
	w := newWorld(t)
	w.s.cluster.Level = LevelMax + 1
	var saved bytes.Buffer
	if err := w.s.Save(&saved); err != nil {
		t.Fatal(err)
	}
	for at := range saved.Len() + 1 {
		b := bytes.Clone(saved.Bytes())
		whole := at == len(b)
		if !whole {
			b[at] ^= 1
		}
		var told *Fault
		m := New(Options{OnFault: func(f *Fault) { told = f }})
		err := m.Restore(io.NopCloser(bytes.NewReader(b)))
		if err == nil || m.Applied() != 0 || (told != nil) != whole {
			t.Fatalf("bit of byte %d of %d: %v, told %v, applied %d", at, len(b), err, told, m.Applied())
		}
		if whole && (told.Index != w.s.Index() || !strings.Contains(told.Error(), "feature level 2")) {
			t.Errorf("told %v", told)
		}
	}
}

func TestMachine_WaitApplied(t *testing.T) {
	m := New(Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := m.WaitApplied(ctx, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for _, index := range []uint64{2, 3} {
		go func() { done <- m.WaitApplied(ctx, index) }()
	}
	m.ApplyCommands(1, &BootstrapCluster{ID: uuid(1), Level: 1})
	m.ApplyCommands(2, &RegisterNode{Name: "n1", Identity: identityOf("n1", 0, 1)})
	if err := <-done; err != nil {
		t.Fatalf("waited for 2: %v", err)
	}
	why := errors.New("closing")
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Fatalf("waited for 3: %v", err)
	}
}

func TestMachine_SnapshotIsOfItsMoment(t *testing.T) {
	log, _ := randomLog(t, 1, 300)
	m := New(Options{})
	applyRaw(m, 0, log[:200])
	want := m.State().Hash()
	snap, _ := m.Snapshot()
	applyRaw(m, 200, log[200:])
	sink := &memorySink{room: 1 << 30}
	if err := snap.Persist(sink); err != nil {
		t.Fatal(err)
	}
	got, err := Load(&sink.Buffer)
	if err != nil || got.Hash() != want {
		t.Fatalf("the snapshot is not of the moment when it was taken (%v)", err)
	}
}

func TestMachine_PersistCancelsOnlyWhenItFails(t *testing.T) {
	log, _ := randomLog(t, 1, 200)
	m := New(Options{})
	applyRaw(m, 0, log)
	snap, _ := m.Snapshot()
	sink := &memorySink{room: 100}
	if err := snap.Persist(sink); err == nil || !sink.cancelled || sink.closed {
		t.Fatalf("persist: %v, closed %t, cancelled %t", err, sink.closed, sink.cancelled)
	}
}

// A snapshot that cannot be read changes nothing; one that can swaps everything at once.
func TestMachine_Restore(t *testing.T) {
	log, end := randomLog(t, 5, 300)
	m := New(Options{})
	applyRaw(m, 0, log[:100])
	before := m.State()
	if err := m.Restore(io.NopCloser(strings.NewReader("VTOPSTAT\x00\x01 torn"))); err == nil || m.State() != before {
		t.Fatalf("restore of a torn snapshot: %v", err)
	}
	other := New(Options{})
	applyRaw(other, 0, log)
	var change Change
	m.Observe(func(c Change) { change = c })
	restore(t, m, other)
	if m.State().Hash() != end.Hash() || m.Applied() != uint64(len(log)) {
		t.Errorf("restored to index %d", m.Applied())
	}
	if !change.Restored || !change.Topics || !change.Nodes || change.Index != m.Applied() {
		t.Errorf("change %+v", change)
	}
}
