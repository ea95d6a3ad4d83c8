package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/vtop-log/vtop/fsm"
)

// cancel ends the jobs that nobody needs any more, or that cannot be carried out: while one is under way, its range gets no other.
func (h *healer) cancel(ctx context.Context) {
	jobs := map[string][]*fsm.RepairJob{}
	for job := range h.state.Repairs() {
		if !job.Active() || job.Holes {
			continue
		}
		if why := h.needless(job); why != "" {
			jobs[why] = append(jobs[why], job)
		}
	}
	for why, list := range jobs {
		list = list[:min(len(list), fsm.MaxItems)]
		cmd := &fsm.CancelRepairs{Reason: why, At: time.Now().UnixMilli()}
		for _, job := range list {
			cmd.IDs = append(cmd.IDs, job.ID)
		}
		if _, err := h.propose(ctx, cmd); err != nil {
			h.c.cfg.Log.Warn("repairs not cancelled", "reason", why, "jobs", len(list), "error", err)
			continue
		}
		for _, job := range list {
			if counts(job) {
				h.running--
			}
		}
		h.c.cfg.Log.Info("repairs cancelled", "reason", why, "jobs", len(list))
	}
}

// needless says why a job is to end; empty if it is not. What comes back before its voter was removed keeps its place: only what it
// lacks is sent to it, by its leader.
func (h *healer) needless(job *fsm.RepairJob) string {
	if why := h.hopeless(job); why != "" {
		return why
	}
	if job.Origin != fsm.OriginHeal && job.Origin != fsm.OriginDrain {
		return "" // whoever asked for it wants it
	}
	if n, _ := h.state.Node(job.Destination); n.State == fsm.NodeDraining {
		return fmt.Sprintf("its destination %s is draining", job.Destination)
	}
	if job.Replace == "" || job.Replace == job.Destination || job.Step > fsm.RepairCatchingUp {
		return ""
	}
	r, ok := h.state.Range(job.Range)
	if !ok {
		return ""
	}
	if _, votes := r.VoterOn(job.Replace); !votes {
		return ""
	}
	n, ok := h.state.Node(job.Replace)
	switch {
	case !ok || n.State != fsm.NodeActive:
	case job.Origin == fsm.OriginDrain:
		return fmt.Sprintf("%s is not draining any more", job.Replace)
	case h.lives(n):
		return fmt.Sprintf("%s is back", job.Replace)
	}
	return ""
}

// hopeless says who a job waits for that has been missed for as long as healing waits for anybody; empty if nobody. A job that a person
// asked for goes on while healing is paused: a node that is away on purpose comes back, and nothing would take the job's place.
func (h *healer) hopeless(job *fsm.RepairJob) string {
	asked := job.Origin == fsm.OriginOperator || job.Origin == fsm.OriginReplace
	if asked && h.state.Heal().Paused {
		return ""
	}
	if why, missed := h.missed(job.Destination); missed {
		return clip("its destination: " + why + askAgain(job))
	}
	if job.Step > fsm.RepairTransferring || len(job.Sources) == 0 {
		return ""
	}
	var gone string
	for _, node := range job.Sources {
		why, missed := h.missed(node)
		if !missed {
			return ""
		}
		gone = why
	}
	return clip(fmt.Sprintf("none of the sources that it may use (--source) is there: %s; ask again without --source", gone))
}

// askAgain says what an operator types to have a replica elsewhere; empty if that happens without.
func askAgain(job *fsm.RepairJob) string {
	switch {
	case job.Origin != fsm.OriginOperator, job.Replace == job.Destination:
		return ""
	case job.Replace == "":
		return "; to have it elsewhere: vtopctl repair TOPIC/N --node OTHER"
	}
	return fmt.Sprintf("; to have it elsewhere: vtopctl repair TOPIC/N --node OTHER --replace %s", job.Replace)
}
