package controller

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/fsm"
)

// unwantedHolders are the ranges whose holder is to hand over because a reassignment took it off; those in seen hand over already.
func (h *healer) unwantedHolders(seen map[vtop.Range]bool) (need []needy) {
	for r := range h.state.Ranges() {
		if !seen[r.ID] && h.unwanted(r) {
			need = append(need, needy{r: r, reason: fmt.Sprintf("%s is not among the nodes that are wanted", r.Lease.Holder), avoid: r.Lease.Holder})
		}
	}
	return need
}

// unwanted reports whether the holder of a range is on none of the nodes that are wanted for it, while all of those have voters
// that live: a reassignment took it off, and it can't remove itself.
func (h *healer) unwanted(r *fsm.Range) bool {
	if !r.Started || len(r.Preferred) == 0 || slices.Contains(r.Preferred, r.Lease.Holder) {
		return false
	}
	for _, name := range r.Preferred {
		n, ok := h.state.Node(name)
		if _, votes := r.VoterOn(name); !votes || !ok || n.State != fsm.NodeActive || !h.lives(n) {
			return false
		}
	}
	return true
}
