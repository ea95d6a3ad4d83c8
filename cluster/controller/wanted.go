package controller

import (
	"fmt"
	"slices"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/cluster/placement"
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

// stayed finds a voter that was replaced and is there still, as what was to take its place took that of one that was lost
// meanwhile: it goes when one more has come.
func (h *healer) stayed(r *fsm.Range, q *fsm.RepairRequest) bool {
	if len(r.Voters()) > len(r.Preferred) || len(r.Learners()) > 0 {
		return false
	}
	for _, job := range h.replaced[r.ID] {
		old, votes := r.VoterOn(job.Replace)
		if rep, ok := r.Replica(job.Replica); !ok || !rep.CanVote() || !votes || old.ID >= job.Replica {
			continue
		}
		q.Reason = fmt.Sprintf("%s is replaced by %s, and has stayed in the place of another one", job.Replace, job.Destination)
		return true
	}
	return false
}

// wantedOn finds a node that the range is wanted on, that has room, and no replica of it.
func (h *healer) wantedOn(r *fsm.Range) (vtop.NodeName, bool) {
	for _, name := range r.Preferred {
		has := slices.ContainsFunc(r.Replicas, func(rep fsm.Replica) bool { return rep.Node == name })
		if !has && slices.ContainsFunc(h.sites, func(s placement.Site) bool { return s.Name == name }) {
			return name, true
		}
	}
	return "", false
}
