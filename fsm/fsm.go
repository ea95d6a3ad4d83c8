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
// entries of Raft's own nil. It panics with a *Fault if an entry cannot be read; nothing of the batch is visible then.
func (m *Machine) ApplyBatch(entries []*raft.Log) []any {
	t := begin(m.State())
	answers := make([]any, len(entries))
	applied := 0
	for i, entry := range entries {
		if entry.Type != raft.LogCommand {
			continue
		}
		cmd, err := Decode(entry.Data)
		if err != nil {
			fault := &Fault{Index: entry.Index, Err: err}
			m.log.Error("stopped", "index", entry.Index, "error", err)
			panic(fault)
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
