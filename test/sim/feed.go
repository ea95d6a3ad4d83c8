package sim

import (
	"bytes"

	"github.com/vtop-log/vtop/fsm"
)

// feed applies the log to a process, one command after another or by a snapshot, while it reaches the leader.
func (g *ledger) feed(p *process) {
	for next := p.machine.Applied() + 1; ; {
		g.mu.Lock()
		have, grown := uint64(len(g.cmds)), g.grown
		g.mu.Unlock()
		if next > have {
			select {
			case <-grown:
			case <-p.ctx.Done():
				return
			}
			continue
		}
		if v := g.viewOf(p); v.leader == "" || !g.life.net.both(p.name(), string(v.leader)) {
			if sleep(p.ctx, electionLook) != nil {
				return
			}
			continue
		}
		if sleep(p.ctx, g.life.net.delay("raft", p.name())/2+p.host.lagging()) != nil || p.host.thaw(p.ctx) != nil {
			return
		}
		next = g.apply(p, next)
	}
}

// apply brings a process some entries further.
func (g *ledger) apply(p *process, next uint64) uint64 {
	g.mu.Lock()
	have := uint64(len(g.cmds))
	behind := have + 1 - next
	snapshot := behind > 20 && g.rng.IntN(3) == 0
	n := min(behind, uint64(1+g.rng.IntN(4)))
	cmds := append([]fsm.Command(nil), g.cmds[next-1:next-1+n]...)
	state := g.states[have-1]
	g.mu.Unlock()
	if snapshot {
		g.life.trace.note("%s: gets a snapshot at %d", p.name(), have)
		p.machine.Replace(reload(state))
		return have + 1
	}
	p.machine.ApplyCommands(next, cmds...)
	return next + n
}

// reload is a state as it comes out of its snapshot.
func reload(s *fsm.State) *fsm.State {
	var buf bytes.Buffer
	if err := s.Save(&buf); err != nil {
		panic(err)
	}
	out, err := fsm.Load(&buf)
	if err != nil {
		panic(err)
	}
	return out
}

// at is the state after the command at index.
func (g *ledger) at(index uint64) *fsm.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	if index == 0 || index > uint64(len(g.states)) {
		return fsm.NewState()
	}
	return g.states[index-1]
}
