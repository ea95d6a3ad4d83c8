package fsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// Snapshot implements raft.FSM. It takes a pointer; Persist does the work.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) { return snapshot{m.State()}, nil }

type snapshot struct{ state *State }

// Persist implements raft.FSMSnapshot. It cancels the sink only if it fails.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	err := s.state.Save(sink)
	if err == nil {
		err = sink.Close()
	} else if cancel := sink.Cancel(); cancel != nil {
		err = fmt.Errorf("%w (and cancel the snapshot: %w)", err, cancel)
	}
	if err != nil {
		return fmt.Errorf("persist snapshot at index %d: %w", s.state.index, err)
	}
	return nil
}

// Release implements raft.FSMSnapshot.
func (snapshot) Release() {}

// Restore implements raft.FSM: it fills a new state and then swaps it in, so that a snapshot that cannot be read
// changes nothing. One that is whole and of a level that this build does not understand ends the process (Options.OnFault).
func (m *Machine) Restore(source io.ReadCloser) error {
	s, err := Load(source)
	if cl := source.Close(); err == nil && cl != nil {
		err = cl
	}
	if err != nil {
		var fault *Fault
		if errors.As(err, &fault) {
			m.stopAt(fault) // Raft would try an older snapshot, and then say that there is none
		}
		return fmt.Errorf("restore snapshot: %w", err)
	}
	m.Replace(s)
	m.log.Info("restored", "index", s.index, "nodes", s.NodeCount(), "topics", s.TopicCount(), "ranges", s.RangeCount())
	return nil
}
