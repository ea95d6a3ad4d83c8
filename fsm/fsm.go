package fsm

import (
	"github.com/hashicorp/raft"
)

var (
	_ raft.BatchingFSM = (*Machine)(nil)
)

// Apply implements raft.FSM. The answer is an Outcome. It panics with a *Fault if the entry cannot be read.
func (m *Machine) Apply(entry *raft.Log) any {
	return m.ApplyBatch([]*raft.Log{entry})[0]
}

// ApplyBatch implements raft.BatchingFSM: one transaction, one publication. The answers to commands are Outcomes, to
// entries of Raft's own nil. If an entry cannot be read or understood it goes no further (Options.OnFault); nothing of the
// batch is visible then.
func (m *Machine) ApplyBatch(entries []*raft.Log) []any {
	defer m.stop()
	t := begin(m.State())
	answers := make([]any, len(entries))
	applied := 0
	for i, entry := range entries {
		if entry.Type != raft.LogCommand {
			continue
		}
		cmd, err := Decode(entry.Data)
		if err != nil {
			panic(&Fault{Index: entry.Index, Err: err})
		}
		t.s = m.moments.before(entry.Index, t.s)
		answers[i] = t.run(entry.Index, cmd)
		applied++
	}
	if applied > 0 {
		m.publish(t.s, t.change())
	}
	return answers
}

// stop is the end of a node that met a Fault: one line, and no stack trace, which would tell an operator nothing.
func (m *Machine) stop() {
	cause := recover()
	if cause == nil {
		return
	}
	if fault, ok := cause.(*Fault); ok {
		m.stopAt(fault)
	}
	panic(cause)
}

func (m *Machine) stopAt(fault *Fault) {
	m.log.Error("stopped", "index", fault.Index, "error", fault.Err)
	if m.onFault != nil {
		m.onFault(fault)
	}
}
