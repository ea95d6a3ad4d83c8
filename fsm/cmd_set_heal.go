package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/vtop-log/vtop/fsm/fsmpb"
)

// SetHeal pauses or resumes self-healing.
//
//	op            22, since level 1
//	proposed by   any node for an operator
//	precondition  none
//	effect        the cluster's Heal says so, with Why, until the next SetHeal: restarts do not end it
//	refused       never
//	a repeat      changes nothing but Why and At
type SetHeal struct {
	Paused bool
	// Why is shown to people.
	Why string
	// At is shown only: Unix milliseconds by the proposer's clock.
	At int64
}

// Op implements Command.
func (c *SetHeal) Op() Op { return OpSetHeal }

// Check implements Command.
func (c *SetHeal) Check() error {
	var s shape
	s.text("why", c.Why)
	return s.err()
}

func (c *SetHeal) encode() proto.Message {
	return &fsmpb.SetHeal{Paused: c.Paused, Why: c.Why, At: c.At}
}

func decodeSetHeal(_ *reader, p *fsmpb.SetHeal) *SetHeal {
	return &SetHeal{Paused: p.GetPaused(), Why: p.GetWhy(), At: p.GetAt()}
}

func (c *SetHeal) apply(t *tx) Outcome {
	t.s.cluster.Heal = Heal{Paused: c.Paused, Why: c.Why, Index: t.index, At: c.At}
	t.nodes = true
	return Outcome{}
}
